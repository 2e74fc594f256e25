"""One durable append, beside a bare append and fdatasync of 4 KB to a growing file."""

from __future__ import annotations

import os
import statistics
import time
from typing import Final

import braidlog
from bench import harness
from bench.harness import Figure, Options

BARE: Final = "bare write and fdatasync of 4 KB"
LARGE: Final = "braidlog, append of 4 KB"
SMALL: Final = "braidlog, append of 100 B"


def measure(options: Options) -> Figure:
    """The median of one durable append of 4 KB and of 100 B, beside a bare append and fdatasync of 4 KB."""
    figure = Figure(
        "single_append",
        "One durable append, nothing else going on",
        "round",
        "median us",
        durability={
            BARE: "synced, in a file that grows with each write",
            LARGE: "synced in the command log before append returns",
            SMALL: "synced in the command log before append returns",
        },
        log_x=False,
        log_y=False,
    )
    appends = options.pick(400, 150)
    taken = harness.interleave(
        {
            BARE: lambda: _bare(options, appends),
            LARGE: lambda: _braidlog(options, appends, 4096),
            SMALL: lambda: _braidlog(options, appends, 100),
        },
        options.pick(15, 5),
    )
    for name, medians in taken.items():
        line = figure.line(name)
        for number, median in enumerate(medians, 1):
            line.add(number, [median])
        figure.numbers[f"{name}, median of rounds, us"] = statistics.median(medians)
    for name in (LARGE, SMALL):
        figure.at_most(f"{name} over {BARE}", harness.paired(taken[name], taken[BARE]), 2.5)
    return figure


def _bare(options: Options, appends: int) -> float:
    value = os.urandom(4096)
    with harness.folder(options) as path:
        file = os.open(path / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            took = []
            for _ in range(appends):
                begun = time.perf_counter()
                os.write(file, value)
                os.fdatasync(file)
                took.append(time.perf_counter() - begun)
        finally:
            os.close(file)
    return statistics.median(took) * 1e6


def _braidlog(options: Options, appends: int, size: int) -> float:
    value = os.urandom(size)
    with harness.folder(options) as path, braidlog.open(path) as braid:
        log = braid.create("records")
        took = []
        for _ in range(appends):
            begun = time.perf_counter()
            log.append(value)
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


if __name__ == "__main__":
    harness.main(measure)
