"""Rows as records: each row one JSON value, made by Spark itself."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from braidlog.errors import InvalidArgument


def as_json_values(
    df: DataFrame,
    key: str | None = None,
    *,
    headers: str | None = None,
    timestamp: str | None = None,
    keep_nulls: bool = False,
) -> DataFrame:
    """A DataFrame of records: all columns as one JSON object in `value`, and what else is named beside it.

    `key` names the column that is the record's key, which stays in the value too; one that is neither string nor binary
    becomes a string. `headers` and `timestamp` name columns that are taken out of the value. Fields that are null are
    left out, unless `keep_nulls`. Maps have strings as keys. Works for streams.
    """
    for role, name in (("key", key), ("headers", headers), ("timestamp", timestamp)):
        if name is not None and name not in df.columns:
            raise InvalidArgument(f"{role}={name!r} is no column: there are {', '.join(df.columns)}")
    apart = {headers, timestamp}
    inside = [name for name in df.columns if name not in apart]
    if not inside:
        raise InvalidArgument("no column is left for the value: as_json_values needs at least one")
    for name in inside:
        _check_keys(name, df.schema[name].dataType)
    # Spark writes milliseconds if it is not told otherwise, and has microseconds.
    options = {
        "ignoreNullFields": str(not keep_nulls).lower(),
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    columns = [F.to_json(F.struct(*map(_quoted, inside)), options).alias("value")]
    if key is not None:
        kind = df.schema[key].dataType
        column = F.col(_quoted(key))
        columns.append((column if isinstance(kind, BinaryType | StringType) else column.cast("string")).alias("key"))
    if headers is not None:
        columns.append(F.col(_quoted(headers)).alias("headers"))
    if timestamp is not None:
        columns.append(F.col(_quoted(timestamp)).alias("timestamp"))
    return df.select(*columns)


def _check_keys(column: str, kind: DataType) -> None:
    """InvalidArgument if there is a map in it whose keys are no strings: nothing reads those back from JSON."""
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise InvalidArgument(
                f"column {column!r} has a map with keys of type {kind.keyType.simpleString()}, and JSON has only "
                "strings: make them so, as transform_keys(m, lambda k, v: k.cast('string')) does, or use map_entries(m)"
            )
        _check_keys(column, kind.valueType)
    elif isinstance(kind, ArrayType):
        _check_keys(column, kind.elementType)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            _check_keys(column, field.dataType)


def _quoted(name: str) -> str:
    """A dot in a column's name is not a path."""
    return f"`{name.replace('`', '``')}`"
