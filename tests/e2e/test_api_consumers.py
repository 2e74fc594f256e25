"""The API contract: consumers, who find again how far they got."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import braidlog
from braidlog import Braid, Log, aio, errors, limits
from tests.e2e.conformance import PATIENCE_S, Site, numbered, values


def positions(log: Log) -> dict[str, int]:
    return {consumer.name: consumer.position for consumer in log.consumers()}


# --- committing ----------------------------------------------------------------------------------------------------


def test_a_consumer_goes_on_where_it_committed(log: Log) -> None:
    log.append_many(numbered(5))
    first = log.subscribe(consumer="mail", follow=False)
    assert [next(first).value, next(first).value] == numbered(2)
    assert first.commit() == 2
    next(first)  # handed out and not committed: it comes again
    assert values(log.subscribe(consumer="mail", follow=False)) == numbered(3, 2)


def test_a_poll_commits_up_to_what_it_handed_out(log: Log) -> None:
    log.append_many(numbered(3))
    subscription = log.subscribe(consumer="mail")
    assert values(subscription.poll()) == numbered(3)
    assert subscription.commit() == 3
    log.append(b"3")
    assert positions(log) == {"mail": 3}
    assert values(log.subscribe(consumer="mail", follow=False)) == [b"3"]


def test_a_new_consumer_begins_at_the_start_it_names(log: Log) -> None:
    log.append_many(numbered(5))
    assert log.subscribe(3, consumer="mail").position == 3
    assert log.subscribe("tail", consumer="mail").position == 5
    assert log.consumers() == []
    log.commit("mail", 1)
    assert log.subscribe("tail", consumer="mail").position == 1


def test_a_commit_may_go_back_and_name_a_position(log: Log) -> None:
    log.append_many(numbered(5))
    subscription = log.subscribe(consumer="mail")
    assert log.commit("mail", 4) == 4
    assert subscription.commit(2) == 2
    assert log.commit("mail", 0) == 0
    assert positions(log) == {"mail": 0}


def test_consumers_tell_how_far_they_are_behind(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(5))
    log.commit("b", 5)
    log.commit("a", 1)
    before = log.consumers()
    assert [(one.name, one.position, one.lag) for one in before] == [("a", 1, 4), ("b", 5, 0)]
    site.pass_time(braid, 60)
    log.append(b"x")
    log.commit("b", 4)
    after = log.consumers()
    assert [(one.name, one.lag) for one in after] == [("a", 5), ("b", 2)]
    assert (after[1].updated - before[1].updated).total_seconds() == 60
    assert after[0].updated == before[0].updated


def test_what_was_trimmed_is_not_behind(log: Log) -> None:
    log.append_many(numbered(5))
    log.commit("mail", 1)
    log.trim(3)
    assert [one.lag for one in log.consumers()] == [2]


def test_two_subscriptions_of_one_consumer_each_get_everything(log: Log) -> None:
    log.append_many(numbered(4))
    one, other = (log.subscribe(consumer="mail", follow=False) for _ in range(2))
    assert values(one) == values(other) == numbered(4)


def test_a_forgotten_consumer_is_new_again(log: Log) -> None:
    log.append_many(numbered(3))
    log.commit("mail", 2)
    log.forget_consumer("mail")
    assert log.consumers() == []
    assert values(log.subscribe(consumer="mail", follow=False)) == numbered(3)
    with pytest.raises(errors.NotFound, match=r"'mail'.*consumers"):
        log.forget_consumer("mail")


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_position_beyond_the_tail_is_out_of_range(log: Log) -> None:
    log.append(b"x")
    assert log.commit("mail", 1) == 1
    with pytest.raises(errors.OutOfRange, match=r"ends at 1.*'mail'.*2"):
        log.commit("mail", 2)
    assert positions(log) == {"mail": 1}


def test_a_position_that_a_hold_hides_is_blocked(log: Log) -> None:
    log.append(b"x")
    fork = log.cfork("trial", promotable=True)
    log.append(b"late")
    with pytest.raises(errors.Blocked, match="'mail' at 2") as caught:
        log.commit("mail", 2)
    assert caught.value.by == "orders"
    assert log.commit("mail", 1) == 1
    fork.squash()
    assert log.commit("mail", 2) == 2


def test_a_position_that_was_trimmed_away_says_how_to_go_on(log: Log) -> None:
    log.append_many(numbered(5))
    log.commit("mail", 1)
    log.trim(3)
    with pytest.raises(errors.Trimmed, match=r"'mail'.*stands at 1.*commit\('mail', 3\)") as caught:
        log.subscribe(consumer="mail")
    log.commit("mail", caught.value.start)
    assert values(log.subscribe(consumer="mail", follow=False)) == numbered(2, 3)


def test_without_a_consumer_there_is_nothing_to_commit(log: Log) -> None:
    with pytest.raises(errors.InvalidArgument, match="consumer="):
        log.subscribe().commit()


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (limits.CONSUMER_CHARS_MAX + 1), "\udc80", b"mail", 1])
def test_nonsense_is_no_consumer(log: Log, name: str) -> None:
    for call in (lambda: log.commit(name, 0), lambda: log.subscribe(consumer=name), lambda: log.forget_consumer(name)):
        with pytest.raises(errors.InvalidArgument, match="consumer"):
            call()


@pytest.mark.parametrize("position", [-1, 1.0, "1", True])
def test_nonsense_is_no_position(log: Log, position: int) -> None:
    with pytest.raises(errors.InvalidArgument, match="position"):
        log.commit("mail", position)


def test_any_printable_name_will_do(log: Log) -> None:
    for name in ("x" * limits.CONSUMER_CHARS_MAX, "Post für Łódź 📬", "a b/c"):
        log.commit(name, 0)
    assert len(log.consumers()) == 3


@pytest.mark.parametrize("site", ["brokered", "directory", "memory", "served"], indirect=True)  # whose limits we set
def test_beyond_so_many_one_has_to_be_forgotten(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMERS_PER_LOG_MAX", 2)
    log.commit("a", 0)
    log.commit("b", 0)
    with pytest.raises(errors.ConditionFailed, match="forget_consumer"):
        log.commit("c", 0)
    log.commit("a", 0)
    log.forget_consumer("b")
    log.commit("c", 0)


def test_an_ended_log_has_no_consumers(log: Log) -> None:
    fork = log.cfork("trial")
    fork.squash()
    for call in (fork.consumers, lambda: fork.commit("mail", 0), lambda: fork.forget_consumer("mail")):
        with pytest.raises(errors.Gone):
            call()


# --- forks ---------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_its_parents_consumers_and_goes_its_own_way(log: Log) -> None:
    log.append_many(numbered(4))
    log.commit("mail", 2)
    log.commit("bills", 4)
    live, severed = log.cfork("live"), log.sfork("severed", at=3)
    assert positions(live) == {"mail": 2, "bills": 4}
    assert positions(severed) == {"mail": 2, "bills": 3}
    live.commit("mail", 3)
    severed.commit("audit", 1)
    log.commit("mail", 1)
    log.forget_consumer("bills")
    assert positions(log) == {"mail": 1}
    assert positions(live) == {"mail": 3, "bills": 4}
    assert positions(severed) == {"mail": 2, "bills": 3, "audit": 1}
    assert values(live.subscribe(consumer="mail", follow=False)) == numbered(1, 3)


def test_a_severed_fork_that_grew_keeps_where_its_consumers_began(log: Log) -> None:
    log.append_many(numbered(4))
    log.commit("mail", 4)
    severed = log.sfork(at=2)
    severed.append_many(numbered(5))
    assert positions(severed) == {"mail": 2}
    assert positions(severed.sfork()) == {"mail": 2}


def test_promotion_leaves_the_parents_consumers_where_they_are(log: Log) -> None:
    log.append_many(numbered(3))
    log.commit("mail", 3)
    fork = log.cfork("trial", promotable=True)
    fork.append(b"own")
    fork.commit("mail", 4)
    fork.commit("new", 4)
    log.append(b"late")
    assert fork.promote()
    assert positions(log) == {"mail": 3}
    assert values(log.subscribe(consumer="mail", follow=False)) == [b"own", b"late"]


def test_a_consumer_pauses_at_a_hold_and_goes_on_as_was_decided(site: Site, braid: Braid, log: Log) -> None:
    log.append(b"x")
    fork = log.cfork("trial", promotable=True)
    fork.append(b"own")
    log.append(b"late")
    subscription = log.subscribe(consumer="mail")
    assert values(subscription.poll()) == [b"x"]
    assert subscription.commit() == 1
    waiting = site.meanwhile(braid, lambda: next(subscription).value)
    fork.promote()
    assert waiting.result(PATIENCE_S) == b"own"
    assert subscription.commit() == 2


# --- durable -------------------------------------------------------------------------------------------------------


def test_consumers_survive_reopening_forks_included(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(4))
    log.commit("mail", 3)
    log.cfork("live", dedicated=True)
    log.sfork("severed", at=1)
    log.commit("mail", 2)
    told = {one.name: one.consumers() for one in braid.logs()}
    for _ in range(2):  # behind a snapshot, and in one
        braid = site.reopen(braid)
        assert {one.name: one.consumers() for one in braid.logs()} == told
    assert positions(braid.log("severed")) == {"mail": 1}
    assert braid.log("live").info().dedicated
    assert not braid.log("orders").info().dedicated


def test_a_read_only_process_lists_consumers_and_commits_nothing(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as writing:
        log = writing.create("orders")
        log.append_many(numbered(3))
        log.commit("mail", 1)
        with braidlog.open(tmp_path / "logs", read_only=True) as reading:
            followed = reading.log("orders")
            assert followed.consumers() == log.consumers()
            subscription = followed.subscribe(consumer="mail", follow=False)
            assert values(subscription) == numbered(2, 1)
            with pytest.raises(errors.InvalidArgument, match="read-only"):
                subscription.commit()


# --- awaited -------------------------------------------------------------------------------------------------------


def test_the_same_awaited(braid: Braid) -> None:
    async def claim() -> None:
        async with asyncio.timeout(PATIENCE_S), aio.Braid(braid) as awaited:
            log = await awaited.create("orders")
            await log.append_many(numbered(5))
            subscription = await log.subscribe(consumer="mail")
            assert (await anext(subscription)).value == b"0"
            assert await subscription.commit() == 1
            assert await subscription.commit(3) == 3
            again = await log.subscribe(consumer="mail", follow=False)
            assert [record.value async for record in again] == numbered(2, 3)
            assert await log.commit("bills", 2) == 2
            assert [(one.name, one.lag) for one in await log.consumers()] == [("bills", 3), ("mail", 2)]
            await log.forget_consumer("bills")
            assert [one.name for one in await log.consumers()] == ["mail"]
            with pytest.raises(errors.InvalidArgument, match="consumer="):
                await (await log.subscribe()).commit()
            with pytest.raises(errors.InvalidArgument, match="consumer"):
                await log.subscribe(consumer="")
            assert (await (await log.cfork("live", dedicated=True)).info()).dedicated

    asyncio.run(claim())
