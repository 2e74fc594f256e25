"""How a writer stands: what lives in its forest, what holds what, who lags, and what its cache holds.

Looking takes bounded time under the forest's lock: numbers are kept as they change (see `census`), and of what has to
be examined one by one only so many are, the oldest first.
"""

from __future__ import annotations

from typing import Protocol

from braidlog import limits
from braidlog.broker.service import Standing
from braidlog.embedded.writer import Writer
from braidlog.observe import catalog
from braidlog.observe.metrics import Registry


class Stands(Protocol):
    """Says how what stands behind a service is."""

    registry: Registry

    def trouble(self) -> str:
        """Why it cannot do its work now; empty if it can."""

    def standing(self) -> Standing:
        """How things are, in bounded size and time."""


class WriterStanding:
    """To be asked on the loop's thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.registry = Registry()
        self.registry.include(writer.measures.registry)
        self._forest = catalog.Forest(self.registry, applied=lambda: writer.forest.applied)
        cache = writer.cache
        catalog.Blocks(
            self.registry,
            cached=lambda: len(cache),
            cached_bytes=lambda: cache.weight,
            hits=lambda: cache.hits,
            misses=lambda: cache.misses,
        )
        with writer.lock:
            self._census = writer.measures.watch(writer.forest)
        self.registry.before_collecting(self._refresh)

    def trouble(self) -> str:
        """Why nothing can be written now; empty if it can."""
        writer = self._writer
        if writer.committer.failure is not None:
            return str(writer.committer.failure)
        if writer.closed:
            return "the log is closed"
        if writer.inline_bytes > limits.UNPACKED_BYTES_MAX and "pack" in writer.failing:
            return f"{writer.inline_bytes:,} bytes wait to be packed, and packing fails: {writer.failing['pack']}"
        return ""

    def _refresh(self) -> None:
        writer, shown, census = self._writer, self._forest, self._census
        now = writer.clock.now_us()
        with writer.lock:
            space = writer.forest.space
            shown.inline.set(writer.inline_bytes)
            shown.objects.set(len(space.objects))
            shown.blocks.set(len(space.places))
            shown.uploads.set(len(space.uploads.by_epoch))
            holds = census.holds(now, 0)
            lags = census.lags(now, 1)
        for kind, count in census.living.items():
            shown.logs.of(kind).set(count)
        shown.held.set(holds.held)
        shown.oldest.set(holds.oldest_s)
        shown.overdue.set(holds.overdue)
        shown.consumers.set(census.consumers)
        shown.lag.set(lags[0].lag if lags else 0)

    def standing(self) -> Standing:
        """What a report says beyond the metrics."""
        writer = self._writer
        now = writer.clock.now_us()
        rows = limits.STATUS_ROWS_MAX
        with writer.lock:
            holds = self._census.holds(now, rows)
            lags = self._census.lags(now, rows)
        return Standing(
            {"undecided_forks": holds.undecided},
            {
                "holds": [hold._asdict() for hold in holds.oldest],
                "consumers": [lag._asdict() for lag in lags],
                "failing": [{"duty": duty, "error": error} for duty, error in list(writer.failing.items())],
            },
        )
