"""The agent that tests stream processors finds what is wrong with one and which events it takes, and harms nobody."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, pairwise
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from pydantic_ai.exceptions import ToolFailed

import braidlog
from apps.agents import testing
from apps.agents import windows_oracle as oracle
from apps.agents.cases import CASES
from apps.agents.live_sales import LiveSales
from apps.agents.processors import BUGGY, HANDWRITTEN, PROCESSORS, planted
from apps.agents.reports import CaseReport, Injected
from apps.agents.scripted import scripted
from apps.agents.testing_script import script
from apps.agents.under_test import Outcome, Processor, process
from apps.agents.workplace import Worker, workplace
from braidlog.agents.sql import Bounds, Query
from tests.agents.dying import Died, dying

FOUND_IN_A_CASE = ("malformed-crashes", "malformed-ends-windows", "refunds-counted")  # and in no other

Sets = list[set[int]]


@contextmanager
def production(folder: Path) -> Iterator[tuple[braidlog.Braid, LiveSales]]:
    """Sales that flow. Afterwards the log and its reader have those, and there is no fork."""
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with braidlog.open(folder / "shop.braid") as braid:
        with LiveSales(braid, seed) as live:
            yield braid, live
        assert live.unharmed()
        assert not any(b"test-" in value for value in live.written)
        assert len(live.written) > 2_000, "production stood still"
        assert [log.name for log in braid.logs() if not log.name.startswith("braidlog.")] == ["sales"]


def tried(braid: braidlog.Braid, processor: Processor, cases: Sequence[str] = tuple(CASES)) -> dict[str, CaseReport]:
    async def work() -> dict[str, CaseReport]:
        async with workplace(braid.url, agent="tester") as place:
            answers = await testing.try_out(place, scripted(script), processor, cases=cases)
            left = await place.forks_there()
            forked = Counter(made.arguments["log"] for made in place.calls if made.tool == "create_fork")
        assert left == []
        assert forked["sales"] == len(cases), "each case has a fork of its own"
        return {answer.output.case: answer.output for answer in answers}

    return asyncio.run(work())


# --- what is wrong with each of them, told from the events alone -----------------------------------------------------


def is_sale(event: Injected) -> bool:
    value = event.value
    return (
        isinstance(value, dict)
        and value.keys() == {"id", "at", "shop", "amount"}
        and isinstance(value["at"], int)
        and value["amount"] > 0
        and event.late_ms is not None
        and event.late_ms < 10_000
    )


def dropped(event: Injected) -> bool:
    return is_sale(event) and event.late_ms >= 5_000


def crashing(event: Injected) -> bool:
    return not isinstance(event.value, dict) or event.value.get("at") == "yesterday" or "amount" not in event.value


def refund(event: Injected) -> bool:
    return isinstance(event.value, dict) and event.value.get("amount", 1) < 0


def beyond_edge(event: Injected) -> bool:
    if not is_sale(event):
        return False
    edge = (event.value["at"] + event.late_ms) // 5_000 * 5_000
    return edge - 1_000 <= event.value["at"] < edge


def at_edge(event: Injected) -> bool:
    return is_sale(event) and event.value["at"] % 5_000 == 0


def alone(is_trigger: Callable[[Injected], bool]) -> Callable[[CaseReport], Sets]:
    """Each that is one, if any counts at all: what repeats an event that was counted rightly does no harm."""

    def sets(report: CaseReport) -> Sets:
        found = [event for event in report.injected if is_trigger(event)]
        firsts = [next(one for one in report.injected if one.value == event.value) for event in found]
        return [{event.position} for event in found] if any(map(is_trigger, firsts)) else []

    return sets


def pairs_apart(report: CaseReport) -> Sets:
    return [
        {one.position, other.position}
        for one, other in combinations(report.injected, 2)
        if is_sale(one) and one.value == other.value and other.position - one.position > 1
    ]


TRIGGERS: dict[str, tuple[str, Callable[[CaseReport], Sets]]] = {
    "late-dropped": ("late", alone(dropped)),
    "last-id-only": ("duplicate", pairs_apart),
    "malformed-crashes": ("malformed", alone(crashing)),
    "malformed-ends-windows": ("malformed", alone(lambda event: crashing(event) or refund(event))),
    "refunds-counted": ("malformed", alone(refund)),
    "edge-forgotten": ("out-of-order", alone(beyond_edge)),
    "edge-before": ("boundary", alone(at_edge)),
}


@pytest.mark.parametrize("bug", BUGGY)
def test_a_planted_bug_is_found_with_the_events_that_trigger_it(tmp_path: Path, bug: str) -> None:
    with production(tmp_path) as (braid, _):
        reports = tried(braid, process(braid, bug))

    case, triggers_of = TRIGGERS[bug]
    assert not reports[case].passed
    for report in reports.values():
        expected = triggers_of(report)
        found = [{event.position for event in events} for events in report.triggers]
        if bug == "malformed-ends-windows":  # at the beginning of a window it shows nothing
            assert all(events in expected for events in found), report
        else:
            assert found == expected, report
        assert report.passed == (not found), report
        assert (report.verdict == "crashed") == (bug == "malformed-crashes" and bool(found)), report
        if report.verdict == "wrong":
            assert report.differences
            assert all(
                one.got == [] or one.got[0] not in one.expected or len(one.got) > 1 for one in report.differences
            )
        injected = {event.position: event.value for event in report.injected}
        assert all(injected[event.position] == event.value for events in report.triggers for event in events)


def test_nothing_is_reported_of_a_processor_that_is_right(tmp_path: Path) -> None:
    with production(tmp_path) as (braid, _):
        reports = tried(braid, process(braid))
    assert {case: report.verdict for case, report in reports.items()} == dict.fromkeys(CASES, "right")
    for report in reports.values():
        positions = [event.position for event in report.injected]
        assert len(positions) >= 3
        gaps = [after - before for before, after in pairwise(positions)]
        assert sum(gap > 1 for gap in gaps) >= 2, "live records stand between them"
        assert report.live_between >= 6


def test_a_processor_that_needs_no_help_to_go_wrong_is_told_so(tmp_path: Path) -> None:
    with production(tmp_path) as (braid, _):
        report = tried(braid, lambda _fork, _start, _stop: Outcome(()), ["boundary"])["boundary"]
    assert report.verdict == "wrong"
    assert report.triggers == [[]]
    assert report.replays == 1


def test_forks_of_a_run_that_died_are_neither_taken_nor_ended(tmp_path: Path) -> None:
    async def work(braid: braidlog.Braid) -> None:
        processor = process(braid)
        async with workplace(braid.url, agent="tester", tidy=False) as left:
            tools = [testing.tool(processor, left)]
            worker = Worker(left, scripted(dying(script, 6)), testing.INSTRUCTIONS, output=CaseReport, tools=tools)
            with pytest.raises(Died):
                await worker.ask("Test the processor of the log 'sales', case 'boundary'.")
            async with workplace(braid.url, agent="tester") as place:
                (answer,) = await testing.try_out(place, scripted(script), processor, cases=["boundary"])
                with pytest.raises(ToolFailed, match="no fork that you made here"):
                    await testing.tool(processor, place)(left.forks[0], 0, 1, 0)
            assert (answer.output.verdict, len(answer.output.injected)) == ("right", 3)
            assert len(await left.forks_there()) == 1
            await left.squash_all()

    with production(tmp_path) as (braid, _):
        asyncio.run(work(braid))


def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    seed = next(
        seed for seed in iter(lambda: SystemRandom().randrange(2**32), None) if planted(seed) in FOUND_IN_A_CASE
    )
    asyncio.run(testing.command(["--processor", "buggy", "--seed", str(seed)]))
    told = capsys.readouterr().out
    assert f"testing: buggy, seed {seed}" in told
    assert re.search(r"^  malformed +(WRONG|CRASHED)", told, re.MULTILINE), told
    assert re.search(r"^    it takes: \n      position \d+: ", told, re.MULTILINE), told
    assert "1 of 5 cases went wrong" in told
    assert "its reader got those and no others\nforks left: 0\n" in told


# --- the processors and the oracle ------------------------------------------------------------------------------------


def messy(rng: Random, count: int) -> Iterator[bytes]:
    """Sales of which many are late, some too late, some come again, and events that are none."""
    sent: list[bytes] = []
    for number in range(count):
        fate = rng.random()
        late = rng.randrange(25_000) if fate < 0.3 else 0
        event: dict[str, Any] = {
            "id": f"e{number}",
            "at": (1_000 + number) * 100 - late,
            "shop": rng.choice("ab"),
            "amount": rng.randrange(1, 9),
        }
        if fate > 0.9:
            event |= rng.choice(({"amount": 0}, {"amount": 1.5}, {"at": None}, {"id": 7}, {"shop": []}, {"at": True}))
        sent.append(json.dumps(event).encode() if fate < 0.98 else rng.choice((b"", b"[]", b"\xff", b'"x"', b"{")))
        yield sent[-1]
        if fate < 0.1:
            yield rng.choice(sent[-60:])


def test_the_oracle_and_the_processor_agree_about_a_messy_stream() -> None:
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    values = list(messy(Random(seed), 1_500))
    with braidlog.open("memory://") as braid:
        log = braid.create("sales")
        log.append_many(values)
        rows = Query(log, oracle.sql(0), 0, len(values), Bounds(rows=5_000)).run().rows
    assert any(doubtful for *_, doubtful in rows), "nothing came too late"
    for name in sorted(PROCESSORS.keys() - {"malformed-crashes"}):
        processor = PROCESSORS[name]()
        told = [total for value in values for total in processor.take(value)]
        assert len(told) > 30
        wrong = oracle.differences(oracle.allowed(rows)[0], told)
        assert (wrong == []) == (name == HANDWRITTEN), name


def test_what_came_too_late_may_be_counted_or_not() -> None:
    right = oracle.allowed([(0, 5_000, "a", 2, 30, [4, 5]), (0, 5_000, "b", 0, 0, [7])])[0]
    for count, total in ((2, 30), (3, 34), (3, 35), (4, 39)):
        assert oracle.differences(right, [(5_000, "a", count, total)]) == []
    for rows in ([(2, 34)], [(3, 39)], [(5, 39)], [], [(2, 30), (2, 30)]):
        (wrong,) = oracle.differences(right, [(5_000, "a", *row) for row in rows])
        assert (wrong.shop, wrong.got, wrong.expected[0]) == ("a", rows, (2, 30))
    (unheard_of,) = oracle.differences({}, [(0, "c", 1, 1)])
    assert unheard_of.expected == [(0, 0)]


def test_whatever_becomes_of_a_processor_is_a_result(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "shop.braid") as braid:
        log = braid.create("sales")
        sale = {"id": "a", "at": 12_000, "shop": "north", "amount": 3}
        far = sale | {"id": "b", "at": 40_000}
        log.append_many([json.dumps(sale).encode(), b"\xff", json.dumps(far).encode(), b"{"])
        assert process(braid)("sales", 0, 4) == Outcome([(10_000, "north", 1, 3)])
        assert process(braid)("sales", 0, 2) == process(braid)("sales", 1, 4) == Outcome([])
        crashed = process(braid, "malformed-crashes")("sales", 0, 4)
        assert crashed.totals == []
        assert "DecodeError" in crashed.crashed
        hung = process(braid, HANDWRITTEN, time_s=0.001)("sales", 0, 4)
        assert hung == Outcome((), timed_out="it did not end within 0.001 s")
