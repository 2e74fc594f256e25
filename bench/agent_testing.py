"""What an agent that tests a stream processor does to the production that it tests it on."""

from __future__ import annotations

import json
import time
from itertools import islice
from multiprocessing.connection import Connection
from random import Random
from typing import Final

import braidlog
from apps.agents.live_sales import sales
from apps.agents.processors import LATEST_MS, WINDOW_MS, Tumbling
from apps.agents.reports import CaseReport, Injected
from apps.agents.scripted import scripted
from apps.agents.testing import try_out
from apps.agents.testing_script import script
from apps.agents.under_test import process
from apps.agents.workplace import Workplace
from bench import harness
from bench.beside_agents import Beside, Done, Production, Tally, attend, compare
from bench.critical import ROOT
from bench.harness import Figure, Options
from bench.peers.driver import STAMP
from braidlog import Record

FORKS: Final = "the testing agent on forks, at a broker of their own"
SHARED: Final = "the testing agent on forks, at the root's broker"
BUG: Final = "late-dropped"
HISTORY: Final = 2_000
AGENT: Final = "tester"


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside the testing agent, on forks of its log."""
    figure = Figure(
        "agent_testing",
        "Append to tail read at a fixed rate, alone and beside an agent that tests on forks",
        "percentile",
        "us",
        notes=[
            "production appends sales; the agent is scripted: five cases side by side, each on a live fork of that "
            "log, with a process for each run of the processor and each query, and forks of those to find which "
            "events make the difference",
        ],
        log_x=False,
    )
    compare(figure, options, _production, work_as_tester, FORKS, SHARED)
    return figure


def _production() -> Production:
    drawn = sales(Random(7))
    return Production(
        prepare=lambda root: root.append_many(list(islice(drawn, HISTORY))),
        make=lambda: Record(next(drawn), headers=(("sent", STAMP.pack(time.monotonic_ns())),)),
    )


# --- in the agent's process -------------------------------------------------------------------------------------------


def work_as_tester(braid: braidlog.Braid, pipe: Connection, told: str) -> Tally | Beside:
    """What it is told, until it is told to end."""
    return attend(braid, pipe, told, AGENT, _try_out)


async def _try_out(place: Workplace, braid: braidlog.Braid) -> Done:
    answers = await try_out(place, scripted(script), process(braid, BUG), log=ROOT)
    reports = {answer.output.case: answer.output for answer in answers}
    right = [report.triggers == triggers(report) for report in reports.values()]
    return Done(tasks=len(answers), found=float(all(right) and reports["late"].verdict == "wrong"))


def triggers(report: CaseReport) -> list[list[Injected]]:
    """What the bug must show of a case: each event that it drops, unless it only repeats one that was counted."""
    dropped = [event for event in report.injected if _dropped(event)]
    firsts = [next(one for one in report.injected if one.value == event.value) for event in dropped]
    return [[event] for event in dropped] if any(map(_dropped, firsts)) else []


def _dropped(event: Injected) -> bool:
    late = event.late_ms is not None and WINDOW_MS <= event.late_ms < LATEST_MS
    return late and Tumbling().understood(json.dumps(event.value).encode()) is not None


if __name__ == "__main__":
    harness.main(measure)
