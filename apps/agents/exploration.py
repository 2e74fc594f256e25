"""Three agents restock the same shop, each in its own way and on its own fork, and the best plan is promoted.

All three forks are promotable, of one log, and written in parallel while orders keep coming. One agent is prudent and
covers what sold all along, one is greedy and fills what sells best, one goes by the trend. A judge plays the next
orders through on each of them and ranks them. The first in rank is proposed; if the validator refuses it, the next one
is. When one is promoted the others vanish, and whoever reads the log sees the records of the winner alone.

    python -m apps.agents.exploration
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import AgentRunResult
from pydantic_ai.exceptions import ToolFailed

import braidlog
from apps.agents.command import Command, run, say
from apps.agents.proposed import HOLD, Attempt, add_hold, attempt, attempts, left_to_validators, proposing
from apps.agents.scripted import Call, Script, Stuck, Think, scripted
from apps.agents.shop import LOG, SHELF_UNITS, Event, Malformed, Market, Stock, opened
from apps.agents.trading import Consumer, orders
from apps.agents.workplace import Worker, Workplace, side_by_side, workplace

BUDGET_UNITS: Final = 3_000  # that a plan may restock in all
AHEAD: Final = 1_000  # orders that a plan is for
FUTURES: Final = 12  # that a plan is judged by
LEFT_COSTS: Final = 0.2  # what a unit that is left over costs, if one that is sold brings 1
JUDGE: Final = "judge"
SALES: Final = """
WITH ordered AS (
  SELECT item, "count" AS units, ntile(4) OVER (ORDER BY _position) AS quarter FROM rows WHERE kind = 'order'
), sold AS (
  SELECT item, sum(units) AS sold, sum(units) FILTER (quarter = 3) AS before, sum(units) FILTER (quarter = 4) AS lately
  FROM ordered GROUP BY item
), shelves AS (
  SELECT item, sum(CASE kind WHEN 'order' THEN -"count" ELSE "count" END) AS stock FROM rows GROUP BY item
)
SELECT item, CAST(stock AS BIGINT), CAST(coalesce(sold, 0) AS BIGINT), CAST(coalesce(before, 0) AS BIGINT),
       CAST(coalesce(lately, 0) AS BIGINT),
       (SELECT count(*) FROM ordered), (SELECT CAST(max("minute") AS BIGINT) FROM rows)
FROM shelves LEFT JOIN sold USING (item) ORDER BY item
"""
INSTRUCTIONS: Final = f"""
You plan restocks for a shop. Its log {LOG!r} has JSON events: openings of shelves, orders and restocks, each with kind,
item, count and minute. A shelf holds {SHELF_UNITS} units, and a plan restocks {BUDGET_UNITS} in all at most. Make a
promotable fork, look at it, write your plan on it as restocks, and leave it there: a judge compares it with the plans
of others. If nothing is to be restocked, squash it.
"""
JUDGING: Final = f"""
You judge plans for a shop. Each is on a promotable fork of {LOG!r} that you are told of. Score each with score_fork,
all of them below the same position, that of the earliest fork point, and rank them by score. Decide by nothing else.
"""
WAYS: Final = {
    "prudent": "Cover what sold all along, a little more than needed, and no more.",
    "greedy": "Fill the shelves of what sells best now, the best first, as far as the budget goes.",
    "trend": "Cover what will be sold if sales go on to grow and shrink as they do.",
}


class Plan(BaseModel):
    """What one agent wrote, and where."""

    fork: str
    restocks: list[dict[str, Any]]


class Ranking(BaseModel):
    """Forks, with what they scored."""

    scores: dict[str, float]

    def best_first(self) -> list[str]:
        """The forks in their order."""
        return sorted(self.scores, key=lambda fork: (-self.scores[fork], fork))


# --- what the scripted agents do --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sales:
    """Of one item: what lies there, and what was sold in all, in the last quarter of the orders and the one before."""

    item: str
    stock: int
    sold: int
    before: int
    lately: int


def prudent(sales: Sequence[Sales], orders: int) -> dict[str, float]:
    """What is missing for the next orders, if they are as all that came, and a fifth more."""
    return {one.item: 1.2 * one.sold / orders * AHEAD - one.stock for one in sales}


def greedy(sales: Sequence[Sales], _: int) -> dict[str, float]:
    """What fits on the shelf, of what sells best, then the next, as long as there is money."""
    wanted, left = {}, float(BUDGET_UNITS)
    for one in sorted(sales, key=lambda one: -one.lately):
        wanted[one.item] = min(left, SHELF_UNITS - one.stock)
        left -= wanted[one.item]
    return wanted


def trend(sales: Sequence[Sales], orders: int) -> dict[str, float]:
    """What is missing for the next orders, if sales go on as they changed from one quarter to the next."""
    return {one.item: (2 * one.lately - one.before) / (orders / 4) * AHEAD - one.stock for one in sales}


POLICIES: Final[Mapping[str, Callable[[Sequence[Sales], int], dict[str, float]]]] = {
    "prudent": prudent,
    "greedy": greedy,
    "trend": trend,
}


def within_budget(wanted: Mapping[str, float], sales: Sequence[Sales]) -> dict[str, int]:
    """Whole units that fit on the shelves; less of each if they cost too much together."""
    room = {one.item: SHELF_UNITS - one.stock for one in sales}
    fitting = {item: min(units, room[item]) for item, units in wanted.items() if units > 0}
    share = min(1.0, BUDGET_UNITS / (sum(fitting.values()) or 1.0))
    return {item: int(units * share) for item, units in fitting.items() if int(units * share)}


def planning(way: str) -> Callable[[str], Script]:
    """What a scripted agent does that works in this way."""

    def script(_: str) -> Script:
        (made,) = yield [Call("create_fork", {"log": LOG, "promotable": True, "purpose": WAYS[way]})]
        fork = made["fork"]["name"]
        (found,) = yield [Call("query_sql", {"log": fork, "sql": SALES})]
        sales = [Sales(*row[:5]) for row in found["rows"]]
        orders, minute = found["rows"][0][5:]
        counts = within_budget(POLICIES[way](sales, orders), sales)
        restocks: list[Event] = [
            {"kind": "restock", "item": item, "count": count, "minute": minute} for item, count in counts.items()
        ]
        if restocks:
            yield [Call("append_records", {"fork": fork, "records": [{"value": one} for one in restocks]})]
        else:
            yield [Call("squash_fork", {"fork": fork})]
        return Plan(fork=fork, restocks=restocks)

    return script


def judging(forks: Sequence[str]) -> Callable[[str], Script]:
    """What the scripted judge does about the plans on these."""

    def script(_: str) -> Script:
        about = yield [Call("describe_log", {"log": fork}) for fork in forks]
        below = min(one["log"]["fork_point"] for one in about)
        scored = yield [Call("score_fork", {"fork": fork, "below": below}) for fork in forks]
        return Ranking(scores={fork: one["score"] for fork, one in zip(forks, scored, strict=True)})

    return script


def proposing_first(fork: str) -> Callable[[str], Script]:
    """What the agent does whose plan is to be proposed."""

    def script(_: str) -> Script:
        (said,) = yield [proposing(fork, "The best plan by its score")]
        return attempt(said)

    return script


# --- the score --------------------------------------------------------------------------------------------------------


def score(levels: Mapping[str, int], plan: Sequence[Event], recent: Sequence[Event], seed: int) -> float:
    """What a plan brings, on average over some futures: the units that are sold, less what it costs to keep the rest.

    A future is drawn from the recent orders, and all plans are judged by the same ones.
    """
    rng, total = Random(seed), 0.0
    for _ in range(FUTURES):
        left = dict(levels)
        for restock in plan:
            left[restock["item"]] += restock["count"]
        for order in rng.choices(recent, k=AHEAD):
            given = max(0, min(order["count"], left[order["item"]]))
            left[order["item"]] -= given
            total += given
        total -= LEFT_COSTS * sum(max(0, units) for units in left.values())
    return total / FUTURES


def scored(fork: braidlog.Log, below: int, seed: int) -> float:
    """The score of what stands on a fork: its own records, with what all plans share below a position. None of it is
    worth anything if the consumer would end at it."""
    stock, shared = Stock(), {}
    orders: list[Event] = []
    try:
        for record in fork.read(0):
            if record.position == below:
                shared = dict(stock.levels)
            event = stock.take(record.value)
            if record.position < below and event["kind"] == "order":
                orders.append(event)
    except Malformed:
        return 0.0
    plan = [json.loads(record.value) for record in fork.diff().own]
    return score(shared, plan, orders[-AHEAD:], seed)


# --- the command ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The plans by the agents' names, how they were judged, what was proposed, and what production saw."""

    plans: dict[str, Plan]
    ranking: Ranking
    attempts: list[Attempt]
    winner: str | None
    consumer: Consumer
    forks_left: list[str]
    place: Workplace  # with what all of them called
    results: list[AgentRunResult[Any]]


async def explore(at: str, *, seed: int, think: Think = scripted, history: int = 3_000, hold: str = HOLD) -> Outcome:
    """Have three agents plan in parallel while orders flow, judge the plans, and promote the best that is valid."""
    market = Market(seed)
    with braidlog.open(at) as braid, left_to_validators(LOG, hold) as policy:
        log = opened(braid, market, history)
        async with AsyncExitStack() as stack:
            places = {
                agent: await stack.enter_async_context(workplace(at, agent=agent, policy=policy))
                for agent in [*WAYS, JUDGE]
            }
            with Consumer(log) as consumer, orders(log, market) as flow:
                made = await side_by_side(_planned(places[way], way, think) for way in WAYS)
                plans = {way: result.output for way, result in zip(WAYS, made, strict=True)}
                owners = {fork: way for way in WAYS for fork in await places[way].forks_there()}
                judged = [await _judged(places[JUDGE], braid, list(owners), seed, think)] if owners else []
                ranking = judged[0].output if judged else Ranking(scores={})
                proposed, tried, winner = await _promoted(places, owners, ranking, think)
                flow.stop()
                end = log.tail()
                await asyncio.to_thread(consumer.wait_until, lambda one: one.position >= end or bool(one.crash))
                left = [fork for way in WAYS for fork in await places[way].forks_there()]
                called = [call for place in places.values() for call in place.calls]
                return Outcome(
                    plans,
                    ranking,
                    tried,
                    winner,
                    consumer,
                    left,
                    replace(places[JUDGE], calls=called),
                    [*made, *judged, *proposed],
                )


async def _planned(place: Workplace, way: str, think: Think) -> AgentRunResult[Plan]:
    worker = Worker(place, think(planning(way)), INSTRUCTIONS, output=Plan)
    return await worker.ask(f"You are {way}. {WAYS[way]} Plan for the next {AHEAD} orders.")


async def _judged(
    place: Workplace, braid: braidlog.Braid, forks: Sequence[str], seed: int, think: Think
) -> AgentRunResult[Ranking]:
    def score_fork(fork: str, below: int) -> dict[str, float]:
        """Play the next orders through on a fork: what its plan brings, on the history below a position."""
        if fork not in forks:
            raise ToolFailed(f"there is no plan on {fork!r}: plans are on {', '.join(forks)}")
        return {"score": scored(braid.log(fork), below, seed)}

    worker = Worker(place, think(judging(forks)), JUDGING, output=Ranking, tools=[score_fork])
    return await worker.ask(f"Which plan is the best, of those on {', '.join(forks)}?")


async def _promoted(
    places: Mapping[str, Workplace], owners: Mapping[str, str], ranking: Ranking, think: Think
) -> tuple[list[AgentRunResult[Attempt]], list[Attempt], str | None]:
    """Propose the plans in their rank until the server says that one is promoted: what it answered, in that order."""
    if unknown := ranking.scores.keys() - owners.keys():
        raise Stuck(f"the judge ranks forks on which there is no plan: {', '.join(sorted(unknown))}")
    results: list[AgentRunResult[Attempt]] = []
    tried: list[Attempt] = []
    for fork in ranking.best_first():
        place = places[owners[fork]]
        worker = Worker(place, think(proposing_first(fork)), INSTRUCTIONS, output=Attempt)
        results.append(await worker.ask(f"Your plan on {fork} is the best: propose that it is promoted."))
        tried += attempts(place)
        if "promoted" in [one.state for one in attempts(place)]:
            return results, tried, owners[fork]
    return results, tried, None


def told(outcome: Outcome) -> None:
    """Say what happened, in a few lines."""
    for way, plan in outcome.plans.items():
        planned = ", ".join(f"{one['count']} {one['item']}" for one in plan.restocks) or "nothing"
        say(f"{way} plans {planned}; score {outcome.ranking.scores.get(plan.fork, 0.0):,.0f}")
    for one in outcome.attempts:
        say(f"{one.fork} is proposed: {one.state} {'; '.join(one.reasons)}")
    say(f"the winner is {outcome.winner or 'nobody'}; forks that are left: {len(outcome.forks_left)}")


def main(argv: Sequence[str] | None = None) -> None:
    command = Command(__doc__, argv, more=add_hold)

    async def work() -> None:
        with command.logs() as at:
            outcome = await explore(at, seed=command.seed, think=command.model, hold=command.chosen.hold)
        say(f"seed {command.seed}")
        told(outcome)
        command.tell(outcome.place, outcome.results)

    run(work)


if __name__ == "__main__":
    main()
