"""A pipeline, and how it runs in production: from a log into a log, as a stream, exactly once.

A **pipeline** is a function from a DataFrame of records to a DataFrame of rows. It names no log, no sink and no
checkpoint: those are its surroundings, and differ between production (`run`) and a fork (`run_on_fork`), while the
function is the very same.

Rows that are records already (a column `value`, and none but `key`, `headers` and `timestamp` beside it) are written as
they are. All others become one JSON object each, which `read_rows` turns back into rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from braidlog.errors import InvalidArgument
from braidlog.spark.json_rows import as_json_values
from braidlog.spark.values import json_values

Pipeline: TypeAlias = Callable[[DataFrame], DataFrame]
Mode: TypeAlias = Literal["append", "update"]

FORMAT: Final = "braidlog"
MODES: Final = ("append", "update")
_STARTS: Final = {"startingoffsets", "startingtimestamp"}
_PLACE: Final = {"tokenfile", "tlsca", "timeout"}  # beside the url
_RECORD: Final = {"value", "key", "headers", "timestamp"}


def run(
    pipeline: Pipeline,
    *,
    spark: SparkSession,
    url: str,
    log: str,
    output: str,
    checkpoint: str,
    mode: Mode = "append",
    every: str | None = None,
    starting: str = "earliest",
    key: str | None = None,
    read_options: Mapping[str, str] | None = None,
    write_options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a pipeline on a log, with its rows going to the log `output`; go on from `checkpoint` if there is one.

    It takes what is there now and ends, or goes on for ever, looking `every` so often ("5 seconds"). In `update` mode a
    batch writes the rows that it changed, of a pipeline that aggregates. `key` is a column that becomes the key of
    records. The options are those of the source and of the sink.
    """
    rows = pipeline(records_of(spark, url, log, starting, read_options))
    place = {"url": url, "log": output, **(write_options or {})}
    return begin(into_log(rows, place, checked_mode(mode), key, checkpoint), checkpoint, every)


def records_of(
    spark: SparkSession, url: str, log: str, starting: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """A log as a stream of records. What log that is, options do not change: they may have been made for another."""
    given = dict(options or {})
    if not _STARTS & {name.lower() for name in given}:  # the options say so themselves, and may say it as a time
        given["startingOffsets"] = starting
    return spark.readStream.format(FORMAT).options(**{**given, "url": url, "log": log}).load()


def into_log(
    rows: DataFrame, place: Mapping[str, str], mode: Mode, key: str | None, checkpoint: str
) -> DataStreamWriter:
    """Rows on their way into a log, once each; what a batch changed, in `update` mode."""
    if mode == "append":
        return as_records(rows, key).writeStream.format(FORMAT).options(**place).outputMode("append")
    return rows.writeStream.outputMode("update").foreachBatch(_batch_writer(place, key, _whole(checkpoint)))


def of_place(options: Mapping[str, str] | None) -> dict[str, str]:
    """Those of a source's options that say how its place is reached, and so are right for other logs there, too."""
    return {name: value for name, value in (options or {}).items() if name.lower() in _PLACE}


def begin(writer: DataStreamWriter, checkpoint: str, every: str | None) -> StreamingQuery:
    """Start a query that is described."""
    writer = writer.option("checkpointLocation", _whole(checkpoint))
    return (writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)).start()


def _whole(checkpoint: str) -> str:
    """A relative path is relative to here, not to where the JVM happened to start."""
    return checkpoint if "://" in checkpoint else str(Path(checkpoint).absolute())


def as_records(rows: DataFrame, key: str | None = None) -> DataFrame:
    """Rows as the sink takes them."""
    if are_records(rows.schema):
        return rows
    return as_json_values(rows, key)


def are_records(schema: StructType) -> bool:
    """Whether rows of this schema are records as they stand."""
    return "value" in schema.names and set(schema.names) <= _RECORD


def as_schema(schema: StructType | str) -> StructType:
    """A schema, or the DDL of one."""
    if isinstance(schema, StructType):
        return schema
    parsed = StructType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise InvalidArgument(f"{schema!r} is one type, and not the columns of rows: say 'name type, name type'")
    return parsed


def read_rows(
    spark: SparkSession,
    url: str,
    log: str,
    schema: StructType | str,
    *,
    positions: range | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows that a pipeline wrote to a log, all of them or those at some positions, in the columns they had."""
    wanted = as_schema(schema)
    place = {"url": url, "log": log, "includeHeaders": str("headers" in wanted.names).lower()}
    if positions is not None:
        place |= {
            "startingOffsets": json.dumps({log: positions.start}),
            "endingOffsets": json.dumps({log: positions.stop}),
        }
    records = spark.read.format(FORMAT).options(**{**(options or {}), **place}).load()
    if are_records(wanted):
        return records.select(*(records[column.name].cast(column.dataType) for column in wanted))
    return json_values(records, wanted).select("value.*")


def checked_mode(mode: Mode) -> Mode:
    if mode not in MODES:
        raise InvalidArgument(
            f"mode is {mode!r}, and can be {' or '.join(MODES)}: a log is appended to, and holds no table that is "
            "written anew each time"
        )
    return mode


def _batch_writer(place: Mapping[str, str], key: str | None, checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Write one batch, once: a batch that is tried again is known by its query and its number."""

    def write(batch: DataFrame, number: int) -> None:
        once = {"txnAppId": f"spark:{_query_of(batch.sparkSession, checkpoint)}", "txnVersion": str(number)}
        as_records(batch, key).write.format(FORMAT).options(**place, **once).mode("append").save()

    return write


def _query_of(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose batch is written: Spark tells it beside the batch, or, with Spark Connect, nowhere but
    in the checkpoint."""
    try:
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    except PySparkAttributeError:
        [metadata] = spark.read.text(f"{checkpoint}/metadata").collect()
        query = json.loads(metadata.value)["id"]
    if not query:
        raise InvalidArgument("Spark did not tell which query this is: a repetition of its batch would not be known")
    return str(query)
