"""What the parent notices of 100 forks being made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench import harness, variants
from bench.harness import Figure, Options
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest

OURS: Final = "forest"
COPY: Final = "copy of the parent's index"
WINDOWS: Final = 30
FORKING: Final = range(10, 20)  # windows in which forks are made
FORKS: Final = 100


def measure(options: Options) -> Figure:
    """Append rate of the parent in windows of time order; 100 forks are made in the middle third."""
    figure = Figure(
        "parent_throughput",
        f"Append rate of the parent while {FORKS} forks are made (windows 10 to 19)",
        "window",
        "appends/s",
        notes=[f"the parent has {options.pick(200_000, 20_000):,} runs at the beginning; nothing is synced"],
        durability={OURS: "none: the state machine alone", COPY: "none: the state machine alone"},
        log_x=False,
        log_y=False,
    )
    runs = options.pick(200_000, 20_000)
    kinds: dict[str, Callable[[], Forest]] = {OURS: Forest, COPY: variants.MetadataCopy}
    taken: dict[str, list[list[float]]] = {label: [] for label in kinds}
    for _ in range(options.pick(5, 2)):
        for label, kind in kinds.items():
            taken[label].append(_timeline(kind(), runs, options.pick(2_000, 1_000)))
    for label, timelines in taken.items():
        line = figure.line(label)
        for window in range(WINDOWS):
            line.add(window, [timeline[window] for timeline in timelines])
    figure.at_least("appends/s while forks are made over before and after, forest", _dip(taken[OURS]), 0.9)
    figure.numbers["the same with copies of the index"] = _dip(taken[COPY])
    return figure


def _timeline(forest: Forest, runs: int, per_window: int) -> list[float]:
    log = variants.root(forest)
    variants.fill(forest, log, runs)
    append = c.Append(log, 1, 100, 0, 0)
    fork = c.CFork(log, "", 0)
    every = per_window * len(FORKING) // FORKS
    rates = []
    for window in range(WINDOWS):
        forking = window in FORKING

        def run(forking: bool = forking) -> None:
            for number in range(per_window):
                forest.apply(append)
                if forking and number % every == 0:
                    forest.apply(fork)

        rates.append(per_window / harness.seconds(run))
    return rates


def _dip(timelines: list[list[float]]) -> float:
    """How the best window with forks compares with the best one without, per round; the median of rounds."""
    ratios = []
    for timeline in timelines:
        during = max(timeline[window] for window in FORKING)
        ratios.append(during / max(rate for window, rate in enumerate(timeline) if window not in FORKING))
    return harness.Spread.of(ratios).median


if __name__ == "__main__":
    harness.main(measure)
