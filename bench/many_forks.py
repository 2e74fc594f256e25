"""What appends to a root cost when it has many live forks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bench import harness, variants
from bench.harness import Figure, Options
from braidlog.forest.machine import Forest

OURS: Final = "forest"
NAIVE: Final = "entries copied to every fork"
EAGER: Final = "tails pushed to every fork"
FORKS: Final = (0, 10, 100, 1_000)


def measure(options: Options) -> Figure:
    """Append rate of a root with 0 to 1,000 cForks, for the forest, naive forks and eager tails."""
    figure = Figure(
        "many_forks",
        "Append rate of a root with live forks",
        "cForks of the root",
        "appends/s",
        durability=dict.fromkeys((OURS, NAIVE, EAGER), "none: the state machine alone"),
    )
    kinds: dict[str, Callable[[], Forest]] = {OURS: Forest, EAGER: variants.EagerTails, NAIVE: variants.NaiveForks}
    rounds = options.pick(21, 9)
    bases: dict[str, list[float]] = {}
    for label, kind in kinds.items():
        forests = {count: _built(kind(), count) for count in FORKS}
        budget = {count: 4_000 if label == OURS else max(40, 4_000 // max(count, 1)) for count in FORKS}
        taken = harness.interleave(
            {str(n): partial(_rate, forests[n], budget[n]) for n in FORKS},
            rounds,
        )
        line = figure.line(label)
        for count in FORKS:
            line.add(count, taken[str(count)])
        bases[label] = [max(taken[str(FORKS[-1])]) / max(taken["0"]), max(taken["100"]) / max(taken["0"])]
    figure.at_least("append rate with 1,000 cForks over none, forest", bases[OURS][0], 0.9)
    for label in (NAIVE, EAGER):
        figure.at_most(f"append rate with 1,000 cForks over none, {label}", bases[label][0], 0.5)
        figure.numbers[f"append rate with 100 cForks over none, {label}"] = bases[label][1]
    return figure


def _built(forest: Forest, forks: int) -> Forest:
    log = variants.root(forest)
    variants.fill(forest, log, 100)
    for _ in range(forks):
        variants.cfork(forest, log)
    return forest


def _rate(forest: Forest, count: int) -> float:
    commands = variants.appends(forest.names["root"].id, count)

    def run() -> None:
        for command in commands:
            forest.apply(command)

    return count / harness.seconds(run)


if __name__ == "__main__":
    harness.main(measure)
