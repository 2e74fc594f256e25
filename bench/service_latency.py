"""How long one append to a service takes, and until another process has read it, beside other logs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

from bench import harness
from bench.harness import Figure, Options
from bench.peers import braid, line_up
from bench.peers.driver import Driver

RECORD_BYTES: Final = 100
PERCENTILES: Final = (50, 90, 99)
APPEND: Final = "append"
TAIL_READ: Final = "append to tail read"


def measure(options: Options) -> Figure:
    """Percentiles of one append at a time, and of the time from an append call until a reader has the record."""
    figure = Figure(
        "service_latency",
        f"One append of {RECORD_BYTES} bytes at a time, and its way to a reader",
        "percentile",
        "us",
        notes=[
            "append: the next one is begun when the last one is acknowledged",
            "append to tail read: from the append call until a reader in another process, with a connection of its "
            "own, has the record; a pause of 1 ms between appends",
        ],
        log_x=False,
    )
    count = options.pick(1_000, 150)
    samples: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with line_up.running(options, figure) as drivers:
        variants = {label: partial(_round, driver, count, samples) for label, driver in drivers.items()}
        harness.interleave(variants, 1)  # to warm the servers
        samples.clear()
        harness.interleave(variants, options.pick(7, 2))
    for kind in (APPEND, TAIL_READ):
        for label in drivers:
            line = figure.line(f"{label}, {kind}")
            for percent in PERCENTILES:
                line.add(percent, samples[label, kind, percent])
                if label != braid.NAME and braid.NAME in drivers and percent in (50, 99):
                    ratio = harness.paired(samples[braid.NAME, kind, percent], samples[label, kind, percent])
                    figure.numbers[f"{kind}, p{percent}: {braid.NAME} over {label}"] = ratio
    return figure


def percentile(values: Sequence[float], percent: int) -> float:
    """In microseconds, of values in seconds."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] * 1e6


def _round(driver: Driver, count: int, samples: dict[tuple[str, str, int], list[float]]) -> float:
    found = {
        APPEND: driver.append_latency(count, RECORD_BYTES),
        TAIL_READ: driver.tail_read_latency(count, RECORD_BYTES).read,
    }
    for kind, values in found.items():
        for percent in PERCENTILES:
            samples[driver.label, kind, percent].append(percentile(values, percent))
    return statistics.median(found[TAIL_READ])


if __name__ == "__main__":
    harness.main(measure)
