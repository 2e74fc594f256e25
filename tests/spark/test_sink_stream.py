"""`df.writeStream`: every batch is in the log once and in order, whatever ended its query in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braidlog
from tests.spark import faulty

ROWS, PARTITIONS = 10, 3


@pytest.fixture
def session(spark: SparkSession, directory: str) -> SparkSession:
    with braidlog.open(directory) as braid:
        braid.create("orders")
    spark.dataSource.register(faulty.FaultySource)
    return spark


def numbers(spark: SparkSession) -> DataFrame:
    """Batches of ROWS numbers, the same ones whenever a batch comes again. A run that is not interrupted has one."""
    reading = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("startTimestamp", 0)
    return reading.option("numPartitions", PARTITIONS).load().select(F.col("value").cast("string"))


def run(df: DataFrame, directory: str, checkpoint: str, log: str = "orders", **options: object) -> None:
    """Until it has dealt with all there is."""
    writing = df.writeStream.format("faulty").option("url", directory).option("log", log)
    writing = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    for name, value in options.items():
        writing = writing.option(name, value)
    writing.start().awaitTermination()


def committed(checkpoint: str) -> int:
    """Batches in Spark's books."""
    return len([path for path in (Path(checkpoint) / "commits").iterdir() if path.name.isdigit()])


def batch(number: int) -> list[bytes]:
    """As the source spreads it over its partitions."""
    first = number * ROWS
    rows = [range(first + part, first + ROWS, PARTITIONS) for part in range(PARTITIONS)]
    return [b"%d" % value for part in rows for value in part]


def values(directory: str, log: str = "orders") -> list[bytes]:
    with braidlog.open(directory, read_only=True) as braid:
        return [record.value for record in braid.log(log).read(0)]


def test_batches_are_written_once_whatever_step_they_failed_at(
    session: SparkSession, directory: str, checkpoint: str
) -> None:
    df = numbers(session)
    for step in faulty.STEPS:
        faulty.arm(directory, step)
        with pytest.raises(StreamingQueryException, match=f"struck: {step}"):
            run(df, directory, checkpoint)
        run(df, directory, checkpoint)
    count = committed(checkpoint)
    assert count >= len(faulty.STEPS)
    assert values(directory) == [value for number in range(count) for value in batch(number)]


def test_batches_without_rows_are_right_when_they_come_again(
    session: SparkSession, directory: str, checkpoint: str
) -> None:
    df = numbers(session).where("cast(value as int) % 20 >= 10")  # every other one
    for step in (faulty.PUBLISHED, faulty.COMMITTING):
        faulty.arm(directory, step)
        with pytest.raises(StreamingQueryException, match="struck"):
            run(df, directory, checkpoint)
        run(df, directory, checkpoint)
    odd = range(1, committed(checkpoint), 2)
    assert len(odd) > 0
    assert values(directory) == [value for number in odd for value in batch(number)]


def test_a_query_that_begins_anew_writes_anew(session: SparkSession, directory: str, checkpoint: str) -> None:
    df = numbers(session)
    run(df, directory, checkpoint)
    shutil.rmtree(checkpoint)
    run(df, directory, checkpoint)
    assert values(directory) == batch(0) * 2


def test_a_checkpoint_that_is_an_older_copy_is_refused(
    session: SparkSession, directory: str, checkpoint: str, tmp_path: Path
) -> None:
    df = numbers(session)
    run(df, directory, checkpoint)
    older = tmp_path / "older"
    shutil.copytree(checkpoint, older)
    for _ in range(2):
        run(df, directory, checkpoint)
    with pytest.raises(StreamingQueryException, match=r"batch 1 was not written.*has written batch 2"):
        run(df, directory, str(older))
    assert values(directory) == [value for number in range(3) for value in batch(number)]


def test_batches_of_a_fork_that_was_promoted_are_known_to_its_parent(
    session: SparkSession, directory: str, checkpoint: str
) -> None:
    df = numbers(session)
    with braidlog.open(directory) as braid:
        fork = braid.log("orders").cfork("try", promotable=True)
        faulty.arm(directory, faulty.PUBLISHED)
        with pytest.raises(StreamingQueryException, match="struck"):
            run(df, directory, checkpoint, "try")
        fork.promote()
        with pytest.raises(StreamingQueryException, match=r"promoted into 'orders'.*same checkpoint"):
            run(df, directory, checkpoint, "try")
        run(df, directory, checkpoint, "try", onForkEnd="continue")
        run(df, directory, checkpoint)  # by the parent's own name
    count = committed(checkpoint)
    assert count >= 2
    assert values(directory) == [value for number in range(count) for value in batch(number)]


def test_a_fork_that_is_squashed_under_its_query_is_told(
    session: SparkSession, directory: str, checkpoint: str
) -> None:
    df = numbers(session)
    with braidlog.open(directory) as braid:
        fork = braid.log("orders").cfork("try")
        run(df, directory, checkpoint, "try")
        fork.squash()
        with pytest.raises(StreamingQueryException, match="no log named 'try'"):
            run(df, directory, checkpoint, "try")
    assert values(directory) == []


def test_a_result_that_is_written_whole_each_time_is_refused(
    session: SparkSession, directory: str, checkpoint: str
) -> None:
    df = numbers(session).groupBy("value").count().select("value")
    writing = df.writeStream.format("braidlog").outputMode("complete").option("url", directory).option("log", "orders")
    with pytest.raises(StreamingQueryException, match=r"only ever appended to.*outputMode\('append'\)"):
        writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def test_foreach_batch_with_a_version_writes_once(session: SparkSession, directory: str, checkpoint: str) -> None:
    failures = ["after the write", "after the write"]

    def each(df: DataFrame, number: int) -> None:
        writing = df.write.format("braidlog").mode("append").option("url", directory).option("log", "orders")
        writing.option("txnAppId", "copy").option("txnVersion", number).save()
        if failures:
            raise RuntimeError(failures.pop())

    def copy() -> None:
        writing = numbers(session).writeStream.foreachBatch(each).trigger(availableNow=True)
        writing.option("checkpointLocation", checkpoint).start().awaitTermination()

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="after the write"):
            copy()
    copy()
    count = committed(checkpoint)
    assert values(directory) == [value for number in range(count) for value in batch(number)]
