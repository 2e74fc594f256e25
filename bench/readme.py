"""The numbers that a first look at braidlog asks for, all through the API."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Final

import braidlog
from bench import harness
from bench.harness import Figure, Options

PLACES: Final = ("memory://", "a directory")


def measure(options: Options) -> Figure:
    """Medians of the everyday calls on memory:// and on a directory."""
    figure = Figure(
        "readme",
        "Everyday calls (1 append, 2 cfork, 3 sfork, 4 promote, 5 squash, 6 read of one record)",
        "call",
        "us",
        durability={
            "memory://": "none",
            "a directory": "everything that changes something is synced before it returns",
        },
        log_x=False,
    )
    for place in PLACES:
        with harness.folder(options) as path, braidlog.open(path if place == "a directory" else place) as braid:
            _calls(figure, place, braid, options.pick(300, 50))
            _rates(figure, place, braid, options.pick(50, 10))
    return figure


def _calls(figure: Figure, place: str, braid: braidlog.Braid, repeats: int) -> None:
    log = braid.create("orders")
    log.append_many([bytes(100)] * 1_000)
    forks: list[braidlog.Log] = []
    undecided: list[braidlog.Log] = []
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "append": (lambda: None, lambda: log.append(b"x" * 100)),
        "cfork": (lambda: None, lambda: forks.append(log.cfork())),
        "sfork": (lambda: None, log.sfork),
        "promote": (lambda: undecided.append(_edited(log)), lambda: undecided.pop().promote()),
        "squash": (lambda: None, lambda: forks.pop().squash()),
        "read": (lambda: None, lambda: log.read(500, 501)),
    }
    line = figure.line(place)
    for number, (name, (prepare, call)) in enumerate(calls.items(), 1):
        taken = []
        for _ in range(repeats):
            prepare()
            begun = time.perf_counter()
            call()
            taken.append((time.perf_counter() - begun) * 1e6)
        line.add(number, taken)
        figure.numbers[f"{name} on {place}, us"] = statistics.median(taken)


def _edited(log: braidlog.Log) -> braidlog.Log:
    fork = log.cfork(promotable=True)
    fork.append_many([bytes(100)] * 10)
    return fork


def _rates(figure: Figure, place: str, braid: braidlog.Braid, batches: int) -> None:
    log = braid.create("bulk")
    values = [os.urandom(100) for _ in range(10_000)]
    begun = time.perf_counter()
    for _ in range(batches):
        log.append_many(values)
    took = time.perf_counter() - begun
    figure.numbers[f"append_many of 10,000 on {place}, million records/s"] = batches * len(values) / took / 1e6


if __name__ == "__main__":
    harness.main(measure)
