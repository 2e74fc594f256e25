"""PURE: values taken apart while they are read, a batch at a time: JSON objects, or Arrow IPC streams.

A value that is not what was asked for becomes null, and the others are none the worse for it. JSON is parsed by Arrow,
many values at once. Where one of them stops it, the batch is cut in two, and again; what is left is read record by
record in Python. So a batch is parsed five times at most, and one that Arrow refuses early hardly more than once.

Arrow's JSON reader takes a date for a number of days, moves a time without a zone that is written with one, and leaves
base64 as it is. So those are read as text, and become what they are in a second step: dates and times by Arrow, base64
one value after the other, in Python.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from braidlog.spark.arrow_streams import NOT_ARROW, batches_in
from braidlog.spark.json_by_record import from_base64, taken_apart
from braidlog.spark.options import ValueFormat

_HALVINGS: Final = 4
_FEW: Final = 32  # not worth halving
_ROWS_END: Final = 2**31  # of what the lists of a column may hold in all

# One object stands between these, so that what stands before a line's end is whole: no value goes on in the next.
_OBJECT: Final = r"(?s)^[ \t\r\n]*\{.*\}[ \t\r\n]*$"


def decoded(values: pa.Array, kind: pa.DataType, form: ValueFormat) -> pa.Array:
    """A column of binary values, as one of `kind`."""
    return _json(values, kind, _HALVINGS) if form == "json" else _arrow(values, kind)


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json(values: pa.Array, kind: pa.StructType, halvings: int) -> pa.Array:
    if not len(values):
        return pa.array([], kind)
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:  # some of them are no text
        return _halved(values, kind, halvings)
    whole = pc.fill_null(pc.match_substring_regex(texts, _OBJECT), False)
    objects = pc.replace_substring_regex(pc.filter(texts, whole), r"[\r\n]", " ")
    if not len(objects):
        return pa.nulls(len(values), kind)
    parsed = _parsed(objects, kind)
    if parsed is None:
        return _halved(values, kind, halvings)
    if len(parsed) == len(values):
        return parsed
    places = pc.if_else(whole, pc.subtract(pc.cumulative_sum(whole.cast(pa.int64())), 1), None)
    return parsed.take(places)


def _halved(values: pa.Array, kind: pa.StructType, halvings: int) -> pa.Array:
    if not halvings or len(values) < _FEW:
        return taken_apart(values, kind, lambda text: _alone(text, kind))
    middle = len(values) // 2
    return pa.concat_arrays([_json(part, kind, halvings - 1) for part in (values[:middle], values[middle:])])


def _alone(text: str, kind: pa.StructType) -> Any:
    parsed = _parsed(pa.array([text]), kind)
    try:
        return None if parsed is None else parsed[0].as_py()
    except OverflowError:  # Python has no dates before its year 1
        return None


def _parsed(objects: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """None if one of them is not what it should be. A value with two objects in it would show in their number."""
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(objects)], objects), "\n")[0].as_buffer()
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(_as_read(kind))), unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
        if table.num_rows != len(objects):
            return None
        columns = [_as_meant(pa.concat_arrays(table.column(field.name).chunks), field.type) for field in kind]
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """What Arrow's JSON reader is asked for."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    without_zone = pa.types.is_timestamp(kind) and kind.tz is None
    return pa.string() if without_zone or pa.types.is_date(kind) or pa.types.is_binary(kind) else kind


def _as_meant(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """What it answered, as what was asked for. ValueError, of which Arrow's are some, if a text is not such a thing."""
    if pa.types.is_struct(kind):
        inside = [_as_meant(found.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=found.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            found.offsets, _as_meant(found.values, kind.value_type), type=kind, mask=found.is_null()
        )
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else from_base64(text) for text in found.to_pylist()], kind)
    return found.cast(kind)


# --- Arrow ---------------------------------------------------------------------------------------------------------


def _arrow(values: pa.Array, kind: pa.ListType) -> pa.Array:
    """The rows of each value, as a list: Arrow has them in columns, and they stay in those."""
    shape = kind.value_type
    found: list[pa.Array] = []
    ends: list[int | None] = [0]
    size = 0
    for value in values:
        rows = None if value.as_buffer() is None else _rows_of(value.as_buffer(), shape)
        if rows is None or size + len(rows) >= _ROWS_END:
            ends[-1] = None  # which says that the list that begins here is null
        else:
            found.append(rows)
            size += len(rows)
        ends.append(size)
    inside = pa.concat_arrays(found) if found else pa.array([], shape)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inside).cast(kind)


def _rows_of(data: pa.Buffer, shape: pa.StructType) -> pa.Array | None:
    """The rows of an IPC stream; None if it is none, or has other columns."""
    try:
        rows = [batch.to_struct_array() for batch in batches_in(data, pa.schema(list(shape)))]
    except NOT_ARROW:
        return None
    return pa.concat_arrays(rows) if rows else pa.array([], shape)
