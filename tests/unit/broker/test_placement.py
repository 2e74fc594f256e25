"""Where logs are served: forks never beside roots, forks of one parent together, and little moves when brokers do."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.broker.pace import Pace
from braidlog.broker.placement import dedicate, place, pools

FIVE = [f"broker-{number}" for number in range(5)]


@pytest.mark.parametrize("count", range(2, 9))
def test_roots_and_forks_are_never_served_by_the_same_broker(count: int) -> None:
    brokers = [f"broker-{number}" for number in range(count)]
    roots = {place(brokers, root, None, root, {}) for root in range(500)}
    forks = {place(brokers, root, root, 1000 + root, {}) for root in range(500)}
    assert not roots & forks
    assert roots | forks <= set(brokers)


def test_a_lone_broker_serves_everything_and_none_serves_nothing() -> None:
    assert place(["only"], 1, None, 1, {}) == place(["only"], 1, 1, 2, {}) == "only"
    assert place([], 1, None, 1, {}) is None
    assert dedicate(["only"], 2, {}) is None


def test_forks_of_one_parent_share_a_broker() -> None:
    assert len({place(FIVE * 1, 7, 7, fork, {}) for fork in range(100)}) == 1


def test_forks_of_many_parents_are_spread() -> None:
    brokers = [f"broker-{number}" for number in range(9)]
    _, for_forks = pools(brokers)
    assert {place(brokers, parent, parent, 1000 + parent, {}) for parent in range(200)} == set(for_forks)


def test_a_fork_with_a_broker_of_its_own_shares_it_with_nobody() -> None:
    brokers = [f"broker-{number}" for number in range(9)]
    own = dedicate(brokers, 5077, {})
    assert own is not None
    dedicated = {5077: own}
    assert place(brokers, 1, 1, 5077, dedicated) == own
    assert own not in {place(brokers, parent, parent, 1000 + parent, dedicated) for parent in range(200)}
    assert own not in {place(brokers, root, None, root, dedicated) for root in range(200)}


def test_the_last_broker_for_forks_is_not_given_away() -> None:
    assert dedicate(["broker-0", "broker-1", "broker-2"], 77, {}) is None


def test_who_had_a_broker_that_is_gone_is_placed_like_any_other() -> None:
    assert place(FIVE, 1, 1, 77, {77: "broker-9"}) in FIVE


def test_when_a_broker_goes_only_what_it_served_moves() -> None:
    brokers = [f"broker-{number}" for number in range(6)]
    before = {root: place(brokers, root, None, root, {}) for root in range(300)}
    left = [name for name in brokers if name != "broker-0"]
    # The pools are cut anew, so one broker may change sides and take its share; nothing else moves.
    changed = set(pools(brokers)[0]) ^ set(pools(left)[0])
    after = {root: place(left, root, None, root, {}) for root in range(300)}
    assert all(after[root] == before[root] or {after[root], before[root]} & changed for root in before)


# --- how fast forks may be written ---------------------------------------------------------------------------------


ONE, OTHER = b"client-1", b"client-2"


def test_what_is_within_the_burst_is_not_slowed() -> None:
    pace = Pace(100, 1000)
    assert [pace.take(1, ONE, 100, 0.0) for _ in range(10)] == [0.0] * 10
    assert pace.take(1, ONE, 100, 0.0) == pytest.approx(1.0)
    assert pace.take(1, ONE, 50, 1.0) == pytest.approx(0.5)  # the second paid the debt, and this is a new one


def test_trees_do_not_slow_each_other() -> None:
    pace = Pace(100, 100)
    assert pace.take(1, ONE, 1000, 0.0) > 0
    assert pace.take(2, ONE, 100, 0.0) == 0


@pytest.mark.parametrize("writers", [1, 2, 5])
def test_over_time_no_more_than_the_rate_gets_through(writers: int) -> None:
    pace = Pace(1000, 1000)
    free = {b"client%02d" % number: 0.0 for number in range(writers)}  # when each may write again
    taken, now = 0, 0.0
    while now < 10:
        client = min(free, key=lambda one: free[one])
        now = max(now, free[client])
        taken += 100
        free[client] = now + pace.take(1, client, 100, now) + 0.001
    assert taken <= 1000 + 1000 * 10 + 200 * writers


def test_whoever_wrote_little_does_not_wait_for_what_others_wrote() -> None:
    pace = Pace(1000, 1000)
    for tenth in range(100):
        assert pace.take(1, ONE, 1000, tenth / 10) <= limits.FORK_PAUSE_MAX_S
        assert pace.take(1, OTHER, 1, tenth / 10) <= 0.01
    assert pace.take(1, ONE, 1000, 10.0) == limits.FORK_PAUSE_MAX_S
    assert pace.take(1, OTHER, 100, 10.0) == pytest.approx(0.2, abs=0.02)


def test_no_pause_lasts_until_a_server_is_taken_for_dead_and_no_debt_for_longer() -> None:
    assert limits.FORK_PAUSE_MAX_S < limits.PING_S
    pace = Pace(100, 100)
    assert pace.take(1, ONE, 1_000_000, 0.0) == limits.FORK_PAUSE_MAX_S
    assert pace.take(1, ONE, 10, limits.FORK_PAUSE_MAX_S) == pytest.approx(0.1)


def test_only_so_many_trees_and_writers_are_remembered() -> None:
    pace = Pace(1, 1, trees=10, writers=20)
    for number in range(100):
        pace.take(number, b"%08d" % number, 1, 0.0)
    assert len(pace._buckets) == 10
    assert (len(pace._own), sum(pace._writers.values()), len(pace._writers)) == (20, 20, 20)
    pace.take(1, ONE, 1, 100.0)
    assert list(pace._own) == [(1, ONE)]
    assert pace._writers == {1: 1}
