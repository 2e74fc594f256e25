"""What nesting costs a reader."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Final

import braidlog
from bench import harness
from bench.harness import Figure, Options

DEPTH_MAX: Final = 7
RECORD_BYTES: Final = 4096
FROM_ROOT: Final = "a record of the root"
OWN: Final = "a record of any level"


def measure(options: Options) -> Figure:
    """Time of one 4 KB read through the API by nesting depth, with local records at every level."""
    figure = Figure(
        "lookup_depth",
        "Read of one 4 KB record by nesting depth",
        "nesting depth",
        "us",
        notes=["blocks come from the cache: what is compared is the way to them"],
        log_x=False,
        log_y=False,
    )
    reads = options.pick(2_000, 300)
    with harness.folder(options) as path, braidlog.open(path) as braid:
        levels = _nest(braid.create("root"), options.pick(1_000, 300))
        chance = random.Random(1)
        inherited = [chance.randrange(levels[1].info().fork_point or 1) for _ in range(reads)]
        for label in (FROM_ROOT, OWN):
            wanted = {
                depth: inherited
                if label == FROM_ROOT
                else [chance.randrange(levels[depth].tail()) for _ in range(reads)]
                for depth in range(1, DEPTH_MAX + 1)
            }
            for depth in wanted:
                _read(levels[depth], wanted[depth])
            taken = harness.interleave(
                {str(depth): partial(_read, levels[depth], wanted[depth]) for depth in wanted},
                options.pick(15, 5),
            )
            line = figure.line(label)
            for depth in wanted:
                line.add(depth, taken[str(depth)])
            figure.at_most(
                f"{label}, depth {DEPTH_MAX} over depth 1", harness.paired(taken[str(DEPTH_MAX)], taken["1"]), 2
            )
    return figure


def _nest(root: braidlog.Log, records: int) -> list[braidlog.Log]:
    """The root and forks nested in one another; each level gets its records in runs, between runs of its parent's."""
    levels = [root]
    value = bytes(RECORD_BYTES)
    run = 20
    for depth in range(DEPTH_MAX + 1):
        if depth:
            levels.append(levels[-1].cfork(f"level-{depth}"))
        for number in range(records // run):
            levels[depth].append_many([value] * run)
            if depth and number % 4 == 0:
                levels[depth - 1].append_many([value] * run)
    return levels


def _read(log: braidlog.Log, positions: list[int]) -> float:
    begun = time.perf_counter()
    for position in positions:
        log.read(position, position + 1)
    return (time.perf_counter() - begun) / len(positions) * 1e6


if __name__ == "__main__":
    harness.main(measure)
