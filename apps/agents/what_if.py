"""What would happen, and what would have happened: an agent that asks on forks that are severed from a shop's log.

Two questions, asked at the same time:

- *When does the stock run out if demand doubles?* Another future: on one sFork orders go on as they came lately, on a
  second one so many times as much is ordered.
- *When would it have run out, had a supplier failed at some minute?* Other values: the agent reads the log from that
  minute on by a cFork, and writes it to an sFork that ends there, with as much as that supplier still delivers.

One query tells which shelf is empty when, as it is and as it is supposed. Then all forks are squashed. The log is never
held, orders keep coming to it, and nothing of it is changed.

    python -m apps.agents.what_if
    python -m apps.agents.what_if --times 3 --supplier north --failed-at 300
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pydantic import BaseModel
from pydantic_ai import AgentRunResult

import braidlog
from apps.agents.command import Command, run, say
from apps.agents.scripted import Call, Returned, Script, Think, scripted
from apps.agents.shop import LOG, SUPPLIERS, Event, Market, opened
from apps.agents.trading import Consumer, orders
from apps.agents.workplace import Worker, Workplace, side_by_side, workplace

AGENT: Final = "analyst"
AHEAD_MINUTES: Final = 240  # that a future is written for
LATELY_ORDERS: Final = 600  # that it is like
BATCH_RECORDS: Final = 1_000
EMPTY: Final = """
WITH levels AS (
  SELECT item, "minute",
         sum(CASE kind WHEN 'order' THEN -"count" ELSE "count" END) OVER (PARTITION BY item ORDER BY _position) AS stock
  FROM rows
)
SELECT item, CAST(min("minute") AS BIGINT) FROM levels WHERE stock <= 0 AND "minute" >= {since}
GROUP BY item ORDER BY item
"""
LATELY: Final = f"""
WITH lately AS (
  SELECT item, "count" AS units, "minute" FROM rows WHERE kind = 'order' ORDER BY _position DESC LIMIT {LATELY_ORDERS}
), span AS (SELECT min("minute") AS low, max("minute") AS high FROM lately)
SELECT item, CAST(sum(units) AS BIGINT), CAST(any_value(high - low + 1) AS BIGINT), CAST(any_value(high) AS BIGINT)
FROM lately, span GROUP BY item ORDER BY item
"""
SUPPLIED: Final = "SELECT item FROM rows WHERE kind = 'opening' AND supplier = '{supplier}' ORDER BY item"
BEGINS: Final = "SELECT CAST(min(_position) AS BIGINT) FROM rows WHERE \"minute\" >= {minute} AND kind <> 'opening'"
INSTRUCTIONS: Final = f"""
You answer what-if questions about a shop. Its log {LOG!r} has JSON events: openings of shelves (with a supplier),
orders and restocks, each with kind, item, count and minute. What lies on a shelf is what was opened and restocked
there, less what was ordered. Never make a promotable fork. For another future write orders of the minutes to come on
severed forks, one as things are and one as they are supposed to be. For another past make a severed fork that ends
where it begins, read the rest on a live fork, and append it to the severed one, changed as the question says. Tell for
each item the first minute at which its shelf is empty, as it is and as it is supposed; and squash your forks.
"""


class Answer(BaseModel):
    """For each item whose shelf is empty at some time, the first minute of it, as it is and as it is supposed."""

    since: int  # minutes before do not count
    end: int  # where the log ended when it was asked
    as_it_is: dict[str, int]
    supposed: dict[str, int]

    def told(self) -> Iterator[str]:
        """In words, item by item."""
        for item in sorted(self.as_it_is | self.supposed):
            supposed, real = (times.get(item) for times in (self.supposed, self.as_it_is))
            yield f"{item} would run out {_minute(supposed)}; as it is, {_minute(real)}"


def _minute(minute: int | None) -> str:
    return "not at all" if minute is None else f"at minute {minute}"


@dataclass(frozen=True)
class Question:
    """What is supposed: so many times the demand; and a supplier that delivers that little from a minute on."""

    times: int
    supplier: str
    failed_at: int
    percent: int = 0

    @classmethod
    def drawn(cls, seed: int) -> Question:
        rng = Random(seed)
        supplier = rng.choice(Market(seed).demands).supplier
        return cls(rng.randint(2, 4), supplier, rng.randint(50, 200), rng.choice((0, 10, 25)))


# --- the scripted agent -----------------------------------------------------------------------------------------------


def another_future(asked: Question) -> Callable[[str], Script]:
    """Demand as it is, and as it is supposed, each on a fork."""

    def script(_: str) -> Script:
        (made,) = yield [Call("create_fork", {"log": LOG, "kind": "severed", "purpose": "as it is"})]
        real, end = made["fork"]["name"], made["fork"]["tail"]
        made, lately = yield [
            Call("create_fork", {"log": LOG, "kind": "severed", "at": end, "purpose": "more demand"}),
            Call("query_sql", {"log": real, "sql": LATELY}),
        ]
        supposed = made["fork"]["name"]
        now = lately["rows"][0][3]
        per_minute = {item: (units, minutes) for item, units, minutes, _ in lately["rows"]}
        for fork, times in ((real, 1), (supposed, asked.times)):
            orders = coming(per_minute, times, now + 1)
            for at in range(0, len(orders), BATCH_RECORDS):
                yield [_append(fork, orders[at : at + BATCH_RECORDS])]
        empty = yield [_empty(real, now + 1), _empty(supposed, now + 1)]
        yield [Call("squash_fork", {"fork": fork}) for fork in (real, supposed)]
        return _answer(now + 1, end, empty)

    return script


def coming(per_minute: Mapping[str, tuple[int, int]], times: int, first: int) -> list[Event]:
    """Orders of the minutes to come, so evenly that at each minute as much is ordered as the rate says."""
    return [
        {"kind": "order", "item": item, "count": count, "minute": first + number}
        for number in range(AHEAD_MINUTES)
        for item, (units, minutes) in per_minute.items()
        if (count := (number + 1) * times * units // minutes - number * times * units // minutes)
    ]


def another_past(asked: Question) -> Callable[[str], Script]:
    """What happened since the supplier failed, read on a cFork and written to an sFork with less of its deliveries."""

    def script(_: str) -> Script:
        (made,) = yield [Call("create_fork", {"log": LOG, "purpose": "what happened"})]
        live, end = made["fork"]["name"], made["fork"]["tail"]
        supplied, begins = yield [
            Call("query_sql", {"log": live, "sql": SUPPLIED.format(supplier=asked.supplier), "stop": end}),
            Call("query_sql", {"log": live, "sql": BEGINS.format(minute=asked.failed_at), "stop": end}),
        ]
        items = {item for (item,) in supplied["rows"]}
        at = end if begins["rows"][0][0] is None else begins["rows"][0][0]
        (made,) = yield [Call("create_fork", {"log": LOG, "kind": "severed", "at": at, "purpose": "without"})]
        supposed = made["fork"]["name"]
        while at < end:
            (found,) = yield [
                Call("read_records", {"log": live, "start": at, "stop": end, "limit": BATCH_RECORDS}),
            ]
            at = found["records"][-1]["position"] + 1
            events = [record["value"] for record in found["records"]]
            if changed := perturbed(events, items, asked.percent):
                yield [_append(supposed, changed)]
        empty = yield [_empty(live, asked.failed_at, end), _empty(supposed, asked.failed_at)]
        yield [Call("squash_fork", {"fork": fork}) for fork in (live, supposed)]
        return _answer(asked.failed_at, end, empty)

    return script


def perturbed(events: Sequence[Event], items: set[str], percent: int) -> list[Event]:
    """The same, with that much of each delivery of these items; one that brings nothing is left out."""
    changed = []
    for event in events:
        count = event["count"]
        if event["kind"] == "restock" and event["item"] in items:
            count = count * percent // 100
        if count:
            changed.append({**event, "count": count})
    return changed


def _append(fork: str, events: Sequence[Event]) -> Call:
    return Call("append_records", {"fork": fork, "records": [{"value": event} for event in events]})


def _empty(log: str, since: int, stop: int | None = None) -> Call:
    return Call("query_sql", {"log": log, "sql": EMPTY.format(since=since)} | ({} if stop is None else {"stop": stop}))


def _answer(since: int, end: int, empty: Sequence[Returned]) -> Answer:
    as_it_is, supposed = (dict(one["rows"]) for one in empty)
    return Answer(since=since, end=end, as_it_is=as_it_is, supposed=supposed)


# --- the command ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Both answers, and what production saw meanwhile."""

    asked: Question
    future: Answer
    past: Answer
    consumer: Consumer
    place: Workplace
    results: list[AgentRunResult[Answer]]


async def suppose(at: str, *, seed: int, asked: Question, think: Think = scripted, history: int = 3_000) -> Outcome:
    """Ask both questions in parallel, while orders flow."""
    market = Market(seed)
    with braidlog.open(at) as braid:
        log = opened(braid, market, history)
        async with workplace(at, agent=AGENT) as place:
            ahead = Worker(place, think(another_future(asked)), INSTRUCTIONS, output=Answer)
            back = Worker(place, think(another_past(asked)), INSTRUCTIONS, output=Answer)
            with Consumer(log) as consumer, orders(log, market) as flow:
                asking = (
                    ahead.ask(
                        f"Orders go on for {AHEAD_MINUTES} minutes as the last {LATELY_ORDERS} of them came. When is "
                        f"each shelf empty, and when is it if {asked.times} times as much is ordered?"
                    ),
                    back.ask(
                        f"Had the supplier {asked.supplier} delivered {asked.percent} percent of what it did from "
                        f"minute {asked.failed_at} on, when would each shelf have been empty since, and when was it?"
                    ),
                )
                future, past = await side_by_side(asking)
                flow.stop()
                end = log.tail()
                await asyncio.to_thread(consumer.wait_until, lambda one: one.position >= end or bool(one.crash))
                return Outcome(asked, future.output, past.output, consumer, place, [future, past])


def told(outcome: Outcome) -> None:
    """Say what was found, in a few lines."""
    asked = outcome.asked
    say(f"if {asked.times} times as much were ordered from minute {outcome.future.since} on:")
    for line in outcome.future.told():
        say(f"  {line}")
    say(f"had {asked.supplier} delivered {asked.percent} percent from minute {asked.failed_at} on:")
    for line in outcome.past.told():
        say(f"  {line}")


def main(argv: Sequence[str] | None = None) -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--times", type=int, help="as much is ordered (drawn)")
        parser.add_argument("--supplier", choices=SUPPLIERS, help="that fails (drawn, of those who supply)")
        parser.add_argument("--failed-at", type=int, help="the minute from which on it does (drawn)")
        parser.add_argument("--percent", type=int, help="of its deliveries that still come (drawn)")

    command = Command(__doc__, argv, more=more)
    given = {field: getattr(command.chosen, field) for field in ("times", "supplier", "failed_at", "percent")}
    known = {field: value for field, value in given.items() if value is not None}
    asked = replace(Question.drawn(command.seed), **known)

    async def work() -> None:
        with command.logs() as at:
            outcome = await suppose(at, seed=command.seed, asked=asked, think=command.model)
        say(f"seed {command.seed}")
        told(outcome)
        command.tell(outcome.place, outcome.results)

    run(work)


if __name__ == "__main__":
    main()
