"""Counters, gauges and histograms, and the registry that knows them by name. PURE: no clock, thread or file.

Counting costs a few attribute accesses and takes no lock, so that it can stand in hot paths. That is right for whoever
alone counts, as everything on a loop's thread does, or the one thread at a time that commits; what several threads
count at once is made with `shared=True` and has a lock. Reading from other threads is always fine: a number may be a
moment old, and the sum of a histogram may be ahead of or behind its counts by what is being observed just then.

Every label has a fixed set of values, given when the metric is made; any other is refused. So what is exposed is
bounded, and names of logs, forks and clients can never get into it.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

_NAME: Final = re.compile(r"braidlog_[a-z][a-z0-9_]*")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_]*")

Number: TypeAlias = int | float
Read: TypeAlias = Callable[[], Number]


class Counter:
    """Only ever goes up. `counter.value += 1` is the same as `add()` and the fastest way to count."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Number = 0

    def add(self, amount: Number = 1) -> None:
        self.value += amount


class SharedCounter(Counter):
    """For several threads at once: count with `add`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self, amount: Number = 1) -> None:
        with self._lock:
            self.value += amount


class Gauge:
    """Goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Number = 0

    def set(self, value: Number) -> None:
        self.value = value


class Histogram:
    """How many observations were at most each bound, the last of all without a bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds must ascend, and there must be some: {bounds}")
        self.bounds: Final = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)  # each bucket's own, not those below
        self.total: Number = 0

    def observe(self, value: Number) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class SharedHistogram(Histogram):
    """For several threads at once."""

    __slots__ = ("_lock",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._lock = threading.Lock()

    def observe(self, value: Number) -> None:
        with self._lock:
            super().observe(value)


class Reading:
    """A number that is kept elsewhere, and asked for when somebody looks."""

    __slots__ = ("_read",)

    def __init__(self, read: Read) -> None:
        self._read = read

    @property
    def value(self) -> Number:
        return self._read()


Metric: TypeAlias = Counter | Gauge | Histogram | Reading
M = TypeVar("M", Counter, Gauge, Histogram)


class Family:
    """All series of one name. `labels` are the names of labels with the values that each may have."""

    def __init__(self, name: str, kind: str, help: str, labels: Mapping[str, Sequence[str]]) -> None:
        if not _NAME.fullmatch(name) or (kind == "counter") != name.endswith("_total"):
            raise ValueError(f"{name} is no name for a {kind}: braidlog_<what>_<unit>, and _total for counters alone")
        if not all(_LABEL.fullmatch(label) for label in labels) or not help.endswith("."):
            raise ValueError(f"{name}: labels are of small letters, and the help is a sentence")
        self.name = name
        self.kind = kind
        self.help = help
        self.labels = {label: tuple(values) for label, values in labels.items()}
        self.series: dict[tuple[str, ...], Metric] = {}

    def check(self, values: tuple[str, ...]) -> None:
        allowed = list(self.labels.values())
        if len(values) != len(allowed) or any(value not in among for value, among in zip(values, allowed, strict=True)):
            raise ValueError(f"{self.name} has no series {values}: its labels are {self.labels}")


class Series(Generic[M]):
    """A metric for each combination of its labels' values. Fetch what a hot path needs once, and keep it."""

    def __init__(self, family: Family, make: Callable[[], M]) -> None:
        self.family = family
        self._make: Callable[[], M] = make
        self._made: dict[tuple[str, ...], M] = {}

    def of(self, *values: str) -> M:
        """The metric with these values of its labels, in their order. ValueError for values it does not have."""
        found = self._made.get(values)
        if found is None:
            self.family.check(values)
            found = self._made.setdefault(values, self._make())
            self.family.series[values] = found
        return found


class Registry:
    """Metrics by name, of one server or of one part of it."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._included: list[Registry] = []
        self._before: list[Callable[[], None]] = []

    def counter(self, name: str, help: str, *, read: Read | None = None, shared: bool = False) -> Counter:
        """A counter; with `read` it is kept elsewhere, and not to be added to."""
        made = SharedCounter() if shared else Counter()
        self._family(name, "counter", help, {}).series[()] = made if read is None else Reading(read)
        return made

    def gauge(self, name: str, help: str, *, read: Read | None = None) -> Gauge:
        made = Gauge()
        self._family(name, "gauge", help, {}).series[()] = made if read is None else Reading(read)
        return made

    def histogram(self, name: str, help: str, bounds: Sequence[float], *, shared: bool = False) -> Histogram:
        made = SharedHistogram(bounds) if shared else Histogram(bounds)
        self._family(name, "histogram", help, {}).series[()] = made
        return made

    def counters(self, name: str, help: str, *, shared: bool = False, **labels: Sequence[str]) -> Series[Counter]:
        make: Callable[[], Counter] = SharedCounter if shared else Counter
        return Series(self._family(name, "counter", help, labels), make)

    def gauges(self, name: str, help: str, **labels: Sequence[str]) -> Series[Gauge]:
        return Series(self._family(name, "gauge", help, labels), Gauge)

    def histograms(
        self, name: str, help: str, bounds: Sequence[float], *, shared: bool = False, **labels: Sequence[str]
    ) -> Series[Histogram]:
        kind = SharedHistogram if shared else Histogram

        def make() -> Histogram:
            return kind(bounds)

        return Series(self._family(name, "histogram", help, labels), make)

    def include(self, other: Registry) -> None:
        """Show the metrics of another registry too. What it gets later is shown as well."""
        taken = {family.name for family in self.families()} & {family.name for family in other.families()}
        if taken:
            raise ValueError(f"these metrics are here already: {', '.join(sorted(taken))}")
        self._included.append(other)

    def before_collecting(self, refresh: Callable[[], None]) -> None:
        """Call this before anybody looks: for gauges that are set together, from one look at something."""
        self._before.append(refresh)

    def families(self) -> Iterator[Family]:
        """What there is, without bringing it up to date."""
        yield from self._families.values()
        for other in self._included:
            yield from other.families()

    def collect(self) -> list[Family]:
        """Everything, as it is now."""
        self._refresh()
        return list(self.families())

    def _refresh(self) -> None:
        for refresh in self._before:
            refresh()
        for other in self._included:
            other._refresh()

    def _family(self, name: str, kind: str, help: str, labels: Mapping[str, Sequence[str]]) -> Family:
        if name in self._families:
            raise ValueError(f"there is a metric {name} already")
        family = self._families[name] = Family(name, kind, help, labels)
        return family


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value that this share of the observations is not above, as well as buckets can tell; None if there are none.

    Within a bucket observations are taken to lie evenly; above the last bound nothing is known but that bound.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank = share * total
    below = 0
    low = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return low + (bound - low) * max(rank - below, 0.0) / count
        below += count
        low = bound
    return low


def cumulated(counts: Iterable[int]) -> list[int]:
    """Counts of buckets as they are exposed: each with those below it."""
    total = 0
    found = []
    for count in counts:
        total += count
        found.append(total)
    return found
