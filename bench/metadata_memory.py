"""How much memory forks take whose parent goes on."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

from bench import harness, variants
from bench.harness import MIB, Figure, Options
from braidlog.forest.machine import Forest

OURS: Final = "forest"
NAIVE: Final = "entries copied to every fork"


def measure(options: Options) -> Figure:
    """Memory of all metadata after a root with cForks received a million records in 100,000 runs."""
    forks = 1_000
    runs = 100_000
    figure = Figure(
        "metadata_memory",
        f"Memory of the metadata when a root with cForks receives {runs * 10:,} records in {runs:,} runs",
        "cForks of the root",
        "MiB",
        durability=dict.fromkeys((OURS, NAIVE), "none: the state machine alone"),
    )
    ours, naive = figure.line(OURS), figure.line(NAIVE)
    small: list[float] = []
    for count in (10, 100, forks) if not options.quick else (forks,):
        small = [_used(Forest, count, runs)]
        ours.add(count, small)
    few, some = options.pick(10, 2), options.pick(30, 4)
    low, high = _used(variants.NaiveForks, few, runs), _used(variants.NaiveForks, some, runs)
    scaled = high + (high - low) / (some - few) * (forks - some)
    naive.add(few, [low])
    naive.add(some, [high])
    naive.add(forks, [scaled])
    figure.notes.append(
        f"the naive variant was built with {few} and {some} forks and scaled to {forks:,}: it grows by the same amount "
        "with each fork, and would not fit into the memory of many machines"
    )
    figure.at_least(f"naive over forest at {forks:,} cForks", scaled / small[0], 200)
    return figure


def _used(kind: Callable[[], Forest], forks: int, runs: int) -> float:
    """MiB that a forest takes, as the allocator of Python counts them."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    forest = kind()
    log = variants.root(forest)
    for _ in range(forks):
        variants.cfork(forest, log)
    variants.fill(forest, log, runs, records=10)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(forest.logs) == forks + 1
    return used / MIB


if __name__ == "__main__":
    harness.main(measure)
