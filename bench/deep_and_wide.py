"""Chains and stars of forks: what each operation costs as they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bench import harness, variants
from bench.harness import Figure, Options
from braidlog.forest import commands as c
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.tails import reach

PASSES: Final = 10
OPERATIONS: Final = ("append", "tail", "fork", "squash")


def measure(options: Options) -> Figure:
    """Cost of append, tail, fork and squash in a chain of 10,000 and a star of 100,000 cForks."""
    figure = Figure(
        "deep_and_wide",
        "Cost of one operation in a chain and in a star of cForks (squash: per log freed)",
        "cForks",
        "us",
        durability={"forest": "none: the state machine alone"},
    )
    chains = [100, 1_000, options.pick(10_000, 3_000)]
    stars = [100, 1_000, 10_000, options.pick(100_000, 20_000)]
    rounds = options.pick(7, 3)
    taken: dict[str, dict[int, list[float]]] = {}
    for shape, sizes, build in (("chain", chains, _chain), ("star", stars, _star)):
        for size in sizes:
            for operation, times in _costs(build, size, rounds).items():
                taken.setdefault(f"{operation}, {shape}", {})[size] = times
    for label, by_size in taken.items():
        line = figure.line(label)
        for size, times in by_size.items():
            line.add(size, times)
    for shape, sizes in (("chain", chains), ("star", stars)):
        for operation in OPERATIONS:
            grown = taken[f"{operation}, {shape}"]
            growth = harness.best(grown[sizes[-1]], grown[sizes[0]])
            figure.at_most(f"{operation} in a {shape} of {sizes[-1]:,} over {sizes[0]:,}", growth, _bound(shape))
    walked, summed = taken["tail by walking the path, chain"][chains[-1]], taken["tail, chain"][chains[-1]]
    figure.numbers[f"walking the path over the forest's tail, chain of {chains[-1]:,}"] = harness.best(walked, summed)
    return figure


def _bound(shape: str) -> float:
    """A chain pays O(log n): twice the logarithm from 100 to 10,000, and colder memory. A star pays nothing more."""
    return 4 if shape == "chain" else 2.5


def _chain(size: int) -> tuple[Forest, list[int]]:
    forest = Forest()
    logs = [variants.root(forest)]
    for _ in range(size):
        logs.append(variants.cfork(forest, logs[-1]))
    return forest, logs


def _star(size: int) -> tuple[Forest, list[int]]:
    forest = Forest()
    log = variants.root(forest)
    return forest, [log, *(variants.cfork(forest, log) for _ in range(size))]


def _costs(build: Callable[[int], tuple[Forest, list[int]]], size: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds per operation at logs spread over the whole tree, the far end included."""
    forest, logs = build(size)
    step = max(1, size // 100)
    some = [*logs[1::step], logs[-1]]
    taken: dict[str, list[float]] = {}

    def time(label: str, run: Callable[[], object], count: int) -> None:
        taken.setdefault(label, []).append(harness.seconds(run) / count * 1e6)

    for _ in range(rounds):
        # Several times over the same logs: the first time, what is measured is how cold the memory is.
        commands = [c.Append(log, 1, 100, 0, 0) for log in some] * PASSES
        time("append", partial(_apply, forest, commands), len(commands))
        asked = [forest.logs[log] for log in some] * PASSES
        time("tail", partial(_each, reach, asked), len(asked))
        time("tail by walking the path", partial(_each, variants.walked_tail, asked), len(asked))
        known = len(forest.logs)
        time("fork", partial(_apply, forest, [c.CFork(log, "", 0) for log in some]), len(some))
        _apply(forest, [c.Squash(log) for log in list(forest.logs)[known:]])
    for number in range(min(rounds, 3)):
        if number:
            forest, logs = build(size)
        freed = len(forest.logs) - 1
        tops = logs[1:2] if build is _chain else logs[1:]
        time("squash", partial(_apply, forest, [c.Squash(log) for log in tops]), freed)
    return taken


def _each(call: Callable[[Log], object], logs: list[Log]) -> None:
    for log in logs:
        call(log)


def _apply(forest: Forest, commands: Sequence[c.Command]) -> None:
    for command in commands:
        variants.must(forest.apply(command))


if __name__ == "__main__":
    harness.main(measure)
