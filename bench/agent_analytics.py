"""What an agent that looks for anomalies does to the production whose log it looks at."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from functools import cache
from itertools import count
from multiprocessing.connection import Connection
from random import Random
from typing import Final

import braidlog
from apps.agents.analytics import analyse
from apps.agents.readings import Readings, draw
from apps.agents.scripted import scripted
from apps.agents.workplace import Workplace
from bench import harness
from bench.beside_agents import Beside, Done, Production, Tally, attend, compare
from bench.critical import ROOT
from bench.harness import Figure, Options
from bench.peers.driver import STAMP
from braidlog import Record

FORK: Final = "the analytics agent on a fork, at a broker of its own"
SHARED: Final = "the analytics agent on a fork, at the root's broker"
RECORDS: Final = 200_000
SEED: Final = 7
AGENT: Final = "analyst"
LIVE: Final = "new"  # the device whose readings production writes meanwhile: nothing is planted there


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside the analytics agent, on a severed fork of its log."""
    figure = Figure(
        "agent_analytics",
        "Append to tail read at a fixed rate, alone and beside an agent that looks for anomalies",
        "percentile",
        "us",
        notes=[
            f"production appends readings to a log of {RECORDS:,}; the agent is scripted: a survey on a severed fork, "
            "then seven investigations side by side, each with queries in processes of their own over all records",
        ],
        log_x=False,
    )
    compare(figure, options, _production, work_as_analyst, FORK, SHARED)
    return figure


@cache
def _readings() -> Readings:
    """The same in each process, but for their times."""
    return draw(SEED, RECORDS, datetime.now(UTC))


def _production() -> Production:
    rng, numbers = Random(SEED), count()

    def prepare(root: braidlog.Log) -> None:
        _readings().append_to(root)

    def make() -> Record:
        reading = {"device": LIVE, "seq": next(numbers), "celsius": round(rng.gauss(20, 1), 2), "volts": 3.6}
        return Record(json.dumps(reading).encode(), headers=(("sent", STAMP.pack(time.monotonic_ns())),))

    return Production(prepare, make)


# --- in the agent's process -------------------------------------------------------------------------------------------


def work_as_analyst(braid: braidlog.Braid, pipe: Connection, told: str) -> Tally | Beside:
    """What it is told, until it is told to end."""
    return attend(braid, pipe, told, AGENT, _analyse)


async def _analyse(place: Workplace, _: braidlog.Braid) -> Done:
    report = await analyse(place, scripted, ROOT)
    found = {(one.device, one.kind) for one in report.findings if one.device != LIVE}
    planted = {(one.device, one.kind) for one in _readings().planted}
    return Done(tasks=len(report.answers), found=len(found & planted) / len(found | planted))


if __name__ == "__main__":
    harness.main(measure)
