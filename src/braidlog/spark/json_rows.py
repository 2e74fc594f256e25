"""Rows as records: each row one JSON value, made by Spark itself."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

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
    left out, unless `keep_nulls`. Works for streams.
    """
    for role, name in (("key", key), ("headers", headers), ("timestamp", timestamp)):
        if name is not None and name not in df.columns:
            raise InvalidArgument(f"{role}={name!r} is no column: there are {', '.join(df.columns)}")
    apart = {headers, timestamp}
    inside = [_quoted(name) for name in df.columns if name not in apart]
    if not inside:
        raise InvalidArgument("no column is left for the value: as_json_values needs at least one")
    # Spark writes milliseconds if it is not told otherwise, and has microseconds.
    options = {"ignoreNullFields": str(not keep_nulls).lower(), "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    columns = [F.to_json(F.struct(*inside), options).alias("value")]
    if key is not None:
        kind = df.schema[key].dataType
        column = F.col(_quoted(key))
        columns.append((column if isinstance(kind, BinaryType | StringType) else column.cast("string")).alias("key"))
    if headers is not None:
        columns.append(F.col(_quoted(headers)).alias("headers"))
    if timestamp is not None:
        columns.append(F.col(_quoted(timestamp)).alias("timestamp"))
    return df.select(*columns)


def _quoted(name: str) -> str:
    """A dot in a column's name is not a path."""
    return f"`{name.replace('`', '``')}`"
