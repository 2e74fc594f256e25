"""What an agent does to the production whose log it works on: what figures of agents share.

Each runs its agent in a process of its own, once as a whole while production works, which warms everybody up and tells
what the agent itself sees, and then again and again beside production, in turn with production alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
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
BUSY_MIN: Final = 0.8
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Tally:
    """What one run of all tasks of an agent took, as the agent sees it."""

    seconds: float
    calls_per_task: float
    first_row_s: float  # from the call that forks to the end of the first that brought records
    found: float  # 1: what was planted, and nothing else


@dataclass(frozen=True)
class Done:
    """How many tasks an agent did, and whether it found what was planted and nothing else: 1 is just that."""

    tasks: int
    found: float


@dataclass(frozen=True)
class Beside:
    """What an agent did in one round beside production."""

    calls_per_s: float
    busy: float  # of the round, in which one call or more was under way
    runs: int  # of all its tasks, that it completed
    found: float  # in the worst of these


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
        f"({places[shared][1]} at the root's broker), in turn; ratios are between neighbours; the agent is at work "
        "before a round begins, and goes through its tasks again and again: a run of all of them may take longer than "
        "a round, and is then broken off at its end"
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
                did: list[Beside] = []
                taken, managed = pairs(workload, {name: partial(_at_work, agent, did)}, rounds, lasting)
        samples |= taken
        figure.numbers[f"appends that began late, of all, {name}"] = workload.late / workload.begun
        figure.numbers[f"calls of tools per second, {name}"] = statistics.median(managed[name])
        figure.numbers[f"calls of tools for each task, {name}"] = tally.calls_per_task
        figure.numbers[f"from a fork to its first row, ms, {name}"] = tally.first_row_s * 1e3
        figure.numbers[f"all tasks from the question to the reports, s, {name}"] = tally.seconds
        figure.numbers[f"runs of all tasks that end within a round, {name}"] = statistics.mean(one.runs for one in did)
        figure.at_least(
            f"of a round, the agent has calls under way, or else nothing is shown, {name}",
            statistics.median(one.busy for one in did),
            BUSY_MIN,
        )
        found = min([tally.found, *(one.found for one in did)])
        figure.at_least(f"the agent finds what was planted and nothing else, in the worst run, {name}", found, 1)
    show(figure, samples, list(places))
    for kind in KINDS:
        for name in places:
            figure.numbers[f"{kind}, p99, more than alone, us, {name}"] = increase(samples, name, kind, 99)
        figure.at_most(f"{kind}, p50, beside {forks}, over alone", ratio(samples, forks, kind, 50), 1.2)


@contextlib.contextmanager
def _at_work(agent: Companion, did: list[Beside]) -> Iterator[list[float]]:
    """It is at work, with calls under way, for the length of the context. In the end its calls per second are told."""
    result: list[float] = []
    agent.tell(AGAIN)
    agent.answer()
    yield result
    agent.tell(None)
    did.append(agent.answer())
    result.append(did[-1].calls_per_s)


def _once(workload: Critical, agent: Companion) -> Tally:
    agent.tell(ONCE)
    while not agent.answered:
        workload.run(1.0)
    workload.late = workload.begun = 0
    tally: Tally = agent.answer()
    return tally


# --- in the agent's process -------------------------------------------------------------------------------------------


def attend(braid: braidlog.Braid, pipe: Connection, told: str, agent: str, task: Task) -> Tally | Beside:
    """All of it once, and how it went; or again and again until told, and what it did meanwhile."""
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


async def _again(braid: braidlog.Braid, pipe: Connection, agent: str, task: Task) -> Beside:
    done: list[Done] = []

    async def without_end(place: Workplace) -> None:
        while True:
            done.append(await task(place, braid))

    async with workplace(braid.url, agent=agent) as place:
        working = asyncio.create_task(without_end(place))
        while not place.calls and not working.done():
            await asyncio.sleep(_POLL_S)
        began = time.perf_counter()
        pipe.send(None)
        while not pipe.poll() and not working.done():
            await asyncio.sleep(_POLL_S)
        ended = time.perf_counter()
        completed = list(done)
        working.cancel()  # with which the calls that are under way end, and are noted
        with contextlib.suppress(asyncio.CancelledError):
            await working
        spans = [(made.began_s, made.began_s + made.seconds) for made in place.calls]
    pipe.recv()
    return Beside(
        calls_per_s=sum(began <= end <= ended for _, end in spans) / (ended - began),
        busy=covered(spans, began, ended),
        runs=len(completed),
        found=min((one.found for one in completed), default=1.0),
    )


def covered(spans: Iterable[tuple[float, float]], began: float, ended: float) -> float:
    """How much of a time is within one span or more, 1 is all of it."""
    within, reached = 0.0, began
    for start, end in sorted(spans):
        start, end = max(start, reached), min(end, ended)
        if end > start:
            within += end - start
            reached = end
    return within / (ended - began)
