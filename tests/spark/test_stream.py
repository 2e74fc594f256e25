"""Logs and forks as streams of Spark itself: what its micro-batches bring, over restarts and to the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import braidlog
from braidlog import Braid, Log
from tests.spark.conftest import PATIENCE_S, eventually


@pytest.fixture
def braid(directory: str) -> Iterator[Braid]:
    with braidlog.open(directory) as opened:
        yield opened


@pytest.fixture
def orders(braid: Braid) -> Log:
    return braid.create("orders")


class Follower:
    """A query whose batches are kept by their number: one that is done again takes its own place."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: str) -> None:
        self._spark = spark
        self._url = url
        self._checkpoint = checkpoint
        self.batches: dict[int, list[tuple[str, int, bytes]]] = {}
        self.query: StreamingQuery | None = None

    def start(self, *, now: bool = False, **options: str) -> StreamingQuery:
        named = {} if "logPattern" in options else {"log": "orders"}
        source = self._spark.readStream.format("braidlog").options(**({"url": self._url} | named | options)).load()
        writer = source.writeStream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        self.query = (writer.trigger(availableNow=True) if now else writer).start()
        return self.query

    def run(self, **options: str) -> None:
        """To the end of what there is now."""
        assert self.start(now=True, **options).awaitTermination(int(PATIENCE_S))

    def _keep(self, df: DataFrame, batch: int) -> None:
        self.batches[batch] = [(row.log, row.position, bytes(row.value)) for row in df.collect()]

    @property
    def got(self) -> list[tuple[str, int, bytes]]:
        return [row for _, batch in sorted(self.batches.items()) for row in batch]

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, value in self.got]

    def failed(self) -> str:
        assert self.query is not None
        with pytest.raises(StreamingQueryException) as caught:
            self.query.awaitTermination(int(PATIENCE_S))
        said = str(caught.value)
        assert "Traceback" not in said
        return said


@pytest.fixture
def follower(spark: SparkSession, directory: str, checkpoint: str) -> Iterator[Follower]:
    made = Follower(spark, directory, checkpoint)
    yield made
    if made.query is not None:
        made.query.stop()


def test_nothing_is_skipped_or_repeated_while_a_writer_appends_and_forks(orders: Log, follower: Follower) -> None:
    ends = threading.Event()
    written: list[bytes] = []

    def write() -> None:
        while not ends.wait(0.02):
            values = [b"%d" % (len(written) + n) for n in range(7)]
            orders.append_many(values)
            written.extend(values)
            if len(written) % 70 == 0:  # a fork that is squashed holds the log for a moment
                orders.cfork(promotable=True).squash()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        follower.start(startingOffsets="earliest", maxOffsetsPerTrigger="500")
        eventually(lambda: len(follower.batches) > 4, "some batches")
        fork = orders.cfork("made-meanwhile")
        fork.append(b"not in the log")
        assert follower.query is not None
        follower.query.stop()  # at any moment, in the middle of a batch perhaps
        follower.start(maxOffsetsPerTrigger="500")
        seen = len(follower.got)
        eventually(lambda: len(follower.got) > seen, "it goes on")
    finally:
        ends.set()
        writer.join()
    follower.query.stop()
    assert max(map(len, follower.batches.values())) <= 500
    follower.run()
    assert follower.got == [("orders", at, value) for at, value in enumerate(written)]


def test_a_query_that_begins_at_the_end_misses_nothing_while_it_is_stopped(orders: Log, follower: Follower) -> None:
    orders.append(b"before")
    follower.run()
    orders.append(b"meanwhile")
    follower.run()
    assert follower.values == [b"meanwhile"]
    follower.run()
    assert follower.values == [b"meanwhile"]


def test_progress_tells_where_it_is_and_how_much_there_is(orders: Log, follower: Follower) -> None:
    orders.append_many([b"x"] * 10)
    query = follower.start(now=True, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.awaitTermination(int(PATIENCE_S))
    [source] = query.recentProgress[1]["sources"]
    assert len(follower.batches) == 4
    assert json.loads(source["endOffset"])["logs"]["orders"]["position"] == 4
    assert json.loads(source["latestOffset"])["logs"]["orders"]["position"] == 10


def test_a_fork_that_is_squashed_ends_the_query_with_the_reason(orders: Log, follower: Follower) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial")
    follower.start(log="trial", startingOffsets="earliest")
    eventually(lambda: follower.values == [b"a"], "the first record")
    fork.squash()
    assert "log 'trial' was squashed; the query had read it up to position 1" in follower.failed()


def test_a_promoted_fork_goes_on_as_its_parent_if_asked_to(orders: Log, follower: Follower) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial", promotable=True)
    fork.append(b"mine")
    follower.start(log="trial", startingOffsets="earliest", onForkEnd="continue")
    eventually(lambda: follower.values == [b"a", b"mine"], "what the fork has")
    fork.promote()
    orders.append(b"b")
    eventually(lambda: len(follower.got) == 3, "what comes after the promotion")
    assert follower.got[2] == ("orders", 2, b"b")


def test_logs_by_a_pattern_and_a_trim(braid: Braid, follower: Follower) -> None:
    follower.start(logPattern="orders.*", failOnDataLoss="true")
    eventually(lambda: follower.batches, "the first batch, which says where it begins")
    other = braid.create("orders-2")
    other.append(b"new")
    eventually(lambda: follower.values == [b"new"], "the new log")
    assert follower.query is not None
    follower.query.processAllAvailable()  # else that batch is done again, and what it had is trimmed by then
    follower.query.stop()
    other.append_many([b"lost", b"kept"])
    other.trim(2)
    follower.start(logPattern="orders.*")
    assert "positions 1 to 2 were trimmed away" in follower.failed()
    follower.run(logPattern="orders.*", failOnDataLoss="false")
    assert follower.values == [b"new", b"kept"]


def test_two_sources_in_one_query(spark: SparkSession, braid: Braid, orders: Log, directory: str) -> None:
    payments = braid.create("payments")
    orders.append_many([b"1", b"2"])
    payments.append(b"2")

    def values(log: str) -> DataFrame:
        source = spark.readStream.format("braidlog").options(url=directory, log=log, startingOffsets="earliest").load()
        return source.selectExpr("cast(value AS string) AS id")

    joined = values("orders").join(values("payments"), "id")
    query = joined.writeStream.format("memory").queryName("paid").trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE_S))
    assert [row.id for row in spark.table("paid").collect()] == ["2"]
