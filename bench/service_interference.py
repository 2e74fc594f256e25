"""What a bulk reader does to a latency-critical workload on the same server, beside other logs."""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

from bench import harness
from bench.harness import MIB, Figure, Options
from bench.peers import braid, line_up
from bench.peers.driver import DEADLINE_S, Driver
from bench.service_latency import percentile

RECORD_BYTES: Final = 100
READERS: Final = (0, 1, 2)
PERCENTILES: Final = (50, 99)
KINDS: Final = ("append", "append to tail read")

Samples = dict[tuple[str, int, str, int], list[float]]


def measure(options: Options) -> Figure:
    """Append and tail-read times with none, one and two processes that read another log of the server in bulk."""
    figure = Figure(
        "service_interference",
        "From append to tail read beside bulk readers of another log",
        "bulk readers",
        "us, median of each round",
        notes=[
            "a bulk reader goes through another log, which stands in the page cache, as fast as it can, in a process "
            "of its own; it shares the cores of the clients, so part of what it costs is theirs and not the server's",
            "braidlog with the roles apart has the bulk log at the broker that serves the other log too, as all others "
            "have; or, where a fork is named, on an sFork, at a broker of its own, which has the clients' cores",
            "bulk readers are not equally fast: see their MB/s before comparing what they cost one system and another",
        ],
        log_x=False,
    )
    count = options.pick(400, 150)
    numbers = READERS[:2] if options.quick else READERS
    samples: Samples = defaultdict(list)
    bulk: dict[str, list[float]] = defaultdict(list)
    with line_up.running(options, figure, bulk_readers=True) as drivers:
        for driver in drivers.values():
            driver.fill_for_bulk_read(options.pick(128, 8) * MIB)
            driver.tail_read_latency(count, RECORD_BYTES)  # to warm it
        variants: dict[str, Callable[[], float]] = {
            f"{label}, {readers} bulk readers": partial(_round, driver, readers, count, samples, bulk)
            for label, driver in drivers.items()
            for readers in numbers
        }
        harness.interleave(variants, options.pick(5, 2))
    for label in drivers:
        line = figure.line(label)
        for readers in numbers:
            line.add(readers, samples[label, readers, KINDS[1], 50])
        _compare(figure, label, samples)
        figure.numbers[f"{label}: MB/s of one bulk reader"] = statistics.median(bulk[label]) / 1e6
    return figure


def _compare(figure: Figure, label: str, samples: Samples) -> None:
    for kind in KINDS:
        for percent in PERCENTILES:
            alone, beside = samples[label, 0, kind, percent], samples[label, 1, kind, percent]
            figure.numbers[f"{label}: {kind}, p{percent}, beside one bulk reader over alone"] = harness.paired(
                beside, alone
            )
            if label != braid.NAME and (braid.NAME, 1, kind, percent) in samples:
                figure.numbers[f"{kind}, p{percent}, beside one bulk reader: {braid.NAME} over {label}"] = (
                    harness.paired(samples[braid.NAME, 1, kind, percent], beside)
                )


def _round(driver: Driver, readers: int, count: int, samples: Samples, bulk: dict[str, list[float]]) -> float:
    with contextlib.ExitStack() as stack:
        reads = [stack.enter_context(driver.bulk_read(DEADLINE_S)) for _ in range(readers)]
        taken = driver.tail_read_latency(count, RECORD_BYTES)
    if readers == 1:
        bulk[driver.label].append(reads[0].bytes_per_s)
    for kind, values in zip(KINDS, (taken.appended, taken.read), strict=True):
        for percent in PERCENTILES:
            samples[driver.label, readers, kind, percent].append(percentile(values, percent))
    return statistics.median(taken.read)


if __name__ == "__main__":
    harness.main(measure)
