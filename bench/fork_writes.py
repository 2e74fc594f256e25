"""What writing on a fork does to a latency-critical workload on its parent."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Final

from bench import harness
from bench.critical import RATE, chosen_seconds, critical, described, write
from bench.harness import MIB, Figure, Options
from bench.isolation import KINDS, Beside, pairs, ratio, show

FORK: Final = "writes to a cFork, at a broker of its own"
OTHER: Final = "writes to another root, at the same broker"


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside equal writes to a cFork of its log."""
    rounds, lasting = options.pick(12, 3), chosen_seconds(options)
    figure = Figure(
        "fork_writes",
        "Append to tail read at a fixed rate, alone and beside equal writes to a fork",
        "percentile",
        "us",
        notes=[
            described(lasting, rounds),
            "beside it another process appends records of the same size at the same rate, one at a time; all commits "
            "are made by one metadata process, whose syncs are shared by what comes at the same time",
        ],
        log_x=False,
    )
    with critical(options) as workload:
        workload.fill(options.pick(64, 8) * MIB)
        workload.root.cfork("fork")
        workload.another("other")
        figure.notes.append(workload.cores.describe())
        with workload.companion(write) as writer:
            for log in ("other", "fork"):
                with writer.at_work((log, RATE)):
                    workload.warm()
            beside: dict[str, Beside] = {
                FORK: partial(writer.at_work, ("fork", RATE)),
                OTHER: partial(writer.at_work, ("other", RATE)),
            }
            samples, managed = pairs(workload, beside, rounds, lasting)
    show(figure, samples, beside)
    for name in beside:
        figure.numbers[f"appends/s beside, {name}"] = statistics.median(managed[name])
    figure.numbers["appends that began late, of all"] = workload.late / workload.begun
    slowest = min(statistics.median(values) for values in managed.values())
    figure.at_least("appends/s beside over those of the workload, or else nothing is shown", slowest / RATE, 0.9)
    for kind in KINDS:
        figure.at_most(f"{kind}, p50, beside {FORK}, over alone", ratio(samples, FORK, kind, 50), 1.2)
    return figure


if __name__ == "__main__":
    harness.main(measure)
