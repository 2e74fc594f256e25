"""How long a fork takes, by the length of its parent."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import braidlog
from bench import harness, variants
from bench.harness import Figure, Options
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest

OURS: Final = "forest"
COPY: Final = "copy of the parent's index"
MEMORY: Final = "braidlog on memory://"
DIRECTORY: Final = "braidlog on a directory (synced)"


def measure(options: Options) -> Figure:
    """Fork time by the runs in the parent's index, beside forks that copy the index."""
    figure = Figure(
        "fork_latency",
        "Time of one cFork by the length of its parent",
        "runs in the parent's index",
        "us",
        notes=["one append to a run of its own per entry, so that nothing is joined"],
        durability={
            OURS: "none: the state machine alone",
            COPY: "none: the state machine alone",
            MEMORY: "none: as on a directory, without the disk",
            DIRECTORY: "synced in the command log before cfork returns",
        },
    )
    _in_the_forest(figure, options)
    api = options.pick(100_000, 3_000)
    with harness.folder(options) as path:
        for label, where in ((MEMORY, "memory://"), (DIRECTORY, path)):
            line = figure.line(label)
            with braidlog.open(where) as braid:
                _through_the_api(line, braid, [1_000, api], options.pick(7, 3))
    return figure


def _in_the_forest(figure: Figure, options: Options) -> None:
    lengths = [1_000, 10_000, 100_000, 1_000_000]
    rounds = options.pick(15, 5)
    forests = {n: _built(Forest(), n) for n in lengths}
    copies = {n: _built(variants.MetadataCopy(), n) for n in lengths}
    ours = harness.interleave({str(n): partial(_forks, forests[n], 300) for n in lengths}, rounds)
    copied = harness.interleave(
        {str(n): partial(_forks, copies[n], 1 if n > 50_000 else 20) for n in lengths}, options.pick(7, 3)
    )
    appended = harness.interleave({"append": lambda: _appends(forests[lengths[0]], 2_000)}, rounds)["append"]
    for label, taken in ((OURS, ours), (COPY, copied)):
        line = figure.line(label)
        for n in lengths:
            line.add(n, taken[str(n)])
    figure.numbers["one append in the forest, us (min)"] = min(appended)

    longest, shortest = str(lengths[-1]), str(lengths[0])
    fastest = [min(times) for times in ours.values()]
    figure.at_most(
        f"the slowest over the fastest fork, {lengths[0]:,} to {lengths[-1]:,} runs", max(fastest) / min(fastest), 1.5
    )
    figure.at_least(
        f"metadata copy over fork at {lengths[-1]:,} runs", harness.best(copied[longest], ours[longest]), 500
    )
    figure.at_most("fork over one in-memory append", min(ours[shortest]) / min(appended), 10)


def _built(forest: Forest, runs: int) -> Forest:
    variants.fill(forest, variants.root(forest), runs)
    return forest


def _forks(forest: Forest, count: int) -> float:
    """Microseconds of one fork, as the mean of so many; they are squashed afterwards."""
    log = forest.names["root"].id
    made: list[object] = []

    def forks() -> None:
        for _ in range(count):
            made.append(forest.apply(c.CFork(log, "", 0)))

    took = harness.seconds(forks)
    for opened in made:
        assert isinstance(opened, c.Opening)
        variants.must(forest.apply(c.Squash(opened.log)))
    return took / count * 1e6


def _appends(forest: Forest, count: int) -> float:
    commands = variants.appends(forest.names["root"].id, count)

    def run() -> None:
        for command in commands:
            forest.apply(command)

    return harness.seconds(run) / count * 1e6


def _through_the_api(line: harness.Line, braid: braidlog.Braid, lengths: list[int], rounds: int) -> None:
    log = braid.create("root")
    there = 0
    for length in lengths:
        tickets = [log.submit(b"x") for _ in range(length - there)]
        for ticket in tickets:
            ticket.durable()
        there = length
        taken = []
        for _ in range(rounds):
            forks = []
            begun = time.perf_counter()
            for _ in range(20):
                forks.append(log.cfork())
            taken.append((time.perf_counter() - begun) / 20 * 1e6)
            for fork in forks:
                fork.squash()
        line.add(length, taken)


if __name__ == "__main__":
    harness.main(measure)
