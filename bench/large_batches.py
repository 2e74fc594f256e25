"""4 KB records in batches of 1 MiB until all is packed, beside a plain sequential write of the same bytes."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Final

import braidlog
from bench import harness
from bench.harness import MIB, Figure, Options

RECORD_BYTES: Final = 4096
BATCH_RECORDS: Final = MIB // RECORD_BYTES
PLAIN: Final = "plain file, one fdatasync at the end"
PLAIN_EACH: Final = "plain file, fdatasync after each MiB"
PIPELINED: Final = "braidlog, submit"
SYNC: Final = "braidlog, append_many"


def measure(options: Options) -> Figure:
    """Bytes per second of 4 KB records in 1 MiB batches until all is packed, beside a plain sequential write."""
    figure = Figure(
        "large_batches",
        "4 KB records in batches of 1 MiB, until all is packed",
        "MiB written",
        "MiB/s",
        durability={
            PLAIN: "nothing is durable before the end",
            PLAIN_EACH: "each MiB is durable before the next one is written",
            PIPELINED: "batches share syncs; the clock stops when the last one is synced and in an object",
            SYNC: "each batch is durable and in an object before the next one is begun",
        },
        log_y=False,
    )
    values = [os.urandom(RECORD_BYTES) for _ in range(BATCH_RECORDS)]
    rounds = options.pick(7, 2)
    lines = {name: figure.line(name) for name in (PLAIN, PLAIN_EACH, PIPELINED, SYNC)}
    taken: dict[str, list[float]] = {}
    for batches in (32, 128) if not options.quick else (32,):
        taken = harness.interleave(
            {
                PLAIN: partial(_plain, options, values, batches, each=False),
                PIPELINED: partial(_braidlog, options, values, batches, pipelined=True),
                PLAIN_EACH: partial(_plain, options, values, batches, each=True),
                SYNC: partial(_braidlog, options, values, batches, pipelined=False),
            },
            rounds,
            before=partial(harness.warm_memory, 4 * batches * MIB),
        )
        for name, rates in taken.items():
            lines[name].add(batches, rates)
    figure.at_least(f"{PIPELINED} over {PLAIN}", harness.paired(taken[PIPELINED], taken[PLAIN]), 0.6)
    figure.numbers[f"{PIPELINED} over {PLAIN_EACH}"] = harness.paired(taken[PIPELINED], taken[PLAIN_EACH])
    figure.numbers[f"{SYNC} over {PLAIN_EACH}"] = harness.paired(taken[SYNC], taken[PLAIN_EACH])
    return figure


def _plain(options: Options, values: list[bytes], batches: int, *, each: bool) -> float:
    whole = b"".join(values)
    with harness.folder(options) as path:
        file = os.open(path / "plain", os.O_CREAT | os.O_WRONLY)
        try:
            begun = time.perf_counter()
            for _ in range(batches):
                os.write(file, whole)
                if each:
                    os.fdatasync(file)
            os.fdatasync(file)
            return batches / (time.perf_counter() - begun)
        finally:
            os.close(file)


def _braidlog(options: Options, values: list[bytes], batches: int, *, pipelined: bool) -> float:
    with harness.folder(options) as path, braidlog.open(path) as braid:
        log = braid.create("records")
        begun = time.perf_counter()
        if pipelined:
            tickets = [log.submit(values) for _ in range(batches)]
            for ticket in tickets:
                ticket.durable()
        else:
            for _ in range(batches):
                log.append_many(values)
        took = time.perf_counter() - begun
        assert all(part.object is not None for part in log.plan().parts), "something is not packed yet"
        return batches / took


if __name__ == "__main__":
    harness.main(measure)
