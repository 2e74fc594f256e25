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
    after, before, stored = figure.line(AFTER), figure.line(BEFORE), figure.line(STORED)
    flat = {BEFORE: list[float](), STORED: list[float]()}
    linear: list[float] = []
    for size in sizes:
        linear.append(min(_promotions(after, size, 100_000 if not options.quick else 10_000, size, rounds, "")))
    lengths = [1_000, 10_000, 100_000, options.pick(1_000_000, 200_000)]
    for length in lengths:
        flat[BEFORE].append(min(_promotions(before, length, length, 1_000, rounds, "inline")))
        flat[STORED].append(min(_promotions(stored, length, length, 1_000, rounds, "stored")))
    for label, times in flat.items():
        figure.at_most(
            f"{lengths[-1]:,} over {lengths[0]:,} runs before the fork point: {label}", max(times) / min(times), 1.5
        )
    growth = (linear[-1] / linear[1]) / (sizes[-1] / sizes[1])
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


def _promotions(line: harness.Line, x: int, length: int, own: int, rounds: int, how: str) -> list[float]:
    """Microseconds of promotions of a fork with `own` runs, behind `length` runs of its parent."""
    forest = Forest()
    stored = variants.register(forest) if how == "stored" else ""
    log = variants.root(forest)
    variants.fill(forest, log, length, stored=stored)
    taken = []
    for _ in range(rounds):
        fork = variants.cfork(forest, log, promotable=True)
        variants.fill(forest, fork, own, stored=stored)
        taken.append(harness.seconds(partial(forest.apply, c.Promote(fork))) * 1e6)
        assert fork not in forest.logs, "it was not promoted"
    line.add(x, taken)
    return taken


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
