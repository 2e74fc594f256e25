"""Three plans on three forks of one log: the best one is promoted, and nobody ever sees the others."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pydantic_ai.models import Model

import braidlog
from apps.agents.exploration import AHEAD, POLICIES, WAYS, Ranking, Sales, explore, main, score, within_budget
from apps.agents.scripted import Script, Stuck, scripted
from apps.agents.shop import LOG, Event, Market, Stock, encoded, opened
from braidlog.agents import Registry
from tests.agents.drawn import drawn_seed
from tests.agents.dying import Died, dying

HISTORY = 1_500
PLANNED = re.compile(r"^(\w+) plans (.+); score ([\d,]+)$", re.MULTILINE)

REFUSING = """
def refuses(fork, context):
    return context.log.split(".")[1] not in context.parameters["refused"]
"""


def events_at(at: Path) -> list[Event]:
    with braidlog.open(at, read_only=True) as braid:
        return [json.loads(record.value) for record in braid.log(LOG).read(0)]


def forks_at(at: Path) -> list[str]:
    with braidlog.open(at, read_only=True) as braid:
        return [log.name for log in braid.logs() if log.name.startswith(f"{LOG}.")]


def test_the_best_plan_is_promoted_and_the_others_vanish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = drawn_seed()
    with braidlog.open(tmp_path) as braid:
        history = opened(braid, Market(seed), HISTORY).tail()
    main(["--at", str(tmp_path), "--seed", str(seed), "--model", "scripted"])
    told = capsys.readouterr().out
    planned = {way: (plan, float(brings.replace(",", ""))) for way, plan, brings in PLANNED.findall(told)}
    best = max(planned, key=lambda way: planned[way][1])

    assert planned.keys() == WAYS.keys()
    assert len({plan for plan, _ in planned.values()}) == len(WAYS), "they are of different minds"
    assert f"the winner is {best}; forks that are left: 0" in told
    restocks = [event for event in events_at(tmp_path)[history:] if event["kind"] != "order"]
    assert ", ".join(f"{event['count']} {event['item']}" for event in restocks) == planned[best][0]
    assert forks_at(tmp_path) == []


def test_a_plan_that_is_refused_gives_way_to_the_next(tmp_path: Path) -> None:
    seed = drawn_seed()
    (tmp_path / "checks.py").write_text(REFUSING)
    left = Random(seed).choice(sorted(WAYS))
    with braidlog.open(tmp_path / "logs") as braid:
        refused = {"refused": sorted(WAYS.keys() - {left})}
        Registry(braid).add("refuses", f"{tmp_path}/checks.py:refuses", logs=LOG, parameters=refused)
    done = asyncio.run(explore(str(tmp_path / "logs"), seed=seed, history=HISTORY))
    events = events_at(tmp_path / "logs")
    drawn = sum(1 for _ in Market(seed).history(HISTORY))
    restocks = {n: event for n, event in enumerate(events) if n >= drawn and event["kind"] != "order"}

    assert done.winner == left
    assert [one.fork for one in done.attempts] == done.ranking.best_first()[: len(done.attempts)]
    assert {one.state for one in done.attempts[:-1]} <= {"failed"}
    assert list(restocks.values()) == done.plans[left].restocks
    assert forks_at(tmp_path / "logs") == done.forks_left == []
    assert done.consumer.crash is None
    assert done.consumer.position == len(events)
    assert restocks.items() <= done.consumer.restocks.items()


def test_a_judge_that_ranks_what_is_no_plan_is_refused_and_holds_nobody(tmp_path: Path) -> None:
    def think(script: Callable[[str], Script]) -> Model:
        def judged(asked: str) -> Script:
            answer = yield from script(asked)
            return Ranking(scores={**answer.scores, LOG: 9e9}) if isinstance(answer, Ranking) else answer

        return scripted(judged)

    with pytest.raises(Stuck, match=r"no plan: shop$"):
        asyncio.run(explore(str(tmp_path), seed=drawn_seed(), think=think, history=HISTORY))
    assert forks_at(tmp_path) == []


def test_an_agent_that_fails_ends_the_forks_of_all(tmp_path: Path) -> None:
    def think(script: Callable[[str], Script]) -> Model:
        return scripted(dying(script, 2))

    with pytest.raises(Died, match="append_records"):
        asyncio.run(explore(str(tmp_path), seed=drawn_seed(), think=think, history=HISTORY))
    assert forks_at(tmp_path) == []


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
