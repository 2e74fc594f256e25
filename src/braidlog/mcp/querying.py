"""The tool that queries with SQL."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from braidlog import limits
from braidlog.agents.sql import Bounds, Query
from braidlog.mcp import ranges
from braidlog.mcp.house import Work
from braidlog.mcp.models import Last, LogName, QueryOut, Since, Start, Stop, Until


def query_sql(
    work: Work,
    log: LogName,
    sql: Annotated[str, Field(description="one SELECT, in DuckDB's dialect")],
    start: Start = None,
    stop: Stop = None,
    since: Since = None,
    until: Until = None,
    last: Last = None,
    max_rows: Annotated[int, Field(ge=1, le=limits.SQL_ROWS_MAX)] = limits.SQL_ROWS,
    time_s: Annotated[float, Field(description="seconds it may take", gt=0, le=limits.SQL_TIME_MAX_S)] = (
        limits.SQL_TIME_S
    ),
) -> QueryOut:
    """Query a range of a log or fork with SQL. The view `records` has position, timestamp (UTC), key, value (BLOB),
    text, json and headers; where values are JSON objects, `rows` has _position, _timestamp, _key and their fields as
    typed columns. Aggregate there instead of reading many records."""
    found = work.log(log)
    low, high = ranges.span(found, found.info(), start, stop, since, until, last)
    query = Query(found, sql, low, high, Bounds(rows=max_rows, time_s=time_s))
    work.ended_by(query.cancel)
    answer = query.run()
    return QueryOut(
        log=found.name,
        start=low,
        stop=high,
        columns=dict(answer.columns),
        rows=answer.rows,
        truncated=answer.truncated or None,
        records=answer.records,
    )
