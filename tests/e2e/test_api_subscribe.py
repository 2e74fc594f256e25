"""The API contract: following a log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from braidlog import Braid, EndOfLog, Log, Record, Subscription, errors, limits
from tests.e2e.conformance import PATIENCE_S, Site, numbered, values


def take(subscription: Subscription, count: int) -> list[bytes]:
    return [next(subscription).value for _ in range(count)]


# --- where it starts -----------------------------------------------------------------------------------------------


def test_it_starts_at_a_position(log: Log) -> None:
    log.append_many(numbered(5))
    assert values(log.subscribe(follow=False)) == numbered(5)
    assert values(log.subscribe(3, follow=False)) == numbered(2, 3)


def test_it_starts_at_the_tail(log: Log) -> None:
    log.append_many(numbered(3))
    subscription = log.subscribe("tail")
    assert subscription.position == 3
    log.append(b"new")
    assert take(subscription, 1) == [b"new"]


def test_it_starts_at_a_moment(log: Log) -> None:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    log.append_many([Record(b"%d" % n, timestamp=1704067200_000000 + n * 1_000_000) for n in range(5)])
    assert values(log.subscribe(begin + timedelta(seconds=3), follow=False)) == [b"3", b"4"]
    assert log.subscribe(begin + timedelta(days=1)).position == 5


def test_a_later_one_finds_what_an_earlier_one_found(log: Log) -> None:
    log.append_many(numbered(3))
    for _ in range(3):
        with log.subscribe() as subscription:
            assert values(subscription.poll(PATIENCE_S)) == numbered(3)
            assert subscription.poll(0.01) == []


def test_zero_is_the_beginning_wherever_that_is(log: Log) -> None:
    log.append_many(numbered(5))
    log.trim(2)
    assert values(log.subscribe(0, follow=False)) == numbered(3, 2)
    with pytest.raises(errors.Trimmed, match="1"):
        log.subscribe(1)


def test_it_cannot_start_where_nothing_can_be_read(log: Log) -> None:
    log.append(b"x")
    assert log.subscribe(1).position == 1
    with pytest.raises(errors.OutOfRange, match="2"):
        log.subscribe(2)


@pytest.mark.parametrize("start", ["head", -1, 1.5, None])
def test_nonsense_is_no_start(log: Log, start: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="start"):
        log.subscribe(start)  # type: ignore[arg-type]


# --- how it goes on ------------------------------------------------------------------------------------------------


def test_it_waits_for_what_comes(site: Site, braid: Braid, log: Log) -> None:
    subscription = log.subscribe()
    waiting = site.meanwhile(braid, lambda: next(subscription))
    assert not waiting.done()
    log.append(b"x")
    assert waiting.result(PATIENCE_S).value == b"x"
    assert (subscription.position, subscription.end) == (1, None)


def test_it_pauses_at_a_hold_and_goes_on_after_the_decision(site: Site, braid: Braid, log: Log) -> None:
    log.append(b"before")
    fork = log.cfork("trial", promotable=True)
    log.append(b"hidden")
    fork.append(b"mine")
    subscription = log.subscribe()
    assert take(subscription, 1) == [b"before"]
    assert subscription.poll(0.01) == []
    assert subscription.end is None
    waiting = site.meanwhile(braid, lambda: take(subscription, 2))
    assert not waiting.done()
    fork.promote()
    assert waiting.result(PATIENCE_S) == [b"hidden", b"mine"]


def test_it_may_start_at_what_a_hold_hides(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    log.append_many([b"a", b"b"])
    subscriptions = [log.subscribe(), log.subscribe(1), log.subscribe("tail"), log.subscribe(2)]
    assert [subscription.poll() for subscription in subscriptions] == [[], [], [], []]
    fork.squash()
    first, second, third, last = subscriptions
    assert [values(found.poll(PATIENCE_S)) for found in (first, second, third)] == [[b"a", b"b"], [b"b"], [b"a", b"b"]]
    assert last.poll() == []


def test_a_fork_is_followed_with_what_its_parent_gets(log: Log) -> None:
    fork = log.cfork("trial")
    subscription = fork.subscribe()
    log.append(b"a")
    fork.append(b"b")
    log.append(b"c")
    assert take(subscription, 3) == [b"a", b"b", b"c"]


def test_it_fetches_a_bounded_number_ahead(log: Log) -> None:
    count = 2 * limits.SUBSCRIBE_FETCH_RECORDS + 1
    log.append_many(numbered(count))
    subscription = log.subscribe(follow=False)
    assert len(subscription.poll()) == limits.SUBSCRIBE_FETCH_RECORDS
    assert values(subscription) == numbered(count - limits.SUBSCRIBE_FETCH_RECORDS, limits.SUBSCRIBE_FETCH_RECORDS)


def test_poll_takes_what_came_and_does_not_wait_longer_than_told(site: Site, braid: Braid, log: Log) -> None:
    subscription = log.subscribe()
    assert subscription.poll() == []
    log.append_many(numbered(3))
    assert values(subscription.poll()) == numbered(3)
    assert subscription.poll(0.01) == []
    waiting = site.meanwhile(braid, lambda: subscription.poll(PATIENCE_S))
    log.append(b"x")
    assert values(waiting.result(PATIENCE_S)) == [b"x"]


def test_position_is_that_of_the_record_that_comes_next(log: Log) -> None:
    log.append_many(numbered(3))
    subscription = log.subscribe()
    assert subscription.position == 0
    next(subscription)
    assert subscription.position == 1


# --- why it ends ---------------------------------------------------------------------------------------------------


def test_without_follow_it_ends_where_nothing_more_can_be_read(log: Log) -> None:
    log.append_many(numbered(2))
    subscription = log.subscribe(follow=False)
    assert values(subscription) == numbered(2)
    assert subscription.end == EndOfLog("caught up", 2)
    assert list(subscription) == []


def test_without_follow_it_says_when_a_hold_ended_it(log: Log) -> None:
    log.append_many(numbered(2))
    log.cfork(promotable=True)
    log.append(b"hidden")
    subscription = log.subscribe(follow=False)
    assert values(subscription) == numbered(2)
    assert subscription.end == EndOfLog("held", 2)


def test_it_ends_with_a_squash(site: Site, braid: Braid, log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial")
    subscription = fork.subscribe()
    assert take(subscription, 1) == [b"a"]
    waiting = site.meanwhile(braid, lambda: list(subscription))
    fork.squash()
    assert waiting.result(PATIENCE_S) == []
    assert subscription.end == EndOfLog("squashed", 1)


def test_after_a_promotion_it_goes_on_in_the_parent_at_the_same_position(braid: Braid, log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"b")
    log.append(b"c")
    subscription = fork.subscribe()
    read = take(subscription, 2)
    fork.promote()
    read += values(subscription)
    log.append(b"d")
    end = subscription.end
    assert end is not None
    assert (end.reason, end.into) == ("promoted", "orders")
    assert end.position == len(read)
    read += values(braid.log(end.into or "").subscribe(end.position, follow=False))
    assert read == values(log.read(0)) == [b"a", b"b", b"c", b"d"]


def test_after_nested_promotions_it_goes_on_in_what_is_left(log: Log) -> None:
    outer = log.cfork("outer", promotable=True)
    inner = outer.cfork("inner", promotable=True)
    inner.append(b"x")
    subscription = inner.subscribe()
    assert take(subscription, 1) == [b"x"]
    inner.promote()
    outer.promote()
    assert list(subscription) == []
    assert subscription.end == EndOfLog("promoted", 1, "orders")


def test_it_ends_when_a_sibling_was_promoted(log: Log) -> None:
    loser, winner = log.cfork("loser", promotable=True), log.cfork("winner", promotable=True)
    subscription = loser.subscribe()
    winner.promote()
    assert list(subscription) == []
    assert subscription.end == EndOfLog("lost", 0)


def test_it_ends_when_its_time_ran_out(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", ttl=10)
    subscription = fork.subscribe()
    site.pass_time(braid, 11)
    assert list(subscription) == []
    assert subscription.end == EndOfLog("expired", 0)


def test_it_ends_with_a_drop(braid: Braid, log: Log) -> None:
    subscription = log.subscribe()
    braid.drop("orders")
    assert list(subscription) == []
    assert subscription.end == EndOfLog("dropped", 0)


def test_it_ends_when_what_comes_next_was_trimmed(log: Log) -> None:
    log.append_many(numbered(3))
    subscription = log.subscribe()
    log.trim(2)
    assert list(subscription) == []
    assert subscription.end == EndOfLog("trimmed", 0)


def test_it_ends_when_it_is_closed(log: Log) -> None:
    with log.subscribe() as subscription:
        log.append(b"x")
        assert take(subscription, 1) == [b"x"]
    assert list(subscription) == []
    assert subscription.end == EndOfLog("closed", 1)


def test_it_ends_when_the_braid_is_closed(site: Site, braid: Braid, log: Log) -> None:
    subscription = log.subscribe()
    waiting = site.meanwhile(braid, lambda: list(subscription))
    braid.close()
    assert waiting.result(PATIENCE_S) == []
    assert subscription.end == EndOfLog("closed", 0)


def test_records_fetched_ahead_come_before_the_end(log: Log) -> None:
    fork = log.cfork("trial")
    fork.append_many(numbered(3))
    subscription = fork.subscribe()
    next(subscription)
    fork.squash()
    assert subscription.end is None
    assert values(subscription) == numbered(2, 1)
    assert subscription.end == EndOfLog("squashed", 3)
