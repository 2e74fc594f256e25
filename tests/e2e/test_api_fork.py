"""The API contract: making forks, what they share, and how they end."""

from __future__ import annotations

import pytest

from braidlog import Ancestor, Braid, Log, errors
from tests.e2e.conformance import PATIENCE_S, Site, numbered, values

# --- cFork ---------------------------------------------------------------------------------------------------------


def test_a_cfork_shares_the_past_and_goes_on_receiving(log: Log) -> None:
    log.append(b"a")
    fork = log.cfork("trial")
    log.append(b"b")
    assert values(fork.read(0)) == [b"a", b"b"]


def test_what_is_written_on_a_cfork_stays_there_and_below(log: Log) -> None:
    fork = log.cfork("trial")
    below = fork.cfork("below")
    beside = log.cfork("beside")
    fork.append(b"mine")
    log.append(b"everybody's")
    assert values(fork.read(0)) == values(below.read(0)) == [b"mine", b"everybody's"]
    assert values(log.read(0)) == values(beside.read(0)) == [b"everybody's"]


def test_records_stand_in_a_cfork_in_the_order_in_which_they_came(log: Log) -> None:
    fork = log.cfork("trial")
    positions = [log.append(b"0"), fork.append(b"1"), log.append(b"2"), fork.append(b"3")]
    assert positions == [0, 1, 1, 3]
    assert values(fork.read(0)) == numbered(4)


def test_a_fork_without_a_name_gets_one_after_its_parent(braid: Braid, log: Log) -> None:
    live, severed = log.cfork(), log.sfork()
    assert live.name.startswith("orders.cfork-")
    assert severed.name.startswith("orders.sfork-")
    assert braid.log(live.name) == live
    long = braid.create("x" * 249).cfork()
    assert len(long.name) == 249


def test_a_cfork_is_made_at_the_tail_only(log: Log) -> None:
    with pytest.raises(TypeError):
        log.cfork("trial", at=0)  # type: ignore[call-arg]


def test_a_plain_cfork_of_a_held_log_is_born_blocked(log: Log) -> None:
    log.append(b"a")
    trial = log.cfork("trial", promotable=True)
    log.append(b"hidden")
    fork = log.cfork("plain")
    assert (fork.tail(), fork.info().tail, fork.info().limited_by) == (1, 2, "orders")
    with pytest.raises(errors.Blocked):
        fork.append(b"x")
    trial.squash()
    assert values(fork.read(0)) == [b"a", b"hidden"]
    assert fork.append(b"x") == 2


def test_a_held_log_may_have_more_promotable_forks(log: Log) -> None:
    first = log.cfork("first", promotable=True)
    log.append(b"a")
    second = log.cfork("second", promotable=True)
    assert (first.info().fork_point, second.info().fork_point) == (0, 1)
    assert values(second.read(0)) == [b"a"]


def test_a_promotable_fork_below_somebody_elses_hold_is_blocked(log: Log) -> None:
    plain = log.cfork("plain")
    trial = log.cfork("trial", promotable=True)
    with pytest.raises(errors.Blocked, match="'plain'") as caught:
        plain.cfork("nested", promotable=True)
    assert caught.value.by == "orders"
    trial.squash()
    assert plain.cfork("nested", promotable=True).info().promotable


def test_a_blocked_cfork_waits_for_the_decision(site: Site, braid: Braid, log: Log) -> None:
    plain = log.cfork("plain")
    trial = log.cfork("trial", promotable=True)
    waiting = site.meanwhile(braid, lambda: plain.cfork("nested", promotable=True, wait=PATIENCE_S))
    assert not waiting.done()
    trial.squash()
    assert waiting.result(PATIENCE_S).name == "nested"
    log.cfork("again", promotable=True)
    with pytest.raises(errors.Blocked):
        plain.cfork("too-late", promotable=True, wait=0.01)


def test_a_refused_fork_writes_nothing_however_often_it_is_tried(site: Site, braid: Braid, log: Log) -> None:
    plain = log.cfork("plain")
    log.cfork("trial", promotable=True)
    log.append(b"hidden")
    with site.stalled(braid):  # whatever had to be written would wait
        for refused in (lambda: plain.cfork(promotable=True), log.sfork, lambda: plain.append(b"x")):
            with pytest.raises(errors.Blocked):
                refused()


def test_forks_of_a_promotable_fork_are_not_blocked_by_its_hold(log: Log) -> None:
    log.append(b"a")
    trial = log.cfork("trial", promotable=True)
    trial.append(b"mine")
    below = trial.cfork("below")
    assert below.append(b"more") == 2
    assert values(below.read(0)) == [b"a", b"mine", b"more"]
    assert below.info().limited_by is None


# --- sFork ---------------------------------------------------------------------------------------------------------


def test_an_sfork_is_severed_in_both_directions(log: Log) -> None:
    log.append(b"a")
    fork = log.sfork("past")
    log.append(b"theirs")
    assert fork.append(b"mine") == 1
    assert values(fork.read(0)) == [b"a", b"mine"]
    assert values(log.read(0)) == [b"a", b"theirs"]


@pytest.mark.parametrize("at", range(6))
def test_an_sfork_shares_the_first_positions_ends_included(log: Log, at: int) -> None:
    log.append_many(numbered(5))
    fork = log.sfork(at=at)
    assert (fork.tail(), fork.info().fork_point) == (at, at)
    assert values(fork.read(0)) == numbered(at)
    assert fork.append(b"mine") == at


def test_an_sfork_begins_no_earlier_than_the_start(log: Log) -> None:
    log.append_many(numbered(5))
    log.trim(2)
    with pytest.raises(errors.Trimmed, match=r"'orders' starts at 2.*1") as caught:
        log.sfork(at=1)
    assert caught.value.start == 2
    empty = log.sfork(at=2)
    assert (empty.info().start, empty.tail()) == (2, 2)
    assert empty.append(b"mine") == 2


def test_an_sfork_ends_no_later_than_the_tail(log: Log) -> None:
    log.append_many(numbered(5))
    with pytest.raises(errors.OutOfRange, match=r"'orders' ends at 5.*6"):
        log.sfork(at=6)


@pytest.mark.parametrize("at", [-1, "1", 1.0, True])
def test_a_fork_point_is_a_position(log: Log, at: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="at must be"):
        log.sfork(at=at)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(8))
def test_an_sfork_freezes_any_prefix_of_a_mixed_cfork(log: Log, at: int) -> None:
    log.append_many(numbered(2))  # below: inherited
    fork = log.cfork("trial")
    for turn in range(2, 7):  # from here on: own and inherited in turn
        (fork if turn % 2 else log).append(b"%d" % turn)
    assert values(fork.read(0)) == numbered(7)
    severed = fork.sfork(at=at)
    log.append(b"later")
    fork.append(b"later")
    assert values(severed.read(0)) == numbered(at)
    fork.squash()
    assert values(severed.read(0)) == numbered(at)


def test_an_sfork_outlives_its_parent_and_whatever_it_was_made_of(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(3))
    fork = log.cfork("trial")
    fork.append_many(numbered(2, 3))
    severed = fork.sfork("past")
    fork.squash()
    site.pack(braid)
    site.pass_time(braid, 1000)
    site.pass_time(braid, 1000)
    assert values(severed.read(0)) == numbered(5)
    assert values(site.reopen(braid).log("past").read(0)) == numbered(5)


def test_now_is_blocked_only_while_a_hold_hides_the_true_tail(log: Log) -> None:
    log.append_many(numbered(2))
    trial = log.cfork("trial", promotable=True)
    assert values(log.sfork().read(0)) == numbered(2)
    log.append(b"hidden")
    with pytest.raises(errors.Blocked, match=r"'orders'.*3") as caught:
        log.sfork()
    assert caught.value.by == "orders"
    with pytest.raises(errors.Blocked):
        log.sfork(at=3)
    assert values(log.sfork(at=2).read(0)) == numbered(2)
    trial.squash()
    assert values(log.sfork().read(0)) == [*numbered(2), b"hidden"]


def test_a_blocked_sfork_waits_for_the_decision(site: Site, braid: Braid, log: Log) -> None:
    trial = log.cfork("trial", promotable=True)
    trial.append(b"mine")
    log.append(b"hidden")
    waiting = site.meanwhile(braid, lambda: log.sfork(wait=PATIENCE_S))
    assert not waiting.done()
    trial.promote()
    assert values(waiting.result(PATIENCE_S).read(0)) == [b"mine", b"hidden"]


def test_forks_of_forks_of_forks(log: Log) -> None:
    chain = [log]
    for turn in range(100):
        chain.append(chain[-1].sfork() if turn % 10 == 9 else chain[-1].cfork())
        chain[-1].append(b"%d" % turn)
    assert values(chain[-1].read(0)) == numbered(100)
    assert chain[-1].info().own == 1


# --- squash --------------------------------------------------------------------------------------------------------


def test_squash_ends_the_fork_and_the_live_forks_below(braid: Braid, log: Log) -> None:
    fork = log.cfork("trial")
    below = fork.cfork("below")
    fork.squash()
    assert list(braid.logs()) == [log]
    for ended in (fork, below):
        with pytest.raises(errors.Gone, match=f"'{ended.name}' was squashed") as caught:
            ended.append(b"x")
        assert caught.value.end == "squashed"
    with pytest.raises(errors.Gone):
        fork.squash()
    with pytest.raises(errors.Gone):
        fork.promote()


def test_severed_forks_survive_a_squash(log: Log) -> None:
    fork = log.cfork("trial")
    fork.append(b"mine")
    severed = fork.sfork("past")
    fork.squash()
    assert values(severed.read(0)) == [b"mine"]


def test_squash_with_cascade_ends_severed_forks_too(braid: Braid, log: Log) -> None:
    fork = log.cfork("trial")
    fork.cfork("below").sfork("severed").cfork("below-severed").sfork("severed-again")
    log.sfork("apart")
    fork.squash(cascade_severed=True)
    assert [found.name for found in braid.logs()] == ["orders", "apart"]


def test_an_sfork_can_be_squashed(braid: Braid, log: Log) -> None:
    log.sfork("past").squash()
    assert "past" not in braid


def test_a_root_cannot_be_squashed(log: Log) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"'orders' is a root.*drop"):
        log.squash()
    assert log.tail() == 0


def test_squashing_the_last_promotable_fork_lifts_the_hold(log: Log) -> None:
    log.append(b"a")
    first, second = log.cfork(promotable=True), log.cfork(promotable=True)
    log.append(b"hidden")
    first.squash()
    assert log.tail() == 1
    second.squash()
    assert values(log.read(0)) == [b"a", b"hidden"]


# --- diff and lineage ----------------------------------------------------------------------------------------------


def test_diff_tells_own_records_from_the_parents_between_them(log: Log) -> None:
    log.append_many(numbered(2))
    fork = log.cfork("trial")
    fork.append(b"own-2")
    log.append(b"theirs-3")
    fork.append_many([b"own-4", b"own-5"])
    diff = fork.diff()
    assert (diff.log, diff.fork_point, diff.truncated, len(diff)) == ("trial", 2, False, 4)
    assert [(entry.record.position, entry.record.value, entry.own) for entry in diff] == [
        (2, b"own-2", True),
        (3, b"theirs-3", False),
        (4, b"own-4", True),
        (5, b"own-5", True),
    ]
    assert values(diff.own) == [b"own-2", b"own-4", b"own-5"]
    assert values(diff.inherited) == [b"theirs-3"]


def test_diff_of_a_single_record_knows_whose_it_is(log: Log) -> None:
    fork = log.cfork("trial")
    log.append(b"theirs")
    assert [entry.own for entry in fork.diff()] == [False]
    other = log.cfork("other")
    other.append(b"mine")
    assert [entry.own for entry in other.diff()] == [True]


def test_diff_of_an_sfork_is_all_its_own(log: Log) -> None:
    log.append_many(numbered(3))
    fork = log.sfork(at=1)
    assert fork.diff().entries == []
    fork.append_many([b"x", b"y"])
    log.append(b"theirs")
    assert values(fork.diff().own) == [b"x", b"y"]
    assert fork.diff().inherited == []


def test_diff_can_be_cut_and_says_so(log: Log) -> None:
    fork = log.cfork("trial")
    fork.append_many(numbered(5))
    assert (values(fork.diff(max_records=2).own), fork.diff(max_records=2).truncated) == (numbered(2), True)
    assert not fork.diff(max_records=5).truncated
    with pytest.raises(errors.InvalidArgument, match="max_records"):
        fork.diff(max_records=0)


def test_diff_can_be_gone_on_with_from_a_position(log: Log) -> None:
    log.append_many(numbered(2))
    fork = log.cfork("trial")
    for n in range(3):
        fork.append(b"own %d" % n)
        log.append(b"theirs")
    rest = fork.diff(start=4)
    assert [(entry.record.position, entry.own) for entry in rest] == [(4, True), (5, False), (6, True), (7, False)]
    assert (rest.fork_point, rest.truncated) == (2, False)
    assert [entry.record.position for entry in fork.diff(start=4, max_records=1)] == [4]
    assert fork.diff(start=0) == fork.diff()  # what both have is no difference
    assert fork.diff(start=8).entries == fork.diff(start=100).entries == []
    with pytest.raises(errors.InvalidArgument, match="start"):
        fork.diff(start=-1)


def test_a_root_differs_from_nothing(log: Log) -> None:
    with pytest.raises(errors.InvalidArgument, match="'orders' is a root"):
        log.diff()


def test_lineage_leads_from_the_log_to_its_root(log: Log) -> None:
    log.append_many(numbered(2))
    fork = log.cfork("trial")
    fork.append(b"mine")
    severed = fork.sfork("past", at=1)
    below = severed.cfork("below")
    assert below.lineage() == [
        Ancestor(name="below", id=below.id, kind="cfork", fork_point=None, living=True),
        Ancestor(name="past", id=severed.id, kind="sfork", fork_point=1, living=True),
        Ancestor(name="trial", id=fork.id, kind="cfork", fork_point=1, living=True),
        Ancestor(name="orders", id=log.id, kind="root", fork_point=2, living=True),
    ]


def test_lineage_remembers_who_is_gone(log: Log) -> None:
    fork = log.cfork("trial")
    severed = fork.sfork("past")
    fork.squash()
    assert severed.info().parent == "trial"
    assert [(step.name, step.living) for step in severed.lineage()] == [("past", True), ("trial", False)]
