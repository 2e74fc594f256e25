"""The columns of the source, and how batches of them are made for Spark, which takes no others than it was promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from braidlog import Plan, bulk
from braidlog.errors import InvalidArgument
from braidlog.spark import planning
from braidlog.spark.decoding import decoded
from braidlog.spark.options import Place, ValueFormat
from braidlog.spark.partitioning import Slice, slices_of
from braidlog.spark.sessions import handle, reach

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[dict[str, DataType]] = {
    "position": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(_HEADER),
    "log": StringType(),
}
_IN_JSON: Final[tuple[type[DataType], ...]] = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, BinaryType, DateType, TimestampType, TimestampNTZType),
)


def schema(*, headers: bool) -> StructType:
    """All columns; headers only for those who ask, as the Kafka source has it."""
    return StructType([StructField(name, kind) for name, kind in _TYPES.items() if headers or name != "headers"])


def schema_with(value_schema: str, value_format: ValueFormat, *, headers: bool) -> str:
    """The same with values taken apart, as DDL: only Spark can read that."""
    value = f"struct<{value_schema}>"
    kinds = {name: kind.simpleString() for name, kind in _TYPES.items() if headers or name != "headers"}
    kinds["value"] = f"array<{value}>" if value_format == "arrow" else value
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


def check(wanted: StructType, value_format: ValueFormat | None = None) -> None:
    """InvalidArgument if a schema that a user gave has columns that there are not, or none: Arrow has no rows then.
    With a format, values are taken apart."""
    if not wanted.fields:
        raise InvalidArgument(f"name at least one column in the schema: there are {', '.join(_TYPES)}")
    for field in wanted.fields:
        kind = _TYPES.get(field.name.lower())
        if kind is None:
            raise InvalidArgument(
                f"there is no column {field.name!r}: the columns are {', '.join(_TYPES)}; to take values apart use "
                "braidlog.spark.json_values"
            )
        if field.name.lower() == "value" and value_format is not None:
            _check_value(field.dataType, value_format)
        elif field.dataType.simpleString() != kind.simpleString():
            raise InvalidArgument(
                f"column {field.name!r} is {kind.simpleString()}, not {field.dataType.simpleString()}: cast it "
                "afterwards"
            )


def _check_value(kind: DataType, value_format: ValueFormat) -> None:
    inner = kind.elementType if value_format == "arrow" and isinstance(kind, ArrayType) else kind
    right = isinstance(inner, StructType) and (value_format == "json" or inner is not kind)
    if not right:
        shape = "array<struct<...>>" if value_format == "arrow" else "struct<...>"
        raise InvalidArgument(f"column 'value' is {shape} with valueFormat={value_format}, not {kind.simpleString()}")
    if value_format == "json":
        _check_json(kind, "value")


def _check_json(kind: DataType, name: str) -> None:
    """InvalidArgument for a type that decoding does not know: every value would be null."""
    if isinstance(kind, StructType):
        inside = [(field.dataType, f"{name}.{field.name}", field.nullable) for field in kind.fields]
    elif isinstance(kind, ArrayType):
        inside = [(kind.elementType, f"{name}.element", kind.containsNull)]
    elif type(kind) in _IN_JSON:
        return
    else:
        raise InvalidArgument(
            f"valueSchema cannot read {kind.simpleString()}, as {name!r} is: read values as they are, and take them "
            "apart with braidlog.spark.json_values"
        )
    for each, path, nullable in inside:
        if not nullable:
            raise InvalidArgument(
                f"valueSchema says that {path!r} is never null, but a record may lack it: leave out NOT NULL"
            )
        _check_json(each, path)


def batches(
    partition: bytes, place: Place, wanted: StructType, *, fail: bool, value_format: ValueFormat | None = None
) -> Iterator[pa.RecordBatch]:
    """What a task reads, in the columns that are wanted: nothing else is decoded or handed on."""
    names = [name.lower() for name in wanted.fieldNames()]
    stored = [name for name in dict.fromkeys(names) if name != "log"] or ["position"]
    shape = to_arrow_schema(wanted, timezone="UTC")
    for part in slices_of(partition):

        def replan(start: int, stop: int, part: Slice = part) -> Iterator[Plan]:
            with reach(place) as braid:
                yield from planning.pages(handle(braid, part.log_id, part.log), start, stop, fail=fail)

        for batch in bulk.read_parts(part.objects, part.plan_parts, stored, replan=replan):
            found = [pa.repeat(part.log, batch.num_rows) if name == "log" else batch.column(name) for name in names]
            if value_format is not None and "value" in names:
                at = names.index("value")
                found[at] = decoded(found[at], shape.field(at).type, value_format)
            yield pa.RecordBatch.from_arrays(found, schema=shape)
