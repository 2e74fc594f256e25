"""Three plans on three forks of one log: the best one is promoted, and nobody ever sees the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random

import braidlog
from apps.agents.exploration import AHEAD, POLICIES, WAYS, Outcome, Sales, explore, score, within_budget
from apps.agents.shop import LOG, Event, Market, Stock, encoded
from braidlog.agents import Registry
from tests.agents.drawn import drawn_seed

HISTORY = 1_500

REFUSING = """
def refuses(fork, context):
    return context.log.split(".")[1] not in context.parameters["refused"]
"""


def events_at(at: Path) -> list[Event]:
    with braidlog.open(at, read_only=True) as braid:
        return [json.loads(record.value) for record in braid.log(LOG).read(0)]


def only_the_winner_is_seen(done: Outcome, at: Path) -> None:
    events = events_at(at)
    assert done.winner is not None
    plan = done.plans[done.winner].restocks
    restocks = {n: event for n, event in enumerate(events) if event["kind"] == "restock" and n >= HISTORY}
    drawn = [event for event in restocks.values() if event not in plan]
    assert [event for event in restocks.values() if event in plan] == plan
    for loser in done.plans.keys() - {done.winner}:
        assert not [event for event in done.plans[loser].restocks if event in drawn]
    with braidlog.open(at, read_only=True) as braid:
        assert [log.name for log in braid.logs() if log.name.startswith(f"{LOG}.")] == []
    assert done.forks_left == []
    assert done.consumer.crash is None
    assert done.consumer.position == len(events)
    assert restocks.items() <= done.consumer.restocks.items()


def test_the_best_plan_is_promoted_and_the_others_vanish(tmp_path: Path) -> None:
    seed = drawn_seed()
    done = asyncio.run(explore(str(tmp_path), seed=seed, history=HISTORY))
    only_the_winner_is_seen(done, tmp_path)
    assert done.winner is not None
    assert [one.state for one in done.attempts] == ["promoted"]
    assert done.ranking.best_first()[0] == done.plans[done.winner].fork
    assert len({json.dumps(plan.restocks) for plan in done.plans.values()}) == len(WAYS), "they are of different minds"


def test_a_plan_that_is_refused_gives_way_to_the_next(tmp_path: Path) -> None:
    seed = drawn_seed()
    (tmp_path / "checks.py").write_text(REFUSING)
    left = Random(seed).choice(sorted(WAYS))
    with braidlog.open(tmp_path / "logs") as braid:
        refused = {"refused": sorted(WAYS.keys() - {left})}
        Registry(braid).add("refuses", f"{tmp_path}/checks.py:refuses", logs=LOG, parameters=refused)
    done = asyncio.run(explore(str(tmp_path / "logs"), seed=seed, history=HISTORY))
    assert done.winner == left
    assert [one.fork for one in done.attempts] == done.ranking.best_first()[: len(done.attempts)]
    assert {one.state for one in done.attempts[:-1]} <= {"failed"}
    only_the_winner_is_seen(done, tmp_path / "logs")


def sales_of(events: list[Event]) -> tuple[list[Sales], list[Event]]:
    stock = Stock()
    for event in events:
        stock.take(encoded(event))
    orders = [event for event in events if event["kind"] == "order"]
    quarter = len(orders) // 4
    sold, before, lately = Counter[str](), Counter[str](), Counter[str]()
    for number, order in enumerate(orders):
        sold[order["item"]] += order["count"]
        if number >= 2 * quarter:
            (lately if number >= 3 * quarter else before)[order["item"]] += order["count"]
    found = [Sales(item, have, sold[item], before[item], lately[item]) for item, have in stock.levels.items()]
    return found, orders


def test_which_way_is_best_depends_on_what_sells() -> None:
    seed = drawn_seed()
    winners = set()
    for number in range(25):
        sales, orders = sales_of(list(Market(seed + number).history(1_000)))
        levels = {one.item: one.stock for one in sales}
        scores = {}
        for way, policy in POLICIES.items():
            counts = within_budget(policy(sales, len(orders)), sales)
            plan = [{"item": item, "count": count} for item, count in counts.items()]
            scores[way] = score(levels, plan, orders[-AHEAD:], seed)
        winners.add(max(scores, key=scores.__getitem__))
    assert len(winners) > 1


def test_a_score_is_what_sells_less_what_lies_about() -> None:
    recent = [{"item": "rope", "count": 2}]
    bare, enough, too_much = (
        score({"rope": 0, "sail": 0}, [{"item": "rope", "count": count}], recent, drawn_seed())
        for count in (1, 2 * AHEAD, 2 * AHEAD + 500)
    )
    assert (bare, enough, too_much) == (1, 2 * AHEAD, 2 * AHEAD - 100)
