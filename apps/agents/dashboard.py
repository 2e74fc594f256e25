"""A dashboard over a live fork, while readings keep coming in: rates and levels of each device, and alerts.

In each round the agent waits until so many records have come, and asks for the window that ends there: how a device
does in the newest records, and what was usual for it in those before. It keeps nothing from round to round.

Alerts are raised by rules:

- silent: 20 or more records of a device were to be expected in a round, and none came
- spike: a reading is more than 10 robust standard deviations from the device's median
- impossible: a reading is beyond what sensors measure
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic_ai import AgentRunResult
from pydantic_ai.models import Model
from rich.console import Console
from rich.table import Table

import braidlog
from apps.agents.command import Command, Refused, plain, say
from apps.agents.investigations import NORMAL, SPIKE_DEVIATIONS
from apps.agents.readings import CELSIUS_MAX, CELSIUS_MIN, Readings, draw
from apps.agents.scripted import Call, Script
from apps.agents.workplace import Worker, Workplace
from braidlog import limits

AGENT: Final = "watcher"
ROUNDS: Final = 12
ROUNDS_MIN: Final = 5
ROUND_RECORDS: Final = 600
WINDOW_ROUNDS: Final = 10  # what is usual is told from so many rounds before
HISTORY_RECORDS: Final = 100_000
DEVICES: Final = 20
RATE: Final = 2_000  # records in a second
BATCH_RECORDS: Final = 100
FORK_TTL_S: Final = 3600.0
SILENT_EXPECTED: Final = 20
WAIT_S: Final = 10.0  # without a record: then what has come is shown


class Round(BaseModel):
    """What is asked in a round: what has come on the fork since a position, once it is so many records."""

    fork: str
    after: int
    records: int


class Row(BaseModel):
    """A device in a round."""

    device: str
    records: int
    expected: float
    mean: float | None = None
    usual: float | None = None


class Alert(BaseModel):
    """What is wrong with a device now."""

    device: str
    kind: Literal["silent", "spike", "impossible"]
    evidence: str


class Board(BaseModel):
    """What a round shows: positions from `start` up to `stop`, and how many records came in a second."""

    start: int
    stop: int
    rate: float | None = None
    rows: list[Row] = []
    alerts: list[Alert] = []


INSTRUCTIONS: Final = (
    f"You keep a dashboard over a live fork with readings of sensors. {' '.join((__doc__ or '').split())} Wait with "
    "read_records (start at the end, wait_s) until the fork has `records` more than at `after`, then use query_sql on "
    f"the round and the {WINDOW_ROUNDS} times as many records before it. What is to be expected of a device is its "
    "share of those before. Only answer; the fork stays."
)

_WINDOW: Final = """WITH r AS (
SELECT _position AS p, _timestamp AS t, device, celsius, celsius BETWEEN {low} AND {high} AS possible FROM rows),
b AS (SELECT device, count(*) AS n, median(celsius) AS c, greatest(0.01, {normal} * mad(celsius)) AS s
  FROM r WHERE p < {new} AND possible GROUP BY device),
x AS (SELECT device, count(*) AS n, avg(celsius) FILTER (possible) AS mean, max(abs(celsius - c) / s) FILTER (possible)
  AS off, count(*) FILTER (NOT possible) AS impossible FROM r LEFT JOIN b USING (device) WHERE p >= {new}
  GROUP BY device),
w AS (SELECT date_diff('microsecond', min(t), max(t)) / 1e6 AS seconds FROM r WHERE p >= {new})
SELECT device, coalesce(x.n, 0), coalesce(b.n, 0), mean, c, off, coalesce(impossible, 0), seconds
FROM b FULL JOIN x USING (device) CROSS JOIN w ORDER BY device"""


def script(question: str) -> Script:
    """One round."""
    asked = Round.model_validate_json(question.splitlines()[-1])
    goal = asked.after + asked.records
    (seen,) = yield [Call("read_records", {"log": asked.fork, "last": 1})]
    end = seen["end"]
    while end < goal:
        (seen,) = yield [Call("read_records", {"log": asked.fork, "start": end, "wait_s": WAIT_S, "limit": 1})]
        if not seen["records"]:
            break
        end = max(end + 1, seen["end"])
    stop = min(goal, end)
    if stop <= asked.after:
        return Board(start=asked.after, stop=asked.after)
    start = max(0, asked.after - WINDOW_ROUNDS * asked.records)
    sql = _WINDOW.format(low=CELSIUS_MIN, high=CELSIUS_MAX, normal=NORMAL, new=asked.after)
    arguments = {"log": asked.fork, "sql": sql, "start": start, "stop": stop, "max_rows": limits.SQL_ROWS_MAX}
    (found,) = yield [Call("query_sql", arguments)]
    share = (stop - asked.after) / max(1, asked.after - start)
    board = Board(start=asked.after, stop=stop)
    for device, count, before, mean, usual, off, impossible, seconds in found["rows"]:
        if device is None:
            continue
        expected = before * share
        board.rate = (stop - asked.after) / seconds if seconds else None
        board.rows.append(Row(device=device, records=count, expected=round(expected, 1), mean=mean, usual=usual))
        if count == 0 and expected >= SILENT_EXPECTED:
            board.alerts.append(Alert(device=device, kind="silent", evidence=f"0 of {expected:.0f} records"))
        if off is not None and off > SPIKE_DEVIATIONS:
            board.alerts.append(Alert(device=device, kind="spike", evidence=f"{off:.0f} deviations off"))
        if impossible:
            board.alerts.append(Alert(device=device, kind="impossible", evidence=f"{impossible} readings"))
    return board


@dataclass
class Shown:
    """A round's board, and the run that made it."""

    board: Board
    answer: AgentRunResult[Board]


async def watch(
    place: Workplace,
    model: Callable[[Callable[[str], Script]], Model],
    log: str,
    rounds: int,
    begun: Callable[[], None] = lambda: None,
    records: int = ROUND_RECORDS,
) -> AsyncGenerator[Shown, None]:
    """The boards of so many rounds. The fork is there when `begun` is called, and gone in the end."""
    made = await place.call("create_fork", log=log, ttl_s=FORK_TTL_S, purpose="dashboard")
    fork, after = made["fork"]["name"], made["fork"]["tail"]
    begun()
    try:
        for _ in range(rounds):
            asked = Round(fork=fork, after=after, records=records)
            worker = Worker(place, model(script), INSTRUCTIONS, output=Board)
            answer = await worker.ask(f"Show the next round:\n{asked.model_dump_json()}")
            yield Shown(answer.output, answer)
            after = answer.output.stop
    finally:
        await place.call("squash_fork", fork=fork)


# --- readings that come in -------------------------------------------------------------------------------------------


class Feed:
    """Appends readings to a log in a thread of its own, at a rate, from when it is told to begin."""

    def __init__(self, log: braidlog.Log, readings: Readings, first: int, rate: float | None) -> None:
        self._log = log
        self._rows = readings.table.slice(first)
        self._pause_s = 0.0 if rate is None else BATCH_RECORDS / rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")
        self.begin = self._thread.start

    def _run(self) -> None:
        for at in range(0, len(self._rows), BATCH_RECORDS):
            rows = self._rows.slice(at, BATCH_RECORDS).to_pylist()
            self._log.append_many([braidlog.Record(row["value"].encode(), row["key"].encode()) for row in rows])
            if self._stopped.wait(self._pause_s):
                return

    def end(self) -> None:
        """It is over, whether everything has been appended or not."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()


def drawn(seed: int, rounds: int, history: int = HISTORY_RECORDS) -> Readings:
    """Readings of which the last are for so many rounds; what is planted is among those."""
    live = rounds * ROUND_RECORDS
    part = ((history + 0.1 * live) / (history + live), (history + 0.9 * live) / (history + live))
    now = datetime.now(UTC)
    return draw(
        seed, history + live, now, devices=DEVICES, each=(1, 1), kinds=("spike", "silent", "impossible"), part=part
    )


@contextmanager
def feeding(at: str, log: str, readings: Readings, rounds: int, rate: float | None = RATE) -> Iterator[Feed]:
    """A log with all but the last rounds of these readings, and a feed that brings those."""
    history = len(readings.table) - rounds * ROUND_RECORDS
    with braidlog.open(at) as braid:
        made = braid.create(log)
        Readings(readings.table.slice(0, history), [], readings.devices).append_to(made)
        feed = Feed(made, readings, history, rate)
        try:
            yield feed
        finally:
            feed.end()


# --- what is printed -------------------------------------------------------------------------------------------------


def shown(board: Board) -> Table:
    """A board, for people."""
    rate = "" if board.rate is None else f", {board.rate:,.0f} records/s"
    table = Table("device", "records", "expected", "mean", "usual", "alert", title=f"{board.start}-{board.stop}{rate}")
    for row in board.rows:
        alerts = ", ".join(f"{one.kind} ({one.evidence})" for one in board.alerts if one.device == row.device)
        figures = ("" if one is None else f"{one:.2f}" for one in (row.mean, row.usual))
        table.add_row(plain(row.device), str(row.records), f"{row.expected:.0f}", *figures, plain(alerts))
    return table


async def show(command: Command, at: str) -> None:
    """The command: on a log that is there already, or on one that readings come into meanwhile."""
    with braidlog.open(at) as braid:
        if command.chosen.log in braid:
            await _show(command, at, lambda: None)
            return
        rounds = command.chosen.rounds
        if rounds < ROUNDS_MIN:
            raise Refused(f"what goes wrong takes a while: let --rounds be {ROUNDS_MIN} or more")
        readings = drawn(command.seed, rounds)
        say(f"seed {command.seed}: {len(readings.planted)} anomalies are to come in {rounds} rounds")
        with feeding(at, command.chosen.log, readings, rounds) as feed:
            await _show(command, at, feed.begin)


async def _show(command: Command, at: str, begun: Callable[[], None]) -> None:
    console = Console(markup=False, highlight=False)
    answers: list[AgentRunResult[Any]] = []
    async with command.workplace(at, AGENT) as place:
        boards = watch(place, command.model, command.chosen.log, command.chosen.rounds, begun)
        async with aclosing(boards):
            async for one in boards:
                console.print(shown(one.board))
                answers.append(one.answer)
        command.tell(place, answers)
