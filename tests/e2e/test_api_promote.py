"""The API contract: deciding on promotable forks."""

from __future__ import annotations

import pytest

from braidlog import Braid, Log, errors
from tests.e2e.conformance import Site, numbered, values


def test_a_promoted_fork_becomes_its_parent(braid: Braid, log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"b")
    log.append(b"c")
    fork.append(b"d")
    seen = fork.read(0)
    assert fork.promote() is True
    assert log.read(0) == seen
    assert values(seen) == [b"a", b"b", b"c", b"d"]
    info = log.info()
    assert (info.tail, info.readable_tail, info.limited_by, info.own, info.epoch) == (4, 4, None, 4, 1)
    assert list(braid.logs()) == [log]


def test_a_promoted_handle_says_where_its_records_are(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.promote()
    for use in (fork.tail, fork.info, fork.lineage, fork.renew):
        with pytest.raises(errors.Gone, match="'trial' was promoted into 'orders'") as caught:
            use()
        assert caught.value.end == "promoted"


def test_a_promotion_survives_a_restart(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"mine")
    log.append(b"hidden")
    fork.promote()
    braid = site.reopen(braid)
    assert values(braid.log("orders").read(0)) == [b"mine", b"hidden"]
    assert "trial" not in braid


def test_a_fork_without_records_may_be_promoted(log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial", promotable=True)
    log.append(b"hidden")
    assert fork.promote(expected_own=0)
    assert values(log.read(0)) == [b"a", b"hidden"]


# --- guards --------------------------------------------------------------------------------------------------------


def test_a_fork_is_promoted_into_the_parent_that_is_meant_or_not_at_all(log: Log) -> None:
    middle = log.cfork("middle", promotable=True)
    fork = middle.cfork("trial", promotable=True)
    fork.append(b"mine")
    assert middle.promote()  # the fork goes on as one of the log
    with pytest.raises(errors.ConditionFailed, match="promoted into"):
        fork.promote(expected_own=1, into=middle)
    assert values(log.read(0)) == []
    assert fork.promote(expected_own=1, into=log)
    assert values(log.read(0)) == [b"mine"]


def test_expected_own_guards_the_forks_own_records_only(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append_many(numbered(2))
    log.append(b"hidden")
    fork.append(b"not validated")
    assert fork.promote(expected_own=2) is False
    assert (fork.tail(), log.tail()) == (4, 0)
    log.append(b"the parent's may still arrive")
    assert fork.promote(expected_own=3) is True
    assert log.tail() == 5


def test_expected_tail_guards_all_records(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append(b"mine")
    log.append(b"arrived meanwhile")
    assert fork.promote(expected_tail=1) is False
    assert fork.promote(expected_own=1, expected_tail=1) is False
    assert fork.promote(expected_own=1, expected_tail=2) is True


def test_a_failed_guard_leaves_the_fork_intact(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    assert fork.promote(expected_own=1) is False
    assert fork.append(b"mine") == 0
    assert fork.promote(expected_own=1) is True


@pytest.mark.parametrize("guard", ["expected_own", "expected_tail"])
@pytest.mark.parametrize("value", [-1, "1", 1.5])
def test_a_guard_is_a_count(log: Log, guard: str, value: object) -> None:
    fork = log.cfork("trial", promotable=True)
    with pytest.raises(errors.InvalidArgument, match=guard):
        fork.promote(**{guard: value})  # type: ignore[arg-type]


# --- who may be promoted -------------------------------------------------------------------------------------------


def test_only_promotable_cforks_can_be_promoted(log: Log) -> None:
    for other in (log, log.cfork("plain"), log.sfork("past")):
        with pytest.raises(errors.NotPromotable, match=f"'{other.name}'.*promotable=True"):
            other.promote()
        assert other.tail() == 0


def test_the_first_promotion_wins_and_the_others_are_gone(braid: Braid, log: Log) -> None:
    first, second = log.cfork("first", promotable=True), log.cfork("second", promotable=True)
    below = second.cfork("below")
    first.append(b"first")
    second.append(b"second")
    kept = second.sfork("kept")
    assert first.promote() is True
    assert second.promote() is False
    for lost in (second, below):
        with pytest.raises(errors.Gone, match=f"'{lost.name}' was lost") as caught:
            lost.append(b"x")
        assert caught.value.end == "lost"
    assert values(log.read(0)) == [b"first"]
    assert values(kept.read(0)) == [b"second"]
    assert list(braid.logs()) == [log, kept]


def test_an_earlier_fork_may_win_over_a_later_one(log: Log) -> None:
    early = log.cfork("early", promotable=True)
    log.append(b"a")
    late = log.cfork("late", promotable=True)
    log.append(b"b")
    late.append(b"late")
    assert early.append(b"early") == 2
    assert early.promote() is True
    assert values(log.read(0)) == [b"a", b"b", b"early"]


# --- what a promotion does to the others ---------------------------------------------------------------------------


def test_plain_siblings_inherit_the_promoted_order(log: Log) -> None:
    log.append(b"a")
    sibling = log.cfork("sibling")
    sibling.append(b"own")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"mine")
    log.append(b"hidden")
    before = sibling.read(0)
    fork.promote()
    assert sibling.read(0, 2) == before
    assert values(sibling.read(0)) == [b"a", b"own", b"mine", b"hidden"]


def test_children_of_a_promoted_fork_become_the_parents(log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append(b"mine")
    child = fork.cfork("child")
    child.append(b"childs")
    fork.promote()
    assert child.info().parent == "orders"
    log.append(b"later")
    assert values(child.read(0)) == [b"mine", b"childs", b"later"]


def test_nested_promotable_forks_decide_in_either_order(log: Log) -> None:
    outer = log.cfork("outer", promotable=True)
    outer.append(b"o")
    inner = outer.cfork("inner", promotable=True)
    inner.append(b"i")
    assert outer.append(b"hidden") is None
    assert outer.promote()
    assert (log.tail(), log.info().tail, inner.info().parent) == (1, 2, "orders")
    assert inner.promote()
    assert values(log.read(0)) == [b"o", b"i", b"hidden"]


def test_severed_forks_of_the_parent_keep_what_they_had(log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"mine")
    severed = fork.sfork("severed")
    below = log.sfork("below", at=1)
    log.append(b"hidden")
    fork.promote()
    assert values(severed.read(0)) == [b"a", b"mine"]
    assert values(below.read(0)) == [b"a"]


def test_a_promotion_into_a_fork_leaves_the_root_alone(log: Log) -> None:
    log.append(b"a")
    middle = log.cfork("middle")
    middle.append(b"m")
    trial = middle.cfork("trial", promotable=True)
    trial.append(b"t")
    log.append(b"b")
    trial.promote()
    assert values(middle.read(0)) == [b"a", b"m", b"t", b"b"]
    assert values(log.read(0)) == [b"a", b"b"]


def test_what_was_read_never_changes(log: Log) -> None:
    log.append_many(numbered(3))
    fork = log.cfork("trial", promotable=True)
    log.append(b"hidden")
    fork.append(b"mine")
    of_log, of_fork = log.read(0), fork.read(0)
    fork.promote()
    assert log.read(0, 3) == of_log
    assert log.read(0, 5) == of_fork
