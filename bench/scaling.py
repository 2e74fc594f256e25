"""Whether a record costs the same in a long log as in a short one, and with many logs as with one."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from functools import partial
from typing import Final

import braidlog
from bench import harness
from bench.harness import Figure, Options

RECORD_BYTES: Final = 100
LARGE: Final = "one log, batches of 10,000, by records there"
SMALL: Final = "one log, batches of 1,000, by records there"
LOGS: Final = "batches of 100, by logs written in turn"
MILLION: Final = 1_000_000


def measure(options: Options) -> Figure:
    """Cost of one durable record by the length of the log, and by the number of logs."""
    figure = Figure(
        "scaling",
        f"Cost of one durable record of {RECORD_BYTES} bytes",
        "records, or logs",
        "us per record",
        durability=dict.fromkeys((LARGE, SMALL, LOGS), "each batch is synced before the next one is begun"),
    )
    values = [os.urandom(RECORD_BYTES) for _ in range(10_000)]
    _length(figure, options, values)
    _logs(figure, options, values[:100])
    return figure


def _length(figure: Figure, options: Options, values: list[bytes]) -> None:
    """Two logs in turn: one has its first million records, the other is about to get its last."""
    short, long = MILLION, options.pick(20, 3) * MILLION
    piece = options.pick(100_000, 50_000)
    with contextlib.ExitStack() as stack:
        logs = {}
        for records in (short, long):
            path = stack.enter_context(harness.folder(options))
            logs[records] = stack.enter_context(braidlog.open(path)).create("records")
            tickets = [logs[records].submit(values) for _ in range((records - MILLION // 2) // len(values))]
            for ticket in tickets:
                ticket.durable()

        def cost(records: int, batch: list[bytes]) -> float:
            begun = time.perf_counter()
            for _ in range(piece // len(batch)):
                logs[records].append_many(batch)
            return (time.perf_counter() - begun) / piece * 1e6

        for label, size in ((LARGE, 10_000), (SMALL, 1_000)):
            line = figure.line(label)
            taken = harness.interleave(
                {str(records): partial(cost, records, values[:size]) for records in logs}, options.pick(11, 3)
            )
            for records in logs:
                line.add(records, taken[str(records)])
            ratio = harness.paired(taken[str(long)], taken[str(short)])
            figure.at_most(f"{long // MILLION} million records over 1 million: {label}", ratio, 1.5)


def _logs(figure: Figure, options: Options, values: list[bytes]) -> None:
    line = figure.line(LOGS)
    counts = (1, 100, options.pick(10_000, 1_000))
    with contextlib.ExitStack() as stack:
        turns = {}
        for count in counts:
            path = stack.enter_context(harness.folder(options))
            braid = stack.enter_context(braidlog.open(path))
            turns[count] = itertools.cycle([braid.create(f"log-{number}") for number in range(count)])

        def cost(count: int, appends: int = options.pick(2_000, 300)) -> float:
            begun = time.perf_counter()
            for _ in range(appends):
                next(turns[count]).append_many(values)
            return (time.perf_counter() - begun) / (appends * len(values)) * 1e6

        taken = harness.interleave(
            {str(count): partial(cost, count) for count in counts},
            options.pick(9, 3),
        )
    for count in counts:
        line.add(count, taken[str(count)])
    ratio = harness.paired(taken[str(counts[-1])], taken["1"])
    figure.at_most(f"{counts[-1]:,} logs over 1: {LOGS}", ratio, 1.5)


if __name__ == "__main__":
    harness.main(measure)
