"""Whatever Arrow columns a caller has, as the columns of records: checked, measured and converted as a whole. PURE.

No record is looked at by itself in Python. A batch is measured as it came, so that it can be cut before anything of it
is converted: what is large only when it is unfolded (a dictionary, say) never is unfolded at once. Where texts are kept
one behind the other, where they end says how large any of them are together, and nothing is added up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.objects.batch import SCHEMA

TAKEN: Final = ("value", "key", "headers", "timestamp")
ROW_BYTES: Final = 24  # about what a record takes besides its bytes: a timestamp, and an end in each column

_TIMESTAMP: Final = SCHEMA.field("timestamp").type
_HEADERS: Final = SCHEMA.field("headers").type
_HEADER_FIELDS: Final = [_HEADERS.value_type.field(number) for number in range(2)]
_TEXTS: Final = (
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
)
_TIMESTAMP_MAX: Final = 2**63 - 1  # microseconds, before 1970 and after
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000}  # in units that are longer
_END_WIDTHS: Final[dict[pa.DataType, Literal["i", "q"]]] = {
    **dict.fromkeys((pa.binary(), pa.string()), "i"),
    **dict.fromkeys((pa.large_binary(), pa.large_string()), "q"),
}

_COUNTS_KEPT: Final = 8  # batches of one source mostly have as many records as the one before

Array: TypeAlias = pa.Array
_Bytes: TypeAlias = Callable[[int], int]  # of so many rows, the first ones


class Measured:
    """How many bytes the first records of a batch have; and how much they weigh, with what they cost besides."""

    def __init__(self, columns: list[_Bytes]) -> None:
        self._columns = columns

    def size(self, rows: int) -> int:
        return sum(column(rows) for column in self._columns)

    def weight(self, rows: int) -> int:
        return self.size(rows) + ROW_BYTES * rows

    def rows_within(self, first: int, last: int, weight: int) -> int:
        """Up to which row, `last` at most, those from `first` on weigh no more than that."""
        return first + bisect_right(range(first + 1, last + 1), self.weight(first) + weight, key=self.weight)


def check_schema(schema: pa.Schema) -> None:
    """InvalidArgument unless these columns can be records."""
    for name in schema.names:
        if name not in TAKEN:
            raise InvalidArgument(f"column {name!r}: records have the columns {', '.join(TAKEN)}; drop or rename it")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument(f"a column stands there twice: {', '.join(schema.names)}")
    if "value" not in schema.names:
        raise InvalidArgument("there is no column 'value', and every record has one")
    for name in ("value", "key"):
        if name in schema.names and not _is_text(schema.field(name).type):
            raise InvalidArgument(f"column {name!r} has type {schema.field(name).type}: it must be binary or string")
    if "timestamp" in schema.names:
        found = schema.field("timestamp").type
        if not pa.types.is_timestamp(found) and found != pa.int64():
            raise InvalidArgument(
                f"column 'timestamp' has type {found}: it must be timestamp, or int64 (microseconds since 1970 UTC)"
            )
    if "headers" in schema.names:
        _check_header_type(schema.field("headers").type)


def measure(batch: pa.RecordBatch, first_row: int) -> Measured:
    """How large its records are. InvalidArgument for what no record can be; rows are counted from `first_row`."""
    values = batch.column("value")
    if values.null_count or pa.types.is_dictionary(values.type):
        _check_there(_lengths(values), first_row)
    columns = [_bytes_of(values)]
    if "key" in batch.schema.names:
        columns.append(_bytes_of(batch.column("key")))
    if "headers" in batch.schema.names:
        columns.append(_bytes_of_headers(batch.column("headers"), first_row))
    measured = Measured(columns)
    if measured.size(batch.num_rows) > limits.RECORD_BYTES_MAX:  # else no record can be too large
        _check_sizes(batch, first_row)
    if "timestamp" in batch.schema.names:
        _check_timestamps(batch.column("timestamp"), first_row)
    return measured


def _check_there(lengths: Array, first_row: int) -> None:
    if lengths.null_count:  # of a dictionary, the entry that a row points to may be null
        row = pc.index(pc.is_null(lengths), True).as_py()
        raise InvalidArgument(f"row {first_row + row}: its value is null; every record has one, if an empty one")


def _check_sizes(batch: pa.RecordBatch, first_row: int) -> None:
    sizes = _lengths(batch.column("value"))
    if "key" in batch.schema.names:
        sizes = pc.add(sizes, pc.fill_null(_lengths(batch.column("key")), 0))
    if "headers" in batch.schema.names:
        sizes = pc.add(sizes, _header_sizes(batch.column("headers"), first_row))
    largest = pc.max(sizes).as_py()
    if largest > limits.RECORD_BYTES_MAX:
        row = pc.index(sizes, largest).as_py()
        raise InvalidArgument(
            f"row {first_row + row} has {largest:,} bytes: a record has at most {limits.RECORD_BYTES_MAX:,}, key and "
            "headers included"
        )


def convert(batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """The same as records, in the columns of an object's blocks; those without a timestamp have this one."""
    count = batch.num_rows
    names = batch.schema.names
    columns = [
        _timestamps(batch.column("timestamp"), now_us)
        if "timestamp" in names
        else pa.repeat(pa.scalar(now_us, pa.int64()), count).view(_TIMESTAMP),
        _binary(batch.column("key")) if "key" in names else _no_keys(count),
        _binary(batch.column("value")),
        _headers(batch.column("headers")) if "headers" in names else _no_headers(count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _is_text(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    return any(is_one(found) for is_one in _TEXTS)


def _ends(column: Array) -> memoryview | None:
    """Where each of its texts ends and the next begins, if they stand one behind the other and none is null."""
    width = _END_WIDTHS.get(column.type)
    if width is None or column.null_count or not len(column):
        return None
    return _numbers(column, width)


def _numbers(column: Array, width: Literal["i", "q"]) -> memoryview:
    """The offsets of a column of texts or lists: one more than it has rows. Their buffer may have any length."""
    each = 4 if width == "i" else 8
    data = memoryview(column.buffers()[1]).cast("B")
    return data[each * column.offset : each * (column.offset + len(column) + 1)].cast(width)


def _bytes_of(column: Array) -> _Bytes:
    ends = _ends(column)
    if ends is None:
        return _summed(pc.fill_null(_lengths(column), 0))
    return lambda rows: ends[rows] - ends[0]


def _summed(lengths: Array) -> _Bytes:
    """Of int64 without nulls."""
    sums = memoryview(pc.cumulative_sum(lengths).buffers()[1]).cast("q")
    return lambda rows: sums[rows - 1] if rows else 0


def _lengths(column: Array) -> Array:
    """The bytes of each, as int64; null for null."""
    if pa.types.is_dictionary(column.type):
        return _lengths(column.dictionary).take(column.indices)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_binary())
    return pc.binary_length(column).cast(pa.int64())


def _binary(column: Array) -> Array:
    if column.type == pa.binary():
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    if _END_WIDTHS.get(column.type) == "q":
        return _narrowed(column)
    return column.cast(pa.binary())


def _narrowed(column: Array) -> Array:
    """A column with wide offsets, of bytes that fit into one with narrow ones, wherever in its buffer they begin."""
    count = len(column)
    if not count:
        return pa.array([], pa.binary())
    _, ends, data = column.buffers()
    wide = pa.Array.from_buffers(pa.int64(), count + 1, [None, ends], 0, column.offset)
    first = wide[0].as_py()
    narrow = pc.subtract(wide, first).cast(pa.int32())
    texts = pa.Array.from_buffers(pa.binary(), count, [None, narrow.buffers()[1], data.slice(first)])
    return pc.if_else(pc.is_valid(column), texts, pa.scalar(None, pa.binary())) if column.null_count else texts


def _check_timestamps(column: Array, first_row: int) -> None:
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "us"
    most = _TIMESTAMP_MAX // _MICROSECONDS.get(unit, 1)
    times = column.cast(pa.int64())
    for found, far in zip(pc.min_max(times).values(), ("early", "late"), strict=True):
        moment = found.as_py()
        if moment is not None and not -most <= moment <= most:
            raise InvalidArgument(f"row {first_row + pc.index(times, moment).as_py()}: no timestamp is so {far}")


def _timestamps(column: Array, now_us: int) -> Array:
    if not column.null_count and (column.type == pa.int64() or column.type.unit == "us"):
        return column.view(_TIMESTAMP)
    if pa.types.is_timestamp(column.type):  # a zone changes how a moment is shown, not which one it is
        column = column.cast(pa.timestamp("us", column.type.tz), safe=column.type.unit != "ns").cast(pa.int64())
    return pc.fill_null(column, now_us).view(_TIMESTAMP)


# --- headers ---------------------------------------------------------------------------------------------------------


def _check_header_type(found: pa.DataType) -> None:
    wanted = "list<struct<name: string, value: binary>>"
    problem = f"column 'headers' has type {found}: it must be {wanted}"
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)) or not pa.types.is_struct(found.value_type):
        raise InvalidArgument(problem)
    fields = {field.name: field.type for field in found.value_type}
    name = fields.pop("key", None) or fields.pop("name", None)
    if name is None or set(fields) != {"value"} or not (pa.types.is_string(name) or pa.types.is_large_string(name)):
        raise InvalidArgument(problem)
    if not _is_text(fields["value"]):
        raise InvalidArgument(problem)


def _elements(headers: Array) -> tuple[Array, Array, Array]:
    """(how many each record has, the names of all, their values): a null has none."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).cast(pa.int64())
    elements = pc.list_flatten(headers)  # of this slice, and nothing that a null hides
    number = max(elements.type.get_field_index("key"), elements.type.get_field_index("name"))
    columns = elements.flatten()  # null where their struct is
    return counts, columns[number], columns[1 - number]


class _PlainHeaders(NamedTuple):
    """Headers that can be taken as they are: a list for each record, names and values without nulls."""

    ends: memoryview  # of each record's headers among all
    names: Array
    values: Array
    name_ends: memoryview
    value_ends: memoryview

    @classmethod
    def of(cls, headers: Array) -> _PlainHeaders | None:
        if not pa.types.is_list(headers.type) or headers.null_count or not len(headers):
            return None
        elements = headers.values
        number = max(elements.type.get_field_index("key"), elements.type.get_field_index("name"))
        names, values = elements.field(number), elements.field(1 - number)
        name_ends, value_ends = _ends(names), _ends(values)
        if elements.null_count or name_ends is None or value_ends is None:
            return None
        return cls(_numbers(headers, "i"), names, values, name_ends, value_ends)


def _bytes_of_headers(headers: Array, first_row: int) -> _Bytes:
    plain = _PlainHeaders.of(headers)
    if plain is None or not _within_limits(headers, plain):
        return _summed(_header_sizes(headers, first_row))
    ends, names, values = plain.ends, plain.name_ends, plain.value_ends
    first = names[ends[0]] + values[ends[0]]
    return lambda rows: names[ends[rows]] + values[ends[rows]] - first


def _within_limits(headers: Array, plain: _PlainHeaders) -> bool:
    """Whether they certainly are: a name has no more characters than bytes."""
    names = plain.names.slice(plain.ends[0], plain.ends[-1] - plain.ends[0])
    most: int = pc.max(pc.list_value_length(headers)).as_py()
    longest: int = pc.max(pc.binary_length(names)).as_py() or 0
    return most <= limits.RECORD_HEADERS_MAX and longest <= limits.HEADER_NAME_CHARS_MAX


def _header_sizes(headers: Array, first_row: int) -> Array:
    """The bytes of each record's headers."""
    counts, names, values = _elements(headers)
    if not len(names):
        return pa.repeat(pa.scalar(0, pa.int64()), len(headers))
    for column, what in ((_lengths(names), "name"), (_lengths(values), "value")):
        if column.null_count:
            row = _row_of(counts, pc.index(pc.is_null(column), True).as_py())
            raise InvalidArgument(f"row {first_row + row}: a header has no {what}; it needs one, if an empty one")
    most = pc.max(counts).as_py()
    if most > limits.RECORD_HEADERS_MAX:
        row = pc.index(counts, most).as_py()
        raise InvalidArgument(
            f"row {first_row + row} has {most:,} headers: a record has at most {limits.RECORD_HEADERS_MAX}"
        )
    chars = pc.utf8_length(names).cast(pa.int64())
    longest = pc.max(chars).as_py()
    if longest > limits.HEADER_NAME_CHARS_MAX:
        row = _row_of(counts, pc.index(chars, longest).as_py())
        raise InvalidArgument(
            f"row {first_row + row}: a header's name has {longest:,} characters, and at most "
            f"{limits.HEADER_NAME_CHARS_MAX:,} are allowed"
        )
    return _differences(_from_zero(pc.add(_lengths(names), _lengths(values))).take(_from_zero(counts)))


def _headers(headers: Array) -> Array:
    plain = _PlainHeaders.of(headers)
    if plain is not None and plain.ends[0] == plain.ends[-1]:
        return _no_headers(len(headers))  # else each block would hold where all names and values of its chunk end
    if plain is not None and plain.names.type == pa.string() and _END_WIDTHS[plain.values.type] == "i":
        elements = pa.StructArray.from_arrays([plain.names, _binary(plain.values)], fields=_HEADER_FIELDS)
        buffers = [None, headers.buffers()[1]]
        return pa.Array.from_buffers(_HEADERS, len(headers), buffers, 0, headers.offset, [elements])
    counts, names, values = _elements(headers)
    if not len(names):
        return _no_headers(len(headers))
    columns = [_binary(names).view(pa.string()), _binary(values)]
    elements = pa.StructArray.from_arrays(columns, fields=_HEADER_FIELDS)
    return pa.ListArray.from_arrays(_from_zero(counts).cast(pa.int32()), elements, type=_HEADERS)


@lru_cache(maxsize=_COUNTS_KEPT)
def _no_keys(count: int) -> Array:
    return pa.nulls(count, pa.binary())


@lru_cache(maxsize=_COUNTS_KEPT)
def _no_headers(count: int) -> Array:
    none = pa.array([], _HEADERS.value_type)
    return pa.ListArray.from_buffers(_HEADERS, count, [None, pa.py_buffer(bytes(4 * (count + 1)))], children=[none])


def _from_zero(numbers: Array) -> Array:
    """Their sums, from that of none to that of all."""
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(numbers)])


def _differences(sums: Array) -> Array:
    return pc.subtract(sums[1:], sums[:-1])


def _row_of(counts: Array, element: int) -> int:
    """The record that an element of a list belongs to."""
    row: int = pc.index(pc.greater(pc.cumulative_sum(counts), element), True).as_py()
    return row
