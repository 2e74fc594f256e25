"""What a bulk reader of old records does to a latency-critical workload: on a fork, and on the log itself."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from bench import harness
from bench.critical import RATE, RECORD_BYTES, Critical, chosen_seconds, critical, described, read_in_bulk
from bench.harness import MIB, Figure, Options
from bench.service_latency import percentile

FORK: Final = "on a fork, at a broker of its own"
SHARED: Final = "on the root, at the same broker"
KINDS: Final = ("append", "append to tail read")
PERCENTILES: Final = (50, 90, 99)
ALONE: Final = "alone, before or after: "

Beside = Callable[[], AbstractContextManager[list[float]]]
Samples = dict[tuple[str, str, int], list[float]]


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside a bulk reader, on a fork and on the log itself."""
    rounds, lasting = options.pick(12, 3), chosen_seconds(options)
    figure = Figure(
        "isolation",
        "Append to tail read at a fixed rate, alone and beside a bulk reader of old records",
        "percentile",
        "us",
        notes=[
            described(lasting, rounds),
            "the bulk reader asks for 4 MiB after 4 MiB of the root's old records, as Arrow, as fast as it can",
        ],
        log_x=False,
    )
    with critical(options) as workload:
        old = workload.fill(options.pick(192, 32) * MIB)
        workload.root.sfork("fork")
        figure.notes.append(workload.cores.describe())
        with workload.companion(read_in_bulk) as reader:
            for log in ("root", "fork"):
                with reader.at_work((log, old)):  # which fills caches
                    workload.warm()
            beside: dict[str, Beside] = {
                FORK: partial(reader.at_work, ("fork", old)),
                SHARED: partial(reader.at_work, ("root", old)),
            }
            samples, managed = pairs(workload, beside, rounds, lasting)
    show(figure, samples, beside)
    for name in beside:
        figure.numbers[f"MB/s of the bulk reader, {name}"] = statistics.median(managed[name]) / 1e6
    figure.numbers["appends that began late, of all"] = workload.late / workload.begun
    bulk = min(statistics.median(values) for values in managed.values())
    figure.at_least(
        "bytes read in bulk over bytes appended, or else nothing is shown", bulk / (RATE * RECORD_BYTES), 100
    )
    for kind in KINDS:
        figure.at_most(f"{kind}, p50, beside a bulk reader {FORK}, over alone", ratio(samples, FORK, kind, 50), 1.2)
    for kind in KINDS:
        more = {name: increase(samples, name, kind, 99) for name in (FORK, SHARED)}
        for name, value in more.items():
            figure.numbers[f"{kind}, p99, more than alone, {name}, us"] = value
        figure.at_most(
            f"{kind}, p99, more than alone: beside a bulk reader {FORK}, over {SHARED}",
            max(0.0, more[FORK]) / max(1.0, more[SHARED]),  # a baseline that costs nothing is taken for 1 us
            1 / 3,
        )
    return figure


def pairs(
    workload: Critical, beside: dict[str, Beside], rounds: int, lasting: float
) -> tuple[Samples, dict[str, list[float]]]:
    """The workload alone and beside each, as neighbours; and what those managed meanwhile."""
    samples: Samples = defaultdict(list)
    managed: dict[str, list[float]] = defaultdict(list)

    def turn(name: str, begin: Beside | None) -> float:
        with begin() if begin is not None else nullcontext([]) as result:
            taken = workload.run(lasting)
        if result:
            managed[name] += result
        for kind, values in zip(KINDS, (taken.appended, taken.read), strict=True):
            for percent in PERCENTILES:
                samples[name, kind, percent].append(percentile(values, percent))
        return statistics.median(taken.read)

    variants: dict[str, Callable[[], float]] = {}
    for name, begin in beside.items():
        variants[ALONE + name] = partial(turn, ALONE + name, None)
        variants[name] = partial(turn, name, begin)
    harness.interleave(variants, rounds)
    return samples, managed


def show(figure: Figure, samples: Samples, beside: Sequence[str] | dict[str, Beside]) -> None:
    """A line for the workload alone and beside each, and the ratios."""
    alone = figure.line("alone")
    for percent in PERCENTILES:
        alone.add(percent, [value for name in beside for value in samples[ALONE + name, KINDS[1], percent]])
    for name in beside:
        line = figure.line(f"beside, {name}")
        for percent in PERCENTILES:
            line.add(percent, samples[name, KINDS[1], percent])
    for kind in KINDS:
        for name in beside:
            for percent in (50, 99):
                figure.numbers[f"{kind}, p{percent}, beside over alone, {name}"] = ratio(samples, name, kind, percent)


def ratio(samples: Samples, name: str, kind: str, percent: int) -> float:
    return harness.paired(samples[name, kind, percent], samples[ALONE + name, kind, percent])


def increase(samples: Samples, name: str, kind: str, percent: int) -> float:
    """The median of the differences of neighbours."""
    both = zip(samples[name, kind, percent], samples[ALONE + name, kind, percent], strict=True)
    return statistics.median(beside - alone for beside, alone in both)


if __name__ == "__main__":
    harness.main(measure)
