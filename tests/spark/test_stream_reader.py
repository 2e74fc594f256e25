"""The streaming source, asked as Spark asks it, but without Spark: every offset and every record of each batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import braidlog
from braidlog import Braid, Log, limits
from braidlog.errors import Gone
from braidlog.spark import BraidlogFailed, planning
from braidlog.spark.columns import schema
from braidlog.spark.options import parse
from braidlog.spark.stream import StreamReader
from braidlog.spark.time_travel import severed
from tests.spark.conftest import eventually

Got = list[tuple[str, int, bytes]]


@pytest.fixture
def braid(directory: str) -> Iterator[Braid]:
    with braidlog.open(directory) as opened:
        yield opened


@pytest.fixture
def orders(braid: Braid) -> Log:
    return braid.create("orders")


class Query:
    """What Spark does with a source: its offsets go through JSON, as through a checkpoint."""

    def __init__(self, url: str, at: str | None = None, *, now: bool = False, **options: str) -> None:
        named = {"log": "orders"} if not {"log", "logPattern"} & options.keys() else {}
        parsed = parse({"url": url, **named, **options}, {})
        self.reader = StreamReader(parsed, schema(headers=False))
        if now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit = self.reader.getDefaultReadLimit()
        self.at = at if at is not None else json.dumps(self.reader.initialOffset())

    def batch(self) -> Got:
        """The next micro-batch; nothing if there is nothing new."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.at), self.limit))
        found = self.read(self.at, end)
        self.at = end
        return found

    def read(self, start: str, end: str) -> Got:
        return [
            (row["log"], row["position"], row["value"])
            for partition in self.reader.partitions(json.loads(start), json.loads(end))
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]

    def until(self, count: int) -> Got:
        found: Got = []
        eventually(lambda: found.extend(self.batch()) or len(found) >= count, f"{count} records, not {found}", 20)
        return found

    def until_quiet(self) -> list[Got]:
        """All batches up to one that changes nothing, as with Trigger.AvailableNow."""
        found = []
        while True:
            before = self.at
            batch = self.batch()
            if self.at == before:
                return found
            found.append(batch)

    def reported(self) -> dict[str, int]:
        latest = self.reader.reportLatestOffset()
        assert latest is not None
        return {name: at["position"] for name, at in latest["logs"].items()}

    def logs(self) -> dict[str, int]:
        return {name: at["position"] for name, at in json.loads(self.at)["logs"].items()}


@pytest.fixture
def query(directory: str) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(at: str | None = None, **options: Any) -> Query:
        made.append(Query(directory, at, **options))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


def named(log: str, first: int, *values: bytes) -> Got:
    return [(log, first + n, value) for n, value in enumerate(values)]


def test_it_begins_at_the_end_unless_told_otherwise(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"old")
    new = query()
    assert new.batch() == []
    orders.append(b"new")
    assert new.until(1) == named("orders", 1, b"new")
    assert query(startingOffsets="earliest").until(2) == named("orders", 0, b"old", b"new")
    assert query(startingOffsets='{"orders": 1}').until(1) == named("orders", 1, b"new")


def test_the_first_batch_reads_nothing_and_pins_the_beginning(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"old")
    first = query()
    initial = first.at
    first.batch()
    pinned = first.at
    orders.append(b"new")
    again = query(at=initial)  # a crash before the first batch was done: Spark asks for the beginning again
    assert again.read(json.dumps(again.reader.initialOffset()), pinned) == []
    assert query(at=pinned).until(1) == named("orders", 1, b"new")


def test_a_restart_goes_on_exactly_and_a_batch_done_again_is_the_same(orders: Log, query: Callable[..., Query]) -> None:
    orders.append_many([b"a", b"b", b"c"])
    first = query(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    first.batch()
    before = first.at
    assert first.batch() == named("orders", 0, b"a", b"b")
    orders.append(b"d")
    second = query(at=first.at, maxOffsetsPerTrigger="2")
    assert second.read(before, first.at) == named("orders", 0, b"a", b"b")
    assert second.until(2) == named("orders", 2, b"c", b"d")


@pytest.mark.usefixtures("orders")
def test_nothing_new_is_waited_for_a_little_but_not_by_available_now(query: Callable[..., Query]) -> None:
    idle = query()
    idle.batch()
    began = time.monotonic()
    assert idle.batch() == []
    assert time.monotonic() - began >= limits.SPARK_IDLE_WAIT_S
    idle.reader.prepareForTriggerAvailableNow()
    began = time.monotonic()
    for _ in range(20):
        assert idle.batch() == []
    assert time.monotonic() - began < 20 * limits.SPARK_IDLE_WAIT_S


def test_available_now_ends_where_the_logs_ended(orders: Log, query: Callable[..., Query]) -> None:
    orders.append_many([b"x"] * 5)
    now = query(startingOffsets="earliest", maxOffsetsPerTrigger="2", now=True)
    orders.append(b"later")
    assert [len(batch) for batch in now.until_quiet()] == [0, 2, 2, 1]
    eventually(lambda: not now.batch() and now.reported() == {"orders": 6}, "what came later is told of, not read", 20)


def test_limits_in_records_are_shared_by_the_logs(braid: Braid, orders: Log, query: Callable[..., Query]) -> None:
    orders.append_many([b"x"] * 90)
    braid.create("payments").append_many([b"y"] * 10)
    both = query(log="orders,payments", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    both.batch()
    assert [log for log, _, _ in both.batch()] == ["orders"] * 18 + ["payments"] * 2
    both.limit = ReadAllAvailable()
    assert len(both.batch()) == 80


@pytest.mark.parametrize("limits", [{}, {"maxBytesPerTrigger": "1000"}], ids=["records", "both"])
@pytest.mark.parametrize("records", [1, 2, 3, 4])
def test_where_a_batch_has_not_one_record_for_each_log_they_take_turns(
    braid: Braid, orders: Log, query: Callable[..., Query], records: int, limits: dict[str, str]
) -> None:
    orders.append(b"o")
    for name in ("big-1", "big-2", "big-3", "empty", "long"):
        log = braid.create(name)
        if name != "empty":
            log.append_many([b"x"] * 100)
    all_of_them = query(log="*", startingOffsets="earliest", maxOffsetsPerTrigger=str(records), **limits)
    all_of_them.batch()
    batches = [{log for log, _, _ in all_of_them.batch()} for _ in range(6)]
    assert all(len(batch) == records for batch in batches)
    assert set.union(*batches) == {"orders", "big-1", "big-2", "big-3", "long"}


def test_limits_in_bytes_and_both_together(orders: Log, query: Callable[..., Query]) -> None:
    orders.append_many([b"x" * 10_000] * 100)
    orders.append_many([b"y" * 100] * 100)
    sizes = [
        len(batch) for batch in query(startingOffsets="earliest", maxBytesPerTrigger="100000", now=True).until_quiet()
    ]
    assert sum(sizes) == 200
    assert all(size <= 10 for size in sizes[1:10])
    assert max(sizes) > 50
    both = query(startingOffsets="earliest", maxBytesPerTrigger="100000", maxOffsetsPerTrigger="3", now=True)
    assert max(len(batch) for batch in both.until_quiet()) == 3
    tiny = query(startingOffsets='{"orders": 195}', maxBytesPerTrigger="1", now=True)
    assert [len(batch) for batch in tiny.until_quiet()] == [0, 1, 1, 1, 1, 1]


def test_a_fork_gets_its_parents_new_records_and_a_parent_none_of_the_forks(
    orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial")
    on_fork, on_parent = query(log="trial", startingOffsets="earliest"), query(startingOffsets="earliest")
    assert on_fork.until(1) == named("trial", 0, b"a")
    fork.append(b"mine")
    orders.append(b"b")
    assert on_fork.until(2) == named("trial", 1, b"mine", b"b")
    assert on_parent.until(2) == named("orders", 0, b"a", b"b")


@pytest.mark.parametrize("promoted", [True, False])
def test_a_hold_is_waited_out_whichever_way_it_is_decided(
    orders: Log, query: Callable[..., Query], promoted: bool
) -> None:
    orders.append_many([b"a", b"b"])
    held = query(startingOffsets="earliest")
    assert held.until(2) == named("orders", 0, b"a", b"b")
    trial = orders.cfork("trial", promotable=True)
    trial.append(b"mine")
    orders.append(b"hidden")
    assert held.batch() == []
    if promoted:
        trial.promote()
    else:
        trial.squash()
    orders.append(b"c")
    expected = [b"mine", b"hidden", b"c"] if promoted else [b"hidden", b"c"]
    assert held.until(len(expected)) == named("orders", 2, *expected)


def failed(query: Query, *said: str) -> None:
    with pytest.raises(BraidlogFailed) as caught:
        eventually(lambda: query.batch() and False, "the end of the stream", 20)
    for each in said:
        assert each in str(caught.value)


def test_the_end_of_a_fork_is_told_with_its_reason_and_position(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"a")
    for kind, end in (("squashed", Log.squash), ("promoted", Log.promote)):
        fork = orders.cfork(f"to-be-{kind}", promotable=True)
        following = query(log=fork.name, startingOffsets="earliest")
        following.until(1)
        end(fork)
        failed(following, f"'{fork.name}' was {kind}", "up to position 1")
    failed(query(at=following.at, log="to-be-promoted"), '{"orders": 1}')
    orders.cfork("loser", promotable=True)
    winner = orders.cfork("winner", promotable=True)
    following = query(log="loser", startingOffsets="earliest", onForkEnd="continue")
    following.until(1)
    winner.promote()
    failed(following, "'loser' lost to another fork, which was promoted; the query", "nothing to go on with")
    orders.cfork("short", ttl=0.5)
    failed(query(log="short", onForkEnd="continue"), "'short' was expired", "nothing to go on with")


def test_a_promoted_fork_goes_on_as_its_parent_at_the_same_position(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial", promotable=True)
    fork.append(b"mine")
    following = query(log="trial", startingOffsets="earliest", onForkEnd="continue")
    before = following.at
    assert following.until(2) == named("trial", 0, b"a", b"mine")
    read = following.at
    fork.append(b"unread")
    fork.promote()
    orders.append(b"b")
    going_on = query(at=read, log="trial", onForkEnd="continue")  # the first may see it on the fork yet
    assert going_on.until(2) == named("orders", 2, b"unread", b"b")
    assert [found[1:] for found in following.until(2)] == [(2, b"unread"), (3, b"b")]
    replayed = query(at=before, log="trial", onForkEnd="continue")
    pinned = json.dumps(replayed.reader.latestOffset(json.loads(before), replayed.limit))
    assert replayed.read(pinned, read) == named("trial", 0, b"a", b"mine")


@pytest.mark.parametrize("bounds", [{}, {"maxBytesPerTrigger": "1000"}], ids=["all", "some"])
@pytest.mark.parametrize("step", [1, 2], ids=["offset", "plan"])
def test_a_fork_may_be_promoted_between_any_two_steps_of_a_batch(
    orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch, bounds: dict[str, str], step: int
) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial", promotable=True)
    fork.append(b"mine")
    following = query(log="trial", startingOffsets="earliest", onForkEnd="continue", **bounds)
    following.batch()
    planned, calls = planning.pages, []

    def pages(log: Log, start: int, stop: int, *, fail: bool) -> Iterator[braidlog.Plan]:
        calls.append(log)
        if len(calls) == (step if bounds else 1):
            fork.promote()
            eventually(lambda: _has_ended(log), "the reader knows")
        return planned(log, start, stop, fail=fail)

    monkeypatch.setattr(planning, "pages", pages)
    assert [found[1:] for found in following.until(2)] == [(0, b"a"), (1, b"mine")]
    orders.append(b"b")
    assert following.until(1) == named("orders", 2, b"b")


def test_a_log_that_seems_to_end_again_and_again_is_given_up(
    orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SPARK_RETRY_S", 0.3)
    orders.append(b"a")
    following = query(startingOffsets="earliest", maxBytesPerTrigger="1000")
    following.batch()
    looks = []

    def pages(log: Log, start: int, stop: int, *, fail: bool) -> Iterator[braidlog.Plan]:
        looks.append((log, start, stop, fail))
        raise Gone("no more")

    monkeypatch.setattr(planning, "pages", pages)
    with pytest.raises(BraidlogFailed, match="Gone: no more"):
        following.batch()
    assert 1 < len(looks) <= 5


def _has_ended(log: Log) -> bool:
    try:
        log.info()
    except Gone:
        return True
    return False


def test_new_logs_of_a_pattern_are_read_from_their_start(
    braid: Braid, orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"old")
    following = query(logPattern="orders.*")
    assert following.batch() == []
    new = braid.create("orders-2")
    new.append(b"first")
    orders.append(b"second")
    assert sorted(following.until(2)) == [("orders", 1, b"second"), ("orders-2", 0, b"first")]
    fork = new.cfork("orders-3")
    assert following.until(1) == named("orders-3", 0, b"first")
    fork.squash()
    failed(following, "'orders-3' was squashed")
    going_on = query(at=following.at, logPattern="orders.*", onForkEnd="continue")
    eventually(lambda: going_on.batch() == [] and "orders-3" not in going_on.logs(), "the fork is left out", 20)
    new.append(b"third")
    assert going_on.until(1) == named("orders-2", 1, b"third")


def test_an_idle_query_by_a_pattern_looks_at_all_logs_now_and_then_only(
    braid: Braid, orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, looks = planning.living, []

    def living(*args: Any) -> list[Log]:
        looks.append(args)
        return looked(*args)

    monkeypatch.setattr(planning, "living", living)
    monkeypatch.setattr(limits, "SPARK_LOOK_S", 3600.0)
    orders.append(b"a")
    following = query(log="orders*", startingOffsets="earliest")
    following.until(1)
    looks.clear()
    for _ in range(3):
        assert following.batch() == []
    assert len(looks) <= 1
    braid.create("orders-2").append(b"b")
    assert following.batch() == []
    orders.append(b"c")  # whenever a batch is made, all logs are looked at
    assert sorted(following.until(2)) == [*named("orders", 1, b"c"), *named("orders-2", 0, b"b")]
    monkeypatch.setattr(limits, "SPARK_LOOK_S", 0.0)
    braid.create("orders-3").append(b"d")
    assert following.until(1) == named("orders-3", 0, b"d")
    now = query(at=following.at, log="orders*")
    now.batch()
    braid.create("orders-4").append(b"e")
    monkeypatch.setattr(limits, "SPARK_LOOK_S", 3600.0)
    now.batch()
    now.reader.prepareForTriggerAvailableNow()
    assert now.until(1) == named("orders-4", 0, b"e")


def test_what_was_trimmed_is_an_error_or_skipped(orders: Log, query: Callable[..., Query]) -> None:
    orders.append_many([b"%d" % n for n in range(10)])
    following = query(startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert following.until(2) == named("orders", 0, b"0", b"1")
    orders.trim(7)
    failed(query(at=following.at), "positions 2 to 7 were trimmed away", "failOnDataLoss=false")
    skipping = query(at=following.at, maxOffsetsPerTrigger="2", failOnDataLoss="false")
    assert skipping.until(3) == named("orders", 7, b"7", b"8", b"9")
    slowly = query(at=following.at, maxBytesPerTrigger="1", failOnDataLoss="false", now=True)
    assert [len(batch) for batch in slowly.until_quiet()] == [0, 1, 1, 1]


def test_a_name_that_is_reused_is_not_taken_for_the_same_log(
    braid: Braid, orders: Log, query: Callable[..., Query]
) -> None:
    orders.append_many([b"a", b"b"])
    following = query(startingOffsets="earliest")
    following.until(2)
    braid.drop("orders")
    braid.create("orders").append_many([b"x", b"y", b"z"])
    failed(query(at=following.at), "'orders' was dropped", "is another log now")
    assert query(at=following.at, failOnDataLoss="false").until(3) == named("orders", 0, b"x", b"y", b"z")


def test_another_braid_with_the_same_numbers_is_noticed(
    orders: Log, query: Callable[..., Query], tmp_path: Path
) -> None:
    orders.append(b"a")
    begun = query(startingOffsets="earliest")
    begun.until(1)
    with braidlog.open(tmp_path / "other") as other:
        other.create("payments")
    elsewhere = Query(str(tmp_path / "other"), begun.at)
    failed(elsewhere, "is it another braid")
    elsewhere.reader.stop()


def test_a_log_that_ends_before_what_was_read_of_it_is_noticed(
    orders: Log, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was made anew, or restored from a copy: the same name and number, and other records."""
    monkeypatch.setattr(limits, "SPARK_RETRY_S", 0.2)
    orders.append_many([b"a", b"b", b"c"])
    begun = Query(directory, startingOffsets="earliest")
    begun.until(3)
    begun.reader.stop()
    with braidlog.open(tmp_path / "anew") as other:
        anew = other.create("orders")
        anew.append_many([b"x", b"y"])
        told, skipping = (
            Query(str(tmp_path / "anew"), begun.at, failOnDataLoss=str(fails).lower()) for fails in (True, False)
        )
        failed(told, "'orders' ends at 2", "up to position 3", "new checkpoint", "failOnDataLoss=false")
        assert skipping.batch() == []
        anew.append(b"z")
        assert skipping.until(1) == named("orders", 2, b"z")
        for query in (told, skipping):
            query.reader.stop()


def test_a_batch_that_is_done_again_has_time_to_catch_up_too_and_ends_where_its_log_does(
    orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.append_many([b"a", b"b"])
    begun = query(startingOffsets="earliest")
    begun.batch()
    end = json.loads(begun.at)
    end["logs"]["orders"]["position"] = 3
    late = threading.Timer(0.5, orders.append, [b"c"])
    late.start()
    assert query(at=begun.at).read(begun.at, json.dumps(end)) == named("orders", 0, b"a", b"b", b"c")
    late.join()
    monkeypatch.setattr(limits, "SPARK_RETRY_S", 0.2)
    end["logs"]["orders"]["position"] = 5
    with pytest.raises(BraidlogFailed, match=r"'orders' ends at 3, .* up to position 5.*failOnDataLoss=false"):
        query(at=begun.at).read(begun.at, json.dumps(end))
    shorter = query(at=begun.at, failOnDataLoss="false").read(begun.at, json.dumps(end))
    assert shorter == named("orders", 0, b"a", b"b", b"c")


def test_whoever_is_asked_has_time_to_catch_up_with_the_checkpoint(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"a")
    following = query(startingOffsets="earliest")
    following.until(1)
    ahead = json.loads(following.at)
    ahead["logs"]["orders"]["position"] = 2
    late = threading.Timer(0.5, orders.append, [b"b"])
    late.start()
    again = query(at=json.dumps(ahead))
    assert again.batch() == []
    late.join()
    orders.append(b"c")
    assert again.until(1) == named("orders", 2, b"c")


def test_two_forks_that_became_one_log_go_on_where_the_first_of_them_was(
    orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"a")
    first = orders.cfork("trial-1", promotable=True)
    first.append(b"b")
    following = query(log="trial-*", startingOffsets="earliest", onForkEnd="continue", maxOffsetsPerTrigger="1")
    following.until(1)
    first.promote()
    second = orders.cfork("trial-2", promotable=True)
    second.append(b"c")
    at = json.loads(following.at)
    at["logs"]["trial-2"] = {"id": second.id, "position": 3}
    second.promote()
    going_on = query(at=json.dumps(at), log="trial-*", onForkEnd="continue")
    assert going_on.until(2) == named("orders", 1, b"b", b"c")


def test_a_log_that_is_added_to_the_options_is_read_from_its_start(
    braid: Braid, orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"a")
    braid.create("payments").append(b"p")
    one = query(startingOffsets="earliest")
    one.until(1)
    both = query(at=one.at, log="orders,payments")
    assert both.until(1) == named("payments", 0, b"p")
    orders.append(b"b")
    assert both.until(1) == named("orders", 1, b"b")


def test_a_log_that_is_taken_out_of_the_options_is_not_read_on(
    braid: Braid, orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"a")
    braid.create("payments")
    begun = query(startingOffsets="earliest")
    begun.until(1)
    for selection in ({"log": "payments"}, {"log": "pay*"}, {"log": "payments", "onForkEnd": "continue"}):
        failed(query(at=begun.at, **selection), "reads log 'orders', which log 'pay", "does not select")


def test_what_a_fork_goes_on_as_is_told_from_a_log_that_is_not_selected(
    braid: Braid, orders: Log, query: Callable[..., Query]
) -> None:
    orders.append(b"a")
    middle = orders.cfork("middle", promotable=True)
    fork = middle.cfork("trial", promotable=True)
    following = query(log="trial", startingOffsets="earliest", onForkEnd="continue")
    following.until(1)
    fork.promote()
    eventually(lambda: following.batch() == [] and "middle" in following.logs(), "the first promotion", 20)
    middle.promote()
    eventually(lambda: following.batch() == [] and "orders" in following.logs(), "the second promotion", 20)
    braid.create("trial").append(b"another")
    orders.append(b"b")
    going_on = query(at=following.at, log="trial")
    assert going_on.until(1) == named("orders", 1, b"b")
    assert going_on.batch() == []
    failed(query(at=following.at, log="payments", onForkEnd="continue"), "does not select")


def test_checkpoints_that_do_not_say_what_went_on_are_good_still(orders: Log, query: Callable[..., Query]) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial", promotable=True)
    fork.promote()
    at = json.dumps({"version": 1, "logs": {"orders": {"id": orders.id, "position": 0}}})
    for selection in ("trial", "trial*"):
        assert query(at=at, log=selection, onForkEnd="continue").until(1) == named("orders", 0, b"a")


def test_an_end_that_nobody_knows_any_more_is_never_put_up_with(
    braid: Braid, orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.append(b"a")
    fork = orders.cfork("trial-1", promotable=True)
    following = query(log="trial-*", startingOffsets="earliest")
    following.until(1)
    following.reader.stop()
    fork.append(b"unread")
    fork.promote()
    monkeypatch.setattr(limits, "TOMBSTONES_KEPT_MAX", 1)
    for name in ("one", "two"):
        braid.create(name)
        braid.drop(name)
    for options in ({}, {"onForkEnd": "continue"}, {"onForkEnd": "continue", "failOnDataLoss": "false"}):
        late = query(at=following.at, log="trial-*", **options)
        failed(late, "'trial-1' ended so long ago that it is not known how", "up to position 1", "new checkpoint")


def test_a_pattern_means_no_logs_that_braidlog_keeps_or_makes_for_itself(
    braid: Braid, orders: Log, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.append(b"a")
    braid.create("braidlog.audit").append(b"a call")
    named_too, all_logs = (query(log=log, startingOffsets="earliest") for log in ("braidlog.audit,ord*", "*"))
    assert sorted(named_too.until(2)) == [*named("braidlog.audit", 0, b"a call"), *named("orders", 0, b"a")]
    assert all_logs.until(1) == named("orders", 0, b"a")
    asked, info = [], Log.info
    monkeypatch.setattr(Log, "info", lambda log: asked.append(log.name) or info(log))
    with severed(orders, None, "table-in-use") as table:
        braid.create("payments").append(b"p")
        assert all_logs.until(1) == named("payments", 0, b"p")
        assert all_logs.batch() == []
        assert asked.count(table.name) == 1
        assert [log.name for log in planning.living(braid, parse({"url": "/x", "log": "*"}, {}).selection)] == [
            "orders",
            "payments",
        ]
        assert query(log=table.name, startingOffsets="earliest").until(1) == named(table.name, 0, b"a")
    orders.append(b"b")
    assert all_logs.until(1) == named("orders", 1, b"b")


def test_an_end_makes_no_sense_for_a_stream(directory: str) -> None:
    with pytest.raises(braidlog.errors.InvalidArgument, match="a stream has no end"):
        Query(directory, endingOffsets="latest")
