"""Values taken apart: JSON by Spark itself, and Arrow by whole batches. Positions and all other columns stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from braidlog.spark.arrow_streams import NOT_ARROW, batches_in
from braidlog.spark.errors import BraidlogFailed

Mode = Literal["permissive", "failfast", "dropmalformed"]
_MODES: Final = ("permissive", "failfast", "dropmalformed")
_MALFORMED: Final = "_braidlog_malformed"


def json_values(
    df: DataFrame, schema: StructType | str, column: str = "value", *, mode: Mode = "permissive"
) -> DataFrame:
    """The same DataFrame, with the JSON of a column as a struct of `schema` (a StructType, or DDL) in its place.

    `mode` says what becomes of a value that is not such JSON: null ("permissive"), an error ("failfast"), or the record
    is left out ("dropmalformed").
    """
    if mode not in _MODES:
        raise ValueError(f"mode is one of {', '.join(_MODES)}, not {mode!r}")
    text = F.col(column).cast("string")
    if mode != "dropmalformed":
        parse = {"mode": "FAILFAST" if mode == "failfast" else "PERMISSIVE"}
        return df.withColumn(column, F.from_json(text, schema, parse))
    # Spark marks what is malformed in a field of its own, if there is one: a struct of nulls may be right.
    marked = StructType([*_parsed(df, schema).fields, StructField(_MALFORMED, StringType())])
    parsed = df.withColumn(column, F.from_json(text, marked, {"columnNameOfCorruptRecord": _MALFORMED}))
    good = parsed.where(F.col(column).isNotNull() & F.col(column)[_MALFORMED].isNull())
    return good.withColumn(column, F.col(column).dropFields(_MALFORMED))


def arrow_values(
    df: DataFrame, schema: StructType | str, column: str = "value", *, keep: Sequence[str] = ("log", "position")
) -> DataFrame:
    """The rows that are in the values, for values that are Arrow IPC streams: one row for each row of each value.

    `schema` says what columns they have. Beside them stand those of `keep` that the DataFrame has, the same for all
    rows of a record. Columns are found by name, and cast without loss.
    """
    kept = [name for name in keep if name in df.columns]
    inner = _parsed(df, schema)
    both = set(kept) & set(inner.fieldNames())
    if both:
        raise ValueError(f"column {min(both)!r} is in the values too: leave it out of keep=, or rename it first")
    outer = StructType([StructField(name, df.schema[name].dataType) for name in kept] + inner.fields)
    shape = to_arrow_schema(inner, timezone="UTC")
    whole = to_arrow_schema(outer, timezone="UTC")

    def explode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            beside = [batch.column(name) for name in kept]
            for row, value in enumerate(batch.column(column)):
                for found in _batches(value, shape):
                    repeated = [
                        pa.repeat(other[row], found.num_rows).cast(whole.field(at).type)
                        for at, other in enumerate(beside)
                    ]
                    yield pa.RecordBatch.from_arrays([*repeated, *found.columns], schema=whole)

    return df.select(*kept, column).mapInArrow(explode, outer)


def _batches(value: pa.Scalar, shape: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The record batches in a value, with the columns of the schema."""
    data = value.as_buffer()
    if data is None:
        return
    try:
        yield from batches_in(data, shape)
    except NOT_ARROW as error:
        raise BraidlogFailed(
            f"a value is not an Arrow IPC stream with the columns {', '.join(shape.names)}: {error}"
        ) from None


def _parsed(df: DataFrame, schema: StructType | str) -> StructType:
    """DDL as Spark reads it."""
    return schema if isinstance(schema, StructType) else df.sparkSession.createDataFrame([], schema).schema
