"""The columnar form of records, on their way in and out.

A `Batch` is what a caller appended, column by column, as it travels in a command. An Arrow record batch of
`SCHEMA` is what an object stores and a reader gets. Everything here is pure, and the plain case (no keys, no
headers, one timestamp) never looks at records one by one in Python.

Headers are never null: a record without any has an empty list. Nullability inside the headers is what Spark
says of `array<struct<key: string, value: binary>>`, so that a batch can be read there without a conversion.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence, Sized
from itertools import accumulate, chain, pairwise, repeat
from typing import Final

import msgspec
import pyarrow as pa

from braidlog.errors import Corrupt
from braidlog.record import Record

FORMAT_KEY: Final = b"braidlog.format"
FORMAT: Final = b"1"

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER_FIELDS: Final = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_HEADERS: Final = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))

SCHEMA: Final = pa.schema(
    [
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("headers", _HEADERS, nullable=False),
    ],
    metadata={FORMAT_KEY: FORMAT},
)
POSITIONED_SCHEMA: Final = SCHEMA.insert(0, pa.field("position", pa.int64(), nullable=False))

# `pa.array` imports pandas where that is installed, for longer than a short command takes otherwise. So it is left to
# many small values, which it takes fastest. A few, and large ones, are joined by Python, whose allocator keeps the
# memory of a few MiB while Arrow's returns it.
_MANY: Final = 200
_LARGE_BYTES: Final = 2048

_NO_HEADER: Final = pa.nulls(0, _HEADERS.value_type)


class Batch(msgspec.Struct, array_like=True):
    """Records to be appended together, as columns of equal length.

    `keys` is None when no record has a key, `headers` is None when none has any, and `timestamps`
    (microseconds since 1970 UTC) is one number when it is the same for all.
    """

    values: list[bytes]
    keys: list[bytes | None] | None = None
    headers: list[list[tuple[str, bytes]]] | None = None
    timestamps: list[int] | int = 0

    def __post_init__(self) -> None:
        count = len(self.values)
        for name in ("keys", "headers", "timestamps"):
            column = getattr(self, name)
            if isinstance(column, list) and len(column) != count:
                raise ValueError(f"a batch has {count} values but {len(column)} {name}: give one each")

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Bytes of the values, the keys, the header names (in UTF-8) and the header values."""
        size = sum(map(len, self.values))
        if self.keys is not None:
            size += sum(map(len, filter(None, self.keys)))
        if self.headers is not None:
            size += sum(len(name.encode()) + len(value) for name, value in chain.from_iterable(self.headers))
        return size

    @property
    def least_timestamp(self) -> int:
        return self.timestamps if isinstance(self.timestamps, int) else min(self.timestamps)

    @property
    def greatest_timestamp(self) -> int:
        return self.timestamps if isinstance(self.timestamps, int) else max(self.timestamps)


def cut(batch: Batch, row: int, rows: int) -> Batch:
    """Only those rows of it."""
    if row == 0 and rows == batch.count:
        return batch
    those = slice(row, row + rows)
    return Batch(
        batch.values[those],
        None if batch.keys is None else batch.keys[those],
        None if batch.headers is None else batch.headers[those],
        batch.timestamps if isinstance(batch.timestamps, int) else batch.timestamps[those],
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)


def encode(batch: Batch) -> bytes:
    return _encoder.encode(batch)


def decode(payload: bytes | memoryview) -> Batch:
    """The batch that `encode` made these bytes from."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a batch of {len(payload)} bytes cannot be decoded: {error}") from error


def to_arrow(batches: Sequence[Batch]) -> pa.RecordBatch:
    """All the records of the batches, in order, as one record batch of SCHEMA."""
    count = sum(batch.count for batch in batches)
    values = batches[0].values if len(batches) == 1 else [value for batch in batches for value in batch.values]
    columns = [
        _timestamp_column(batches, count),
        _key_column(batches, count),
        _binary_column(values),
        _header_column(batches, count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def records(batch: pa.RecordBatch, first_row: int, count: int, position: int) -> list[Record]:
    """`count` rows of a record batch of SCHEMA from `first_row` on, which is the record at `position`."""
    timestamps, keys, values, headers = batch.slice(first_row, count).columns
    return list(
        map(
            Record,
            values.to_pylist(),
            repeat(None) if keys.null_count == len(keys) else keys.to_pylist(),
            _header_tuples(headers),
            timestamps.cast(pa.int64()).to_pylist(),
            range(position, position + len(values)),
        )
    )


def records_of(batch: Batch, first_row: int, count: int, position: int) -> list[Record]:
    """The same as `records`, from a batch that never was in an object."""
    rows = slice(first_row, first_row + count)
    values = batch.values[rows]
    return list(
        map(
            Record,
            values,
            repeat(None) if batch.keys is None else batch.keys[rows],
            repeat(()) if batch.headers is None else map(tuple, batch.headers[rows]),
            repeat(batch.timestamps) if isinstance(batch.timestamps, int) else batch.timestamps[rows],
            range(position, position + len(values)),
        )
    )


def with_positions(parts: Sequence[tuple[int, pa.RecordBatch]]) -> pa.Table:
    """One table of POSITIONED_SCHEMA from record batches and the position of the first row of each."""
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays(
                [pa.arange(position, position + batch.num_rows), *batch.columns], schema=POSITIONED_SCHEMA
            )
            for position, batch in parts
        ],
        schema=POSITIONED_SCHEMA,
    )


def _timestamp_column(batches: Sequence[Batch], count: int) -> pa.Array:
    column = array("q")
    for batch in batches:
        if isinstance(batch.timestamps, int):
            column += array("q", [batch.timestamps]) * batch.count
        else:
            column.extend(batch.timestamps)
    return pa.Array.from_buffers(_TIMESTAMP, count, [None, pa.py_buffer(column)])


def _key_column(batches: Sequence[Batch], count: int) -> pa.Array:
    if all(batch.keys is None for batch in batches):
        return pa.nulls(count, pa.binary())
    keys: list[bytes | None] = []
    for batch in batches:
        keys.extend(repeat(None, batch.count) if batch.keys is None else batch.keys)
    return _binary_column(keys)


def _header_column(batches: Sequence[Batch], count: int) -> pa.Array:
    if all(batch.headers is None for batch in batches):
        offsets = pa.py_buffer(bytes(4 * (count + 1)))
        return pa.ListArray.from_buffers(_HEADERS, count, [None, offsets], children=[_NO_HEADER])
    rows: list[Sequence[tuple[str, bytes]]] = []
    for batch in batches:
        rows.extend(repeat((), batch.count) if batch.headers is None else batch.headers)
    headers = list(chain.from_iterable(rows))
    names = _binary_column([name.encode() for name, _ in headers]).cast(pa.string())
    values = _binary_column([value for _, value in headers])
    elements = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
    return pa.ListArray.from_buffers(_HEADERS, count, [None, _ends(rows)], children=[elements])


def _binary_column(values: Sequence[bytes | None]) -> pa.Array:
    # A guess from one value will do: either way gives the same column.
    if len(values) >= _MANY and len(values[0] or b"") < _LARGE_BYTES:
        return pa.array(values, pa.binary())
    valid = _bits(value is not None for value in values) if None in values else None
    present = [value or b"" for value in values]
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, _ends(present), pa.py_buffer(b"".join(present))])


def _bits(facts: Iterable[bool]) -> pa.Buffer:
    """One bit for each, the first one the lowest of its byte."""
    digits = "".join("1" if fact else "0" for fact in facts)
    return pa.py_buffer(int(digits[::-1], 2).to_bytes(-(-len(digits) // 8), "little"))


def _ends(parts: Sequence[Sized]) -> pa.Buffer:
    """Where each of them ends in all of them together, after the zero at which the first begins."""
    return pa.py_buffer(array("i", accumulate(map(len, parts), initial=0)))


def _header_tuples(column: pa.Array) -> Iterable[tuple[tuple[str, bytes], ...]]:
    elements = column.flatten()
    if len(elements) == 0:
        return repeat(())
    names, values = elements.flatten()
    headers = tuple(zip(names.to_pylist(), values.to_pylist(), strict=True))
    offsets = column.offsets.to_pylist()
    first = offsets[0]  # a slice keeps the offsets of the whole, while its elements begin at zero
    return (headers[start - first : stop - first] for start, stop in pairwise(offsets))
