"""An agent that restocks a shop, and a consumer that survives its mistakes.

Orders flow, and a consumer keeps the stock; at an event that it does not understand it crashes. The agent asks what
runs out first, writes restocks on a promotable fork, and proposes it. A copy of the consumer is run over that fork
first, from the beginning of the log through the orders that came meanwhile: what would crash the consumer is refused,
with the position, and the agent mends it on a new fork. What passes is promoted.

The scripted agent makes one mistake, drawn from the seed. With `--straight` it writes to the log itself, and the
consumer crashes.

    python -m apps.agents.supply_chain
    python -m apps.agents.supply_chain --straight --seed 11
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pydantic import BaseModel
from pydantic_ai import AgentRunResult

import braidlog
from apps.agents.command import Command, run, say
from apps.agents.proposed import HOLD, Attempt, add_hold, attempt, attempts, left_to_validators, proposing
from apps.agents.scripted import Call, Script, Stuck, Think, scripted
from apps.agents.shop import LOG, SHELF_UNITS, Event, Market, encoded, opened
from apps.agents.trading import Consumer, orders
from apps.agents.workplace import Worker, Workplace, workplace

AGENT: Final = "restocker"
LEVEL_UNITS: Final = 2_400  # that a restock fills a shelf up to
RESTOCKS: Final = 3
ATTEMPTS_MAX: Final = 4
SLIPS: Final = ("no count", "count as text", "negative count", "unknown item", "wrong kind", "more than fits")
INSTRUCTIONS: Final = f"""
You restock a shop. Its log {LOG!r} has JSON events: openings of shelves, orders and restocks, each with kind, item,
count and minute. What lies on a shelf is what was opened and restocked there, less what was ordered. A shelf holds
{SHELF_UNITS} units. Restocks are records such as {{"kind": "restock", "item": NAME, "count": UNITS, "minute": MINUTE}}.
Write them on a promotable fork and propose it at once, for the log is held meanwhile. If it is refused, mend what the
verdict names on a new fork, and propose that.
"""
STRAIGHT: Final = f"""
You restock a shop. Its log {LOG!r} has JSON events: openings of shelves, orders and restocks, each with kind, item,
count and minute. What lies on a shelf is what was opened and restocked there, less what was ordered. Write restocks
such as {{"kind": "restock", "item": NAME, "count": UNITS, "minute": MINUTE}} with append_to_log, and nothing else.
"""
QUESTION: Final = f"Which {RESTOCKS} items run out first, as they sell now? Fill their shelves up to {LEVEL_UNITS}."
RUNS_OUT: Final = f"""
WITH shelves AS (
  SELECT item,
         CAST(sum(CASE kind WHEN 'order' THEN -"count" ELSE "count" END) AS BIGINT) AS stock,
         CAST(sum("count") FILTER (kind = 'order' AND _position >= (SELECT max(_position) FROM rows) - 1000) AS BIGINT)
           AS recent,
         (SELECT CAST(max("minute") AS BIGINT) FROM rows) AS now
  FROM rows GROUP BY item
)
SELECT item, stock, now FROM shelves ORDER BY stock / coalesce(recent, 0.1), item LIMIT {RESTOCKS}
"""


class Restocking(BaseModel):
    """What the agent wrote in the end."""

    restocks: list[dict[str, Any]]


@dataclass(frozen=True)
class Slip:
    """A mistake of the scripted agent: what is wrong with which of its restocks."""

    what: str
    which: int

    @classmethod
    def drawn(cls, seed: int) -> Slip:
        rng = Random(seed)
        return cls(rng.choice(SLIPS), rng.randrange(RESTOCKS))

    def on(self, restocks: Sequence[Event]) -> list[Event]:
        """The restocks, with the mistake."""
        written = [dict(one) for one in restocks]
        wrong = written[self.which % len(written)]
        if self.what == "no count":
            del wrong["count"]
        elif self.what == "count as text":
            wrong["count"] = str(wrong["count"])
        elif self.what == "negative count":
            wrong["count"] = -wrong["count"]
        elif self.what == "unknown item":
            wrong["item"] += "s"
        elif self.what == "wrong kind":
            wrong["kind"] = "restocks"
        else:
            wrong["count"] += 100 * SHELF_UNITS
        return written


# --- the scripted agent -----------------------------------------------------------------------------------------------


def restocking(slip: Slip | None, straight: bool = False) -> Callable[[str], Script]:
    """What the scripted agent does: careless the first time, and careful where it was told that it was wrong."""

    def script(_: str) -> Script:
        (low,) = yield [Call("query_sql", {"log": LOG, "sql": RUNS_OUT})]
        restocks: list[Event] = [
            {"kind": "restock", "item": item, "count": LEVEL_UNITS - stock, "minute": now}
            for item, stock, now in low["rows"]
            if stock < LEVEL_UNITS
        ]
        written = restocks if slip is None else slip.on(restocks)
        if straight:
            yield [Call("append_to_log", {"restocks": written})]
            return Restocking(restocks=written)
        tried: list[Attempt] = []
        while len(tried) < ATTEMPTS_MAX:
            (made,) = yield [Call("create_fork", {"log": LOG, "promotable": True, "purpose": "restocks"})]
            fork = made["fork"]["name"]
            records = [{"value": one} for one in written]
            (appended,) = yield [Call("append_records", {"fork": fork, "records": records})]
            title = f"Restock {', '.join(str(one['item']) for one in written)}"
            (said,) = yield [proposing(fork, title)]
            tried.append(attempt(said))
            if said["state"] == "promoted":
                break
            written = mended(written, restocks, appended["first"], tried[-1])
        return Restocking(restocks=written)

    return script


def mended(written: Sequence[Event], meant: Sequence[Event], first: int, refused: Attempt) -> list[Event]:
    """What was written, but as it was meant where the verdict says that it is wrong."""
    wrong = {position - first for position in refused.positions}
    if not wrong or not wrong <= set(range(len(written))):
        raise Stuck(f"the verdict names no record that I wrote: {refused.reasons}")
    return [meant[number] if number in wrong else one for number, one in enumerate(written)]


# --- the command ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What the agent did, and how production fared."""

    answer: Restocking
    attempts: list[Attempt]  # as the server answered
    slip: Slip | None
    consumer: Consumer
    orders: int  # that came while the agent worked
    place: Workplace
    result: AgentRunResult[Restocking]


@asynccontextmanager
async def restocker(
    at: str,
    log: braidlog.Log,
    slip: Slip | None,
    *,
    think: Think = scripted,
    straight: bool = False,
    hold: str = HOLD,
) -> AsyncIterator[tuple[Workplace, Worker[Restocking]]]:
    """The agent, with the tools of its workplace; or, to show what that leads to, with one that writes to the log."""

    def append_to_log(restocks: list[dict[str, Any]]) -> str:
        """Append restocks to the log itself."""
        log.append_many([encoded(one) for one in restocks])
        return f"appended {len(restocks)} restocks"

    with left_to_validators(LOG, hold) as policy:
        async with workplace(at, agent=AGENT, policy=policy) as place:
            yield (
                place,
                Worker(
                    place,
                    think(restocking(slip, straight)),
                    STRAIGHT if straight else INSTRUCTIONS,
                    output=Restocking,
                    tools=[append_to_log] if straight else [],
                ),
            )


async def supply(
    at: str,
    *,
    seed: int,
    think: Think = scripted,
    slips: bool = True,
    straight: bool = False,
    history: int = 3_000,
    hold: str = HOLD,
) -> Outcome:
    """Have orders flow, a consumer follow, and the agent restock once."""
    market = Market(seed)
    slip = Slip.drawn(seed) if slips else None
    with braidlog.open(at) as braid:
        log = opened(braid, market, history)
        async with restocker(at, log, slip, think=think, straight=straight, hold=hold) as (place, worker):
            begun = log.tail()
            with Consumer(log) as consumer, orders(log, market) as flow:
                await asyncio.to_thread(consumer.wait_until, lambda one: one.position > begun or bool(one.crash))
                result = await worker.ask(QUESTION)
                flow.stop()
                end = log.tail()
                await asyncio.to_thread(consumer.wait_until, lambda one: one.position >= end or bool(one.crash))
                return Outcome(result.output, attempts(place), slip, consumer, flow.appended, place, result)


def told(outcome: Outcome) -> None:
    """Say what happened, in a few lines."""
    if outcome.slip is not None:
        say(f"the scripted agent slips: {outcome.slip.what}")
    for number, one in enumerate(outcome.attempts, 1):
        say(f"proposal {number}, {one.fork}: {one.state}")
        for reason in one.reasons:
            say(f"  {reason}")
    consumer = outcome.consumer
    if consumer.crash is not None:
        say(f"the consumer crashed at {consumer.position:,}: {consumer.crash}")
    else:
        say(f"the consumer is at {consumer.position:,}, {outcome.orders:,} orders came meanwhile; it never crashed")
    for restock in outcome.answer.restocks:
        seen = "seen" if restock in consumer.restocks.values() else "not seen"
        say(f"  {seen} by the consumer: {json.dumps(restock)}")


def main(argv: Sequence[str] | None = None) -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--straight", action="store_true", help="write to the log itself: the consumer crashes")
        add_hold(parser)

    command = Command(__doc__, argv, more=more)

    async def work() -> None:
        with command.logs() as at:
            outcome = await supply(
                at,
                seed=command.seed,
                think=command.model,
                slips=command.scripted,
                straight=command.chosen.straight,
                hold=command.chosen.hold,
            )
        say(f"seed {command.seed}")
        told(outcome)
        command.tell(outcome.place, [outcome.result])

    run(work)


if __name__ == "__main__":
    main()
