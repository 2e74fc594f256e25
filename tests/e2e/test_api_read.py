"""The API contract: tails, facts and reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from braidlog import Braid, Log, Record, Retention, errors
from tests.e2e.conformance import PATIENCE_S, Site, numbered, values

# --- tails and facts -----------------------------------------------------------------------------------------------


def test_without_a_hold_all_tails_agree(log: Log) -> None:
    log.append_many(numbered(3))
    info = log.info()
    assert log.tail() == info.tail == info.readable_tail == 3
    assert info.limited_by is None


def test_a_hold_sets_the_readable_tail_below_the_true_one(log: Log) -> None:
    log.append_many(numbered(3))
    fork = log.cfork("trial", promotable=True)
    log.append_many([b"hidden"] * 2)
    info = log.info()
    assert (log.tail(), info.readable_tail, info.tail, info.limited_by) == (3, 3, 5, "orders")
    seen = fork.info()
    assert (fork.tail(), seen.readable_tail, seen.tail, seen.limited_by) == (5, 5, 5, None)


def test_a_hold_limits_the_plain_forks_below_it_by_what_they_own(log: Log) -> None:
    log.append_many(numbered(3))
    plain = log.cfork("plain")
    plain.append_many([b"own"] * 2)
    below = plain.cfork("below")
    log.cfork("trial", promotable=True)
    log.append(b"hidden")
    for blocked in (plain, below):
        info = blocked.info()
        assert (blocked.tail(), info.readable_tail, info.tail, info.limited_by) == (5, 5, 6, "orders")


def test_the_earliest_undecided_fork_sets_the_limit(log: Log) -> None:
    first = log.cfork("first", promotable=True)
    log.append(b"a")
    second = log.cfork("second", promotable=True)
    log.append(b"b")
    assert log.tail() == 0
    first.squash()
    assert log.tail() == 1
    second.squash()
    assert (log.tail(), log.info().limited_by) == (2, None)


def test_info_tells_all_about_a_root(site: Site, braid: Braid) -> None:
    kept = Retention(max_age=3600.0, max_bytes=10**9)
    log = braid.create("orders", retention=kept, labels={"team": "shop"})
    log.append_many([Record(b"four", b"k", (("h", b"vv"),)), b"four"])
    log.trim(1)
    info = log.info()
    assert (info.name, info.id, info.kind, info.parent, info.fork_point) == ("orders", log.id, "root", None, None)
    assert (info.promotable, info.discipline, info.epoch) == (False, "eager", 0)
    assert (info.start, info.tail, info.readable_tail, info.limited_by) == (1, 2, 2, None)
    assert (info.own, info.own_bytes, info.shared_bytes) == (2, 12, 0)
    assert info.created == datetime.fromtimestamp(site.clock.now_us() / 1e6, UTC)
    assert (info.expires, info.lease_expires, info.labels, info.retention) == (None, None, {"team": "shop"}, kept)


def test_info_tells_all_about_a_fork(site: Site, log: Log) -> None:
    log.append_many([b"12345"] * 4)
    created = datetime.fromtimestamp(site.clock.now_us() / 1e6, UTC)
    fork = log.cfork("trial", promotable=True, ttl=100, lease=timedelta(seconds=10), labels={"why": "test"})
    site.clock.advance(1)
    fork.append(b"123")
    info = fork.info()
    assert (info.name, info.kind, info.parent, info.fork_point, info.promotable) == (
        "trial",
        "cfork",
        "orders",
        4,
        True,
    )
    assert (info.own, info.own_bytes, info.shared_bytes) == (1, 3, 20)
    assert info.created == created
    assert info.expires == created + timedelta(seconds=100)
    assert info.lease_expires == created + timedelta(seconds=10)
    assert info.labels == {"why": "test"}


def test_shared_bytes_of_a_severed_fork_are_those_it_was_severed_with(log: Log) -> None:
    for _ in range(4):
        log.append(b"12345")
    fork = log.sfork(at=3)
    fork.append(b"123")
    info = fork.info()
    assert (info.kind, info.parent, info.fork_point, info.promotable) == ("sfork", "orders", 3, False)
    assert (info.own, info.own_bytes, info.shared_bytes) == (1, 3, 15)


# --- reading -------------------------------------------------------------------------------------------------------


def test_read_returns_what_is_readable_of_the_range(log: Log) -> None:
    log.append_many(numbered(5))
    assert values(log.read(0)) == numbered(5)
    assert values(log.read(2)) == numbered(3, 2)
    assert values(log.read(1, 3)) == numbered(2, 1)
    assert values(log.read(3, 100)) == numbered(2, 3)
    assert log.read(3, 3) == log.read(3, 1) == []
    assert [record.position for record in log.read(2, 5)] == [2, 3, 4]


def test_read_at_the_tail_is_empty(log: Log) -> None:
    assert log.read(0) == []
    log.append(b"x")
    assert log.read(1) == log.read(1, 9) == []


def test_read_beyond_the_tail_is_out_of_range(log: Log) -> None:
    log.append(b"x")
    with pytest.raises(errors.OutOfRange, match=r"'orders' ends at 1.*2"):
        log.read(2)
    with pytest.raises(IndexError):
        log.read(2, wait=PATIENCE_S)


def test_read_below_the_start_is_trimmed(log: Log) -> None:
    log.append_many(numbered(5))
    log.trim(3)
    with pytest.raises(errors.Trimmed, match=r"'orders' starts at 3.*2") as caught:
        log.read(2)
    assert caught.value.start == 3
    assert values(log.read(3)) == numbered(2, 3)


def test_read_stops_at_a_hold(log: Log) -> None:
    log.append_many(numbered(3))
    log.cfork("trial", promotable=True)
    log.append_many([b"hidden"] * 2)
    assert values(log.read(0)) == values(log.read(0, 5)) == numbered(3)


def test_read_at_a_hold_is_blocked_only_where_a_record_is_hidden(log: Log) -> None:
    log.append_many(numbered(3))
    log.cfork("trial", promotable=True)
    assert log.read(3) == []
    log.append_many([b"hidden"] * 2)
    for position in (3, 4):
        with pytest.raises(errors.Blocked, match=r"'orders'.*'trial'") as caught:
            log.read(position)
        assert caught.value.by == "orders"
    assert log.read(5) == []
    with pytest.raises(errors.OutOfRange, match="6"):
        log.read(6)


def test_max_records_bounds_a_read(log: Log) -> None:
    log.append_many(numbered(10))
    assert values(log.read(2, max_records=3)) == numbered(3, 2)
    assert values(log.read(2, 4, max_records=3)) == numbered(2, 2)
    assert values(log.read(8, max_records=100)) == numbered(2, 8)


def test_max_bytes_bounds_a_read_but_gives_at_least_one(log: Log) -> None:
    log.append_many([b"x" * 10] * 10)
    assert len(log.read(0, max_bytes=35)) == 3
    assert len(log.read(0, max_bytes=30)) == 3
    assert len(log.read(0, max_bytes=1)) == 1
    assert len(log.read(0, max_bytes=10**9)) == 10
    assert len(log.read(0, max_bytes=35, max_records=2)) == 2


def test_bounds_count_keys_and_headers(log: Log) -> None:
    log.append_many([Record(b"12345", b"123", (("h", b"1"),))] * 10)
    assert len(log.read(0, max_bytes=25)) == 2


def test_a_bounded_read_goes_on_over_many_batches(log: Log) -> None:
    for first in range(0, 9000, 1000):
        log.append_many(numbered(1000, first))
    assert values(log.read(0, max_bytes=10**9)) == numbered(9000)
    assert values(log.read(100, 8500, max_bytes=10**9)) == numbered(8400, 100)
    assert values(log.read(100, max_records=8000, max_bytes=10**9)) == numbered(8000, 100)


def test_read_waits_for_a_record(site: Site, braid: Braid, log: Log) -> None:
    waiting = site.meanwhile(braid, lambda: log.read(0, wait=PATIENCE_S))
    assert not waiting.done()
    log.append(b"x")
    assert values(waiting.result(PATIENCE_S)) == [b"x"]


def test_read_waits_no_longer_than_told(log: Log) -> None:
    assert log.read(0, wait=0.01) == []
    log.cfork("trial", promotable=True)
    log.append(b"hidden")
    with pytest.raises(errors.Blocked):
        log.read(0, wait=0.01)


def test_read_does_not_wait_for_an_empty_range(log: Log) -> None:
    assert log.read(0, 0, wait=PATIENCE_S) == []


def test_read_waits_for_a_decision(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    log.append(b"hidden")
    fork.append(b"mine")
    waiting = site.meanwhile(braid, lambda: log.read(0, wait=PATIENCE_S))
    assert not waiting.done()
    fork.promote()
    assert values(waiting.result(PATIENCE_S)) == [b"hidden", b"mine"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((-1,), "-1"),
        ((0, -1), "-1"),
        (("0",), "str"),
        ((1.0,), "float"),
        ((True,), "bool"),
        ((2**63,), str(2**63)),
    ],
)
def test_a_position_is_an_int_not_negative(log: Log, arguments: tuple[int, ...], named: str) -> None:
    for call in (log.read, log.read_arrow, log.plan):
        with pytest.raises(errors.InvalidArgument) as caught:
            call(*arguments)
        assert named in str(caught.value)


@pytest.mark.parametrize("bound", ["max_records", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, "1", 1.5])
def test_a_bound_is_at_least_one(log: Log, bound: str, value: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=bound):
        log.read(0, **{bound: value})  # type: ignore[arg-type]


# --- indexing ------------------------------------------------------------------------------------------------------


def test_indexing_is_as_in_python(log: Log) -> None:
    log.append_many(numbered(5))
    assert (log[0].value, log[4].value, log[-1].value, log[-5].value) == (b"0", b"4", b"4", b"0")
    for outside in (5, 6, -6):
        with pytest.raises(errors.OutOfRange) as caught:
            log[outside]
        assert isinstance(caught.value, IndexError)


def test_slicing_is_as_in_python(log: Log) -> None:
    expected = numbered(5)
    log.append_many(expected)
    for start in (None, -9, -5, -2, 0, 1, 4, 5, 9):
        for stop in (None, -9, -5, -2, 0, 1, 4, 5, 9):
            assert values(log[start:stop]) == expected[start:stop]


def test_indexing_ends_at_a_hold(log: Log) -> None:
    log.append_many(numbered(2))
    log.cfork("trial", promotable=True)
    log.append(b"hidden")
    assert (log[-1].value, values(log[:])) == (b"1", numbered(2))
    with pytest.raises(errors.Blocked):
        log[2]


def test_a_slice_without_a_start_begins_after_the_trimmed_part(log: Log) -> None:
    log.append_many(numbered(5))
    log.trim(2)
    assert values(log[:]) == numbered(3, 2)
    assert values(log[-3:]) == numbered(3, 2)
    for gone in (lambda: log[1], lambda: log[0:3], lambda: log[-4:]):
        with pytest.raises(errors.Trimmed):
            gone()


@pytest.mark.parametrize("index", ["0", 1.0, None, True, slice(0, 3, 2), slice(None, None, -1)])
def test_an_index_is_an_int_or_a_plain_slice(log: Log, index: object) -> None:
    log.append_many(numbered(5))
    with pytest.raises(errors.InvalidArgument):
        log[index]  # type: ignore[call-overload]


# --- as a table ----------------------------------------------------------------------------------------------------


def test_read_arrow_has_a_fixed_schema(log: Log) -> None:
    headers = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    schema = pa.schema(
        [
            pa.field("position", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary(), nullable=False),
            pa.field("headers", headers, nullable=False),
        ]
    )
    assert log.read_arrow().schema.equals(schema)
    log.append(b"x")
    assert log.read_arrow().schema.equals(schema)


def test_read_arrow_has_what_read_has(site: Site, braid: Braid, log: Log) -> None:
    log.append_many([Record(b"a", b"k", (("h", b"1"), ("h", b"2")), 5), b"b"])
    site.pack(braid)
    log.append_many([b"c" * 300_000, b"d"])
    fork = log.cfork("trial")
    fork.append(b"mine", key=b"k2")
    log.append(b"e")
    for found in (log, fork):
        for start, stop in ((0, None), (1, 3), (3, 100), (4, 4)):
            assert _records(found.read_arrow(start, stop)) == found.read(start, stop)


def _records(table: pa.Table) -> list[Record]:
    return [
        Record(
            row["value"],
            row["key"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            _micros(row["timestamp"]),
            row["position"],
        )
        for row in table.to_pylist()
    ]


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_read_arrow_refuses_what_read_refuses(log: Log) -> None:
    log.append_many(numbered(3))
    log.trim(1)
    with pytest.raises(errors.Trimmed):
        log.read_arrow(0)
    with pytest.raises(errors.OutOfRange):
        log.read_arrow(4)
    log.cfork(promotable=True)
    log.append(b"hidden")
    with pytest.raises(errors.Blocked):
        log.read_arrow(3)


# --- by time -------------------------------------------------------------------------------------------------------


def test_position_at_is_the_first_not_before_the_moment(site: Site, braid: Braid, log: Log) -> None:
    for seconds in (10, 20, 20, 30):
        log.append(b"x", timestamp=seconds * 1_000_000)
    for _ in range(2):
        for seconds, position in ((0, 0), (10, 0), (11, 1), (20, 1), (21, 3), (30, 3), (31, 4)):
            assert log.position_at(seconds * 1_000_000) == position
            assert log.position_at(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)) == position
        site.pack(braid)


def test_position_at_looks_inside_batches_and_at_disorder(log: Log) -> None:
    log.append_many([Record(b"x", timestamp=moment) for moment in (10, 50, 20, 40)])
    assert [log.position_at(moment) for moment in (1, 11, 45, 51)] == [0, 1, 1, 4]


def test_position_at_sees_only_what_is_readable(log: Log) -> None:
    log.append_many([Record(b"x", timestamp=moment) for moment in (10, 20, 30)])
    log.trim(1)
    log.cfork(promotable=True)
    log.append(b"hidden", timestamp=40)
    assert [log.position_at(moment) for moment in (0, 20, 30, 40)] == [1, 1, 2, 3]


def test_position_at_follows_the_order_of_a_fork(log: Log) -> None:
    log.append(b"a", timestamp=10)
    fork = log.cfork("trial")
    fork.append(b"b", timestamp=20)
    log.append(b"c", timestamp=30)
    assert [fork.position_at(moment) for moment in (10, 20, 30, 31)] == [0, 1, 2, 3]


@pytest.mark.parametrize("moment", ["now", None, 1.5])
def test_position_at_takes_a_moment(log: Log, moment: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=type(moment).__name__):
        log.position_at(moment)  # type: ignore[arg-type]


# --- trimming ------------------------------------------------------------------------------------------------------


def test_trim_moves_the_start_and_only_forwards(log: Log) -> None:
    log.append_many(numbered(5))
    assert log.trim(2) == 2
    assert log.trim(1) == 2
    assert log.info().start == 2
    assert log.trim(5) == 5
    assert log.read(5) == []
    assert log.append(b"x") == 5


def test_trim_beyond_the_tail_is_out_of_range(log: Log) -> None:
    log.append(b"x")
    with pytest.raises(errors.OutOfRange, match=r"'orders' ends at 1.*2"):
        log.trim(2)
    assert log.info().start == 0


def test_trim_does_not_reach_behind_a_hold(log: Log) -> None:
    log.append_many(numbered(3))
    log.cfork("trial", promotable=True)
    log.append(b"hidden")
    with pytest.raises(errors.Blocked, match="4"):
        log.trim(4)
    assert log.trim(3) == 3


def test_a_fork_begins_at_its_parents_start_and_keeps_it(log: Log) -> None:
    log.append_many(numbered(5))
    log.trim(1)
    forks = [log.cfork("live"), log.sfork("severed")]
    log.trim(4)
    for fork in forks:
        assert fork.info().start == 1
        assert values(fork.read(1)) == numbered(4, 1)
        fork.trim(3)
    assert log.info().start == 4


def test_what_was_trimmed_stays_readable_for_forks_after_collection(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(5))
    site.pack(braid)
    fork = log.sfork(at=4)
    log.trim(5)
    site.pass_time(braid, 1000)
    site.pass_time(braid, 1000)
    assert values(fork.read(0)) == numbered(4)
