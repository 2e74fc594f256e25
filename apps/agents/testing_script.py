"""The scripted tester: one case, from the fork to the report.

It makes a live fork, puts the events of the case between records that production writes meanwhile, has the processor
run over it, and asks SQL what is right. If the two differ it finds out which of its events it takes: on severed forks
of that fork it plays the same records again with fewer of its own, the smallest sets first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from apps.agents import windows_oracle as oracle
from apps.agents.cases import CASES, Event, Maker, Stream
from apps.agents.processors import LATEST_MS, WINDOW_MS
from apps.agents.reports import CaseReport, Injected
from apps.agents.scripted import Call, Returned, Script, Stuck
from braidlog import limits

LOOK_BACK: Final = 50  # records that show what production writes
LIVE_BETWEEN: Final = 2  # records of production between two of ours
LIVE_WAIT_S: Final = 5.0  # for each of them; a log to which nobody writes is tested without
HISTORY_RECORDS: Final = 20_000  # before ours, that a processor and the query begin with
REPLAYS: Final = 2  # at a time: an agent may have so many forks only
APPEND_RECORDS: Final = limits.MCP_APPEND_RECORDS_MAX
APPEND_BYTES: Final = limits.MCP_APPEND_BYTES_MAX // 2
PAGE: Final = {"limit": 1_000, "max_bytes": 512 * 1024}
ROWS_MAX: Final = 5_000

Steps = Generator[Sequence[Call], list[Returned], Any]


@dataclass(frozen=True)
class Tested:
    """A fork with everything on it."""

    case: str
    fork: str
    start: int  # records before are left out, of what runs and of what says what is right
    begin: int  # where what is played again begins
    now: int  # the latest time of a sale before that
    stop: int
    since: int  # windows before were over, and are not looked at
    injected: tuple[int, ...]  # positions, without the last event, which only ends the windows
    live_between: int


def script(asked: str) -> Script:
    """`asked` names the log and the case, each in quotes."""
    log, case = re.findall(r"'([^']*)'", asked)[:2]
    (made,) = yield [Call("create_fork", {"log": log, "purpose": f"a processor and {case} events"})]
    tested: Tested = yield from _inject(made["fork"]["name"], made["fork"]["start"], case)
    ran, answer = yield [_run(tested, tested.fork), _ask(tested, [()])]
    right = _right(answer)[0]
    records: list[dict[str, Any]] = yield from _records(tested)
    report = CaseReport(case=case, verdict="right", injected=_told(tested, records), live_between=tested.live_between)
    if _wrong(ran, right):
        replays, smallest = yield from _narrow(tested, records)
        by_position = {one.position: one for one in report.injected}
        report = report.model_copy(
            update={
                "verdict": "crashed" if ran["crashed"] else "timed out" if ran["timed_out"] else "wrong",
                "crash": ran["crashed"] or ran["timed_out"],
                "differences": oracle.differences(right, ran["rows"]),
                "triggers": [[by_position[position] for position in positions] for positions in smallest],
                "replays": replays,
            }
        )
    yield [Call("squash_fork", {"fork": tested.fork})]
    return report


def _inject(fork: str, first: int, case: str) -> Steps:
    (seen,) = yield [Call("read_records", {"log": fork, "last": LOOK_BACK, "limit": LOOK_BACK})]
    stream = Stream.seen(record["value"] for record in seen["records"])
    if stream is None:
        raise Stuck(f"none of the last records of {fork!r} is a sale")
    begin, now = seen["records"][-1]["position"] + 1, stream.now
    since = (now - LATEST_MS) // WINDOW_MS * WINDOW_MS - WINDOW_MS
    make, live = Maker(case), 0
    events: list[Event] = []
    injected: list[int] = []
    for step in CASES[case]:
        new = step(make, stream, events)
        (done,) = yield [_append(fork, new)]
        events += new
        injected += range(done["first"], done["first"] + len(new))
        came: list[Any] = yield from _live_after(fork, done["first"] + len(new))
        live += len(came)
        stream = Stream.seen(came, stream) or stream
    (done,) = yield [_append(fork, [make.last(stream)])]
    start = max(first, begin - HISTORY_RECORDS)
    return Tested(case, fork, start, begin, now, done["first"] + 1, since, tuple(injected), live)


def _append(fork: str, values: Sequence[Any]) -> Call:
    return Call("append_records", {"fork": fork, "records": [{"value": value} for value in values]})


def _live_after(fork: str, position: int) -> Steps:
    came: list[Any] = []
    while len(came) < LIVE_BETWEEN:
        start = position + len(came)
        (found,) = yield [
            Call("read_records", {"log": fork, "start": start, "wait_s": LIVE_WAIT_S, "limit": LOOK_BACK})
        ]
        if not found["records"]:
            break
        came += [record["value"] for record in found["records"]]
    return came


def _run(tested: Tested, fork: str, left_out: int = 0) -> Call:
    return Call(
        "run_processor", {"fork": fork, "start": tested.start, "stop": tested.stop - left_out, "since": tested.since}
    )


def _ask(tested: Tested, left_out: Sequence[Sequence[int]]) -> Call:
    """For what is right, of the fork as it is or without some of its records."""
    query = oracle.sql(tested.since, left_out)
    span = {"start": tested.start, "stop": tested.stop, "max_rows": ROWS_MAX}
    return Call("query_sql", {"log": tested.fork, "sql": query} | span)


def _right(answer: Returned) -> Mapping[int, oracle.Allowed]:
    if answer.get("truncated"):
        raise Stuck(f"there are more than {ROWS_MAX} windows to look at")
    return oracle.allowed(answer["rows"])


def _wrong(ran: Returned, right: oracle.Allowed) -> bool:
    return bool(ran["crashed"] or ran["timed_out"] or oracle.differences(right, ran["rows"]))


def _records(tested: Tested) -> Steps:
    """All from where the fork was first looked at."""
    records: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    while True:
        span = {"log": tested.fork, "start": tested.begin, "stop": tested.stop}
        (found,) = yield [Call("read_records", span | PAGE | more)]
        records += found["records"]
        if found.get("cursor") is None:
            return records
        more = {"cursor": found["cursor"]}


def _told(tested: Tested, records: Sequence[dict[str, Any]]) -> list[Injected]:
    reached, told = tested.now, []
    for record in records:
        position, value = record["position"], record["value"]
        at = value.get("at") if isinstance(value, dict) else None
        late = max(0, reached - at) if isinstance(at, int) else None
        if position in tested.injected:
            told.append(Injected(position=position, value=value, late_ms=late))
        reached = max(reached, at) if isinstance(at, int) else reached
    return told


def _narrow(tested: Tested, records: Sequence[dict[str, Any]]) -> Steps:
    """How often it played the records again, and the smallest sets of ours with which it still goes wrong."""
    sizes = [list(combinations(tested.injected, size)) for size in range(len(tested.injected))]
    (answer,) = yield [_ask(tested, [_others(tested, kept) for sets in sizes for kept in sets])]
    right = _right(answer)
    replays = 0
    for sets in sizes:
        found: list[tuple[int, ...]] = []
        for at in range(0, len(sets), REPLAYS):
            some = sets[at : at + REPLAYS]
            ran: list[Returned] = yield from _replayed(tested, records, some)
            found += [kept for n, kept in enumerate(some) if _wrong(ran[n], right[replays + n])]
            replays += len(some)
        if found:
            return replays, found
    return replays, [tested.injected]


def _others(tested: Tested, kept: Sequence[int]) -> list[int]:
    return [position for position in tested.injected if position not in kept]


def _played(fork: str, at: int, values: Sequence[Any]) -> Steps:
    """Append values to a fork that ends at a position, as many at once as one call takes."""
    for some in _chunks(values):
        (done,) = yield [_append(fork, some)]
        if (done["first"], done["count"]) != (at, len(some)):
            raise Stuck(f"what was to stand at {at} of {fork!r} stands at {done['first']}")
        at += len(some)


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    sizes = [len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) for value in values]
    begin = size = 0
    for number, more in enumerate(sizes):
        if number > begin and (number - begin == APPEND_RECORDS or size + more > APPEND_BYTES):
            yield values[begin:number]
            begin, size = number, 0
        size += more
    if begin < len(values):
        yield values[begin:]


def _replayed(tested: Tested, records: Sequence[dict[str, Any]], sets: Sequence[Sequence[int]]) -> Steps:
    """What the processor makes of the same records with only some of ours among them, each on a fork of its own."""
    made = yield [Call("create_fork", {"log": tested.fork, "kind": "severed", "at": tested.begin}) for _ in sets]
    forks = [one["fork"]["name"] for one in made]
    for fork, kept in zip(forks, sets, strict=True):
        values = [record["value"] for record in records if record["position"] not in _others(tested, kept)]
        yield from _played(fork, tested.begin, values)
    ran = yield [_run(tested, fork, len(_others(tested, kept))) for fork, kept in zip(forks, sets, strict=True)]
    yield [Call("squash_fork", {"fork": fork}) for fork in forks]
    return ran
