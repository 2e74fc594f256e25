"""How a consumer fares with an agent that makes a mistake: on promotable forks, and written straight to the log."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from multiprocessing.connection import Connection
from random import Random
from typing import Final

import braidlog
from apps.agents.shop import LOG, Market, opened
from apps.agents.supply_chain import QUESTION, Slip, restocker
from apps.agents.trading import Consumer, orders
from bench import harness
from bench.critical import Companion, Cores
from bench.harness import Figure, Options
from bench.peers.braid import serving
from bench.peers.servers import kept_to

FORKS: Final = "on promotable forks, validated"
STRAIGHT: Final = "straight to the log"
RATE: Final = 1_000.0  # orders per second
HISTORY: Final = 3_000
BEFORE_S: Final = 2.0
AFTER_S: Final = 3.0
SHOWN_S: Final = 5.0  # that are shown, from the agent's first write on
BUCKET_S: Final = 0.25
SLACK_S: Final = 0.1  # in which a record that nothing holds up has long arrived
WATCH_S: Final = 0.005
SEED: Final = 20

Times = Sequence[tuple[float, int]]  # (when, how many)


@dataclass(frozen=True, slots=True)
class Hold:
    """A fork of the agent holds the log: from when on, and when it was decided about."""

    forked: float
    decided: float


class Watch:
    """Asks again and again whether a log is held, and so knows it from nobody whose throughput is measured."""

    def __init__(self, log: braidlog.Log) -> None:
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.holds: list[Hold] = []

    def _run(self) -> None:
        forked: float | None = None
        while not self._stop.wait(WATCH_S):
            held = self._log.info().limited_by is not None
            now = time.monotonic()
            if held and forked is None:
                forked = now
            elif not held and forked is not None:
                self.holds.append(Hold(forked, now))
                forked = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Round:
    """One go of the agent."""

    wrote: float  # the agent's first write, or fork
    holds: list[Hold]
    sent: Times
    came: Times
    crashed: bool

    def throughput(self, start: float, stop: float) -> float:
        """Records per second that the consumer took in between two moments."""
        return (came_by(self.came, stop) - came_by(self.came, start)) / (stop - start)

    def caught_up_s(self, hold: Hold) -> float:
        """From a decision to when the consumer had everything that was there but what had just been appended."""
        totals = accumulate(count for _, count in self.came)
        for (moment, _), total in zip(self.came, totals, strict=True):
            if moment >= hold.decided and total >= came_by(self.sent, moment - SLACK_S):
                return moment - hold.decided
        return float("inf")


def came_by(times: Times, moment: float) -> int:
    """How many there were up to a moment."""
    return sum(count for _, count in times[: bisect_right(times, (moment, 1 << 62))])


def measure(options: Options) -> Figure:
    """The throughput of a consumer beside an agent that slips once, on promotable forks and without."""
    rounds = options.pick(8, 2)
    taken: dict[str, list[Round]] = {FORKS: [], STRAIGHT: []}
    cores = Cores.chosen(production_together=True)
    seeds = Random(SEED)
    with (
        harness.folder(options) as folder,
        serving(folder, cores.roots) as url,
        kept_to(cores.clients),
        braidlog.open(url) as braid,
        Companion(restock, url, cores.beside) as agent,
    ):
        play(braid, agent, url, seeds.randrange(1 << 32), False)  # which imports what it needs, and is not kept

        def turn(name: str) -> float:
            done = play(braid, agent, url, seeds.randrange(1 << 32), name == STRAIGHT)
            taken[name].append(done)
            return float(done.crashed)

        harness.interleave({name: partial(turn, name) for name in taken}, rounds)
    return _figure(taken, rounds, cores)


def _figure(taken: dict[str, list[Round]], rounds: int, cores: Cores) -> Figure:
    figure = Figure(
        "agent_supply",
        "A consumer's throughput over time, beside an agent that makes a mistake and mends it",
        "seconds since the agent's first write",
        "records/s",
        notes=[
            f"{RATE:g} orders per second on {HISTORY:,} events of history; {rounds} rounds of each, in turn; the agent "
            "is scripted, its mistake is drawn in each round, and a copy of the consumer validates, in a process of "
            "its own",
            f"the server, the producer and the consumer are kept to the cores {_shown(cores.roots | cores.clients)}, "
            f"the agent and its validator to {_shown(cores.beside)}",
        ],
        log_x=False,
        log_y=False,
    )
    for name, played in taken.items():
        line = figure.line(name)
        for number in range(round(-BEFORE_S / 2 / BUCKET_S), round(SHOWN_S / BUCKET_S)):
            at = number * BUCKET_S
            line.add(at, [one.throughput(one.wrote + at, one.wrote + at + BUCKET_S) for one in played])
    forks = taken[FORKS]
    before = [one.throughput(one.wrote - BEFORE_S, one.wrote) for one in forks]
    after = [one.throughput(one.holds[-1].decided + 1.0, one.holds[-1].decided + AFTER_S - 0.5) for one in forks]
    holds = [(one, hold) for one in forks for hold in one.holds]
    lengths = [hold.decided - hold.forked for _, hold in holds]
    behind = [one.caught_up_s(hold) for one, hold in holds]
    held = [one.throughput(hold.forked + SLACK_S, hold.decided - SLACK_S) for one, hold in holds]
    figure.numbers["records/s before"] = statistics.median(before)
    figure.numbers["records/s while held"] = statistics.median(held)
    figure.numbers["records/s after"] = statistics.median(after)
    figure.numbers["seconds that a fork is held, to be written and validated"] = statistics.median(lengths)
    figure.numbers["seconds from a decision until the backlog is gone, median"] = statistics.median(behind)
    figure.numbers["seconds from a decision until the backlog is gone, longest"] = max(behind)
    figure.numbers["forks that an agent needs"] = statistics.median(len(one.holds) for one in forks)
    figure.at_most("rounds in which the consumer crashed, on promotable forks", sum(one.crashed for one in forks), 0)
    figure.at_least(
        "rounds in which it crashed, of all, straight to the log, or else nothing is shown",
        statistics.mean(one.crashed for one in taken[STRAIGHT]),
        1,
    )
    figure.at_least("throughput after the decision, over before", harness.paired(after, before), 0.9)
    figure.at_most(
        "time until the backlog is gone, over that of the hold, the worst",
        max(late / length for late, length in zip(behind, lengths, strict=True)),
        1,
    )
    return figure


def _shown(cores: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cores)))


def play(braid: braidlog.Braid, agent: Companion, url: str, seed: int, straight: bool) -> Round:
    """One round on a log of its own: orders flow, the consumer follows, and after a while the agent restocks."""
    market = Market(seed)
    log = opened(braid, market, HISTORY)
    history = (0.0, log.tail())
    with Watch(log) as watch, Consumer(log) as consumer, orders(log, market, RATE) as flow:
        consumer.wait_until(lambda one: one.position > history[1])
        time.sleep(BEFORE_S)
        agent.tell((url, seed, straight))
        wrote: float = agent.answer()
        time.sleep(SHOWN_S if straight else max(AFTER_S, wrote + SHOWN_S - time.monotonic()))
        flow.stop()
        if consumer.crash is None:
            end = log.tail()
            consumer.wait_until(lambda one: one.position >= end or one.crash is not None)
    braid.drop(LOG, cascade=True)
    return Round(wrote, watch.holds, [history, *flow.departures], consumer.arrivals, consumer.crash is not None)


def restock(braid: braidlog.Braid, pipe: Connection, told: tuple[str, int, bool]) -> float:
    """Have the agent restock once. When it began to write, by the clock that all processes of a machine share."""
    del pipe
    url, seed, straight = told

    async def work() -> float:
        log = braid.log(LOG)
        async with restocker(url, log, Slip.drawn(seed), straight=straight) as (place, worker):
            await worker.ask(QUESTION)
            now = time.monotonic()
        return min((call.began_s for call in place.calls if call.tool == "create_fork"), default=now)

    return asyncio.run(work())


if __name__ == "__main__":
    harness.main(measure)
