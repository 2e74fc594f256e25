"""Appends per second of a service, beside Kafka, NATS JetStream and Redis Streams: one producer, one log."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench import harness
from bench.harness import Figure, Options
from bench.peers import braid, line_up
from bench.peers.driver import Driver

RECORD_BYTES: Final = (100, 1_000, 10_000)
BATCH_BYTES: Final = 100_000
BATCHES_IN_FLIGHT: Final = 16
LINGER_MS: Final = 5.0
_BATCHES_MAX: Final = 5_000  # half a gigabyte


def measure(options: Options) -> Figure:
    """MB/s of one producer until all is acknowledged, with equal batches and equal bytes in flight for every system."""
    figure = Figure(
        "service_throughput",
        "Appends of one producer to one log, all acknowledged",
        "record bytes",
        "MB/s of values",
        notes=[
            f"batches of {BATCH_BYTES:,} bytes, {BATCHES_IN_FLIGHT} of them in flight, for all; a linger of "
            f"{LINGER_MS:g} ms for clients that collect batches themselves (Kafka's), the others are given whole ones",
        ],
    )
    rounds = options.pick(7, 2)
    budget_s = 0.3 if options.quick else 2.0
    with line_up.running(options, figure, in_bulk=True) as drivers:
        lines = {label: figure.line(label) for label in drivers}
        for size in RECORD_BYTES:
            batches = {label: _warmed(driver, size, budget_s) for label, driver in drivers.items()}
            variants = {label: partial(_rate, driver, size, batches[label]) for label, driver in drivers.items()}
            taken = harness.interleave(variants, rounds)
            for label, rates in taken.items():
                lines[label].add(size, rates)
                if label != braid.NAME and braid.NAME in taken:
                    ratio = harness.paired(taken[braid.NAME], rates)
                    figure.numbers[f"{braid.NAME} over {label}, records of {size:,} B"] = ratio
    return figure


def _warmed(driver: Driver, size: int, budget_s: float) -> int:
    """How many batches take about so long: found by doing twice as many again and again, which warms the server too."""
    batches = 1
    while True:
        took = _seconds(driver, size, batches)
        if took >= budget_s / 2 or batches >= _BATCHES_MAX:
            return max(1, min(_BATCHES_MAX, round(batches * budget_s / took)))
        batches *= 2


def _rate(driver: Driver, size: int, batches: int) -> float:
    return batches * BATCH_BYTES / 1e6 / _seconds(driver, size, batches)


def _seconds(driver: Driver, size: int, batches: int) -> float:
    together = BATCH_BYTES // size
    return driver.append_throughput(batches * together, size, together, BATCHES_IN_FLIGHT * BATCH_BYTES, LINGER_MS)


if __name__ == "__main__":
    harness.main(measure)
