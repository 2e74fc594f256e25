"""Tables of records into files.

Parquet, Arrow and JSON lines with `records` keep all of a record. Plain lines, JSON lines and CSV keep what fits them:
a value that does not fit is refused with its position, and a key or headers left out are counted in `left_out`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from braidlog.cli.failures import Refused
from braidlog.cli.formats.record_json import time_text, to_json
from braidlog.objects.batch import POSITIONED_SCHEMA, records
from braidlog.record import Record

if TYPE_CHECKING:
    import pyarrow as pa


class RecordWriter(Protocol):
    """Takes the tables of an export one by one."""

    left_out: int  # records of which a part was not written

    def write(self, table: pa.Table) -> None: ...
    def close(self) -> None:
        """Finish what was begun; the file itself stays open."""


def writer_for(form: str, file: IO[bytes], *, whole: bool, stream: bool) -> RecordWriter:
    """A writer of a format. `whole` writes JSON lines of whole records; `stream` is Arrow's format for a pipe."""
    if form in ("parquet", "arrow"):
        return _ColumnWriter(file, form, stream)
    if form == "csv":
        return _CsvWriter(file)
    return _LineWriter(file, form, whole)


def records_of(table: pa.Table) -> Iterator[Record]:
    """The rows of a table as records; within a batch of it positions have no gaps."""
    for batch in table.to_batches():
        if batch.num_rows:
            first = batch.column("position")[0].as_py()
            yield from records(batch.drop_columns(["position"]), 0, batch.num_rows, first)


class _ColumnWriter:
    left_out = 0

    def __init__(self, file: IO[bytes], form: str, stream: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if form == "parquet":
            self._sink = pq.ParquetWriter(file, POSITIONED_SCHEMA)
        elif stream:
            self._sink = pa.ipc.new_stream(file, POSITIONED_SCHEMA)
        else:
            self._sink = pa.ipc.new_file(file, POSITIONED_SCHEMA)

    def write(self, table: pa.Table) -> None:
        self._sink.write_table(table)

    def close(self) -> None:
        self._sink.close()


class _LineWriter:
    def __init__(self, file: IO[bytes], form: str, whole: bool) -> None:
        self._file = file
        self._whole = whole
        self._line = _json_line if form == "jsonl" else _plain_line
        self.left_out = 0

    def write(self, table: pa.Table) -> None:
        for record in records_of(table):
            if self._whole:
                line = msgspec.json.encode(to_json(record))
            else:
                line = self._line(record)
                self.left_out += record.key is not None or bool(record.headers)
            self._file.write(line + b"\n")

    def close(self) -> None:
        self._file.flush()


class _CsvWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.left_out = 0
        self._put([("position", "timestamp", "key", "value")])

    def write(self, table: pa.Table) -> None:
        self._put(self._row(record) for record in records_of(table))

    def _put(self, rows: Iterator[tuple[object, ...]] | list[tuple[object, ...]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())

    def _row(self, record: Record) -> tuple[object, ...]:
        try:
            key = "" if record.key is None else record.key.decode()
            value = record.value.decode()
        except UnicodeDecodeError:
            raise _misfit(record, "is not UTF-8, as CSV must be: use jsonl --records, parquet or arrow") from None
        self.left_out += bool(record.headers)
        return record.position, time_text(record.timestamp), key, value

    def close(self) -> None:
        self._file.flush()


def _json_line(record: Record) -> bytes:
    try:
        msgspec.json.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _misfit(record, f"is not JSON ({error}): use --records, or another format") from None
    return record.value if b"\n" not in record.value else msgspec.json.format(record.value, indent=-1)


def _plain_line(record: Record) -> bytes:
    if b"\n" in record.value:
        raise _misfit(record, "has a newline in it: use jsonl --records, parquet or arrow")
    return record.value


def _misfit(record: Record, problem: str) -> Refused:
    return Refused(f"the value at position {record.position} {problem}")
