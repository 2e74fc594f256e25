"""The analytics agent finds what was planted, all of it and nothing else, and leaves the log as it was."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from pydantic_ai.models import Model

import braidlog
from apps.agents import dashboard
from apps.agents.analytics import AGENT, HOUR, Report, analyse, drawn_for_last_hour, main, shown
from apps.agents.command import SEEDS, Refused
from apps.agents.investigations import INVESTIGATIONS, Finding, Task, question
from apps.agents.readings import KINDS, Planted, Readings, draw
from apps.agents.scripted import Returned, Script, Stuck, scripted
from apps.agents.workplace import Made, workplace

DEADLINE_S = 240


@pytest.fixture
def seed() -> int:
    """Drawn anew in each run. It is printed if the test fails."""
    drawn = SystemRandom().randrange(SEEDS)
    print(f"seed {drawn}")
    return drawn


def looked_at(at: Path, readings: Readings, **options: Any) -> tuple[Report, list[Made]]:
    """What the agent reports of these readings, and what it called; the log is the same afterwards, without forks."""

    async def work() -> tuple[Report, list[Made]]:
        async with asyncio.timeout(DEADLINE_S), workplace(str(at), agent=AGENT) as place:
            return await analyse(place, scripted, "iot", **options), place.calls

    with braidlog.open(at) as braid:
        readings.append_to(braid.create("iot"))
    report, calls = asyncio.run(work())
    with braidlog.open(at) as braid:
        assert braid.log("iot").tail() == len(readings.table)
        assert not [log.name for log in braid.logs() if log.name.startswith("iot.")]
    return report, calls


def check(findings: list[Finding], planted: list[Planted], count: int) -> None:
    """Each that was planted was found, where it is, and nothing else. Drift begins by and by: to two tenths."""
    found = {(one.device, one.kind): one for one in findings}
    assert len(found) == len(findings)
    assert set(found) == {(one.device, one.kind) for one in planted}
    for one in planted:
        finding = found[one.device, one.kind]
        if one.kind == "drift":
            assert abs(finding.first - one.first) <= count / 5
            assert finding.last == one.last
        else:
            assert (finding.first, finding.last) == (one.first, one.last), finding
        assert finding.evidence


def test_it_finds_all_that_was_planted_and_nothing_else_in_parts(tmp_path: Path, seed: int) -> None:
    readings = draw(seed, 50_000, datetime.now(UTC), devices=100)
    report, calls = looked_at(tmp_path / "logs", readings, records_per_query=30_000)
    check(report.findings, readings.planted, 50_000)
    assert {one.kind for one in report.findings} == set(KINDS)
    assert not any(made.failed for made in calls)
    assert all(made.arguments["stop"] - made.arguments["start"] <= 30_000 for made in queries(calls))
    assert len(queries(calls)) == 2 * (len(INVESTIGATIONS) + 1)
    for one in report.findings:
        assert one.device in report.summary


def queries(calls: list[Made]) -> list[Made]:
    return [made for made in calls if made.tool == "query_sql"]


def test_it_finds_them_among_a_million(tmp_path: Path, seed: int) -> None:
    readings = draw(seed, 1_000_000, datetime.now(UTC))
    report, calls = looked_at(tmp_path / "logs", readings)
    check(report.findings, readings.planted, 1_000_000)
    assert report.survey.stop == 1_000_000
    assert len(report.answers) == len(INVESTIGATIONS) + 2
    assert len(queries(calls)) == len(INVESTIGATIONS) + 1  # that of drift asks again


def test_it_tells_what_happened_in_the_last_hour(tmp_path: Path, seed: int) -> None:
    now = datetime.now(UTC)
    readings = drawn_for_last_hour(seed, 100_000, now, devices=20)
    report, _ = looked_at(tmp_path / "logs", readings, last=HOUR)
    check(report.findings, readings.planted, 100_000)
    assert report.survey.start == pytest.approx(100_000 * 23 / 24, abs=3)
    assert datetime.fromisoformat(report.survey.last_time) - datetime.fromisoformat(report.survey.first_time) <= HOUR


def test_what_happened_before_the_last_hour_is_left_out(tmp_path: Path, seed: int) -> None:
    readings = draw(seed, 60_000, datetime.now(UTC), devices=10, each=(1, 1), kinds=("spike", "stuck", "impossible"))
    assert max(one.last for one in readings.planted) < 60_000 * 23 / 24
    report, _ = looked_at(tmp_path / "logs", readings, last=HOUR)
    assert report.findings == []
    assert report.summary.endswith("0 anomalies. Nothing happened.")


def test_its_fork_is_gone_though_an_investigation_fails(tmp_path: Path) -> None:
    def broken(script: Callable[[str], Script]) -> Model:
        def failing(asked: str) -> Script:
            if script is INVESTIGATIONS[0].script:
                raise Stuck("on purpose")
            return script(asked)

        return scripted(failing)

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_S), workplace(str(tmp_path / "logs"), agent=AGENT) as place:
            with pytest.raises(Stuck, match="on purpose"):
                await analyse(place, broken, "iot")

    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("iot").append(b'{"device": "a", "seq": 1, "celsius": 20.0}')
    asyncio.run(work())
    with braidlog.open(tmp_path / "logs") as braid:
        assert not [log.name for log in braid.logs() if log.name.startswith("iot.")]


def test_a_log_without_records_is_reported_as_such(tmp_path: Path) -> None:
    async def work() -> Report:
        async with asyncio.timeout(DEADLINE_S), workplace(str(tmp_path / "logs"), agent=AGENT) as place:
            return await analyse(place, scripted, "iot")

    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("iot")
    report = asyncio.run(work())
    assert (report.findings, report.summary.split(":")[-1]) == ([], " 0 anomalies. Nothing happened.")


def test_an_answer_that_was_cut_is_not_taken_for_whole() -> None:
    for one in INVESTIGATIONS:
        running = one.script(question(Task(fork="f", start=0, stop=1000)))
        next(running)
        with pytest.raises(Stuck, match="too many devices"):
            running.send([Returned({"rows": [], "truncated": True})])


def test_names_of_devices_are_data_and_not_sql() -> None:
    """A device may call itself what it likes: the second query of drift quotes it."""
    name = "x' OR 1=1 --"
    drift = next(one for one in INVESTIGATIONS if one.kind == "drift").script(
        question(Task(fork="f", start=0, stop=1000))
    )
    next(drift)
    levels = [[f"d{n}", [[tenth, 50, 20.0 + n / 100] for tenth in range(10)]] for n in range(20)]
    levels.append([name, [[tenth, 50, 20.0 + tenth] for tenth in range(10)]])
    (call,) = drift.send([Returned({"rows": levels})])
    assert "device = 'x'' OR 1=1 --'" in call.arguments["sql"]


def test_what_is_shown_does_not_command_a_terminal() -> None:
    finding = Finding(
        device="\x1b[2Jx", kind="garbled", first=1, last=2, first_time="", last_time="", evidence="[red]\x07"
    )
    table = shown([finding])
    cells = [cell for column in table.columns for cell in column.cells]
    assert "\\x1b[2Jx" in cells
    assert not any("\x1b" in str(cell) or "\x07" in str(cell) for cell in cells)


# --- the readings ----------------------------------------------------------------------------------------------------


def test_readings_are_those_of_their_seed(seed: int) -> None:
    now = datetime.now(UTC)
    one, same, other = (draw(drawn, 20_000, now, devices=40) for drawn in (seed, seed, seed + 1))
    assert one.table.equals(same.table)
    assert one.planted == same.planted
    assert not one.table.equals(other.table)
    assert set(one.devices) != set(other.devices)
    sizes = [len(value.as_py()) for value in one.table["value"]]
    assert 55 <= sum(sizes) / len(sizes) <= 100
    assert one.table["timestamp"][-1].as_py() == pytest.approx(now.timestamp() * 1e6, abs=1e6)
    assert len({planted.device for planted in one.planted}) == len(one.planted)


def test_too_few_readings_are_refused() -> None:
    with pytest.raises(ValueError, match="too few for 200 devices"):
        draw(1, 5_000, datetime.now(UTC))


# --- the dashboard ---------------------------------------------------------------------------------------------------


def test_a_round_in_which_nothing_comes_is_empty() -> None:
    running = dashboard.script(json.dumps({"fork": "f", "after": 10, "records": 5}))
    next(running)
    (waits,) = running.send([Returned({"records": [], "end": 10})])
    assert waits.arguments["start"] == 10
    assert waits.arguments["wait_s"] > 0
    with pytest.raises(StopIteration) as ended:
        running.send([Returned({"records": [], "end": 10})])
    assert (ended.value.value.start, ended.value.value.stop, ended.value.value.alerts) == (10, 10, [])


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell of a table is broken into lines."""
    monkeypatch.setenv("COLUMNS", "250")


def cells(printed: str) -> list[list[str]]:
    """The rows of all tables, cell by cell."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if line.startswith("│")
    ]


@pytest.mark.usefixtures("wide")
def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str], seed: int) -> None:
    asyncio.run(main(["--records", "50000", "--seed", str(seed)]))
    printed = capsys.readouterr().out
    planted = draw(seed, 50_000, datetime.now(UTC)).planted
    assert f"seed {seed}: {len(planted)} anomalies are among 50,000 readings" in printed
    assert f": {len(planted)} anomalies. " in printed
    found = {(device, kind): positions for device, kind, positions, *_ in cells(printed)}
    assert set(found) == {(one.device, one.kind) for one in planted}
    for one in planted:
        if one.kind != "drift":
            assert found[one.device, one.kind] == f"{one.first}-{one.last}"
    assert "calls: 11 in 9 tasks (create_fork 1, describe_log 1, query_sql 8, squash_fork 1); refused: 0" in printed
    assert "tokens" not in printed


@pytest.mark.usefixtures("wide")
def test_the_dashboard_shows_what_goes_wrong_while_it_watches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    rounds, each, history = 6, dashboard.ROUND_RECORDS, dashboard.HISTORY_RECORDS
    asyncio.run(main(["--dashboard", "--rounds", str(rounds), "--seed", str(seed), "--at", str(tmp_path / "logs")]))
    readings = dashboard.drawn(seed, rounds)
    shown = [cells(board) for board in re.split(r"^ +\d+-\d+, .*records/s", capsys.readouterr().out, flags=re.M)[1:]]
    assert [len(board) for board in shown] == [len(readings.devices)] * rounds
    assert all(sum(int(records) for _, records, *_ in board) == each for board in shown)
    alerts = {
        (device, alert.split(" (")[0], number)
        for number, board in enumerate(shown)
        for device, *_, alert in board
        if alert
    }
    assert {(device, kind) for device, kind, _ in alerts} == {(one.device, one.kind) for one in readings.planted}
    for one in readings.planted:
        when = {number for device, _, number in alerts if device == one.device}
        assert when <= set(range((one.first - history) // each, (one.last - history) // each + 1))
    with braidlog.open(tmp_path / "logs") as braid:
        assert braid.log("iot").tail() == history + rounds * each
        assert not [log.name for log in braid.logs() if log.name.startswith("iot.")]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--records", "0"], "1 or more"),
        (["--records", "500"], "take 25,000 or more"),
        (["--dashboard", "--rounds", "2"], "5 or more"),
        (["--dashboard", "--mcp", "http://127.0.0.1:9/mcp"], "cannot be drawn behind --mcp"),
    ],
)
def test_what_cannot_be_shown_is_said(argv: list[str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        asyncio.run(main(argv))
