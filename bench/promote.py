"""How long a promotion takes, and what it depends on."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import braidlog
from bench import harness, variants
from bench.harness import Figure, Options
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest

AFTER: Final = "forest, by runs after the fork point"
BEFORE: Final = "forest, by runs before it (1,000 after)"
STORED: Final = "forest, by runs before it that are in objects (1,000 after)"
API: Final = "braidlog on memory://, by records of the fork"
COPY: Final = "copy from a temporary log on memory://"


def measure(options: Options) -> Figure:
    """Promotion time by what comes after and before the fork point, beside a copy of the data."""
    figure = Figure(
        "promote",
        "Time of one promotion",
        "runs or records",
        "us",
        durability=dict.fromkeys((AFTER, BEFORE, STORED, API, COPY), "none: the state machine, or memory"),
    )
    rounds = options.pick(11, 4)
    sizes = [100, 1_000, 10_000, options.pick(100_000, 20_000)]
    lengths = [1_000, 10_000, 100_000, options.pick(1_000_000, 200_000)]
    longest = options.pick(100_000, 10_000)
    linear = _line(figure, AFTER, {size: _Promotions(longest, size, stored=False) for size in sizes}, rounds)
    growth = (linear[-1] / linear[1]) / (sizes[-1] / sizes[1])
    for label in (BEFORE, STORED):
        flat = _line(figure, label, {n: _Promotions(n, 1_000, stored=label == STORED) for n in lengths}, rounds)
        figure.at_most(
            f"{lengths[-1]:,} over {lengths[0]:,} runs before the fork point: {label}", max(flat) / min(flat), 1.5
        )
    figure.at_most(f"time per run, {sizes[-1]:,} over {sizes[1]:,} runs after the fork point", growth, 1.5)

    api, copy = figure.line(API), figure.line(COPY)
    last = (0.0, 0.0)
    for size in (100, 1_000, 10_000, options.pick(100_000, 20_000)):
        taken = harness.interleave({API: partial(_promoted, size), COPY: partial(_copied, size)}, rounds)
        api.add(size, taken[API])
        copy.add(size, taken[COPY])
        last = (min(taken[API]), min(taken[COPY]))
    figure.numbers[f"copy over promote at {size:,} records"] = last[1] / last[0]
    return figure


def _line(figure: Figure, label: str, forests: dict[int, _Promotions], rounds: int) -> list[float]:
    """Promote in all forests in turn; the fastest of each."""
    taken = harness.interleave({str(x): promotions.once for x, promotions in forests.items()}, rounds)
    line = figure.line(label)
    for x in forests:
        line.add(x, taken[str(x)])
    return [min(times) for times in taken.values()]


class _Promotions:
    """Promotions of forks with `own` runs, behind `length` runs of their parent."""

    def __init__(self, length: int, own: int, *, stored: bool) -> None:
        self._forest = Forest()
        self._own = own
        self._stored = variants.register(self._forest) if stored else ""
        self._log = variants.root(self._forest)
        variants.fill(self._forest, self._log, length, stored=self._stored)

    def once(self) -> float:
        """Microseconds of one promotion."""
        fork = variants.cfork(self._forest, self._log, promotable=True)
        variants.fill(self._forest, fork, self._own, stored=self._stored)
        took = harness.seconds(partial(self._forest.apply, c.Promote(fork)))
        assert fork not in self._forest.logs, "it was not promoted"
        return took * 1e6


def _records(records: int) -> list[list[bytes]]:
    return [[bytes(100)] * min(100, records - done) for done in range(0, records, 100)]


def _promoted(records: int) -> float:
    with braidlog.open("memory://") as braid:
        log = braid.create("root")
        fork = log.cfork(promotable=True)
        for ticket in [fork.submit(batch) for batch in _records(records)]:
            ticket.durable()
        begun = time.perf_counter()
        assert fork.promote()
        return (time.perf_counter() - begun) * 1e6


def _copied(records: int) -> float:
    with braidlog.open("memory://") as braid:
        log = braid.create("root")
        temporary = braid.create("temporary")
        for ticket in [temporary.submit(batch) for batch in _records(records)]:
            ticket.durable()
        begun = time.perf_counter()
        variants.promote_by_copy(temporary, log)
        return (time.perf_counter() - begun) * 1e6


if __name__ == "__main__":
    harness.main(measure)
