"""Whatever Arrow columns a caller has, as the columns of records: checked, measured and converted as a whole. PURE.

No record is looked at by itself in Python. A batch is measured as it came, so that it can be cut before anything of it
is converted: what is large only when it is unfolded (a dictionary, say) never is unfolded at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

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

Array: TypeAlias = pa.Array


class Measured(NamedTuple):
    """The bytes of records up to and including each, and what they weigh when what they cost besides is counted in."""

    sizes: memoryview
    weights: memoryview


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
    if values.null_count or _lengths(values).null_count:  # of a dictionary, the entry that a row points to may be null
        row = pc.index(pc.is_null(_lengths(values)), True).as_py()
        raise InvalidArgument(f"row {first_row + row}: its value is null; every record has one, if an empty one")
    sizes = _lengths(values)
    if "key" in batch.schema.names:
        sizes = pc.add(sizes, pc.fill_null(_lengths(batch.column("key")), 0))
    if "headers" in batch.schema.names:
        sizes = pc.add(sizes, _header_sizes(batch.column("headers"), first_row))
    largest = pc.max(sizes).as_py() or 0
    if largest > limits.RECORD_BYTES_MAX:
        row = pc.index(sizes, largest).as_py()
        raise InvalidArgument(
            f"row {first_row + row} has {largest:,} bytes: a record has at most {limits.RECORD_BYTES_MAX:,}, key and "
            "headers included"
        )
    if "timestamp" in batch.schema.names:
        _check_timestamps(batch.column("timestamp"), first_row)
    return Measured(_integers(pc.cumulative_sum(sizes)), _integers(pc.cumulative_sum(pc.add(sizes, ROW_BYTES))))


def convert(batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """The same as records, in the columns of an object's blocks; those without a timestamp have this one."""
    count = batch.num_rows
    names = batch.schema.names
    columns = [
        _timestamps(batch.column("timestamp"), now_us)
        if "timestamp" in names
        else pa.repeat(pa.scalar(now_us, pa.int64()), count).view(_TIMESTAMP),
        _binary(batch.column("key")) if "key" in names else pa.nulls(count, pa.binary()),
        _binary(batch.column("value")),
        _headers(batch.column("headers")) if "headers" in names else _no_headers(count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _is_text(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    return any(is_one(found) for is_one in _TEXTS)


def _integers(column: Array) -> memoryview:
    """Of a column of int64 without nulls that is no slice."""
    return memoryview(column.buffers()[1]).cast("q")[: len(column)]


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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _check_timestamps(column: Array, first_row: int) -> None:
    unit = column.type.unit if pa.types.is_timestamp(column.type) else "us"
    most = _TIMESTAMP_MAX // _MICROSECONDS.get(unit, 1)
    times = column.cast(pa.int64())
    for found, far in zip(pc.min_max(times).values(), ("early", "late"), strict=True):
        moment = found.as_py()
        if moment is not None and not -most <= moment <= most:
            raise InvalidArgument(f"row {first_row + pc.index(times, moment).as_py()}: no timestamp is so {far}")


def _timestamps(column: Array, now_us: int) -> Array:
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
    counts, names, values = _elements(headers)
    columns = [names.cast(pa.string()), _binary(values)]
    elements = pa.StructArray.from_arrays(columns, fields=_HEADER_FIELDS)
    return pa.ListArray.from_arrays(_from_zero(counts).cast(pa.int32()), elements, type=_HEADERS)


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
