"""Looks for anomalies in a million readings of sensors, on a severed fork: nobody who appends or reads notices.

A lead makes the fork and describes it. Then one agent for each kind of anomaly looks for it, all of them side by side
on the same fork, with SQL. What they found becomes a report, and the fork is squashed.

    python -m apps.agents.analytics
    python -m apps.agents.analytics --last-hour
    python -m apps.agents.analytics --dashboard

A log that is not there is made, and filled with readings that are drawn from a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from pydantic_ai import AgentRunResult
from pydantic_ai.models import Model
from rich.console import Console
from rich.table import Table

import braidlog
from apps.agents import dashboard
from apps.agents.command import Command, Refused, plain, run, say
from apps.agents.investigations import INVESTIGATIONS, Finding, Findings, Investigation, Task, question
from apps.agents.readings import DAY, Kind, Readings, TooFew, draw
from apps.agents.scripted import Call, Script
from apps.agents.workplace import Worker, Workplace, side_by_side
from braidlog import limits

AGENT: Final = "analyst"
HOUR: Final = timedelta(hours=1)
FORK_TTL_S: Final = 3600.0
LAST_HOUR_KINDS: Final[tuple[Kind, ...]] = ("spike", "stuck", "silent", "impossible", "duplicates", "garbled")

Models = Callable[[Callable[[str], Script]], Model]
T = TypeVar("T")


class Errand(BaseModel):
    """What the lead is asked: a log, and how much of its end, if not all of it."""

    log: str
    last_s: float | None = None


class Survey(BaseModel):
    """What there is to look at: positions of a fork."""

    fork: str
    start: int
    stop: int
    first_time: str
    last_time: str


@dataclass
class Report:
    """What was found, in the order of positions, and what it took."""

    survey: Survey
    findings: list[Finding]
    summary: str = ""
    answers: list[AgentRunResult[Any]] = field(default_factory=list)


LEAD: Final = (
    "You lead an investigation of a log of readings of sensors. Asked for a survey: create_fork of the log with "
    f"kind='severed' and ttl_s={FORK_TTL_S:g}, describe_log the fork, and answer which positions of it are to be "
    "looked at: all of them, or, with `last_s`, those whose time is within so many seconds of the last record's. Asked "
    "for a summary of findings: squash_fork the fork, and tell in a few sentences what happened, to somebody who "
    "decides what to do about it; add nothing that is not among the findings."
)


async def analyse(
    place: Workplace,
    model: Models,
    log: str,
    *,
    last: timedelta | None = None,
    records_per_query: int = limits.SQL_RECORDS_MAX,
) -> Report:
    """All that the rules find in a log, or in the `last` of its time. Its fork is gone afterwards, whatever happens."""
    answers: list[AgentRunResult[Any]] = []

    async def ask(script: Callable[[str], Script], instructions: str, output: type[T], asked: str) -> T:
        answer = await Worker(place, model(script), instructions, output=output).ask(asked)
        answers.append(answer)
        return answer.output

    errand = Errand(log=log, last_s=None if last is None else last.total_seconds())
    try:
        survey = await ask(_survey, LEAD, Survey, f"Make a survey of this:\n{errand.model_dump_json()}")
        wanted = [one for one in INVESTIGATIONS if last is None or one.kind in LAST_HOUR_KINDS]
        if survey.start == survey.stop:
            wanted = []
        tasks = [_task(survey, one, records_per_query) for one in wanted]
        found = await side_by_side(
            ask(one.script, one.instructions, Findings, question(task)) for one, task in zip(wanted, tasks, strict=True)
        )
        findings = [one for each in found for one in each.findings if one.last >= survey.start]
        report = Report(survey, sorted(findings, key=lambda one: (one.first, one.device)), answers=answers)
        told = Told(survey=survey, findings=report.findings)
        report.summary = await ask(_summary, LEAD, str, f"Summarize, and end the fork:\n{told.model_dump_json()}")
        return report
    finally:
        await place.squash_all()


def _task(survey: Survey, investigation: Investigation, records_per_query: int) -> Task:
    """Who looks for silence in a part of a log has to know who spoke before."""
    start = survey.start
    if investigation.kind == "silent":
        start = max(0, 2 * survey.start - survey.stop)
    return Task(fork=survey.fork, start=start, stop=survey.stop, records_per_query=records_per_query)


class Told(BaseModel):
    """What a summary is made of."""

    survey: Survey
    findings: list[Finding]


def _survey(asked: str) -> Script:
    errand = Errand.model_validate_json(asked.splitlines()[-1])
    arguments = {"log": errand.log, "kind": "severed", "ttl_s": FORK_TTL_S, "purpose": "anomalies"}
    (made,) = yield [Call("create_fork", arguments)]
    fork = made["fork"]["name"]
    (about,) = yield [Call("describe_log", {"log": fork})]
    start, stop = about["log"]["start"], about["log"]["tail"]
    first_time, last_time = about.get("first_time", ""), about.get("last_time", "")
    if errand.last_s is not None and last_time:
        begins = datetime.fromisoformat(last_time) - timedelta(seconds=errand.last_s)
        (found,) = yield [Call("read_records", {"log": fork, "since": begins.isoformat(), "limit": 1})]
        start, first_time = found["records"][0]["position"], found["records"][0]["time"]
    return Survey(fork=fork, start=start, stop=stop, first_time=first_time, last_time=last_time)


def _summary(asked: str) -> Script:
    told = Told.model_validate_json(asked.splitlines()[-1])
    survey = told.survey
    yield [Call("squash_fork", {"fork": survey.fork})]
    kinds = sorted({one.kind for one in told.findings})
    shown = [f"{kind}: {', '.join(one.device for one in told.findings if one.kind == kind)}" for kind in kinds]
    return (
        f"{survey.stop - survey.start:,} records from {survey.first_time} to {survey.last_time}: "
        f"{len(told.findings)} anomalies. " + ("; ".join(shown) + "." if shown else "Nothing happened.")
    )


# --- the command -----------------------------------------------------------------------------------------------------


def more(parser: argparse.ArgumentParser) -> None:
    """What this command takes besides."""
    parser.add_argument("--log", default="iot", help="with readings (iot)")
    parser.add_argument("--records", type=int, default=1_000_000, help="to fill a new log with (1000000)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--last-hour", action="store_true", help="only what happened in the last hour of the log")
    kind.add_argument("--dashboard", action="store_true", help="watch a live fork while readings come in")
    parser.add_argument("--rounds", type=int, default=dashboard.ROUNDS, help=f"of the dashboard ({dashboard.ROUNDS})")


def drawn_for_last_hour(seed: int, count: int, until: datetime, devices: int = 60) -> Readings:
    """Readings of a day, with anomalies in its last hour alone."""
    part = (1 - 0.95 * HOUR / DAY, 1 - 0.05 * HOUR / DAY)
    return draw(seed, count, until, devices=devices, each=(1, 2), kinds=LAST_HOUR_KINDS, part=part)


def filled(command: Command, at: str) -> Readings | None:
    """A log with readings at a place, if it was not there before."""
    with braidlog.open(at) as braid:
        if command.chosen.log in braid:
            return None
        now = datetime.now(UTC)
        if command.chosen.last_hour:
            readings = drawn_for_last_hour(command.seed, command.chosen.records, now)
        else:
            readings = draw(command.seed, command.chosen.records, now)
        readings.append_to(braid.create(command.chosen.log))
        return readings


def shown(findings: Sequence[Finding]) -> Table:
    """Findings, for people."""
    table = Table("device", "what", "positions", "from", "evidence")
    for one in findings:
        cells = (one.device, one.kind, f"{one.first}-{one.last}", one.first_time[11:19], one.evidence)
        table.add_row(*(plain(cell) for cell in cells))
    return table


async def main(argv: Sequence[str] | None = None) -> None:
    """The command, from its arguments to what it prints."""
    command = Command(__doc__, argv, more=more)
    if command.chosen.records < 1 or command.chosen.rounds < 1:
        raise Refused("--records and --rounds are 1 or more")
    command.model(_survey)  # what cannot be had is said before anything is drawn
    if command.chosen.dashboard:
        with command.logs() as at:
            await dashboard.show(command, at)
        return
    if command.chosen.mcp is not None:
        await _look(command, None)
        return
    with command.logs() as at:
        try:
            readings = filled(command, at)
        except TooFew as error:
            raise Refused(f"--records {command.chosen.records}: {error}") from error
        if readings is not None:
            say(f"seed {command.seed}: {len(readings.planted)} anomalies are among {len(readings.table):,} readings")
        await _look(command, at)


async def _look(command: Command, at: str | None) -> None:
    last = HOUR if command.chosen.last_hour else None
    async with command.workplace(at, AGENT) as place:
        report = await analyse(place, command.model, command.chosen.log, last=last)
        console = Console(markup=False, highlight=False)
        console.print(shown(report.findings))
        say(report.summary)
        command.tell(place, report.answers)


if __name__ == "__main__":
    run(main)
