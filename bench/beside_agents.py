"""What an agent does to the production whose log it works on: what figures of agents share.

Each runs its agent in a process of its own, once as a whole while production works, which warms everybody up and tells
what the agent itself sees, and then again and again beside production, in turn with production alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import braidlog
from apps.agents.workplace import Workplace, workplace
from bench.critical import RATE, Companion, Critical, Make, Work, critical
from bench.harness import Figure, Options
from bench.isolation import KINDS, Samples, increase, pairs, ratio, show

ONCE: Final = "once"
AGAIN: Final = "again and again"
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Tally:
    """What one run of all tasks of an agent took, as the agent sees it."""

    seconds: float
    calls_per_task: float
    first_row_s: float  # from the call that forks to the end of the first that brought records
    found: float  # of what was planted, 1 is all


@dataclass(frozen=True)
class Done:
    """How many tasks an agent did, and how much it found of what was planted."""

    tasks: int
    found: float


Task = Callable[[Workplace, braidlog.Braid], Awaitable[Done]]


@dataclass(frozen=True)
class Production:
    """What stands in the log of production, and what it writes then."""

    prepare: Callable[[braidlog.Log], object]
    make: Make


def compare(
    figure: Figure, options: Options, produce: Callable[[], Production], work: Work, forks: str, shared: str
) -> None:
    """Production alone and beside an agent: on forks at a broker of their own, and all of it at one broker."""
    lasting = 1.5 if options.quick else 3.5
    places = {forks: (2, options.pick(10, 2)), shared: (1, options.pick(5, 2))}
    figure.notes.append(
        f"{RATE:g} appends per second for {lasting:g} s, {places[forks][1]} times alone and as often beside the agent "
        f"({places[shared][1]} at the root's broker), in turn; ratios are between neighbours"
    )
    samples: Samples = {}
    for name, (brokers, rounds) in places.items():
        production = produce()
        with critical(options, make=production.make, brokers=brokers) as workload:
            if brokers > 1:
                figure.notes.append(workload.cores.describe())
            production.prepare(workload.root)
            with workload.companion(work) as agent:
                tally = _once(workload, agent)
                taken, managed = pairs(workload, {name: partial(agent.at_work, AGAIN)}, rounds, lasting)
        samples |= taken
        figure.numbers[f"appends that began late, of all, {name}"] = workload.late / workload.begun
        figure.numbers[f"calls of tools per second, {name}"] = statistics.median(managed[name])
        figure.numbers[f"calls of tools for each task, {name}"] = tally.calls_per_task
        figure.numbers[f"from a fork to its first row, ms, {name}"] = tally.first_row_s * 1e3
        figure.numbers[f"all tasks from the question to the reports, s, {name}"] = tally.seconds
        figure.at_least(f"of what was planted the agent finds, {name}", tally.found, 1)
    show(figure, samples, list(places))
    for kind in KINDS:
        for name in places:
            figure.numbers[f"{kind}, p99, more than alone, us, {name}"] = increase(samples, name, kind, 99)
        figure.at_most(f"{kind}, p50, beside {forks}, over alone", ratio(samples, forks, kind, 50), 1.2)


def _once(workload: Critical, agent: Companion) -> Tally:
    agent.tell(ONCE)
    while not agent.answered:
        workload.run(1.0)
    workload.late = workload.begun = 0
    tally: Tally = agent.answer()
    return tally


# --- in the agent's process -------------------------------------------------------------------------------------------


def attend(braid: braidlog.Braid, pipe: Connection, told: str, agent: str, task: Task) -> Tally | float:
    """All of it once, and how it went; or again and again until told, and the calls per second."""
    if told == ONCE:
        return asyncio.run(_attend_once(braid, agent, task))
    return asyncio.run(_again(braid, pipe, agent, task))


async def _attend_once(braid: braidlog.Braid, agent: str, task: Task) -> Tally:
    async with workplace(braid.url, agent=agent) as place:
        began = time.perf_counter()
        done = await task(place, braid)
        seconds = time.perf_counter() - began
        if place.first_row_s is None:
            raise RuntimeError(f"the {agent} saw no record")
        return Tally(seconds, len(place.calls) / done.tasks, place.first_row_s, done.found)


async def _again(braid: braidlog.Braid, pipe: Connection, agent: str, task: Task) -> float:
    async def without_end(place: Workplace) -> None:
        while True:
            await task(place, braid)

    async with workplace(braid.url, agent=agent) as place:
        began = time.perf_counter()
        working = asyncio.create_task(without_end(place))
        while not pipe.poll() and not working.done():
            await asyncio.sleep(_POLL_S)
        rate = len(place.calls) / (time.perf_counter() - began)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    pipe.recv()
    return rate
