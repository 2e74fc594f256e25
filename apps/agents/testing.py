"""An agent that tests a stream processor, with bad events among live ones, while production goes on.

Each case is a task of its own on a live fork of its own, all side by side: events that are late, doubled, malformed,
out of order or at the edge of a window are put between those that production writes meanwhile. The processor runs over
the fork, SQL over the same fork says what is right, and where the two differ the agent finds the smallest sets of its
events that make the difference. All forks are squashed, and the log has none of those events.

    python -m apps.agents.testing --processor buggy
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from pydantic_ai import AgentRunResult
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models import Model

import braidlog
from apps.agents import windows_oracle as oracle
from apps.agents.cases import ABOUT, CASES
from apps.agents.command import Command, run, say
from apps.agents.live_sales import LiveSales
from apps.agents.processors import HANDWRITTEN, planted
from apps.agents.reports import CaseReport
from apps.agents.testing_script import HISTORY_RECORDS, script
from apps.agents.under_test import Processor, process
from apps.agents.workplace import Worker, Workplace

AGENT: Final = "tester"
LOG: Final = "sales"
SPARK: Final = "spark"
BUGGY: Final = "buggy"
INSTRUCTIONS: Final = f"""You test a stream processor on forks of a log, among live records. You harm nothing: you write
on forks that you made, and squash them in the end.

The log has sales: {{"id": text, "at": milliseconds, "shop": text, "amount": whole number above 0}}. The processor must
tell, for each shop and each window of 5 s of event time [n * 5000, n * 5000 + 5000), how many sales there were and
what they come to: a sale that is late by less than 10 s in the window of its `at`; one that comes again (same id) once;
nothing of what is no such sale. A window is told, once, when a sale has come that is 10 s or more later than its end.
A sale that is later than 10 s may be counted or not: both is right.

For the case that you are given:
1. create_fork of the log (live, not promotable); read_records with `last` to see the present time of events, and shops.
2. append_records, three to five events of the case, in several calls. After each call read_records from there with
   `wait_s` until production has written more, so that yours stand between live ones, and take the time from those.
   Give yours ids of their own. Note the positions. The last event is a sale a minute ahead, which ends all windows: the
   test goes to its position + 1 (`stop`). It begins {HISTORY_RECORDS} records before your first one, or where the log
   does (`start`).
3. run_processor on the fork from `start` to `stop`, and query_sql on the same positions for what is right. Work that
   out from the records alone; this is a query for it (`variant` 0; doubtful are the amounts of sales that may be
   counted or not):
{oracle.sql(0)}
4. Where they differ, or it crashed, find the smallest sets of your events that it takes: make severed forks of your
   fork at the position where your first event stands, append the same records again with fewer of yours, and run it on
   those, two of them at a time: you may have only so many forks. Squash each when it is done with.
5. squash_fork. Answer with all your events, what differed, and each smallest set."""


def tool(processor: Processor, place: Workplace) -> Callable[..., Any]:
    """What an agent calls to have the processor run, on forks that were made at its workplace."""

    async def run_processor(fork: str, start: int, stop: int, since: int) -> dict[str, Any]:
        """Run the processor that is tested over a fork, from the position `start` to before `stop`. Answers the windows
        that it told of and that begin at `since` (milliseconds of event time) or later: begins, shop, sales, total; and
        `crashed` or `timed_out`, why it did not get to the end, if it did not."""
        if fork not in place.forks:
            raise ToolFailed(f"{fork!r} is no fork that you made here: make one with create_fork")
        return (await asyncio.to_thread(processor, fork, start, stop)).told(since)

    return run_processor


async def try_out(
    place: Workplace, model: Model, processor: Processor, *, log: str = LOG, cases: Sequence[str] = tuple(CASES)
) -> list[AgentRunResult[CaseReport]]:
    """All cases side by side, each by an agent of its own."""
    worker = Worker(place, model, INSTRUCTIONS, output=CaseReport, tools=[tool(processor, place)])
    asked = [f"Test the processor of the log '{log}', case '{case}': {ABOUT[case]}." for case in cases]
    try:
        answers = await asyncio.gather(*map(worker.ask, asked), return_exceptions=True)
    finally:
        await place.squash_all()  # of a task that came to no end
    return [_answered(answer) for answer in answers]


def _answered(answer: AgentRunResult[CaseReport] | BaseException) -> AgentRunResult[CaseReport]:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def show(report: CaseReport) -> None:
    """For a person."""
    live = f"{len(report.injected)} events among {report.live_between} live ones"
    if report.passed:
        say(f"  {report.case:<14}right    {live}")
        return
    say(f"  {report.case:<14}{report.verdict.upper():<9}{live}, {report.replays} times with fewer")
    if report.crash is not None:
        say(f"    {report.crash}")
    for one in report.differences[:3]:
        say(f"    window {one.begins}, {one.shop}: expected {one.expected}, got {one.got}")
    for number, events in enumerate(report.triggers):
        say(f"    {'or' if number else 'it takes'}: {'' if events else 'none of these events'}")
        for event in events:
            late = f" ({event.late_ms} ms late)" if event.late_ms else ""
            say(f"      position {event.position}: {json.dumps(event.value)}{late}")


@contextmanager
def chosen(name: str, seed: int, braid: braidlog.Braid) -> Iterator[Processor]:
    """The processor that a person asked for."""
    if name == SPARK:
        from apps.agents.under_test_spark import pipeline  # Spark is not needed for the others
        from apps.pipelines.command import session
        from apps.pipelines.tumbling import totals

        yield pipeline(totals, session("testing"), braid)
        return
    yield process(braid, planted(seed) if name == BUGGY else HANDWRITTEN)


def _arguments(parser: argparse.ArgumentParser) -> None:
    known = (HANDWRITTEN, SPARK, BUGGY)
    parser.add_argument("--processor", choices=known, default=HANDWRITTEN, help="buggy: the seed says what is wrong")
    parser.add_argument("--log", default=LOG, help=f"with sales; one that is not there is made, and sold to ({LOG})")


async def command(argv: Sequence[str] | None = None) -> None:
    given = Command(__doc__, argv, more=_arguments)
    log: str = given.chosen.log
    with given.logs() as at, braidlog.open(at) as braid:
        production = LiveSales(braid, given.seed, log=log) if log not in braid else None
        say(f"testing: {given.chosen.processor}, seed {given.seed}")
        with production or nullcontext(), chosen(given.chosen.processor, given.seed, braid) as processor:
            async with given.workplace(braid.url, AGENT) as place:
                answers = await try_out(place, given.model(script), processor, log=log)
                left = await place.forks_there()
        for answer in answers:
            show(answer.output)
        wrong = [answer.output.case for answer in answers if not answer.output.passed]
        say(f"{len(wrong)} of {len(answers)} cases went wrong" if wrong else f"all {len(answers)} cases are right")
        if production is not None:
            assert production.unharmed(), "the log of production has something that production did not write"
            say(f"production wrote {len(production.written):,} sales; its reader got those and no others")
        say(f"forks left: {len(left)}")
        given.tell(place, answers)


def main() -> None:
    run(command)


if __name__ == "__main__":
    main()
