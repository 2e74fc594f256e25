"""Rows of tables: CSV, Parquet and Arrow.

A row becomes a JSON object, unless columns are named for the value, the key or the time. A Parquet or Arrow file that
`braid export` wrote needs no naming: it says itself that its rows are records.

CSV begins with the names of its columns, every row has as many fields as there are names, and a blank line means
nothing. Parquet, and Arrow's file format, have their directory at the end: from a pipe they are put aside first.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from typing import TYPE_CHECKING, Final

from braidlog import limits
from braidlog.cli.formats import BadInput, Chunk, Chunks, Columns
from braidlog.cli.formats.lines import line_groups
from braidlog.cli.formats.record_json import cell_bytes, cell_timestamp, now, row_json
from braidlog.objects.batch import FORMAT_KEY, SCHEMA, records
from braidlog.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_ROWS: Final = 10_000
_CHUNK_BYTES: Final = 1 * limits.MIB
_ARROW_FILE: Final = b"ARROW1"
_BOM: Final = "\ufeff"


def read_csv(file: BufferedIOBase, name: str, columns: Columns) -> Chunks:
    """Each row of fields."""
    csv.field_size_limit(limits.RECORD_BYTES_MAX)
    consumed = [0]
    for piece in _pieces(_csv_items(_decoded(file, name, consumed), name, columns)):
        yield Chunk(piece, consumed[0])


def _csv_items(lines: Iterator[str], name: str, columns: Columns) -> Iterator[bytes | Record]:
    reader = csv.reader(lines, strict=True)
    names: list[str] = []
    try:
        for fields in reader:
            if not fields:
                continue
            if not names:
                names = _header(fields, name, columns)
                continue
            if len(fields) != len(names):
                raise BadInput(name, "line", reader.line_num, f"{len(fields)} fields, but {len(names)} columns")
            yield _item(dict(zip(names, fields, strict=True)), columns, name, "line", reader.line_num)
    except csv.Error as error:
        raise BadInput(name, "line", reader.line_num, str(error)) from error


def _decoded(file: BufferedIOBase, name: str, consumed: list[int]) -> Iterator[str]:
    for number, lines, so_far in line_groups(file, name):
        consumed[0] = so_far
        for at, line in enumerate(lines, number):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise BadInput(name, "line", at, f"it is not UTF-8: {error}") from error
            yield (text.removeprefix(_BOM) if at == 1 else text) + "\n"


def _header(fields: list[str], name: str, columns: Columns) -> list[str]:
    if len(set(fields)) != len(fields):
        raise BadInput(name, "line", 1, f"a column's name stands there twice: {', '.join(fields)[:200]}")
    _check_columns(columns, fields, name)
    return fields


def _check_columns(columns: Columns, names: Iterable[str], name: str) -> None:
    there = list(names)
    for column in columns.named:
        if column not in there:
            raise BadInput(name, "its columns", 0, f"there is no {column!r}, but {', '.join(map(repr, there))[:200]}")


def _item(row: dict[str, object], columns: Columns, name: str, what: str, number: int) -> bytes | Record:
    try:
        if not columns.named:
            return row_json(row)
        value = row if columns.value is None else row[columns.value]
        if value is None:
            raise ValueError(f"the column {columns.value!r} is empty")
        key = None if columns.key is None else row[columns.key]
        moment = None if columns.timestamp is None else row[columns.timestamp]
        return Record(
            cell_bytes(value),
            None if key is None else cell_bytes(key),
            timestamp=now() if moment is None else cell_timestamp(moment, columns.unit_us),
        )
    except (ValueError, OverflowError) as error:
        raise BadInput(name, what, number, str(error)) from error


def read_parquet(file: BufferedIOBase, name: str, columns: Columns) -> Chunks:
    """Each row of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _seekable(file) as whole:
        try:
            table = pq.ParquetFile(whole)
            yield from _rows(table.iter_batches(batch_size=_CHUNK_ROWS), table.schema_arrow, whole, name, columns)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise BadInput(name, "as Parquet", 0, f"it cannot be read: {error}") from error


def read_arrow(file: BufferedIOBase, name: str, columns: Columns) -> Chunks:
    """Each row of an Arrow IPC file or stream."""
    import pyarrow as pa

    with _seekable(file) as whole:
        try:
            is_file = whole.read(len(_ARROW_FILE)) == _ARROW_FILE
            whole.seek(0)
            if is_file:
                table = pa.ipc.open_file(whole)
                batches = (table.get_batch(number) for number in range(table.num_record_batches))
                yield from _rows(batches, table.schema, whole, name, columns)
            else:
                stream = pa.ipc.open_stream(whole)
                yield from _rows(stream, stream.schema, whole, name, columns)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise BadInput(name, "as Arrow", 0, f"it cannot be read: {error}") from error


@contextlib.contextmanager
def _seekable(file: BufferedIOBase) -> Iterator[BufferedIOBase]:
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as aside:
        shutil.copyfileobj(file, aside)
        aside.seek(0)
        yield aside


def _rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, whole: BufferedIOBase, name: str, columns: Columns
) -> Chunks:
    exported = not columns.named and FORMAT_KEY in (schema.metadata or {})
    if not exported:
        _check_columns(columns, schema.names, name)
    number = 1
    for batch in batches:
        batch.validate(full=True)
        for first in range(0, batch.num_rows, _CHUNK_ROWS):
            rows = batch.slice(first, _CHUNK_ROWS)
            items = _exported(rows) if exported else _converted(rows, columns, name, number)
            for piece in _pieces(items):
                yield Chunk(piece, whole.tell())
            number += rows.num_rows


def _exported(rows: pa.RecordBatch) -> Iterator[Record]:
    plain = rows.select(SCHEMA.names)
    if any(plain.column(name).null_count for name in ("timestamp", "value", "headers")):
        raise ValueError("a record without a timestamp, a value or headers, though it says that braidlog wrote it")
    yield from records(plain.cast(SCHEMA), 0, rows.num_rows, 0)


def _converted(rows: pa.RecordBatch, columns: Columns, name: str, number: int) -> Iterator[bytes | Record]:
    for at, row in enumerate(_python_rows(rows, columns), number):
        yield _item(row, columns, name, "row", at)


def _python_rows(rows: pa.RecordBatch, columns: Columns) -> list[dict[str, object]]:
    """As Python objects, whose times end at microseconds: a time of finer resolution becomes text, or is cut."""
    import pyarrow as pa

    arrays = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            fine = pa.timestamp("us", field.type.tz) if field.name == columns.timestamp else pa.string()
            column = column.cast(fine, safe=False)
        arrays.append(column)
    plain: list[dict[str, object]] = pa.RecordBatch.from_arrays(arrays, rows.schema.names).to_pylist()
    return plain


def _pieces(items: Iterator[bytes | Record]) -> Iterator[list[bytes | Record]]:
    """What fits into a chunk; what came before an error, then the error."""
    found: list[bytes | Record] = []
    size = 0
    try:
        for item in items:
            found.append(item)
            size += len(item if isinstance(item, bytes) else item.value)
            if size >= _CHUNK_BYTES or len(found) >= _CHUNK_ROWS:
                yield found
                found, size = [], 0
    except BadInput:
        if found:
            yield found
        raise
    if found:
        yield found
