"""The API contract: appending, waiting for it or not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from braidlog import Braid, Log, Record, errors, limits
from tests.e2e.conformance import PATIENCE_S, Site, numbered, values

# --- one record ----------------------------------------------------------------------------------------------------


def test_append_returns_the_position(log: Log) -> None:
    assert [log.append(value) for value in numbered(3)] == [0, 1, 2]
    assert values(log.read(0)) == numbered(3)


def test_a_record_comes_back_as_it_was_appended(log: Log) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    log.append(b"value", key=b"key", headers={"a": b"1", "b": b""}, timestamp=moment)
    assert log[0] == Record(b"value", b"key", (("a", b"1"), ("b", b"")), 1714979289123456, 0)
    assert log[0].time == moment


@pytest.mark.parametrize("value", [b"", b"\0\xff", bytearray(b"array"), memoryview(b"view")])
def test_any_bytes_are_a_value_and_a_key(log: Log, value: bytes) -> None:
    log.append(value, key=value)
    assert log[0].value == log[0].key == bytes(value)


def test_no_key_is_not_an_empty_key(log: Log) -> None:
    log.append(b"x")
    log.append(b"x", key=b"")
    assert [record.key for record in log.read(0)] == [None, b""]


def test_headers_keep_their_order_and_may_repeat(log: Log) -> None:
    pairs = [("z", b"1"), ("a", b"2"), ("z", b"3")]
    log.append(b"x", headers=pairs)
    log.append(b"y")
    assert [record.headers for record in log.read(0)] == [tuple(pairs), ()]


def test_a_timestamp_is_a_datetime_microseconds_or_now(site: Site, log: Log) -> None:
    zone = timezone(timedelta(hours=2))
    log.append(b"x", timestamp=datetime(1970, 1, 1, 2, 0, 1, tzinfo=zone))
    log.append(b"x", timestamp=-5)
    log.append(b"x")
    assert [record.timestamp for record in log.read(0)] == [1_000_000, -5, site.clock.now_us()]


def test_a_durable_acknowledgement_tells_no_position(log: Log) -> None:
    assert log.append(b"x", ack="durable") is None
    assert log.append_many([b"y"], ack="durable") is None
    assert values(log.read(0)) == [b"x", b"y"]


# --- several -------------------------------------------------------------------------------------------------------


def test_append_many_returns_a_contiguous_range(log: Log) -> None:
    assert log.append_many(numbered(3)) == range(3)
    assert log.append_many(value for value in numbered(2, 3)) == range(3, 5)
    assert values(log.read(0)) == numbered(5)


def test_append_many_of_nothing_changes_nothing(log: Log) -> None:
    log.append(b"x")
    assert log.append_many([]) == range(1, 1)
    assert log.tail() == 1


def test_append_many_takes_values_and_records_together(log: Log) -> None:
    own = Record(b"b", b"k", (("h", b"v"),), 42)
    log.append_many([b"a", own, bytearray(b"c"), Record(b"d")], timestamp=7)
    assert log.read(0) == [
        Record(b"a", None, (), 7, 0),
        Record(b"b", b"k", (("h", b"v"),), 42, 1),
        Record(b"c", None, (), 7, 2),
        Record(b"d", None, (), 7, 3),
    ]


def test_a_batch_is_taken_as_a_whole_or_not_at_all(log: Log) -> None:
    with pytest.raises(errors.InvalidArgument, match="str"):
        log.append_many([b"good", "bad"])  # type: ignore[list-item]
    with pytest.raises(errors.ConditionFailed):
        log.append_many([b"a", b"b"], expected_tail=1)
    assert log.tail() == 0


def test_a_batch_too_large_to_ride_inline_is_the_same(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    large = [b"%d" % number * 50_000 for number in range(10)]
    assert sum(map(len, large)) > limits.INLINE_BYTES_MAX
    assert log.append_many([Record(value, b"k", (("h", b"v"),)) for value in large]) == range(10)
    assert log.append(b"after") == 10
    for _ in range(2):
        assert values(log.read(0)) == [*large, b"after"]
        assert {record.key for record in log.read(0, 10)} == {b"k"}
        braid = site.reopen(braid)
        log = braid.log("orders")


def test_batches_of_many_threads_stay_whole(log: Log) -> None:
    def append(writer: int) -> list[range | None]:
        return [log.append_many([b"%d" % writer] * 5) for _ in range(20)]

    with ThreadPoolExecutor(8) as threads:
        told = [positions for batches in threads.map(append, range(8)) for positions in batches]
    assert log.tail() == 8 * 20 * 5
    assert sorted(positions.start for positions in told if positions is not None) == list(range(0, 800, 5))
    found = values(log.read(0))
    assert all(len(set(found[first : first + 5])) == 1 for first in range(0, 800, 5))


# --- conditions ----------------------------------------------------------------------------------------------------


def test_expected_tail_appends_exactly_there_or_not_at_all(log: Log) -> None:
    assert log.append(b"a", expected_tail=0) == 0
    with pytest.raises(errors.ConditionFailed, match=r"'orders' ends at 1, not at 0"):
        log.append(b"b", expected_tail=0)
    assert log.append_many([b"b", b"c"], expected_tail=1) == range(1, 3)
    assert values(log.read(0)) == [b"a", b"b", b"c"]


def test_a_repeated_sequence_answers_what_it_answered_first(log: Log) -> None:
    assert log.append(b"a", writer="w", sequence=1) == 0
    assert log.append(b"other", writer="w", sequence=1) == 0
    assert log.append_many([b"b", b"c"], writer="w", sequence=2) == range(1, 3)
    assert log.append_many([b"b", b"c"], writer="w", sequence=2) == range(1, 3)
    assert log.append(b"d", writer="w", sequence=10) == 3
    assert values(log.read(0)) == [b"a", b"b", b"c", b"d"]


def test_a_sequence_never_goes_back(log: Log) -> None:
    log.append(b"a", writer="w", sequence=5)
    with pytest.raises(errors.ConditionFailed, match=r"'w' is at sequence 5.*to 4"):
        log.append(b"b", writer="w", sequence=4)
    assert log.tail() == 1


def test_writers_and_logs_are_numbered_apart(braid: Braid, log: Log) -> None:
    other = braid.create("events")
    assert log.append(b"a", writer="v", sequence=1) == 0
    assert log.append(b"b", writer="w", sequence=1) == 1
    assert other.append(b"c", writer="w", sequence=1) == 0


def test_sequences_are_remembered_across_restarts(site: Site) -> None:
    braid = site.open()
    braid.create("orders").append(b"a", writer="w", sequence=1)
    for _ in range(2):
        braid = site.reopen(braid)
        log = braid.log("orders")
        assert log.append(b"a", writer="w", sequence=1) == 0
        assert log.tail() == 1


def test_a_promotion_brings_the_sequences_of_the_fork_along(log: Log) -> None:
    log.append(b"a", writer="w", sequence=1)
    fork = log.cfork("trial", promotable=True)
    fork.append(b"b", writer="w", sequence=2)
    fork.promote()
    assert log.append(b"b", writer="w", sequence=2) == 1
    assert log.tail() == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"writer": "w"}, "sequence"),
        ({"sequence": 1}, "writer"),
        ({"writer": "", "sequence": 1}, "''"),
        ({"writer": "w", "sequence": -1}, "-1"),
        ({"writer": "w", "sequence": "1"}, "str"),
        ({"expected_tail": -1}, "-1"),
        ({"expected_tail": True}, "bool"),
        ({"ack": "never"}, "'never'"),
        ({"wait": -1}, "-1"),
        ({"wait": "soon"}, "str"),
        ({"timestamp": "now"}, "str"),
        ({"timestamp": 2**63}, str(2**63)),
        ({"key": "k"}, "str"),
        ({"headers": {"h": "v"}}, "str"),
        ({"headers": {1: b"v"}}, "1"),
        ({"headers": ["h"]}, "'h'"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(log: Log, arguments: dict[str, object], named: str) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        log.append(b"x", **arguments)  # type: ignore[arg-type]
    assert named in str(caught.value)
    assert log.tail() == 0


@pytest.mark.parametrize("value", ["text", None, 7, [b"x"]])
def test_a_value_must_be_bytes(log: Log, value: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=type(value).__name__):
        log.append(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [b"bytes", "text", Record(b"one"), 7, None])
def test_append_many_takes_several(log: Log, batch: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=type(batch).__name__):
        log.append_many(batch)  # type: ignore[arg-type]


# --- while a hold lasts --------------------------------------------------------------------------------------------


def test_a_held_log_takes_appends_and_withholds_their_positions(log: Log) -> None:
    log.append(b"before")
    fork = log.cfork("trial", promotable=True)
    assert log.append(b"hidden") is None
    assert log.append_many([b"hidden"] * 2) is None
    assert (log.tail(), log.info().tail) == (1, 4)
    assert fork.append(b"mine") == 4
    fork.squash()
    assert log.append(b"after") == 4


def test_a_repeated_sequence_tells_the_position_once_it_is_decided(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append_many(numbered(3))
    assert log.append(b"hidden", writer="w", sequence=1) is None
    assert log.append(b"hidden", writer="w", sequence=1) is None
    fork.promote()
    assert log.append(b"hidden", writer="w", sequence=1) == 3
    assert log.tail() == 4


def test_a_fork_below_a_hold_is_blocked_for_appends(log: Log) -> None:
    plain = log.cfork("plain")
    log.cfork("trial", promotable=True)
    for append in (lambda: plain.append(b"x"), lambda: plain.append_many([b"x"]), lambda: plain.submit(b"x").durable()):
        with pytest.raises(errors.Blocked, match=r"'plain'.*'orders'.*'trial'") as caught:
            append()
        assert caught.value.by == "orders"
    assert plain.info().own == 0


def test_a_repeated_sequence_is_answered_even_when_blocked(log: Log) -> None:
    plain = log.cfork("plain")
    assert plain.append(b"x", writer="w", sequence=1) == 0
    log.cfork("trial", promotable=True)
    assert plain.append(b"x", writer="w", sequence=1) == 0
    with pytest.raises(errors.Blocked):
        plain.append(b"y", writer="w", sequence=2)


def test_a_blocked_append_waits_for_the_decision(site: Site, braid: Braid, log: Log) -> None:
    plain = log.cfork("plain")
    trial = log.cfork("trial", promotable=True)
    trial.append(b"mine")
    waiting = site.meanwhile(braid, lambda: plain.append(b"x", wait=PATIENCE_S))
    assert not waiting.done()
    trial.promote()
    assert waiting.result(PATIENCE_S) == 1
    assert values(plain.read(0)) == [b"mine", b"x"]


def test_a_blocked_append_waits_no_longer_than_told(log: Log) -> None:
    plain = log.cfork("plain")
    log.cfork("trial", promotable=True)
    with pytest.raises(errors.Blocked):
        plain.append(b"x", wait=0.01)
    assert plain.info().own == 0


def test_a_waiting_append_ends_with_its_log(site: Site, braid: Braid, log: Log) -> None:
    plain = log.cfork("plain")
    log.cfork("trial", promotable=True)
    waiting = site.meanwhile(braid, lambda: plain.append(b"x", wait=PATIENCE_S))
    plain.squash()
    with pytest.raises(errors.Gone, match="'plain' was squashed"):
        waiting.result(PATIENCE_S)


# --- submitting ----------------------------------------------------------------------------------------------------


def test_a_ticket_tells_when_it_is_durable_and_where_it_stands(log: Log) -> None:
    tickets = [log.submit(value) for value in numbered(20)]
    for position, ticket in enumerate(tickets):
        ticket.durable(PATIENCE_S)
        assert ticket.done
        assert ticket.position(PATIENCE_S) == position
    assert values(log.read(0)) == numbered(20)


def test_submit_takes_a_value_a_record_and_a_batch(log: Log) -> None:
    assert log.submit(b"a", key=b"k", headers={"h": b"v"}, timestamp=1).position() == 0
    assert log.submit(Record(b"b", b"k", (), 2)).position() == 1
    assert log.submit([b"c", Record(b"d")], timestamp=3).position() == range(2, 4)
    assert log.read(0) == [
        Record(b"a", b"k", (("h", b"v"),), 1, 0),
        Record(b"b", b"k", (), 2, 1),
        Record(b"c", None, (), 3, 2),
        Record(b"d", None, (), 3, 3),
    ]


def test_a_ticket_is_not_done_before_it_is_durable(site: Site, braid: Braid, log: Log) -> None:
    with site.stalled(braid):
        ticket = log.submit(b"x")
        assert not ticket.done
        with pytest.raises(errors.Timeout, match=r"0\.01 s"):
            ticket.durable(0.01)
        with pytest.raises(errors.Timeout, match=r"0\.01 s"):
            ticket.position(0.01)
        assert log.tail() == 0
    assert ticket.position(PATIENCE_S) == 0


def test_a_failed_condition_is_told_by_the_ticket(log: Log) -> None:
    ticket = log.submit(b"x", expected_tail=7)
    with pytest.raises(errors.ConditionFailed, match="not at 7"):
        ticket.durable(PATIENCE_S)
    with pytest.raises(errors.ConditionFailed, match="not at 7"):
        ticket.position(PATIENCE_S)
    assert ticket.done
    assert log.tail() == 0


def test_a_submitted_sequence_is_idempotent_too(log: Log) -> None:
    assert log.submit(b"x", writer="w", sequence=1).position() == 0
    assert log.submit(b"x", writer="w", sequence=1).position() == 0
    assert log.tail() == 1


def test_a_ticket_waits_for_the_decision_of_a_hold(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append_many(numbered(3))
    ticket = log.submit([b"hidden"] * 2)
    ticket.durable(PATIENCE_S)
    with pytest.raises(errors.Timeout, match="withheld by a hold"):
        ticket.position(0.01)
    waiting = site.meanwhile(braid, lambda: ticket.position(PATIENCE_S))
    assert not waiting.done()
    fork.promote()
    assert waiting.result(PATIENCE_S) == range(3, 5)


def test_a_ticket_tells_when_its_log_ended_undecided(site: Site, braid: Braid, log: Log) -> None:
    middle = log.cfork("middle")
    middle.cfork("trial", promotable=True)
    ticket = middle.submit(b"hidden")
    waiting = site.meanwhile(braid, lambda: ticket.position(PATIENCE_S))
    middle.squash()
    with pytest.raises(errors.Gone, match="'middle'"):
        waiting.result(PATIENCE_S)


def test_a_ticket_does_not_wait_for_a_closed_braid(site: Site, braid: Braid, log: Log) -> None:
    log.cfork("trial", promotable=True)
    ticket = log.submit(b"hidden")
    waiting = site.meanwhile(braid, lambda: ticket.position(PATIENCE_S))
    braid.close()
    with pytest.raises(errors.Unavailable, match="closed"):
        waiting.result(PATIENCE_S)


def test_what_is_submitted_and_not_durable_is_bounded(site: Site, braid: Braid, log: Log) -> None:
    large = bytes(limits.RECORD_BYTES_MAX)
    fitting = limits.SUBMIT_OUTSTANDING_BYTES_MAX // len(large)
    with site.stalled(braid):
        tickets = [log.submit(large) for _ in range(fitting)]
        with pytest.raises(errors.Timeout, match=f"{limits.SUBMIT_OUTSTANDING_BYTES_MAX:,}"):
            log.submit(b"one more byte", timeout=0.01)
    for ticket in tickets:
        ticket.durable(PATIENCE_S)
    assert log.submit(b"room again", timeout=0.0).position() == fitting


@pytest.mark.parametrize("timeout", [-1, "soon"])
def test_a_timeout_is_a_number_of_seconds(log: Log, timeout: float) -> None:
    ticket = log.submit(b"x")
    for call in (ticket.durable, ticket.position, log.subscribe().poll, lambda late: log.submit(b"y", timeout=late)):
        with pytest.raises(errors.InvalidArgument, match="timeout"):
            call(timeout)


@pytest.mark.parametrize("batch", [[], 7, ["text"], "text"])
def test_nonsense_cannot_be_submitted(log: Log, batch: object) -> None:
    with pytest.raises(errors.InvalidArgument):
        log.submit(batch)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="key and headers"):
        log.submit([b"x"], key=b"k")
    with pytest.raises(errors.InvalidArgument, match="key and headers"):
        log.submit(Record(b"x"), headers={"h": b"v"})
    assert log.tail() == 0
