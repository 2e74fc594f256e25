"""PURE: which columns of a DataFrame become a record, checked before any task runs.

A record is value, key, headers and timestamp. Anything else is an error and not left out in silence: a column that a
user wrote and never finds again is worse than a write that does not begin.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog.errors import InvalidArgument

COLUMNS: Final = ("value", "key", "headers", "timestamp")
_AS_JSON: Final = "braidlog.spark.as_json_values(df) makes one JSON value of all columns"
_GIVEN: Final = {  # columns of the source that the log itself gives
    "position": "a log gives positions itself",
    "log": "the option log says where records go",
}


def checked(schema: StructType) -> tuple[str, ...]:
    """The name of each column as a record has it, in the order of the DataFrame; InvalidArgument if that cannot be."""
    names: list[str] = []
    for column in schema.fields:
        name = column.name.lower()
        if name not in COLUMNS:
            raise InvalidArgument(_unknown(column.name))
        if name in names:
            raise InvalidArgument(f"column {name!r} is there twice: leave one of them out")
        _check(name, column)
        names.append(name)
    if "value" not in names:
        there = f"there are {', '.join(repr(name) for name in names)}" if names else "there are no columns"
        raise InvalidArgument(f"a record needs a column 'value', binary or string, and {there}; {_AS_JSON}")
    return tuple(names)


def _unknown(name: str) -> str:
    if name.lower() in _GIVEN:
        return f"column {name!r} cannot be written, {_GIVEN[name.lower()]}: leave it out with df.drop({name!r})"
    return (
        f"column {name!r} is not one of a record, which has {', '.join(COLUMNS)}: put it into the value, as "
        f"df.select(to_json(struct('*')).alias('value')) does, or leave it out; {_AS_JSON}"
    )


def _check(name: str, column: StructField) -> None:
    kind = column.dataType
    if name == "timestamp":
        _require(
            isinstance(kind, TimestampType), column, "timestamp", f"cast it: col({column.name!r}).cast('timestamp')"
        )
    elif name == "headers":
        _require(
            isinstance(kind, ArrayType) and _is_header(kind.elementType),
            column,
            "array<struct<key:string,value:binary>>",
            "its fields have these very names, in small letters; build it with "
            "array(struct(lit('name').alias('key'), col('x').cast('binary').alias('value')))",
        )
    else:
        advice = f"cast it: col({column.name!r}).cast('string'), or to_json for a struct"
        _require(isinstance(kind, BinaryType | StringType), column, "binary or string", advice)


def _is_header(kind: DataType) -> bool:
    """Columns are renamed on their way, and fields of theirs are not: so these have the names that records have."""
    if not isinstance(kind, StructType) or len(kind.fields) != 2:
        return False
    name, value = kind.fields
    return (
        name.name in ("key", "name")
        and isinstance(name.dataType, StringType)
        and value.name == "value"
        and isinstance(value.dataType, BinaryType)
    )


def _require(right: bool, column: StructField, wanted: str, advice: str) -> None:
    if not right:
        kind = column.dataType.simpleString()
        raise InvalidArgument(f"column {column.name!r} must be {wanted}, and is {kind}: {advice}")
