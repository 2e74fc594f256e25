"""The tools that look: which logs there are, what is in them, and what a fork has over its parent."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from braidlog import Info, Log, Record, limits
from braidlog.agents.describing import describe
from braidlog.agents.names import is_system
from braidlog.errors import BraidError, InvalidArgument
from braidlog.mcp import cursors, ranges, showing
from braidlog.mcp.house import Work
from braidlog.mcp.models import (
    Cursor,
    DescriptionOut,
    DiffOut,
    HoldOut,
    KeysOut,
    Last,
    Limit,
    LogName,
    LogOut,
    LogsOut,
    MatchesOut,
    MaxBytes,
    RecordsOut,
    Since,
    Start,
    Stop,
    Until,
)


def list_logs(
    work: Work,
    pattern: Annotated[str, Field(description="glob over names, such as orders*")] = "*",
    forks_of: Annotated[
        str | None, Field(description="only this log and the forks made of it, directly or not")
    ] = None,
    mine: Annotated[bool, Field(description="only forks that you made")] = False,
    limit: Annotated[int, Field(ge=1, le=limits.MCP_LOGS_MAX)] = limits.MCP_LOGS,
    cursor: Cursor = None,
) -> LogsOut:
    """List logs and forks: what each was forked from, where it ends, how far ahead (records of its own) and behind it
    is, holds with their age, and when it expires."""
    after = -1 if cursor is None else cursors.read(cursor, "list_logs", None).at
    logs = [log for log in work.caller.braid.logs() if not is_system(log.name)]
    everything = sorted(showing.infos(logs, lambda _: True), key=lambda info: info.id)
    by_name = {info.name: info for info in everything}
    held = showing.holds(everything, datetime.now(UTC))
    wanted = [
        info
        for info in everything
        if info.id > after
        and fnmatch.fnmatchcase(info.name, pattern)
        and (forks_of is None or forks_of in _ancestry(info, by_name))
    ]
    told = [(info, _told(work, info, by_name, held)) for info in wanted]
    if mine:
        told = [(info, log) for info, log in told if log.mine]
    more = cursors.write("list_logs", None, told[limit - 1][0].id, 0) if len(told) > limit else None
    return LogsOut(logs=[log for _, log in told[:limit]], cursor=more)


def _ancestry(info: Info, by_name: dict[str, Info]) -> Iterator[str]:
    at: Info | None = info
    while at is not None:
        yield at.name
        if at.parent is not None and at.parent not in by_name:
            yield at.parent
        at = None if at.parent is None else by_name.get(at.parent)


def _told(work: Work, info: Info, by_name: dict[str, Info], held: dict[str, list[HoldOut]]) -> LogOut:
    parent = None if info.parent is None else by_name.get(info.parent)
    return showing.log(info, work.caller.name, parent, held.get(info.name))


def told_of(work: Work, log: Log, info: Info | None = None) -> LogOut:
    """One log, in the same form."""
    info = info or log.info()
    by_name: dict[str, Info] = {}
    if info.parent is not None:
        try:
            by_name[info.parent] = work.caller.braid.log(info.parent).info()
        except BraidError:
            pass  # it is gone, or not for this caller
    if info.limited_by != info.name:
        return _told(work, info, by_name, {})
    everything = showing.infos(work.caller.braid.logs(), lambda name: not is_system(name))
    return _told(work, info, by_name, showing.holds(everything, datetime.now(UTC)))


def describe_log(work: Work, log: LogName) -> DescriptionOut:
    """Describe a log or fork: where it ends, its rate, the format of its records, a JSON schema inferred from a sample,
    its time range, its keys, and a few records. Look at it before you read or query."""
    found = work.log(log)
    info = found.info()
    start, stop = info.start, info.readable_tail
    records = ranges.sample(found, start, stop, limits.DESCRIBE_SAMPLE_RECORDS)
    told = describe(records, stop - start)
    lately = datetime.now(UTC) - timedelta(seconds=limits.DESCRIBE_RATE_S)
    rate = (stop - min(stop, found.position_at(lately))) / limits.DESCRIBE_RATE_S
    keys = KeysOut(
        with_key=told.keys.with_key,
        distinct=told.keys.distinct,
        estimate=told.keys.estimate,
        most_frequent=dict(told.keys.most_frequent),
    )
    shown = [records[at] for at in _spread(len(records), limits.MCP_SAMPLE_RECORDS)]
    return DescriptionOut(
        log=told_of(work, found, info),
        lineage=[step.name for step in found.lineage()],
        records=stop - start,
        bytes=info.own_bytes + info.shared_bytes,
        format=told.format,
        formats=told.formats,
        sampled=told.sampled,
        json_schema=told.schema,
        avro_schema_ids=told.avro_schema_ids or None,
        first_time=showing.moment_of(told.first_time),
        last_time=showing.moment_of(told.last_time),
        records_per_s=round(rate, 3),
        bytes_per_s=round(rate * told.size_mean, 1),
        value_bytes_mean=round(told.size_mean, 1),
        value_bytes_max=told.size_max,
        keys=keys if told.keys.with_key else None,
        sample=showing.records([(record, None) for record in shown], limits.MCP_ANSWER_BYTES),
    )


def _spread(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return [(count - 1) * number // (most - 1) for number in range(most)]


def read_records(
    work: Work,
    log: LogName,
    start: Start = None,
    stop: Stop = None,
    since: Since = None,
    until: Until = None,
    last: Last = None,
    sample: Annotated[bool, Field(description="`limit` records spread evenly over the range")] = False,
    wait_s: Annotated[float, Field(description="wait for a record, at the end", ge=0, le=limits.MCP_WAIT_MAX_S)] = 0,
    limit: Limit = limits.MCP_RECORDS,
    max_bytes: MaxBytes = limits.MCP_ANSWER_BYTES,
    cursor: Cursor = None,
) -> RecordsOut:
    """Read records of a log or fork, by position, by time, the last ones, or a sample. Positions begin at 0, and ranges
    end before `stop`. What a hold hides is not read."""
    found = work.log(log)
    info = found.info()
    low, high = ranges.span(found, info, start, stop, since, until, last)
    if cursor is not None:
        place = cursors.read(cursor, "read_records", found)
        low, high = max(info.start, place.at), max(place.at, min(place.stop, info.readable_tail))
    if sample:
        records = ranges.sample(found, low, high, limit)
        more = None
    else:
        records = _read(found, low, high, limit, max_bytes, wait_s if high == info.readable_tail else 0.0)
        more = high
    told = showing.records([(record, None) for record in records], max_bytes)
    after = told[-1].position + 1 if told else low
    goes_on = more is not None and after < high
    return RecordsOut(
        log=found.name,
        records=told,
        cursor=cursors.write("read_records", found, after, high) if goes_on else None,
        end=max(info.readable_tail, after),
        note=_hold_note(info),
    )


def _read(log: Log, low: int, high: int, limit: int, max_bytes: int, wait_s: float) -> list[Record]:
    if low < high:
        return log.read(low, high, max_records=limit, max_bytes=max_bytes)
    return log.read(low, max_records=limit, max_bytes=max_bytes, wait=wait_s) if wait_s else []


def _hold_note(info: Info) -> str | None:
    if info.limited_by is None:
        return None
    return (
        f"{info.limited_by} is held by an undecided promotable fork: positions from {info.readable_tail} on are hidden"
    )


def search_records(
    work: Work,
    log: LogName,
    key: Annotated[str | None, Field(description="records with this key")] = None,
    contains: Annotated[str | None, Field(description="records whose value contains this text")] = None,
    field: Annotated[str | None, Field(description="a field of JSON values, such as order.id")] = None,
    equals: Annotated[str | int | float | bool | None, Field(description="what `field` has to be")] = None,
    start: Start = None,
    stop: Stop = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = limits.MCP_RECORDS,
    max_bytes: MaxBytes = limits.MCP_ANSWER_BYTES,
    cursor: Cursor = None,
) -> MatchesOut:
    """Search a range for records by key, by a text in the value, or by a field of JSON. All that is given must hold. A
    long range is searched in parts: pass the cursor on."""
    if key is None and contains is None and field is None:
        raise InvalidArgument("say what to search for: key, contains, or field and equals")
    if (field is None) != (equals is None):
        raise InvalidArgument("field and equals go together: give both")
    found = work.log(log)
    info = found.info()
    low, high = ranges.span(found, info, start, stop, since, until)
    if cursor is not None:
        place = cursors.read(cursor, "search_records", found)
        low, high = max(info.start, place.at), max(place.at, min(place.stop, info.readable_tail))
    matches: list[Record] = []
    at, room = low, limits.MCP_SCAN_BYTES_MAX
    until_at = min(high, low + limits.MCP_SCAN_RECORDS_MAX)
    count = limits.SQL_CHUNK_RECORDS_MIN
    while at < until_at and len(matches) < limit and room > 0:
        chunk = found.read_arrow(at, min(until_at, at + count))
        if not chunk.num_rows:
            break
        at += chunk.num_rows
        room -= chunk.nbytes
        for position in _matching(chunk, key, contains, field, equals):
            matches.extend(found.read(position, position + 1))
            if len(matches) == limit:
                at = position + 1
                break
        fitting = limits.SQL_CHUNK_BYTES * chunk.num_rows // max(1, chunk.nbytes)
        count = max(1, min(count * limits.SQL_CHUNK_RECORDS_GROWTH, fitting))
    told = showing.records([(record, None) for record in matches], max_bytes)
    if len(told) < len(matches):
        at = told[-1].position + 1
    return MatchesOut(
        log=found.name,
        records=told,
        scanned=at - low,
        cursor=cursors.write("search_records", found, at, high) if at < high else None,
    )


def _matching(
    chunk: pa.Table, key: str | None, contains: str | None, field: str | None, equals: str | float | bool | None
) -> Iterator[int]:
    """The positions of those records that are looked for."""
    if key is not None:
        chunk = chunk.filter(pc.equal(chunk.column("key"), pa.scalar(key.encode(), chunk.column("key").type)))
    if contains is not None:
        chunk = chunk.filter(pc.match_substring(chunk.column("value"), contains.encode()))
    positions = chunk.column("position").to_pylist()
    if field is None:
        yield from positions
        return
    for position, value in zip(positions, chunk.column("value"), strict=True):
        try:
            at = msgspec.json.decode(value.as_py())
        except (msgspec.DecodeError, RecursionError):
            continue
        for name in field.split("."):
            at = at.get(name) if isinstance(at, dict) else None
        if at == equals and isinstance(at, bool) == isinstance(equals, bool):
            yield position


def diff_fork(
    work: Work,
    fork: Annotated[str, Field(description="name of a fork")],
    with_parent: Annotated[bool, Field(description="also the parent's records between the fork's own")] = False,
    limit: Limit = limits.MCP_RECORDS,
    max_bytes: MaxBytes = limits.MCP_ANSWER_BYTES,
    cursor: Cursor = None,
) -> DiffOut:
    """Show what a fork has that its parent has not: the records of its own, in the order in which they would be
    promoted. Read it before you propose."""
    found = work.log(fork)
    info = found.info()
    if info.fork_point is None:
        raise InvalidArgument(f"{fork!r} is a root and differs from nothing: `list_logs` with forks_of={fork!r}")
    at = info.fork_point if cursor is None else cursors.read(cursor, "diff_fork", found).at
    mean = max(1, (info.own_bytes + info.shared_bytes) // max(1, info.tail - info.start))
    window = max(limit, min(limits.MCP_DIFF_WINDOW_RECORDS, limits.MCP_SCAN_BYTES_MAX // mean))
    diff = found.diff(start=at, max_records=window)
    wanted = [entry for entry in diff if entry.own or with_parent]
    told = showing.records([(entry.record, entry.own) for entry in wanted[:limit]], max_bytes)
    if len(told) < len(wanted):
        after = told[-1].position + 1
    else:
        after = diff.entries[-1].record.position + 1 if diff.entries else at
    left = diff.truncated or len(told) < len(wanted)
    return DiffOut(
        fork=info.name,
        parent=info.parent or "",
        fork_point=info.fork_point,
        own=info.own,
        arrived=max(0, info.tail - info.fork_point - info.own),
        records=told,
        cursor=cursors.write("diff_fork", found, after, 0) if left else None,
    )
