"""The API contract: leases, times to live, and retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from braidlog import Braid, Log, Record, Retention, errors, limits
from tests.e2e.conformance import Site, numbered, values


def now(site: Site) -> datetime:
    return datetime.fromtimestamp(site.clock.now_us() / 1e6, UTC)


# --- leases --------------------------------------------------------------------------------------------------------


def test_an_undecided_fork_is_squashed_when_its_lease_is_over(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True, lease=10)
    log.append(b"hidden")
    site.pass_time(braid, 9.9)
    assert fork.info().lease_expires == now(site) + timedelta(seconds=0.1)
    assert log.tail() == 0
    site.pass_time(braid, 0.1)
    with pytest.raises(errors.Gone, match="'trial' was expired") as caught:
        fork.append(b"x")
    assert caught.value.end == "expired"
    assert values(log.read(0)) == [b"hidden"]


def test_renewing_begins_the_lease_anew(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True, lease=10)
    for _ in range(3):
        site.pass_time(braid, 9)
        fork.renew()
        assert fork.info().lease_expires == now(site) + timedelta(seconds=10)
    site.pass_time(braid, 11)
    with pytest.raises(errors.Gone):
        fork.renew()


def test_the_lease_is_300_seconds_unless_told_otherwise(site: Site, log: Log) -> None:
    fork = log.cfork(promotable=True)
    assert fork.info().lease_expires == now(site) + timedelta(seconds=300)
    assert limits.LEASE_DEFAULT_S == 300.0


def test_a_lease_may_be_none_and_then_lasts(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True, lease=None)
    assert fork.info().lease_expires is None
    site.pass_time(braid, 10**6)
    assert fork.promote()


def test_only_promotable_forks_have_a_lease(log: Log) -> None:
    assert log.cfork(lease=10).info().lease_expires is None


def test_there_must_be_something_to_renew(log: Log) -> None:
    for other in (log, log.cfork("plain"), log.sfork("past")):
        with pytest.raises(errors.InvalidArgument, match=f"'{other.name}'.*nothing to renew"):
            other.renew()


# --- times to live -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", [10, 10.0, timedelta(seconds=10)])
def test_a_fork_is_squashed_when_its_time_to_live_is_over(
    site: Site, braid: Braid, log: Log, ttl: float | timedelta
) -> None:
    forks = [log.cfork("live", ttl=ttl), log.sfork("severed", ttl=ttl), log.cfork("trial", promotable=True, ttl=ttl)]
    assert {fork.info().expires for fork in forks} == {now(site) + timedelta(seconds=10)}
    site.pass_time(braid, 9.9)
    assert len(list(braid.logs())) == 4
    site.pass_time(braid, 0.1)
    assert list(braid.logs()) == [log]


def test_expiry_takes_the_live_forks_below_and_spares_the_severed(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", ttl=10)
    fork.cfork("below")
    fork.sfork("severed")
    site.pass_time(braid, 11)
    assert [found.name for found in braid.logs()] == ["orders", "severed"]


def test_renewing_begins_the_time_to_live_anew(site: Site, braid: Braid, log: Log) -> None:
    fork = log.sfork("past", ttl=10)
    site.pass_time(braid, 9)
    fork.renew()
    site.pass_time(braid, 9)
    assert fork.info().expires == now(site) + timedelta(seconds=1)


def test_overdue_forks_are_squashed_on_open(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    log.cfork("by-ttl", ttl=10)
    log.cfork("by-lease", promotable=True, lease=10)
    log.cfork("later", ttl=100)
    log.append(b"hidden")
    braid.close()
    site.clock.advance(11)
    braid = site.open()
    assert [found.name for found in braid.logs()] == ["orders", "later"]
    assert values(braid.log("orders").read(0)) == [b"hidden"]


@pytest.mark.parametrize("argument", ["ttl", "lease"])
@pytest.mark.parametrize("value", [-1, "10", float("nan"), float("inf"), True])
def test_a_time_is_a_number_of_seconds(log: Log, argument: str, value: object) -> None:
    with pytest.raises(errors.InvalidArgument, match=argument):
        log.cfork(promotable=True, **{argument: value})  # type: ignore[arg-type]


# --- retention -----------------------------------------------------------------------------------------------------


def test_retention_by_age_forgets_what_is_older(site: Site, braid: Braid) -> None:
    log = braid.create("orders", retention=Retention(max_age=60))
    log.append_many(numbered(2))
    site.pass_time(braid, 30)
    log.append_many(numbered(2, 2))
    site.pass_time(braid, 31)
    assert values(log[:]) == numbered(2, 2)
    assert log.info().start == 2
    site.pass_time(braid, 60)
    assert (log.info().start, log.tail()) == (4, 4)
    assert log.append(b"x") == 4


def test_retention_by_bytes_forgets_the_oldest(site: Site, braid: Braid) -> None:
    log = braid.create("orders", retention=Retention(max_bytes=30))
    for value in (b"a", b"b", b"c", b"d", b"e"):
        log.append(value * 10)
    site.tend(braid)
    assert values(log[:]) == [b"c" * 10, b"d" * 10, b"e" * 10]


def test_retention_does_not_reach_behind_a_hold(site: Site, braid: Braid) -> None:
    log = braid.create("orders", retention=Retention(max_age=60))
    log.append(b"a")
    log.cfork("trial", promotable=True, lease=None)
    log.append(b"hidden")
    site.pass_time(braid, 100)
    assert (log.info().start, log.tail(), log.info().tail) == (1, 1, 2)


def test_forks_keep_what_retention_took_from_their_parent(site: Site, braid: Braid) -> None:
    log = braid.create("orders", retention=Retention(max_age=60))
    log.append_many(numbered(3))
    fork = log.cfork("trial")
    site.pass_time(braid, 100)
    site.pass_time(braid, 100)
    assert log.info().start == 3
    assert values(fork.read(0)) == numbered(3)


def test_retention_goes_by_the_timestamps_of_the_records(site: Site, braid: Braid) -> None:
    log = braid.create("orders", retention=Retention(max_age=60))
    log.append_many([Record(b"old", timestamp=1)])
    log.append(b"new")
    site.tend(braid)
    assert values(log[:]) == [b"new"]


@pytest.mark.parametrize(
    ("retention", "named"),
    [
        (Retention(max_age=-1), "retention.max_age"),
        (Retention(max_bytes=-1), "retention.max_bytes"),
        (60, "int"),
    ],
)
def test_a_retention_is_checked(braid: Braid, retention: Retention, named: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=named):
        braid.create("orders", retention=retention)
    assert "orders" not in braid
