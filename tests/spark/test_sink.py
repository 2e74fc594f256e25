"""`df.write`: what is written is in the log once, whole, in order, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braidlog
from braidlog import Record, limits
from braidlog.client.opening import write_directory
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.record import to_micros
from braidlog.spark import as_json_values, json_values
from braidlog.testing import VirtualClock
from tests.spark import faulty
from tests.spark.conftest import eventually

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS = "headers array<struct<key:string,value:binary>>"


def write(df: DataFrame, directory: str, log: str = "orders", *, form: str = "braidlog", **options: object) -> None:
    writing = df.write.format(form).mode("append").option("url", directory).option("log", log)
    for name, value in options.items():
        writing = writing.option(name, value)
    writing.save()


def records(directory: str, log: str = "orders") -> list[Record]:
    with braidlog.open(directory, read_only=True) as braid:
        return braid.log(log).read(0)


def values(directory: str, log: str = "orders") -> list[bytes]:
    return [record.value for record in records(directory, log)]


@pytest.fixture
def orders(directory: str) -> str:
    """A directory that nobody holds, with an empty log in it."""
    with braidlog.open(directory) as braid:
        braid.create("orders")
    return directory


@pytest.fixture
def faulty_spark(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(faulty.FaultySource)
    return spark


def stored(directory: str) -> list[str]:
    """The objects there are."""
    return [path.name for path in Path(directory).glob("objects/*")]


def uploads(directory: str) -> int:
    """How many live."""
    with braidlog.open(directory) as braid:
        return len(writer_of(braid).forest.space.uploads.by_epoch)


def swept(directory: str, later_s: float, but: Container[str | None] = ()) -> bool:
    """Whether nothing else is left when so much time has passed, and a keeper has done its work."""
    clock = VirtualClock(time.time_ns() // 1000 + round(later_s * 1e6))
    try:
        with write_directory(Path(directory), clock=clock) as braid:
            upkeep = Upkeep(writer_of(braid))
            upkeep.end_uploads()
            upkeep.sweep()
    except braidlog.errors.Locked:  # by a task that has not heard yet that it is in vain
        return False
    return all(name in but for name in stored(directory))


def writer_of(braid: braidlog.Braid) -> Writer:
    writer = braid._session.backend
    assert isinstance(writer, Writer)
    return writer


def numbered(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("value"))


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# --- what arrives -----------------------------------------------------------------------------------------------------


def test_every_type_and_every_null_comes_back_as_it_was(spark: SparkSession, orders: str) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    rows = [
        (b"k", b"v", [("a", b"1"), ("b", b""), ("a", b"2")], moment),
        (None, b"", [], moment),
        (b"", b"\x00\xff", None, None),
    ]
    df = spark.createDataFrame(rows, f"key binary, value binary, {HEADERS}, timestamp timestamp").coalesce(1)
    before = time.time_ns() // 1000
    write(df, orders)
    first, second, third = records(orders)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", to_micros(moment))
    assert list(first.headers) == [("a", b"1"), ("b", b""), ("a", b"2")]
    assert (second.key, second.value, list(second.headers)) == (None, b"", [])
    assert (third.key, third.value, list(third.headers)) == (b"", b"\x00\xff", [])
    assert before <= third.timestamp <= time.time_ns() // 1000


def test_strings_are_written_as_utf_8(spark: SparkSession, orders: str) -> None:
    write(spark.createDataFrame([("ключ", "grüße"), (None, "")], "key string, value string").coalesce(1), orders)
    assert [(found.key, found.value) for found in records(orders)] == [("ключ".encode(), "grüße".encode()), (None, b"")]


def test_the_order_is_that_of_partitions_and_of_rows_in_them(spark: SparkSession, orders: str) -> None:
    write(numbered(spark, 30_000, 7), orders)
    assert values(orders) == expected(30_000)


def test_partitions_without_rows_store_nothing(spark: SparkSession, orders: str) -> None:
    write(numbered(spark, 400, 8).where("value >= '350' and length(value) = 3"), orders)
    assert values(orders) == expected(400)[350:]
    write(numbered(spark, 10, 4).where("false"), orders)
    assert len(values(orders)) == 50


def test_large_values_are_written(spark: SparkSession, orders: str) -> None:
    df = spark.range(0, 6, 1, 2).select(F.repeat(F.col("id").cast("string"), 5_000_000).alias("value"))
    write(df, orders)
    found = values(orders)
    assert [len(value) for value in found] == [5_000_000] * 6
    assert [value[:1] for value in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_rows_become_json_values(spark: SparkSession, orders: str) -> None:
    df = spark.createDataFrame([(1, "a", None, NEW_YEAR)], "id int, name string, `odd.name` double, at timestamp")
    write(as_json_values(df, key="id", timestamp="at"), orders)
    write(as_json_values(df.drop("at"), keep_nulls=True), orders)
    first, second = records(orders)
    assert (first.key, first.value, first.timestamp) == (b"1", b'{"id":1,"name":"a"}', to_micros(NEW_YEAR))
    assert second.value == b'{"id":1,"name":"a","odd.name":null}'
    with pytest.raises(braidlog.BraidError, match="'ident' is no column"):
        as_json_values(df, key="ident")


def test_rows_come_back_from_json_as_they_were(spark: SparkSession) -> None:
    df = spark.sql(
        "select timestamp'2026-01-01 00:00:00.123456' as at, timestamp_ntz'2026-01-01 00:00:00.123456' as wall, "
        "timestamp_ntz'1900-01-01 00:00:00' as old, array(timestamp_ntz'2026-01-01 00:00:00.000001') as walls, "
        "map('a', map('b', 1.5D)) as maps, date'2026-01-31' as day, 1.10BD as price"
    )
    assert json_values(as_json_values(df), df.schema).select("value.*").collect() == df.collect()
    for column in ("map(1, 'x')", "array(map('a', map(date'2026-01-31', 1)))", "struct(map(1L, 2L) as m)"):
        with pytest.raises(braidlog.BraidError, match=r"column 'odd' has a map with keys of type.*transform_keys"):
            as_json_values(spark.sql(f"select {column} as odd, 1 as n"))
    keyed = spark.sql("select map(1, 'x') as m, 'v' as value").select("value", "m")
    assert as_json_values(keyed, headers="m").columns == ["value", "headers"], "that map is not in the value"


def test_what_is_written_on_a_fork_is_not_in_its_parent(spark: SparkSession, orders: str) -> None:
    write(numbered(spark, 5, 1), orders)
    with braidlog.open(orders) as braid:
        braid.log("orders").cfork("try")
    write(numbered(spark, 3, 1), orders, "try")
    assert values(orders, "try") == expected(5) + expected(3)
    assert values(orders) == expected(5)


def test_a_log_is_read_and_written_again(spark: SparkSession, orders: str) -> None:
    write(numbered(spark, 1000, 3), orders)
    source = spark.read.format("braidlog").option("url", orders).option("log", "orders").load()
    write(source.select("key", "value", "timestamp"), orders, "copy", createLog=True)
    assert [(r.value, r.timestamp) for r in records(orders, "copy")] == [
        (r.value, r.timestamp) for r in records(orders)
    ]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("id as value", {}, "'value' must be binary or string, and is bigint"),
        ("'x' as value, id", {}, "'id'.*to_json"),
        ("'x' as value", {"log": "ordres"}, "no log named 'ordres'"),
        ("'x' as value", {"createlogs": "true"}, "did you mean createLog"),
        ("'x' as value", {"url": "memory://"}, "memory://"),
        ("'x' as value", {"url": "/nowhere/at/all"}, "no braidlog directory /nowhere/at/all"),
        ("'x' as value", {"txnAppId": "a"}, "txnVersion"),
    ],
)
def test_what_is_wrong_is_told_before_any_task_runs(
    spark: SparkSession, orders: str, columns: str, options: dict[str, str], told: str
) -> None:
    ran = spark.sparkContext.accumulator(0)

    def count(rows: Iterator[object]) -> Iterator[object]:
        ran.add(1)
        return rows

    df = spark.range(3).mapInArrow(count, "id bigint").selectExpr(*columns.split(", "))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=told):
        write(df, **{"directory": orders, **options})
    assert ran.value == 0
    assert values(orders) == []


def test_a_log_is_not_overwritten(spark: SparkSession, orders: str) -> None:
    df = numbered(spark, 3, 1)
    with pytest.raises(Exception, match="only ever appended to"):
        df.write.format("braidlog").mode("overwrite").option("url", orders).option("log", "orders").save()


def test_a_value_that_is_null_ends_the_write_and_nothing_is_there(spark: SparkSession, orders: str) -> None:
    df = spark.range(0, 100, 1, 2).select(F.expr("if(id = 77, null, cast(id as string))").alias("value"))
    with pytest.raises(Exception, match="value") as refused:
        write(df, orders)
    assert "null" in str(refused.value)
    assert values(orders) == []


def test_a_log_is_created_when_that_is_asked_for(spark: SparkSession, directory: str) -> None:
    write(numbered(spark, 3, 1), directory, "fresh", createLog=True)
    write(numbered(spark, 3, 1), directory, "fresh", createLog=True)
    assert values(directory, "fresh") == expected(3) * 2


# --- once -------------------------------------------------------------------------------------------------------------


def test_a_write_with_a_version_that_was_written_is_skipped(spark: SparkSession, orders: str) -> None:
    def versioned(version: int, count: int) -> None:
        write(numbered(spark, count, 2), orders, txnAppId="etl", txnVersion=version)

    versioned(3, 5)
    versioned(3, 5)
    versioned(2, 50)
    assert values(orders) == expected(5)
    versioned(4, 2)
    write(numbered(spark, 1, 1), orders, txnAppId="another", txnVersion=0)
    assert values(orders) == expected(5) + expected(2) + expected(1)
    assert uploads(orders) == 0  # what the skipped ones stored is not left to its time


def test_writes_without_a_version_are_all_new(spark: SparkSession, orders: str) -> None:
    df = numbered(spark, 2, 1)
    write(df, orders)
    write(df, orders)
    assert values(orders) == expected(2) * 2


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", faulty.STEPS[:-1])
def test_a_write_that_fails_leaves_nothing(faulty_spark: SparkSession, orders: str, step: str) -> None:
    faulty.arm(orders, step)
    with pytest.raises(Exception, match=f"struck: {step}"):
        write(numbered(faulty_spark, 1000, 2), orders, form="faulty")
    assert values(orders) == []
    if step == faulty.COMMITTING:  # every task told of its upload; one that failed or was killed leaves it to its time
        assert uploads(orders) == 0
    eventually(lambda: swept(orders, limits.UPLOAD_TTL_S + 60), "what tasks stored is swept, late ones' too")


@pytest.mark.parametrize("winner", faulty.TWICE)
def test_of_two_attempts_at_a_task_one_is_in_the_log(faulty_spark: SparkSession, orders: str, winner: str) -> None:
    faulty.arm(orders, winner)
    write(numbered(faulty_spark, 1000, 2), orders, form="faulty")
    assert values(orders) == expected(1000)
    with braidlog.open(orders, read_only=True) as braid:
        committed = {part.object for part in braid.log("orders").plan().parts}
    assert not swept(orders, 60, but=committed), "a second attempt stored nothing"
    assert swept(orders, limits.UPLOAD_TTL_S + 60, but=committed)
    assert values(orders) == expected(1000)


def test_a_commit_whose_answer_was_lost_is_done_once(faulty_spark: SparkSession, orders: str) -> None:
    df = numbered(faulty_spark, 100, 2)
    faulty.arm(orders, faulty.PUBLISHED)
    with pytest.raises(Exception, match="struck: published"):
        write(df, orders, form="faulty", txnAppId="etl", txnVersion=1)
    write(df, orders, form="faulty", txnAppId="etl", txnVersion=1)
    assert values(orders) == expected(100)


# --- holds ------------------------------------------------------------------------------------------------------------


def test_a_held_log_takes_writes(spark: SparkSession, orders: str) -> None:
    with braidlog.open(orders) as braid:
        fork = braid.log("orders").cfork("try", promotable=True)
        write(numbered(spark, 10, 2), orders)
        assert braid.log("orders").tail() == 0
        fork.squash()
    assert values(orders) == expected(10)


def test_a_write_waits_while_its_log_is_blocked(spark: SparkSession, orders: str) -> None:
    with braidlog.open(orders) as braid:
        log = braid.log("orders")
        log.cfork("below")
        fork = log.cfork("try", promotable=True)
        with pytest.raises(Exception, match=r"waited 0\.2 s for the decision.*run it again"):
            write(numbered(spark, 10, 2), orders, "below", blockedTimeout=0.2)
        decide = threading.Timer(0.5, fork.squash)
        decide.start()
        write(numbered(spark, 10, 2), orders, "below")
        decide.join()
        assert [record.value for record in braid.log("below").read(0)] == expected(10)


def test_a_fork_that_was_promoted_says_where_to_go_on(spark: SparkSession, orders: str) -> None:
    with braidlog.open(orders) as braid:
        fork = braid.log("orders").cfork("try", promotable=True)
        write(numbered(spark, 3, 1), orders, "try", txnAppId="etl", txnVersion=1)
        fork.promote()
    with pytest.raises(Exception, match=r"promoted into 'orders'.*same checkpoint"):
        write(numbered(spark, 3, 1), orders, "try", txnAppId="etl", txnVersion=1, createLog=True)
    write(numbered(spark, 3, 1), orders, "try", txnAppId="etl", txnVersion=1, onForkEnd="continue")
    assert values(orders) == expected(3)
    write(numbered(spark, 2, 1), orders, "try", txnAppId="etl", txnVersion=2, onForkEnd="continue")
    assert values(orders) == expected(3) + expected(2)


def test_a_fork_that_was_squashed_is_not_gone_on_with(spark: SparkSession, orders: str) -> None:
    with braidlog.open(orders) as braid:
        braid.log("orders").cfork("try").squash()
    with pytest.raises(Exception, match="no log named 'try'"):
        write(numbered(spark, 3, 1), orders, "try", onForkEnd="continue")
