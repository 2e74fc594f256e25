"""A malformed restock is refused before the consumer sees it, mended and promoted; written straight it is a crash."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from pydantic_ai.models import Model

import braidlog
from apps.agents.scripted import Script, scripted
from apps.agents.shop import LOG, Event, Malformed, Market, Rehearsal, Stock, encoded, opened
from apps.agents.supply_chain import LEVEL_UNITS, RESTOCKS, SLIPS, Slip, main, supply
from apps.agents.trading import Consumer, orders
from braidlog.agents.validators import examine
from tests.agents.drawn import drawn_seed
from tests.agents.dying import Died, dying

HISTORY = 1_500


def events_at(at: Path) -> list[Event]:
    with braidlog.open(at, read_only=True) as braid:
        return [json.loads(record.value) for record in braid.log(LOG).read(0)]


def runs_out_first(events: list[Event]) -> list[tuple[str, int]]:
    """The items with the least time left, and what they have, counted one event after the other."""
    stock = Stock()
    for event in events:
        stock.take(encoded(event))
    recent: Counter[str] = Counter()
    for event in events[-1001:]:
        recent[event["item"]] += event["count"] if event["kind"] == "order" else 0
    left = sorted((units / (recent[item] or 0.1), item) for item, units in stock.levels.items())
    return [(item, stock.levels[item]) for _, item in left[:RESTOCKS]]


def levels_after(events: list[Event]) -> Iterator[tuple[int, dict[str, int]]]:
    """How many events, and what lies on the shelves after them."""
    stock = Stock()
    for number, event in enumerate(events, 1):
        stock.take(encoded(event))
        yield number, stock.levels


def consumer_ends_at(log: braidlog.Log) -> int | None:
    stock = Stock()
    for record in log.read(0):
        try:
            stock.take(record.value)
        except Malformed:
            return record.position
    return None


def test_a_malformed_restock_is_mended_and_production_never_sees_it(tmp_path: Path) -> None:
    seed = drawn_seed()
    done = asyncio.run(supply(str(tmp_path), seed=seed, history=HISTORY))
    refused, promoted = done.attempts
    events = events_at(tmp_path)
    written = done.answer.restocks
    at = next(n for n in range(HISTORY, len(events)) if events[n : n + RESTOCKS] == written)

    assert (refused.state, promoted.state) == ("failed", "promoted")
    assert len(refused.positions) == 1
    assert str(refused.positions[0]) in refused.reasons[0]
    assert HISTORY < refused.positions[0] < at
    assert done.slip is not None
    assert done.slip.on(written) != written
    history = list(Market(seed).history(HISTORY))
    assert events[: len(history)] == history
    assert [event for event in events[len(history) :] if event["kind"] != "order"] == written, "and nothing else of it"

    assert done.consumer.crash is None
    assert done.consumer.position == len(events)
    assert {n: events[n] for n in range(at, at + RESTOCKS)}.items() <= done.consumer.restocks.items()
    assert len(events) > at + RESTOCKS, "orders came while it was validated"

    wanted = [(one["item"], LEVEL_UNITS - one["count"]) for one in written]
    had = dict(wanted).items()
    looked = [end for end, levels in levels_after(events[:at]) if end >= HISTORY and had <= levels.items()]
    assert any(runs_out_first(events[:end]) == wanted for end in looked), "as it was when it looked"


def test_written_straight_to_the_log_it_crashes_the_consumer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its command, on a log that is there already."""
    seed = drawn_seed()
    with braidlog.open(tmp_path) as braid:
        opened(braid, Market(seed), HISTORY)
    main(["--at", str(tmp_path), "--seed", str(seed + 1), "--model", "scripted", "--straight"])
    told = capsys.readouterr().out
    with braidlog.open(tmp_path, read_only=True) as braid:
        log = braid.log(LOG)
        crashed = consumer_ends_at(log)
        assert crashed is not None
        assert f"the consumer crashed at {crashed:,}: " in told
        assert f"not seen by the consumer: {log[crashed].value.decode()}" in told
        assert Slip.drawn(seed + 1).what in told


def test_an_agent_that_fails_holds_nobody(tmp_path: Path) -> None:
    def think(script: Callable[[str], Script]) -> Model:
        return scripted(dying(script, 3))

    with pytest.raises(Died, match="propose_promotion"):
        asyncio.run(supply(str(tmp_path), seed=drawn_seed(), think=think, history=HISTORY))
    with braidlog.open(tmp_path, read_only=True) as braid:
        assert [log.name for log in braid.logs() if log.name.startswith(f"{LOG}.")] == []
        assert braid.log(LOG).info().limited_by is None


@pytest.mark.parametrize("what", SLIPS)
def test_a_copy_of_the_consumer_refuses_each_mistake_where_it_stands(what: str) -> None:
    rng = Random(drawn_seed())
    market = Market(rng.randrange(2**32))
    slip = Slip(what, rng.randrange(RESTOCKS))
    with braidlog.open("memory://") as braid:
        log = braid.create(LOG)
        log.append_many([encoded(event) for event in market.history(300)])
        low = runs_out_first([json.loads(record.value) for record in log.read(0)])
        meant: list[Event] = [{"kind": "restock", "item": item, "count": LEVEL_UNITS - have} for item, have in low]
        for written, good in ((slip.on(meant), False), (meant, True)):
            fork = log.cfork("idea", promotable=True)
            positions = []
            for restock in written:
                log.append_many([encoded(market.order()) for _ in range(rng.randrange(3))])
                positions.append(fork.append(encoded(restock)))
            verdict = examine(fork, Rehearsal, {})
            assert verdict.passed == good
            assert verdict.positions == ([] if good else [positions[slip.which]])
            if not good:
                assert consumer_ends_at(fork) == positions[slip.which]
            fork.squash()


def test_a_consumer_that_crashed_stays_down(tmp_path: Path) -> None:
    market = Market(drawn_seed())
    with braidlog.open(tmp_path) as braid:
        log = braid.create(LOG)
        log.append_many([encoded(event) for event in market.history(20)])
        with Consumer(log) as consumer, orders(log, market) as flow:
            consumer.wait_until(lambda one: one.position > 26)
            log.append(b"{}")
            consumer.wait_until(lambda one: one.crash is not None)
            flow.stop()
        assert log.read(consumer.position)[0].value == b"{}"
