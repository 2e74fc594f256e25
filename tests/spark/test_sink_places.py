"""Where a sink writes to: directories that somebody holds or nobody, services, stores; and what it tells of them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import braidlog
from braidlog import Log, limits
from braidlog.bulk import ObjectWriter
from braidlog.errors import ConditionFailed, Gone, InvalidArgument, Locked, NotFound, OutcomeUnknown, Unavailable
from braidlog.metadata.directory import WriterLock
from braidlog.objects.files import OsFiles
from braidlog.spark import reaching, sink
from braidlog.spark.binding import Patience, Written, bind, discard_all
from braidlog.spark.options import Place
from braidlog.spark.reaching import Reach
from braidlog.testing import Cluster
from braidlog.testing.seaweed import Seaweed
from tests.spark.conftest import eventually
from tests.spark.test_sink import expected, numbered, swept, write, writer_of

VALUES = StructType([StructField("value", StringType())])
BRIEFLY = Patience(commit_s=0.2, blocked_s=0.2)
PATIENTLY = Patience(commit_s=30.0, blocked_s=30.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One metadata process, and a broker apart from it."""
    with Cluster.start(tmp_path_factory.mktemp("cluster") / "braid", 1) as running:
        yield running


@pytest.fixture(autouse=True)
def no_clients_left() -> Iterator[None]:
    yield
    for client in reaching._clients.values():
        client.close()
    reaching._clients.clear()


def read(braid: braidlog.Braid, log: str = "orders") -> list[bytes]:
    return [record.value for record in braid.log(log).read(0)]


def store(log: Log, *values: bytes, ttl: float = 3600.0) -> Written:
    """What a task does."""
    upload = log.upload(ttl=ttl)
    with ObjectWriter(upload) as writer:
        writer.add(pa.record_batch({"value": pa.array(values, pa.binary())}))
        return Written(upload, writer.close())


# --- through Spark ---------------------------------------------------------------------------------------------------


def test_several_writes_take_turns_on_a_directory_that_nobody_holds(spark: SparkSession, directory: str) -> None:
    with braidlog.open(directory) as braid:
        braid.create("orders")

    def one() -> None:
        spark.createDataFrame([], "nothing int")  # so that the session is this thread's: else Spark finds no format
        write(numbered(spark, 100, 3), directory)

    with ThreadPoolExecutor(4) as threads:
        for written in [threads.submit(one) for _ in range(4)]:
            written.result()
    with braidlog.open(directory) as braid:
        assert read(braid) == expected(100) * 4  # each of them whole


def test_a_service_is_written_to_past_its_brokers(spark: SparkSession, cluster: Cluster) -> None:
    with braidlog.open(cluster.url) as braid:
        write(numbered(spark, 50_000, 4), cluster.url, "through", createLog=True)
        assert read(braid, "through") == expected(50_000)
        fork = braid.log("through").cfork("beside")
        write(numbered(spark, 10, 2), cluster.url, "beside", txnAppId="etl", txnVersion=1)
        write(numbered(spark, 10, 2), cluster.url, "beside", txnAppId="etl", txnVersion=1)
        assert fork.info().own == 10
        assert braid.log("through").tail() == 50_000
        fork.squash()
        with pytest.raises(NotFound, match="was a fork that was squashed"):
            sink.batch_writer({"url": cluster.url, "log": "beside", "createLog": "true"}, VALUES, False)


def test_objects_elsewhere_are_written_to_by_tasks(spark: SparkSession, s3: Seaweed, directory: str) -> None:
    with braidlog.open(directory, objects=s3.url("sink")) as braid:
        braid.create("orders")
        write(numbered(spark, 1000, 2), directory)
        assert read(braid) == expected(1000)
        assert {part.object is not None for part in braid.log("orders").plan().parts} == {True}


# --- what is made -----------------------------------------------------------------------------------------------------


def test_no_log_is_made_of_the_name_of_a_fork_that_ended(directory: str) -> None:
    with braidlog.open(directory) as braid:
        orders = braid.create("orders")
        won, _ = orders.cfork("won", promotable=True), orders.cfork("lost", promotable=True)
        orders.cfork("squashed").squash()
        won.promote()
        for name in ("squashed", "lost"):
            with pytest.raises(NotFound, match=f"was a fork that was {name}.*create one of that name first"):
                sink.batch_writer({"url": directory, "log": name, "createLog": "true"}, VALUES, False)
        with pytest.raises(NotFound, match="promoted into 'orders'"):
            sink.batch_writer({"url": directory, "log": "won", "createLog": "true"}, VALUES, False)
        braid.create("dropped")
        braid.drop("dropped")
        for name in ("dropped", "never"):
            sink.batch_writer({"url": directory, "log": name, "createLog": "true"}, VALUES, False)
        assert [log.name for log in braid.logs()] == ["orders", "dropped", "never"]


def test_a_log_that_the_driver_could_not_make_yet_is_made_by_a_task(directory: str) -> None:
    braidlog.open(directory).close()
    lock = WriterLock.acquire(Path(directory), shared=True)
    writer = sink.stream_writer({"url": directory, "log": "out", "createLog": "true"}, VALUES, False)
    lock.release()
    [rows] = pa.table({"value": ["a", "b"]}).to_batches()
    message = writer.write(iter([rows]))
    assert isinstance(message, sink.Message)
    assert message.written is not None
    bind(Reach(Place(directory)), [message.written], "w", 1, BRIEFLY)
    with braidlog.open(directory) as braid:
        assert read(braid, "out") == [b"a", b"b"]


# --- reaching --------------------------------------------------------------------------------------------------------


def test_a_directory_that_nobody_holds_is_let_go_at_once(directory: str) -> None:
    braidlog.open(directory).close()
    reach = Reach(Place(directory))
    with reach.braid() as (braid, brief):
        assert brief
        braid.create("orders")
    assert reaching._clients == {}
    with braidlog.open(directory, serve=False) as braid:
        assert "orders" in braid


def test_whoever_comes_meanwhile_waits_for_a_moment(directory: str) -> None:
    braidlog.open(directory).close()
    opened: list[bool] = []

    def come() -> None:
        with braidlog.open(directory):
            opened.append(True)

    with Reach(Place(directory)).braid():
        other = threading.Thread(target=come)
        other.start()
        other.join(0.2)
        assert opened == []
    other.join()
    assert opened == [True]


def test_a_directory_that_somebody_shares_is_written_through_him(directory: str) -> None:
    reach = Reach(Place(directory))
    for _ in range(2):
        with braidlog.open(directory):
            with reach.braid() as (first, brief):
                assert not brief
            with reach.braid() as (second, _):
                assert second is first
        with reach.braid() as (_, brief):  # he left
            assert brief


def test_what_cannot_be_reached_is_told_with_what_to_do(tmp_path: Path, directory: str) -> None:
    nobody = Reach(Place("braid://127.0.0.1:9"))
    with pytest.raises(Unavailable, match="all executors of Spark must reach it"), nobody.braid(0.0):
        pass
    with pytest.raises(NotFound, match="all machines of Spark must see the same directory"):
        Reach(Place(str(tmp_path / "missing"))).braid(0.0).__enter__()
    with (
        braidlog.open(directory, serve=False),
        pytest.raises(Locked, match="a process that shares the directory"),
        Reach(Place(directory)).braid(0.0),
    ):
        pass


@pytest.mark.parametrize("create", ["false", "true"])
@pytest.mark.parametrize("inside", ["file/sub", "loop/sub", "file"])
def test_a_directory_that_cannot_be_is_told_at_once(tmp_path: Path, inside: str, create: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((InvalidArgument, NotFound), match="directory"):
        sink.batch_writer({"url": str(tmp_path / inside), "log": "orders", "createLog": create}, VALUES, False)


def test_a_disk_that_fails_may_be_better_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OsFiles, "make_dir", full)
    with (
        pytest.raises(Unavailable, match=r"No space left.*mend the storage"),
        Reach(Place(str(tmp_path / "new"))).braid(0.0, create=True),
    ):
        pass


# --- committing ------------------------------------------------------------------------------------------------------


def test_an_attempt_that_ends_after_the_commit_of_another_one_adds_nothing(directory: str) -> None:
    with braidlog.open(directory) as braid:
        braid.create("orders")
    writer = sink.batch_writer({"url": directory, "log": "orders"}, VALUES, False)
    [rows] = pa.table({"value": ["a", "b"]}).to_batches()
    winner = writer.write(iter([rows, rows]))

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows
        writer.commit([winner])
        yield rows

    loser = writer.write(slow())
    assert isinstance(loser, sink.Message)
    assert loser.written is not None
    writer.abort([loser])
    writer.commit([winner])  # its answer was lost
    with braidlog.open(directory, read_only=True) as braid:
        log = braid.log("orders")
        assert read(braid) == [b"a", b"b"] * 2
        committed = {part.object for part in log.plan().parts}
    assert committed.isdisjoint(uploaded.object for uploaded in loser.written.objects)
    assert swept(directory, 60, but=committed)


def test_a_commit_is_asked_for_again_until_it_is_known(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with braidlog.open(cluster.url) as braid:
        log = braid.create("again")
        part = store(log, b"a", b"b")
        cut_off = threading.Event()
        published = Log.publish

        def cut(self: Log, *args: Any, **kwargs: Any) -> range | None:
            if not cut_off.is_set():
                cluster.stop("metadata")
                cut_off.set()
            return published(self, *args, **kwargs)

        monkeypatch.setattr(Log, "publish", cut)
        reach = Reach(Place(cluster.url, timeout_s=0.3))
        with pytest.raises(OutcomeUnknown, match="Running the batch again is safe"):
            bind(reach, [part], "w", 1, BRIEFLY)
        with ThreadPoolExecutor(1) as threads:
            again = threads.submit(bind, reach, [part], "w", 1, PATIENTLY)
            cluster.resume("metadata")
            again.result()
        assert bind(reach, [part], "w", 1, PATIENTLY) is False
        assert read(braid, "again") == [b"a", b"b"]


def test_a_commit_that_never_left_is_told_apart_from_one_that_may_have(cluster: Cluster) -> None:
    with braidlog.open(cluster.url) as braid:
        part = store(braid.create("never"), b"a")
        cluster.stop("metadata")
        try:
            with pytest.raises(Unavailable, match="nothing was written to log 'never'"):
                bind(Reach(Place(cluster.url, timeout_s=0.3)), [part], "w", 1, BRIEFLY)
        finally:
            cluster.resume("metadata")
        assert read(braid, "never") == []


def test_what_was_stored_too_long_ago_is_refused_and_told_how_to_mend_it(directory: str) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        part = store(log, b"a", ttl=0.05)
        uploads = writer_of(braid).forest.space.uploads.by_epoch
        eventually(lambda: not uploads, "an upload ends when its time is over")
        with pytest.raises(ConditionFailed, match=r"uploadTtl.*run it again"):
            bind(Reach(Place(directory)), [part], "w", 1, BRIEFLY)
        assert log.tail() == 0


def test_a_fork_that_ended_since_its_tasks_began_is_told(directory: str) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        promoted, squashed = log.cfork("a", promotable=True), log.cfork("b")
        parts = [store(promoted, b"x"), store(squashed, b"y")]
        promoted.promote()
        squashed.squash()
        for part, told in zip(parts, ("promoted into 'orders'.*same checkpoint", "was squashed"), strict=True):
            with pytest.raises(Gone, match=told):
                bind(Reach(Place(directory)), [part], "w", 1, BRIEFLY)
        with pytest.raises(ConditionFailed, match=r"promoted while.*run it again"):
            bind(Reach(Place(directory)), [parts[0], store(log, b"z")], "w", 1, BRIEFLY)
        assert log.tail() == 0


def test_a_fork_that_was_promoted_before_its_answer_came_may_have_the_batch(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        fork = log.cfork("try", promotable=True)
        part = store(fork, b"x")
        published = Log.publish

        def cut(self: Log, *args: Any, **kwargs: Any) -> range | None:
            published(self, *args, **kwargs)
            fork.promote()
            raise OutcomeUnknown("the answer was lost")

        monkeypatch.setattr(Log, "publish", cut)
        with pytest.raises(OutcomeUnknown, match=r"before its end is unknown.*txnAppId.*'onForkEnd'"):
            bind(Reach(Place(directory)), [part], "w", 1, PATIENTLY)
        assert read(braid) == [b"x"]


def test_a_lower_number_is_done_only_for_those_who_number_their_writes_themselves(
    directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        reach = Reach(Place(directory))
        assert bind(reach, [store(log, b"a")], "w", 7, BRIEFLY, skip_lower=False)
        assert not bind(reach, [store(log, b"a")], "w", 7, BRIEFLY, skip_lower=False)
        assert not caplog.messages
        assert not bind(reach, [store(log, b"a", b"b")], "w", 7, BRIEFLY, skip_lower=False)
        assert "had 1 records when log 'orders' took it, and has 2 now" in caplog.text
        assert not bind(reach, [store(log, b"b")], "w", 6, BRIEFLY)
        with pytest.raises(ConditionFailed, match=r"batch 6 was not written.*another driver.*new checkpoint"):
            bind(reach, [store(log, b"b")], "w", 6, BRIEFLY, skip_lower=False)
        assert read(braid) == [b"a"]


def test_too_much_for_one_commit_is_told_in_words_of_spark(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        parts = [store(log, b"a"), store(log, b"b")]
        for limit in ("PUBLISH_UPLOADS_MAX", "PUBLISH_OBJECTS_MAX", "PUBLISH_BLOCKS_MAX"):
            with monkeypatch.context() as patched:
                patched.setattr(limits, limit, 1)
                with pytest.raises(InvalidArgument, match=r"2 tasks stored 2 objects with 2 blocks.*df\.coalesce"):
                    bind(Reach(Place(directory)), parts, "w", 1, BRIEFLY)


def test_many_uploads_are_let_go_of_for_a_moment_only(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with braidlog.open(directory) as braid:
        log = braid.create("orders")
        uploads = [log.upload() for _ in range(3)]
        living = writer_of(braid).forest.space.uploads.by_epoch
        with monkeypatch.context() as patched:
            patched.setattr(limits, "SPARK_ABORT_S", 0.0)
            discard_all(Reach(Place(directory)), uploads)
        assert len(living) == 3
        discard_all(Reach(Place(directory)), uploads)
        assert not living
