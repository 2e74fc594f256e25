"""What-if questions are answered as one would by going through the events one by one; and nobody notices."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai.models import Model

import braidlog
from apps.agents.scripted import Script, scripted
from apps.agents.shop import LOG, Event, Market, Stock, encoded, opened
from apps.agents.what_if import (
    AGENT,
    AHEAD_MINUTES,
    INSTRUCTIONS,
    LATELY_ORDERS,
    Answer,
    Question,
    another_future,
    another_past,
    main,
    suppose,
)
from apps.agents.workplace import Worker, workplace
from tests.agents.drawn import drawn_seed
from tests.agents.dying import Died, dying

HISTORY = 1_500


def runs_out(events: list[Event], since: int) -> dict[str, int]:
    levels: Counter[str] = Counter()
    found: dict[str, int] = {}
    for event in events:
        levels[event["item"]] += -event["count"] if event["kind"] == "order" else event["count"]
        if event["minute"] >= since and levels[event["item"]] <= 0:
            found.setdefault(event["item"], event["minute"])
    return found


def runs_out_at_rate(events: list[Event], times: int) -> dict[str, int]:
    """By division: how long the stock lasts at so many times the rate of the last orders."""
    stock = Stock()
    for event in events:
        stock.take(encoded(event))
    lately = [event for event in events if event["kind"] == "order"][-LATELY_ORDERS:]
    minutes, now = lately[-1]["minute"] - lately[0]["minute"] + 1, lately[-1]["minute"]
    sold: Counter[str] = Counter()
    for order in lately:
        sold[order["item"]] += order["count"]
    lasts = {item: -(-max(stock.levels[item], 1) * minutes // (times * units)) for item, units in sold.items()}
    return {item: now + last for item, last in lasts.items() if last <= AHEAD_MINUTES}


def forks_at(at: Path) -> set[str]:
    with braidlog.open(at, read_only=True) as braid:
        return {log.name for log in braid.logs() if log.name.startswith(f"{LOG}.")}


async def die_amid(at: Path, asked: Question) -> None:
    """Both questions, by an agent whose process ends before it squashes its forks."""
    async with workplace(str(at), agent=AGENT, tidy=False) as place:
        for script, step in ((another_future(asked), 4), (another_past(asked), 5)):
            with pytest.raises(Died):
                await Worker(place, scripted(dying(script, step)), INSTRUCTIONS, output=Answer).ask("What if?")


def test_answers_are_those_of_a_replay_though_an_earlier_run_died(tmp_path: Path) -> None:
    seed = drawn_seed()
    asked = Question.drawn(seed)
    with braidlog.open(tmp_path) as braid:
        opened(braid, Market(seed), HISTORY)
    asyncio.run(die_amid(tmp_path, asked))
    of_others = forks_at(tmp_path)
    assert len(of_others) == 4
    done = asyncio.run(suppose(str(tmp_path), seed=seed, asked=asked, history=HISTORY))
    with braidlog.open(tmp_path, read_only=True) as braid:
        events = [json.loads(record.value) for record in braid.log(LOG).read(0)]
    assert forks_at(tmp_path) == of_others, "its forks are squashed, and no others"

    shared = events[: done.future.end]
    assert done.future.as_it_is == runs_out_at_rate(shared, 1)
    assert done.future.supposed == runs_out_at_rate(shared, asked.times)
    assert done.future.supposed.keys() >= done.future.as_it_is.keys()
    assert done.future.supposed != done.future.as_it_is

    happened = events[: done.past.end]
    supplied = {event["item"] for event in happened if event.get("supplier") == asked.supplier}
    instead = [
        {**event, "count": event["count"] * asked.percent // 100}
        if event["kind"] == "restock" and event["item"] in supplied and event["minute"] >= asked.failed_at
        else event
        for event in happened
    ]
    assert supplied
    assert done.past.as_it_is == runs_out(happened, asked.failed_at)
    assert done.past.supposed == runs_out(instead, asked.failed_at)

    assert done.consumer.crash is None
    assert done.consumer.position == len(events)
    assert len(events) > done.past.end, "orders went on"
    assert not [call for call in done.place.calls if call.arguments.get("promotable")]
    assert {event["kind"] for event in events[done.past.end :]} == {"order"}


def test_an_agent_that_fails_leaves_no_fork(tmp_path: Path) -> None:
    seed = drawn_seed()

    def think(script: Callable[[str], Script]) -> Model:
        return scripted(dying(script, 3))

    with pytest.raises(Died):
        asyncio.run(suppose(str(tmp_path), seed=seed, asked=Question.drawn(seed), think=think, history=HISTORY))
    assert forks_at(tmp_path) == set()


def test_a_question_that_changes_nothing_is_answered_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = drawn_seed()
    with braidlog.open(tmp_path) as braid:
        opened(braid, Market(seed), HISTORY)
    at = ["--at", str(tmp_path), "--seed", str(seed), "--model", "scripted"]
    main([*at, "--times", "1", "--percent", "100"])
    answers = re.findall(r"would run out (.+); as it is, (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert answers
    assert [supposed for supposed, _ in answers] == [real for _, real in answers]
