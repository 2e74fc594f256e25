"""What an agent that tests a stream processor does to the production that it tests it on."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from random import Random
from typing import Final

import braidlog
from apps.agents.live_sales import sales
from apps.agents.scripted import scripted
from apps.agents.testing import try_out
from apps.agents.testing_script import script
from apps.agents.under_test import process
from apps.agents.workplace import Made, Workplace, workplace
from bench import harness
from bench.critical import RATE, ROOT, Companion, Critical, critical
from bench.harness import Figure, Options
from bench.isolation import KINDS, Samples, increase, pairs, ratio, show
from bench.peers.driver import STAMP
from braidlog import Record

FORKS: Final = "the testing agent on forks, at a broker of their own"
SHARED: Final = "the testing agent on forks, at the root's broker"
BUG: Final = "late-dropped"
HISTORY: Final = 2_000
AGENT: Final = "tester"
ONCE: Final = "once"
AGAIN: Final = "again and again"
_POLL_S: Final = 0.05


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside the testing agent, on forks of its log."""
    lasting = 1.5 if options.quick else 3.5
    rounds = {FORKS: options.pick(10, 2), SHARED: options.pick(5, 2)}
    figure = Figure(
        "agent_testing",
        "Append to tail read at a fixed rate, alone and beside an agent that tests on forks",
        "percentile",
        "us",
        notes=[
            f"{RATE:g} appends of a sale per second for {lasting:g} s, {rounds[FORKS]} times alone and as often beside "
            f"the agent ({rounds[SHARED]} at the root's broker), in turn; ratios are between neighbours",
            "the agent is scripted: five cases side by side, each on a live fork of that log, with a process for each "
            "run of the processor and each query, and forks of those to find which events make the difference",
        ],
        log_x=False,
    )
    samples: Samples = {}
    for name, brokers in ((FORKS, 2), (SHARED, 1)):
        taken, managed, tally = _beside(options, name, brokers, rounds[name], lasting, figure)
        samples |= taken
        figure.numbers[f"calls of tools per second, {name}"] = statistics.median(managed)
        figure.numbers[f"calls of tools for each task, {name}"] = tally["calls"]
        figure.numbers[f"from a fork to its first row, ms, {name}"] = tally["first_row_s"] * 1e3
        figure.numbers[f"all tasks from the question to the reports, s, {name}"] = tally["seconds"]
        figure.at_least(f"reports of the planted bug, of one, {name}", tally["found"], 1)
    show(figure, samples, [FORKS, SHARED])
    for kind in KINDS:
        for name in (FORKS, SHARED):
            figure.numbers[f"{kind}, p99, more than alone, us, {name}"] = increase(samples, name, kind, 99)
        figure.at_most(f"{kind}, p50, beside {FORKS}, over alone", ratio(samples, FORKS, kind, 50), 1.2)
    return figure


def _beside(
    options: Options, name: str, brokers: int, rounds: int, lasting: float, figure: Figure
) -> tuple[Samples, list[float], dict[str, float]]:
    drawn = sales(Random(7))

    def sale() -> Record:
        return Record(next(drawn), headers=(("sent", STAMP.pack(time.monotonic_ns())),))

    with critical(options, make=sale, brokers=brokers) as workload:
        if brokers > 1:
            figure.notes.append(workload.cores.describe())
        workload.root.append_many(list(islice(drawn, HISTORY)))
        with workload.companion(work_as_tester) as tester:
            tally = _once(workload, tester)
            samples, managed = pairs(workload, {name: partial(tester.at_work, AGAIN)}, rounds, lasting)
    figure.numbers[f"appends that began late, of all, {name}"] = workload.late / workload.begun
    return samples, managed[name], tally


def _once(workload: Critical, tester: Companion) -> dict[str, float]:
    """One whole test, which warms everybody up, with production at work as long as it takes."""
    tester.tell(ONCE)
    while not tester.answered:
        workload.run(1.0)
    workload.late = workload.begun = 0
    tally: dict[str, float] = tester.answer()
    return tally


# --- in the agent's process -------------------------------------------------------------------------------------------


def work_as_tester(braid: braidlog.Braid, pipe: Connection, told: str) -> dict[str, float] | float:
    """All cases once, and how it went; or again and again until told, and the calls per second."""
    if told == ONCE:
        return asyncio.run(_tested_once(braid))
    return asyncio.run(_tested_again(braid, pipe))


async def _tested_once(braid: braidlog.Braid) -> dict[str, float]:
    async with workplace(braid.url, agent=AGENT) as place:
        began = time.perf_counter()
        answers = await try_out(place, scripted(script), process(braid, BUG), log=ROOT)
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "calls": len(place.calls) / len(answers),
            "first_row_s": statistics.median(_first_rows_s(place.calls)),
            "found": sum(answer.output.case == "late" and not answer.output.passed for answer in answers),
        }


def _first_rows_s(calls: Sequence[Made]) -> list[float]:
    """For each live fork, from the call that made it to the end of the first that brought records of it."""
    made = {f"{ROOT}.{AGENT}.{one.arguments['name']}": one for one in calls if one.arguments.get("log") == ROOT}
    return [
        min(one.began_s + one.seconds for one in calls if one.rows and one.arguments.get("log") == fork)
        - fork_made.began_s
        for fork, fork_made in made.items()
    ]


async def _tested_again(braid: braidlog.Braid, pipe: Connection) -> float:
    async with workplace(braid.url, agent=AGENT) as place:
        began = time.perf_counter()
        testing = asyncio.create_task(_without_end(place, braid))
        while not pipe.poll() and not testing.done():
            await asyncio.sleep(_POLL_S)
        rate = len(place.calls) / (time.perf_counter() - began)
        testing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await testing
    pipe.recv()
    return rate


async def _without_end(place: Workplace, braid: braidlog.Braid) -> None:
    while True:
        await try_out(place, scripted(script), process(braid, BUG), log=ROOT)


if __name__ == "__main__":
    harness.main(measure)
