"""Logs and forks as DataFrames: what is read is what was written, wherever a range begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import braidlog
from braidlog import Braid, Log, Record, limits
from braidlog.embedded.upkeep import Upkeep
from tests.e2e.conformance import writer_of

MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def braid(directory: str) -> Iterator[Braid]:
    with braidlog.open(directory) as opened:
        yield opened


@pytest.fixture
def orders(braid: Braid) -> Log:
    return braid.create("orders")


def frame(spark: SparkSession, url: str, schema: str = "", **options: str) -> DataFrame:
    """Of the log `orders`, unless others are named."""
    named = {"log": "orders"} if not {"log", "logPattern", "subscribe", "subscribePattern"} & options.keys() else {}
    reader = spark.read.format("braidlog").options(url=url, **named, **options)
    return (reader.schema(schema) if schema else reader).load()


def values(df: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in df.collect()]


def positions(df: DataFrame) -> list[int]:
    return [row.position for row in df.collect()]


def refused(df_of: object, *said: str) -> str:
    """What the user sees is one message that says all this, and no frames of anybody's insides."""
    with pytest.raises(PySparkException) as caught:
        df_of()  # type: ignore[operator]
    text = str(caught.value)
    for each in said:
        assert each in text
    assert "Traceback" not in text
    assert 'File "' not in text
    return text


# --- records ---------------------------------------------------------------------------------------------------------


def test_every_type_comes_as_it_was_written(spark: SparkSession, braid: Braid, orders: Log, directory: str) -> None:
    orders.append(b"", key=None, timestamp=MOMENT)
    orders.append(b"\0\xff", key=b"", headers=[("ü", b""), ("twice", b"1"), ("twice", b"\0")])
    orders.append(b"old", key=b"k", timestamp=datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    Upkeep(writer_of(braid)).pack()
    orders.append_many([b"x" * 1_000_000, Record(b"y", b"k", (("h", b"v"),))])
    df = frame(spark, directory, includeHeaders="true")
    assert df.dtypes == [
        ("position", "bigint"),
        ("timestamp", "timestamp"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("log", "string"),
    ]
    found = [
        Record(
            bytes(row.value),
            None if row.key is None else bytes(row.key),
            tuple((header.key, bytes(header.value)) for header in row.headers),
            row.micros,
            row.position,
        )
        for row in df.selectExpr("*", "unix_micros(timestamp) AS micros").collect()
    ]
    assert found == orders.read(0)
    assert {row.log for row in df.collect()} == {"orders"}
    assert "headers" not in frame(spark, directory).columns


def test_columns_may_be_left_out_and_put_in_any_order(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"a", b"bb"])
    assert [tuple(row) for row in frame(spark, directory, "log string, VALUE binary").collect()] == [
        ("orders", b"a"),
        ("orders", b"bb"),
    ]
    assert positions(frame(spark, directory, "position bigint")) == [0, 1]
    assert frame(spark, directory, "log string").count() == 2
    refused(frame(spark, directory, "value string").count, "'value' is binary, not string")
    refused(frame(spark, directory, "amount int").count, "no column 'amount'", "json_values")
    nothing = spark.read.format("braidlog").options(url=directory, log="orders").schema(StructType())
    refused(lambda: nothing.load().count(), "name at least one column")


def test_a_dataframe_stays_what_it_was(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append(b"one")
    df = frame(spark, directory)
    assert df.count() == 1
    orders.append(b"two")
    assert df.count() == 1
    assert frame(spark, directory).count() == 2


def test_filters_of_one_dataframe_do_not_meet(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"%d" % n for n in range(100)])
    df = frame(spark, directory, minPartitions="3")
    assert positions(df.where("position >= 50")) == list(range(50, 100))
    assert df.count() == 100
    both = df.where("position < 10").union(df.where("position >= 90"))
    assert positions(both) == [*range(10), *range(90, 100)]


def test_a_view_and_a_path_will_do(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append(b"x")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING braidlog OPTIONS (url '{directory}', log 'orders')")
    assert spark.sql("SELECT count(*) AS n FROM seen").first().n == 1  # type: ignore[union-attr]
    assert spark.read.format("braidlog").option("subscribe", "orders").load(directory).count() == 1


# --- ranges ----------------------------------------------------------------------------------------------------------


def test_ranges_by_position(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"%d" % n for n in range(20)])
    assert positions(frame(spark, directory, startingOffsets='{"orders": 5}', endingOffsets='{"orders": 8}')) == [
        5,
        6,
        7,
    ]
    assert positions(frame(spark, directory, startingOffsets='{"orders": 18}', endingOffsets="latest")) == [18, 19]
    assert positions(frame(spark, directory, startingOffsets='{"orders": -2}', endingOffsets='{"orders": 1}')) == [0]
    for nothing in (
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": 8}', "endingOffsets": '{"orders": 8}'},
    ):
        assert positions(frame(spark, directory, **nothing)) == []
    refused(frame(spark, directory, startingOffsets='{"orders": 21}').count, "can be read up to 20")
    refused(frame(spark, directory, endingOffsets='{"payments": 1}').count, "endingOffsets names 'payments'")


def test_ranges_by_time_begin_at_the_first_record_of_that_time(
    spark: SparkSession, orders: Log, directory: str
) -> None:
    for minute in (0, 1, 5, 2, 6):  # events need not come in order
        orders.append(b"%d" % minute, timestamp=MOMENT + timedelta(minutes=minute))
    later = (MOMENT + timedelta(minutes=2)).isoformat()
    assert values(frame(spark, directory, startingTimestamp=later)) == [b"5", b"2", b"6"]
    millis = str(int((MOMENT + timedelta(minutes=6)).timestamp() * 1000))
    assert values(frame(spark, directory, endingTimestamp=millis)) == [b"0", b"1", b"5", b"2"]
    assert values(frame(spark, directory, startingTimestamp="2030-01-01")) == []


@pytest.mark.usefixtures("orders")
def test_an_empty_log_is_an_empty_dataframe(spark: SparkSession, directory: str) -> None:
    assert frame(spark, directory).count() == 0


def test_a_hundred_logs_by_a_pattern(spark: SparkSession, braid: Braid, directory: str) -> None:
    for n in range(100):
        braid.create(f"sensor-{n:03}").append_many([b"%d" % n] * 3)
    braid.create("other").append(b"no")
    df = frame(spark, directory, logPattern="sensor-[0-9]+")
    assert df.rdd.getNumPartitions() == 1
    assert df.count() == 300
    assert df.where("cast(substr(log, 8) AS int) != cast(cast(value AS string) AS int)").count() == 0
    assert frame(spark, directory, log="sensor-00*,other").count() == 31
    refused(frame(spark, directory, log="sensor-001,nobody").count, "no log 'nobody'")
    refused(frame(spark, directory, logPattern="x.*").count, "matches no log")


def test_partitions_are_as_many_and_as_small_as_asked(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"%d" % n for n in range(100)])
    assert frame(spark, directory).rdd.getNumPartitions() == 1
    many = frame(spark, directory, minPartitions="7")
    assert many.rdd.getNumPartitions() >= 7
    assert positions(many) == list(range(100))
    small = frame(spark, directory, maxRecordsPerPartition="30")
    assert small.rdd.getNumPartitions() == 4
    assert positions(small) == list(range(100))


# --- forks -----------------------------------------------------------------------------------------------------------


def test_forks_five_deep_and_severed_ones(spark: SparkSession, orders: Log, directory: str) -> None:
    log = orders
    for depth in range(5):
        log.append_many([b"%d-%d" % (depth, n) for n in range(10)])
        log = log.cfork(f"depth-{depth}")
    orders.append(b"to all of them")
    log.append(b"mine")
    snapshot = orders.sfork("snapshot", at=4)
    for each in (log, snapshot):
        assert values(frame(spark, directory, log=each.name)) == [record.value for record in each.read(0)]


def test_a_held_log_is_read_up_to_its_limit(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"a", b"b"])
    trial = orders.cfork("trial", promotable=True)
    orders.append(b"hidden")
    trial.append(b"c")
    assert values(frame(spark, directory)) == [b"a", b"b"]
    assert values(frame(spark, directory, log="trial")) == [b"a", b"b", b"hidden", b"c"]
    refused(frame(spark, directory, endingOffsets='{"orders": 3}').count, "hold of 'orders'")


def test_what_was_trimmed_is_an_error_or_left_out(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append_many([b"%d" % n for n in range(10)])
    orders.trim(4)
    assert positions(frame(spark, directory)) == list(range(4, 10))
    wanted = {"startingOffsets": '{"orders": 2}'}
    refused(frame(spark, directory, **wanted).count, "positions 2 to 4 were trimmed away", "failOnDataLoss=false")
    assert positions(frame(spark, directory, **wanted, failOnDataLoss="false")) == list(range(4, 10))


def test_a_compaction_between_planning_and_reading_changes_nothing(
    spark: SparkSession, braid: Braid, orders: Log, directory: str
) -> None:
    upkeep = Upkeep(writer_of(braid))
    for n in range(2 * limits.COMPACT_OBJECTS_MIN):
        orders.append(b"%d" % n)
        upkeep.pack()
    df = frame(spark, directory)
    df.explain()
    assert df.rdd.getNumPartitions() == 1  # by now it is planned
    assert upkeep.compact()
    living = {part.object for part in orders.plan().parts}
    old = [path for path in Path(directory, "objects").glob("*.arrow") if path.name not in living]
    assert len(old) == 2 * limits.COMPACT_OBJECTS_MIN
    for path in old:
        path.unlink()  # as is done when the grace period is over
    assert values(df) == [b"%d" % n for n in range(2 * limits.COMPACT_OBJECTS_MIN)]


# --- what can be wrong -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_mistakes_are_told_in_one_message(spark: SparkSession, directory: str, tmp_path: Path) -> None:
    refused(lambda: frame(spark, directory, log="nobody").count(), "no log 'nobody'")
    refused(lambda: frame(spark, directory, startingoffset="latest"), "did you mean startingOffsets?")
    refused(lambda: frame(spark, directory, maxOffsetsPerTrigger="5").count(), "is for streams")
    refused(lambda: frame(spark, "memory://"), "belongs to the one process")
    refused(lambda: frame(spark, str(tmp_path / "nothing")).count(), "there is no directory")
    secret = refused(lambda: frame(spark, directory, token="hunter2"), "tokenFile")
    assert "hunter2" not in secret


def test_a_changed_byte_and_missing_objects_are_told_in_one_message(
    spark: SparkSession, braid: Braid, orders: Log, directory: str
) -> None:
    orders.append_many([b"payload"] * 10)
    Upkeep(writer_of(braid)).pack()
    part = orders.plan().parts[0]
    path = Path(directory, "objects", str(part.object))
    good = path.read_bytes()
    path.write_bytes(good[: part.offset] + bytes([good[part.offset] ^ 1]) + good[part.offset + 1 :])
    refused(frame(spark, directory).collect, "Corrupt: positions 0 to 10", "CRC-32C")
    path.unlink()
    refused(frame(spark, directory).collect, "missing from the store")
    path.parent.rename(path.parent.with_name("elsewhere"))
    refused(frame(spark, directory).collect, "whoever reads has to reach the objects")
