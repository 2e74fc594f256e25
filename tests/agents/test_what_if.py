"""What-if questions are answered as one would by going through the events one by one; and nobody notices."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

import braidlog
from apps.agents.shop import LOG, Event, Market, Stock, encoded, opened
from apps.agents.what_if import AHEAD_MINUTES, LATELY_ORDERS, Question, main, suppose
from tests.agents.drawn import drawn_seed

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


def test_answers_are_those_of_a_replay(tmp_path: Path) -> None:
    seed = drawn_seed()
    asked = Question.drawn(seed)
    done = asyncio.run(suppose(str(tmp_path), seed=seed, asked=asked, history=HISTORY))
    with braidlog.open(tmp_path, read_only=True) as braid:
        events = [json.loads(record.value) for record in braid.log(LOG).read(0)]
        assert [log.name for log in braid.logs() if log.name.startswith(f"{LOG}.")] == [], "its forks are squashed"

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


def test_a_question_that_changes_nothing_is_answered_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = drawn_seed()
    with braidlog.open(tmp_path) as braid:
        opened(braid, Market(seed), HISTORY)
    at = ["--at", str(tmp_path), "--seed", str(seed), "--model", "scripted"]
    main([*at, "--times", "1", "--percent", "100"])
    answers = re.findall(r"would run out (.+); as it is, (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert answers
    assert [supposed for supposed, _ in answers] == [real for _, real in answers]
