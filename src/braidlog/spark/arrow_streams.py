"""PURE: Arrow IPC streams of whoever wrote them, read within bounds.

A few bytes may say of themselves that they are gigabytes: bodies are compressed, a column of nulls has any length, and
views and dictionaries point at one long text again and again. So what a stream says of its size is looked at before
any of it is read, and what may grow when it is cast is cast a few rows at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from braidlog import limits

NOT_ARROW: Final = (pa.ArrowException, KeyError, OSError)

_RECORD_BATCH: Final = 3  # kinds of messages, and the slots of their tables, as the format of Arrow numbers them
_DICTIONARY_BATCH: Final = 2
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_DATA: Final = 1
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
_BUFFER: Final = struct.Struct("<qq")
_AS_IT_IS: Final = -1  # of a compressed body: this buffer is not


def batches_in(data: pa.Buffer, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a stream holds, in the columns of `shape`. NOT_ARROW if it is none, is too large, or has other ones."""
    check_size(data)
    with pa.ipc.open_stream(data) as stream:
        for batch in stream:
            batch.validate(full=True)  # whoever wrote it may have it point anywhere in memory
            columns = [_cast(batch.column(field.name), field.type) for field in shape]
            yield pa.RecordBatch.from_arrays(columns, schema=shape)


def check_size(data: pa.Buffer) -> None:
    """ArrowInvalid if a stream would take more memory than it may, or has rows that are nowhere in it."""
    rows, size = 0, data.size
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(data)):
        try:
            more_rows, more = _said_by(memoryview(message.metadata), message.body)
        except (struct.error, IndexError) as error:
            raise pa.ArrowInvalid(f"a message that cannot be read: {error}") from None
        rows, size = rows + more_rows, size + more
        if size > limits.SPARK_VALUE_BYTES_MAX or rows > min(limits.SPARK_VALUE_ROWS_MAX, 8 * size):
            raise pa.ArrowInvalid(f"{rows:,} rows of {size:,} bytes are more than a value may hold")


def _said_by(metadata: memoryview, body: pa.Buffer | None) -> tuple[int, int]:
    """The rows of a message, and the bytes of its buffers when they are not compressed any more."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    kind_at, header_at = _slot(metadata, message, _HEADER_TYPE), _slot(metadata, message, _HEADER)
    if kind_at is None or header_at is None or metadata[kind_at] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return 0, 0
    batch = _followed(metadata, header_at)
    if metadata[kind_at] == _DICTIONARY_BATCH:
        data_at = _slot(metadata, batch, _DICTIONARY_DATA)
        if data_at is None:
            return 0, 0
        batch = _followed(metadata, data_at)
    length_at, buffers_at = _slot(metadata, batch, _LENGTH), _slot(metadata, batch, _BUFFERS)
    rows = 0 if length_at is None else struct.unpack_from("<q", metadata, length_at)[0]
    size = 0
    if buffers_at is not None:
        compressed = _slot(metadata, batch, _COMPRESSION) is not None
        vector = _followed(metadata, buffers_at)
        for number in range(struct.unpack_from("<I", metadata, vector)[0]):
            offset, length = _BUFFER.unpack_from(metadata, vector + 4 + number * _BUFFER.size)
            if compressed and length and body is not None:
                said = struct.unpack_from("<q", body, offset)[0]
                length = length if said == _AS_IT_IS else said
            if length < 0:
                raise pa.ArrowInvalid(f"a buffer of {length} bytes")
            size += length
    if rows < 0:
        raise pa.ArrowInvalid(f"a batch of {rows} rows")
    return rows, size


def _slot(metadata: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table stands; None if it has its default."""
    known = table - struct.unpack_from("<i", metadata, table)[0]
    at = 4 + 2 * number
    if at >= struct.unpack_from("<H", metadata, known)[0]:
        return None
    offset = struct.unpack_from("<H", metadata, known + at)[0]
    return table + offset if offset else None


def _followed(metadata: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if any(_grows(inner) for inner in _inside(column.type)):
        raise pa.ArrowInvalid(f"{column.type} has parts that may stand for any number of others")
    if not _grows(column.type):
        return column.cast(kind)
    step = max(1, limits.SPARK_VALUE_BYTES_MAX // max(1, column.get_total_buffer_size()))
    parts, size = [pa.array([], kind)], 0
    for start in range(0, len(column), step):
        parts.append(column[start : start + step].cast(kind))
        size += parts[-1].nbytes
        if size > limits.SPARK_VALUE_BYTES_MAX:
            raise pa.ArrowInvalid("a column is more than a value may hold")
    return pa.concat_arrays(parts)


def _grows(kind: pa.DataType) -> bool:
    tests = (pa.types.is_dictionary, pa.types.is_run_end_encoded, pa.types.is_string_view, pa.types.is_binary_view)
    return any(is_it(kind) for is_it in (*tests, pa.types.is_list_view, pa.types.is_large_list_view))


def _inside(kind: pa.DataType) -> Iterator[pa.DataType]:
    """All types in it but itself."""
    parts = (
        [kind.value_type] if pa.types.is_dictionary(kind) else [kind.field(at).type for at in range(kind.num_fields)]
    )
    for part in parts:
        yield part
        yield from _inside(part)
