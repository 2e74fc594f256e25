"""The tool that queries with SQL."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from braidlog import Info, Log, limits
from braidlog.agents.sql import Bounds, Query, Refused, Result, TooLarge
from braidlog.agents.sql_spark import SparkQuery
from braidlog.mcp import ranges
from braidlog.mcp.house import Work
from braidlog.mcp.models import Last, LogName, QueryOut, Since, Start, Stop, Until

Engine = Literal["auto", "duckdb", "spark"]

_WITH_SPARK: Final = "whoever runs this can have large ranges queried here too: `braid mcp --spark`"


def query_sql(
    work: Work,
    log: LogName,
    sql: Annotated[str, Field(description="one SELECT, in DuckDB's dialect, or in Spark's if that is the engine")],
    start: Start = None,
    stop: Stop = None,
    since: Since = None,
    until: Until = None,
    last: Last = None,
    max_rows: Annotated[int, Field(ge=1, le=limits.SQL_ROWS_MAX)] = limits.SQL_ROWS,
    time_s: Annotated[float, Field(description="seconds it may take", gt=0, le=limits.SQL_TIME_MAX_S)] = (
        limits.SQL_TIME_S
    ),
    engine: Annotated[Engine, Field(description="auto: spark for large ranges, if it is offered here")] = "auto",
) -> QueryOut:
    """Query a range of a log or fork with SQL. The view `records` has position, timestamp (UTC), key, value (BLOB),
    text, json and headers; where values are JSON objects, `rows` has _position, _timestamp, _key and their fields as
    typed columns. Aggregate there instead of reading many records."""
    found = work.log(log)
    info = found.info()
    low, high = ranges.span(found, info, start, stop, since, until, last)
    bounds = Bounds(rows=max_rows, time_s=time_s)
    offered = work.house.spark is not None
    by_spark = engine == "spark" or (engine == "auto" and offered and _is_large(info, low, high))
    if not by_spark:
        try:
            answer = _by_duckdb(work, found, sql, low, high, bounds)
        except TooLarge as error:
            if not offered:
                raise TooLarge(f"{error}; {_WITH_SPARK}") from None
            if engine == "duckdb":
                raise
            by_spark = True
    if by_spark:
        answer = _by_spark(work, found, sql, low, high, bounds)
    return QueryOut(
        log=found.name,
        start=low,
        stop=high,
        columns=dict(answer.columns),
        rows=answer.rows,
        truncated=answer.truncated or None,
        records=answer.records,
        engine="spark" if by_spark else None,
    )


def _is_large(info: Info, start: int, stop: int) -> bool:
    """Whether a range is too large for DuckDB, if it is like the rest of its log."""
    records = max(1, info.tail - info.start)
    size = (info.own_bytes + info.shared_bytes) * (stop - start) // records
    return stop - start > limits.SQL_RECORDS_MAX or size > limits.SQL_READ_BYTES_MAX


def _by_duckdb(work: Work, log: Log, sql: str, start: int, stop: int, bounds: Bounds) -> Result:
    query = Query(log, sql, start, stop, bounds)
    work.ended_by(query.cancel)
    return query.run()


def _by_spark(work: Work, log: Log, sql: str, start: int, stop: int, bounds: Bounds) -> Result:
    work.became("spark")
    if work.house.spark is None:
        raise Refused(f"engine 'spark' is not offered here; {_WITH_SPARK}")
    if work.caller.access is None:
        raise Refused("Spark works in processes of its own, which cannot see these logs with your rights: use duckdb")
    caller = work.caller.principal or work.caller.name
    query = SparkQuery(work.house.spark, work.caller.access, log, sql, start, stop, bounds, caller)
    work.ended_by(query.cancel)
    return query.run()
