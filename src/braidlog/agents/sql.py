"""SQL over a range of a log or fork, carried out by DuckDB in a process of its own.

The range is read here and handed over, so the process needs no braid, no file and no network, and has none. Time,
memory, rows and bytes are bounded, and the process ends when its time is over: some functions of the engine do not
listen when they are asked to end, and take the process with them. A range that is too large is refused: `sql_spark` is
for those.

In a query `records` has the columns position, timestamp (UTC), key, value (bytes), text (the value, where it is UTF-8),
json (the same, where it is JSON) and headers. Where values are JSON objects, `rows` has their fields as columns, beside
_position, _timestamp and _key.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct

from braidlog import limits
from braidlog.agents.describing import Shape
from braidlog.errors import BraidError, InvalidArgument, Timeout, Unavailable

if TYPE_CHECKING:
    from braidlog import Log

_PROCESS: Final = Path(__file__).with_name("sql_process.py")
_COLUMNS: Final = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "date-time": "TIMESTAMP",
}
_RECORDS: Final = """CREATE TEMP VIEW records AS
SELECT *, CASE WHEN json_valid(text) THEN text::JSON END AS json FROM (
SELECT position, timestamp, coalesce(try(decode(key)), key::VARCHAR) AS key, value,
try(decode(value)) AS text, headers FROM raw_records)"""


class Refused(InvalidArgument):
    """The query, or the range that it is about, is not one that is carried out here."""


class TooLarge(Refused):
    """The range is too large for this engine."""


class Result(Struct, frozen=True, kw_only=True):
    """What a query answered: rows of what JSON can hold."""

    columns: list[tuple[str, str]]  # name and type; names that come again are told apart: a, a_2
    rows: list[list[Any]]
    truncated: bool  # there is more than was asked for, or than fits
    records: int  # that the query was about
    bytes: int


class Bounds(Struct, frozen=True, kw_only=True):
    """How far a query may go."""

    rows: int = limits.SQL_ROWS
    time_s: float = limits.SQL_TIME_S
    records: int = limits.SQL_RECORDS_MAX
    bytes: int = limits.SQL_READ_BYTES_MAX
    memory_bytes: int = limits.SQL_MEMORY_BYTES


def available() -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec("duckdb") is not None


def check(sql: str, bounds: Bounds) -> None:
    """Refused if it is too long, or may go too far."""
    if not sql.strip() or len(sql) > limits.SQL_STATEMENT_CHARS_MAX:
        raise Refused(f"a query has 1 to {limits.SQL_STATEMENT_CHARS_MAX:,} characters, not {len(sql):,}")
    if not 1 <= bounds.rows <= limits.SQL_ROWS_MAX:
        raise Refused(f"a query answers 1 to {limits.SQL_ROWS_MAX:,} rows, not {bounds.rows:,}: aggregate instead")
    if not 0 < bounds.time_s <= limits.SQL_TIME_MAX_S:
        raise Refused(f"a query takes at most {limits.SQL_TIME_MAX_S:g} s, not {bounds.time_s:g}")


class Query:
    """One query, to be run once. `cancel` may be called from another thread at any time, and ends it."""

    def __init__(self, log: Log, sql: str, start: int, stop: int, bounds: Bounds | None = None) -> None:
        bounds = bounds or Bounds()
        if not available():
            raise Unavailable("SQL needs DuckDB: pip install 'braidlog[agents]'")
        check(sql, bounds)
        if stop - start > bounds.records:
            raise _too_large(log, f"{stop - start:,} records", f"{bounds.records:,}")
        self._log = log
        self._sql = sql
        self._range = (start, stop)
        self._bounds = bounds
        self._lock = threading.Lock()
        self._cancelled = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> Result:
        """Read the range, have the query carried out, and return what it answered."""
        chunks = list(self._chunks())
        size = sum(chunk.nbytes for chunk in chunks)
        table = pa.concat_tables(chunks) if chunks else self._log.read_arrow(self._range[0], self._range[0])
        answer = self._answer(_handed_over(table), [_RECORDS, *_rows_view(table)])
        return result_of(answer, table.num_rows, size)

    def cancel(self) -> None:
        """End it, wherever it is."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()

    def _chunks(self) -> Iterator[pa.Table]:
        """The range, in pieces that grow as far as the records turn out to be small."""
        at, stop = self._range
        count, size = limits.SQL_CHUNK_RECORDS_MIN, 0
        while at < stop:
            if self._cancelled:
                raise Refused("the query was cancelled")
            chunk = self._log.read_arrow(at, min(stop, at + count))
            if not chunk.num_rows:
                return  # a hold began to hide the rest meanwhile
            at += chunk.num_rows
            size += chunk.nbytes
            if size > self._bounds.bytes:
                raise _too_large(self._log, f"more than {size:,} bytes", f"{self._bounds.bytes:,}")
            yield chunk
            fitting = limits.SQL_CHUNK_BYTES * chunk.num_rows // max(1, chunk.nbytes)
            count = max(1, min(count * limits.SQL_CHUNK_RECORDS_GROWTH, fitting))

    def _answer(self, table: pa.Table, views: list[str]) -> dict[str, Any]:
        order = {
            "sql": self._sql,
            "views": views,
            "kill_s": limits.SQL_KILL_S,
            "memory_bytes": self._bounds.memory_bytes,
            "address_space_bytes": limits.SQL_ADDRESS_SPACE_BYTES,
            "threads": limits.SQL_THREADS,
        } | bounds_of_answer(self._bounds)
        with _memory_file() as handed:
            handed.write(json.dumps(order).encode() + b"\n")
            with pa.ipc.new_stream(handed, table.schema) as stream:
                stream.write_table(table)
            handed.flush()
            handed.seek(0)
            process = self._started(handed)
        try:
            told, _ = process.communicate(timeout=limits.PROCESS_START_TIMEOUT_S + limits.SQL_TIME_MAX_S)
        except subprocess.TimeoutExpired:
            told = b""
        finally:
            process.kill()
            process.wait()
        if self._cancelled:
            raise Refused("the query was cancelled")
        if not told:
            return ran_away(self._bounds)
        answer: dict[str, Any] = json.loads(told)
        return answer

    def _started(self, handed: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._cancelled:
                raise Refused("the query was cancelled")
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROCESS)],
                stdin=handed,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
            )
            return self._process


def _memory_file() -> IO[bytes]:
    """A file that nobody else sees, in memory where the system has that: a pipe would need the range twice."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("braidlog-query"), "w+b")
    return tempfile.TemporaryFile()


def environment() -> dict[str, str]:
    """Nothing that is secret: only what Python needs to be found."""
    kept = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": "/nonexistent"}


def _handed_over(table: pa.Table) -> pa.Table:
    """Times without a zone: they are UTC, and the engine needs an extension for zones."""
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table.column("timestamp").cast(pa.timestamp("us")))


def fields_of(values: Iterable[bytes | None]) -> list[tuple[str, str]]:
    """The columns of `rows`, with the type of each: the fields of the JSON objects among some values."""
    shape = Shape()
    for value in values:
        try:
            decoded = msgspec.json.decode(value or b"")
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(decoded, dict):
            shape.add(decoded)
    taken = {"_position", "_timestamp", "_key"}
    columns: list[tuple[str, str]] = []
    for name, field in shape.fields.items():
        if (
            len(columns) + len(taken) >= limits.SQL_COLUMNS_ROWS_MAX
            or not name
            or "\0" in name
            or name.lower() in taken
        ):
            continue  # the engines do not tell names apart by case; such a field is still in json
        taken.add(name.lower())
        columns.append((name, field.column))
    return columns


def _rows_view(table: pa.Table) -> list[str]:
    """A view with a column for each field of the JSON objects there are, told from the first of them."""
    values = table.column("value").slice(0, limits.DESCRIBE_SAMPLE_RECORDS)
    columns = [_column(name, kind) for name, kind in fields_of(value.as_py() for value in values)]
    if not columns:
        return []
    return [
        "CREATE TEMP VIEW rows AS SELECT position AS _position, timestamp AS _timestamp, key AS _key, "
        + ", ".join(columns)
        + " FROM records WHERE json_type(json) = 'OBJECT'"
    ]


def _column(name: str, kind: str) -> str:
    pointer = "'/" + name.replace("~", "~0").replace("/", "~1").replace("'", "''") + "'"
    quoted = '"' + name.replace('"', '""') + '"'
    if kind not in _COLUMNS:
        return f"json_extract(json, {pointer}) AS {quoted}"
    return f"TRY_CAST(json_extract_string(json, {pointer}) AS {_COLUMNS[kind]}) AS {quoted}"


def _too_large(log: Log, what: str, most: str) -> TooLarge:
    return TooLarge(
        f"the range of {log.name!r} has {what}, and a query here takes at most {most}: narrow it by position or time, "
        "or run a Spark job on it (docs/spark.md), which reads in parallel and beside the service"
    )


def bounds_of_answer(bounds: Bounds) -> dict[str, Any]:
    """What a process is told of how far it may go."""
    return {
        "rows_max": bounds.rows,
        "time_s": bounds.time_s,
        "columns_max": limits.SQL_COLUMNS_ROWS_MAX,
        "answer_bytes_max": limits.SQL_ANSWER_BYTES_MAX,
        "cell_chars_max": limits.SQL_CELL_CHARS_MAX,
        "column_chars_max": limits.SQL_COLUMN_CHARS_MAX,
    }


def result_of(answer: dict[str, Any], records: int, size: int) -> Result:
    """What a process answered; its error, if it answered one."""
    if "error" in answer:
        raise _refusal(answer["error"], answer["message"])
    return Result(
        columns=[(name, kind) for name, kind in answer["columns"]],
        rows=answer["rows"],
        truncated=answer["truncated"],
        records=records,
        bytes=size,
    )


def ran_away(bounds: Bounds) -> dict[str, Any]:
    """What a process that ended without an answer would have answered."""
    return {"error": "killed", "message": f"the query did not end within {bounds.time_s:g} s, or ran away"}


def _refusal(kind: str, message: str) -> BraidError:
    """The error that tells of what a process answered."""
    if kind in ("time", "killed"):
        return Timeout(f"{message}: aggregate less, narrow the range, or run a Spark job (docs/spark.md)")
    if kind == "memory":
        return Refused(f"{message}: narrow the range, group by less, or run a Spark job (docs/spark.md)")
    if kind == "row":
        return Refused(f"{message}: select fewer columns, or parts of the values, with substr or list slices")
    if kind == "statement":
        return Refused(f"{message}, over the views `records` and `rows`, reading nothing else")
    return Refused(message)
