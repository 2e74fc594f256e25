"""A pipeline that runs in production runs on a fork unchanged, and what it makes of it decides about its promotion."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import braidlog
from apps.pipelines import supply_chain, wordcount
from apps.pipelines.command import decoded
from braidlog.agents.validators import as_verdict
from braidlog.errors import BraidError, InvalidArgument
from braidlog.spark import forks
from braidlog.spark.expectations import (
    Expectation,
    Outputs,
    compared_with_parent,
    equals,
    every_row,
    has_schema,
    row_count,
    satisfies,
)
from braidlog.spark.forks import run_on_fork
from braidlog.spark.pipelines import read_rows, run
from braidlog.spark.time_travel import as_of, forget_tables, table_as_of
from braidlog.spark.validation import SparkValidator

ROW = "position bigint, item string, count bigint, at timestamp"
MOMENT_US = 1_767_225_600_123_456


def doubled(records: DataFrame) -> DataFrame:
    """A pipeline without state, so that runs are quick."""
    rows = decoded(records, "item string, count bigint").withColumn("count", f.col("count") * 2)
    return rows.withColumn("at", f.timestamp_micros(f.col("position") + MOMENT_US))


@pytest.fixture
def braid(directory: str) -> Iterator[braidlog.Braid]:
    with braidlog.open(directory) as opened:
        yield opened


@pytest.fixture
def orders(braid: braidlog.Braid) -> braidlog.Log:
    log = braid.create("orders")
    log.append_many([order("bolt", count) for count in range(1, 11)])
    return log


def order(item: str, count: int, kind: str = "order") -> bytes:
    return json.dumps({"kind": kind, "item": item, "count": count}).encode()


@pytest.fixture
def one_store_of_state(spark: SparkSession) -> Iterator[None]:
    """Each partition has one, which takes a while to open."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def forks_of(braid: braidlog.Braid) -> set[str]:
    return {log.name for log in braid.logs() if log.info().kind != "root"}


def test_the_same_function_runs_in_production_and_on_a_fork(
    spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log, checkpoint: str
) -> None:
    output = braid.create("doubled")
    place = {"url": braid.url, "log": "orders", "output": "doubled", "checkpoint": checkpoint}
    run(doubled, spark=spark, **place).awaitTermination()
    assert output.tail() == 10

    fork = orders.cfork("try")
    fork.append(order("test", 50))
    orders.append(order("bolt", 11))
    on_output = run_on_fork(doubled, fork, spark=spark, url=braid.url, output=output)
    rows = {row.position: (row.item, row["count"]) for row in on_output.rows.collect()}
    assert rows == {n: ("bolt", 2 * n + 2) for n in range(10)} | {10: ("test", 100), 11: ("bolt", 22)}
    times = on_output.rows.select(f.unix_micros("at") - f.col("position")).distinct().collect()
    assert [tuple(row) for row in times] == [(MOMENT_US,)], "a time lost its microseconds"
    assert (on_output.end, on_output.positions) == (12, range(10, 22))
    assert on_output.output is not None
    assert on_output.output.info().parent == "doubled"
    assert sum(one.numInputRows for one in on_output.progress) == 12
    assert output.tail() == 10, "a run on a fork wrote to production"

    # Production goes on from its own checkpoint, and knows of nothing.
    run(doubled, spark=spark, **place).awaitTermination()
    found = read_rows(spark, braid.url, "doubled", ROW).collect()
    assert [row["count"] for row in sorted(found)] == [2 * n for n in range(1, 12)]

    with pytest.raises(InvalidArgument, match="another query"):
        run_on_fork(doubled, fork, spark=spark, url=braid.url, checkpoint=checkpoint)
    on_output.discard()
    assert forks_of(braid) == {"try"}


def test_a_fork_can_have_a_checkpoint_which_is_nobody_elses(
    spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log, tmp_path: Path
) -> None:
    mine = str(tmp_path / "mine")
    fork, other = orders.cfork("try"), orders.cfork("other")
    first = run_on_fork(doubled, fork, spark=spark, url=braid.url, checkpoint=mine)
    assert first.rows.count() == 10
    fork.append_many([order("nut", 1), order("nut", 2)])

    def fails_later(records: DataFrame) -> DataFrame:
        return doubled(records).withColumn("late", f.expr("if(position > 10, raise_error('too far'), 0)"))

    each = {"maxOffsetsPerTrigger": "1"}
    with pytest.raises(PySparkException, match="too far"):
        run_on_fork(fails_later, fork, spark=spark, url=braid.url, checkpoint=mine, read_options=each)
    second = run_on_fork(doubled, fork, spark=spark, url=braid.url, checkpoint=mine).rows.filter("position > 0")
    gc.collect()
    assert sorted(row.position for row in second.collect()) == [10, 11], "rows are gone, and a frame of them is not"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mine")] == ["mine"]
    with pytest.raises(InvalidArgument, match="try"):
        run_on_fork(doubled, other, spark=spark, url=braid.url, checkpoint=mine)
    first.discard()
    assert not first.scratch.exists()


def test_a_checkpoint_is_never_lost_between_two_names(orders: braidlog.Log, tmp_path: Path) -> None:
    fork, other = orders.cfork("try"), orders.cfork("other")
    place = tmp_path / "mine"
    forks._own_checkpoint(str(place), fork)
    (place / "far").write_text("5")
    with pytest.raises(FileNotFoundError):
        forks._move(tmp_path / "mine.12345678", place)  # which is not there
    assert (place / "far").read_text() == "5"

    copy = forks._copied(place)
    place.rename(copy.with_name(f"{copy.name}.before"))  # and here it was killed
    forks._own_checkpoint(str(place), fork)
    assert (place / "far").read_text() == "5"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mine")] == ["mine"]

    place.rename(tmp_path / "mine.12345678.before")
    forks._own_checkpoint(str(place), other)
    assert [path.name for path in place.iterdir()] == ["braidlog-fork"]


def test_options_cannot_lead_a_run_on_a_fork_astray(
    spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log
) -> None:
    """Options that production has are passed on as they are, and may name production's logs."""
    output = braid.create("words")
    fork = orders.cfork("try")
    fork.append(b"mine")

    def text(records: DataFrame) -> DataFrame:
        return records.select(f.col("value").cast("string").alias("value"))

    produced = run_on_fork(
        text,
        fork,
        spark=spark,
        url=braid.url,
        output=output,
        read_options={
            "log": "orders",
            "maxOffsetsPerTrigger": "6",
            "startingtimestamp": "2020-01-01",
            "onForkEnd": "continue",
            "Timeout": "30",
        },
        write_options={"log": "words"},
    )
    assert output.tail() == 0, "a run on a fork wrote to production"
    assert produced.rows.dtypes == [("value", "string")]
    assert produced.rows.filter("value = 'mine'").count() == 1
    assert produced.end == 11
    produced.discard()


def test_a_pipeline_that_runs_in_update_mode_is_tried_and_validated_in_it(
    spark: SparkSession, braid: braidlog.Braid, one_store_of_state: None
) -> None:
    del one_store_of_state
    lines = braid.create("lines")
    lines.append_many([b"log fork", b"fork"])
    output = braid.create("counts")
    fork = lines.cfork("try")
    fork.append_many([b"fork", b"braid"])

    expected = {"log": 1, "fork": 3, "braid": 1}

    def counted(rows: DataFrame) -> bool:
        return {row.word: row.times for row in wordcount.newest(rows).collect()} == expected

    place: dict[str, Any] = {"spark": spark, "url": braid.url, "mode": "update"}
    verdict = SparkValidator(wordcount.counts, [satisfies("the words are counted", counted)], **place)(fork)
    assert verdict, str(verdict)
    produced = run_on_fork(wordcount.counts, fork, **place, output=output)
    assert counted(produced.rows)
    assert output.tail() == 0
    for made in (SparkValidator, run_on_fork):
        with pytest.raises(InvalidArgument, match="mode is 'complete'"):
            made(wordcount.counts, [row_count(exactly=3)], **place | {"mode": "complete"})  # type: ignore[operator]


def test_a_pipeline_that_fails_leaves_nothing(spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log) -> None:
    def fails(records: DataFrame) -> DataFrame:
        return records.select(f.raise_error(f.lit("a mistake in the pipeline")).cast("string").alias("value"))

    output = braid.create("output")
    with pytest.raises(PySparkException, match="a mistake in the pipeline"):
        run_on_fork(fails, orders.cfork("try"), spark=spark, url=braid.url, output=output)
    assert forks_of(braid) == {"try"}
    assert output.tail() == 0
    with pytest.raises(InvalidArgument, match="mode"):
        run(fails, spark=spark, url=braid.url, log="orders", output="output", checkpoint="c", mode="complete")  # type: ignore[arg-type]


# --- validation ----------------------------------------------------------------------------------------------------


def test_restocks_are_validated_by_the_consumer_before_they_are_promoted(
    spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log
) -> None:
    def stock_only_grows(rows: DataFrame, before: DataFrame) -> DataFrame:
        now = rows.groupBy("item").agg(f.max_by("stock", "position").alias("now"))
        then = before.groupBy("item").agg(f.max_by("stock", "position").alias("then"))
        return now.join(then, "item").filter("now < then")

    validator = SparkValidator(
        supply_chain.inventory,
        [*supply_chain.acceptable(), compared_with_parent("no stock falls", stock_only_grows)],
        spark=spark,
        url=braid.url,
    )
    # A mistake: it is found on the fork, which stays as it is; production never saw it.
    bad = orders.cfork("agent-1", promotable=True)
    bad.append_many([order("bolt", 100, "restock"), order("bolt", -5, "restock")])
    verdict = validator(bad)
    assert not verdict
    assert verdict.own == 2
    (failure,) = verdict.failures
    assert failure.reason == "1 rows fail"
    assert [(row.position, row["count"]) for row in failure.rows] == [(11, -5)]
    assert "agent-1 did not pass with 2 records of its own" in str(verdict)
    kept = as_verdict(verdict)  # as a validator of agents' work
    assert not kept.passed
    assert failure.reason in kept.reasons[0]
    assert kept.samples == [str(row) for row in failure.rows]
    assert bad.info().own == 2
    bad.squash()
    assert orders.tail() == 10

    # A good one; orders go on coming. What was not validated is not promoted.
    good = orders.cfork("agent-2", promotable=True)
    good.append(order("bolt", 100, "restock"))
    orders.append(order("bolt", 3))
    verdict = validator(good)
    assert verdict, str(verdict)
    good.append(order("bolt", -7, "restock"))
    assert good.promote(expected_own=verdict.own) is False
    good.squash()
    assert orders.tail() == 11
    assert forks_of(braid) == set(), "a validator left a fork behind"


def test_whatever_goes_wrong_in_a_validator_is_a_reason_not_to_promote(
    spark: SparkSession, braid: braidlog.Braid, orders: braidlog.Log
) -> None:
    def explodes(_: DataFrame) -> bool:
        raise RuntimeError("the check is broken")

    fork = orders.cfork("try", promotable=True)
    fork.append(order("nut", 1))
    verdict = SparkValidator(
        doubled,
        [satisfies("it is looked at", explodes), every_row("no_such_column > 1"), row_count(exactly=11)],
        spark=spark,
        url=braid.url,
    )(fork)
    assert not verdict
    assert [failure.expectation for failure in verdict.failures] == [
        "it is looked at",
        "every row fulfils no_such_column > 1",
    ]
    assert "the check is broken" in verdict.failures[0].reason

    def wrong(records: DataFrame) -> DataFrame:
        return records.select("no_such_column")

    verdict = SparkValidator(wrong, [row_count(at_least=0)], spark=spark, url=braid.url)(fork)
    assert not verdict
    assert "no_such_column" in verdict.failures[0].reason
    assert fork.info().own == 1
    assert fork.promote(expected_own=1)
    gone = SparkValidator(doubled, [row_count(at_least=0)], spark=spark, url=braid.url)(fork)
    assert not gone
    with pytest.raises(InvalidArgument, match="without expectations"):
        SparkValidator(doubled, [], spark=spark, url=braid.url)


def test_expectations_say_what_speaks_against_the_rows(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 1), ("b", -2), ("c", None), ("c", None)], "name string, n bigint").cache()

    def nothing() -> DataFrame:
        raise AssertionError("nobody asked for the parent")

    def judge(expectation: Expectation) -> tuple[str, list[tuple[object, ...]]] | None:
        failure = expectation.examine(Outputs(rows, nothing))
        return None if failure is None else (failure.reason, [tuple(row) for row in failure.rows])

    assert judge(row_count(exactly=4)) is None
    assert judge(row_count(at_least=1, at_most=4)) is None
    assert judge(row_count(exactly=5)) == ("there are 4", [])
    assert judge(row_count(at_most=3)) == ("there are 4", [])
    assert judge(has_schema("n bigint")) is None
    assert judge(has_schema("name string, n bigint", exactly=True)) is None
    assert judge(has_schema("n bigint", exactly=True)) == ("they are name string, n bigint", [])
    assert judge(has_schema("n int")) == ("they are name string, n bigint", [])
    assert judge(every_row("name is not null")) is None
    assert judge(every_row("n > 0")) == ("3 rows fail", [("b", -2), ("c", None), ("c", None)])
    same = spark.createDataFrame([(None, "c"), (-2, "b"), (1, "a"), (None, "c")], "n bigint, name string")
    assert judge(equals(same)) is None
    assert judge(equals(same.filter("name != 'b'"))) == ("1 rows too many", [("b", -2)])
    assert judge(equals(same.distinct())) == ("1 rows too many", [("c", None)])
    assert judge(equals(same.union(same.limit(1)))) == ("1 rows are missing", [("c", None)])
    assert judge(equals(same.drop("n"))) == ("the columns are name, n, not name", [])
    assert judge(satisfies("few", lambda df: df.count() < 10)) is None
    assert judge(satisfies("few", lambda df: df.count() < 2)) == ("it is not so", [])
    assert judge(satisfies("named", lambda df: df.filter("name = 'a'"))) == ("1 rows speak against it", [("a", 1)])
    assert judge(satisfies("named", lambda _: "because")) == ("because", [])
    with pytest.raises(InvalidArgument, match="answers True"):
        judge(satisfies("odd", lambda _: 3))  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidArgument, match="exactly="):
        row_count()


# --- time travel ---------------------------------------------------------------------------------------------------


def test_a_table_as_of_a_position_or_a_time_stays_what_it_was(spark: SparkSession, braid: braidlog.Braid) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    log = braid.create("readings")
    for minute in range(10):
        log.append(b"%d" % minute, timestamp=noon + timedelta(minutes=minute))
    early = as_of(spark, braid.url, "readings", position=4)
    log.append(b"later")
    log.trim(2)
    assert sorted(row.value for row in early.collect()) == [b"0", b"1", b"2", b"3"]
    with table_as_of(spark, braid.url, "readings", time=noon + timedelta(minutes=6)) as table:
        log.append(b"later still")
        assert sorted(row.value for row in table.collect()) == [b"2", b"3", b"4", b"5"]
        (inside,) = (name for name in forks_of(braid) if name.startswith("readings.as-of-6."))
        assert braid.log(inside).info().expires is not None
        assert forget_tables(braid.url, "readings") == 1, "what somebody looks at just now is not forgotten"
        assert table.count() == 4
    assert inside not in forks_of(braid)
    with table_as_of(spark, braid.url, "readings") as now:
        assert now.count() == 10
    assert forks_of(braid) == set()
    as_of(spark, braid.url, "readings")
    assert forget_tables(braid.url, "another") == 0
    assert forget_tables(braid.url) == 1
    assert forks_of(braid) == set()
    with pytest.raises(InvalidArgument, match="one of the two"):
        as_of(spark, braid.url, "readings", position=1, time=noon)
    with pytest.raises(BraidError, match="memory"):
        as_of(spark, "memory://", "readings")
