"""`braidlog.aio`: the same contract, awaited, and what is its own: concurrency, cancelling, an unblocked loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog import EndOfLog, Record, aio, bulk, errors, limits
from braidlog.client import opening
from braidlog.client.opening import open_files
from braidlog.forest import commands as c
from braidlog.testing.files import RecordingFiles, Sync
from tests.e2e.conformance import PATIENCE_S, MemorySite, Site, numbered, values

Claim = Callable[[aio.Braid], Awaitable[None]]


def play(braid: braidlog.Braid, claim: Claim) -> None:
    """Run a claim in a loop of its own."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), aio.Braid(braid) as awaited:
            await claim(awaited)

    asyncio.run(main())


async def begun(braid: aio.Braid, waiting: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task and return once it waits for a change."""
    task = asyncio.create_task(waiting)
    while not braid._bridge.changes:
        assert not task.done(), task
        await asyncio.sleep(0)
    return task


in_process = pytest.mark.parametrize("site", ["directory", "memory"], indirect=True)  # looks behind the scenes


async def queued(braid: aio.Braid, count: int) -> None:
    """Return once so many commands wait for a commit."""
    backend: Any = braid._bridge.backend
    while len(backend.committer._queue) < count:
        await asyncio.sleep(0)


def appends_of_commits(braid: aio.Braid) -> list[int]:
    """How many appends are in each commit from now on."""
    backend: Any = braid._bridge.backend
    committer = backend.committer
    apply, counts = committer._apply, list[int]()

    def counted(batch: list[c.Command]) -> Any:
        counts.append(sum(isinstance(command, c.Append) for command in batch))
        return apply(batch)

    committer._apply = counted
    return counts


def left_behind(braid: aio.Braid) -> int:
    """Watchers of changes that somebody forgot."""
    backend: Any = braid._bridge.backend
    return len(backend._watchers)


# --- the contract in brief -----------------------------------------------------------------------------------------


def test_logs_are_created_found_listed_and_dropped(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        orders = await braid.create("orders", labels={"team": "shop"})
        assert await braid.log("orders") == orders
        assert (await orders.info()).labels == {"team": "shop"}
        fork = await orders.cfork("trial")
        assert [log async for log in braid.logs()] == [orders, fork]
        with pytest.raises(TypeError, match=r"await braid\.log\('trial'\)"):
            assert "trial" in braid  # nobody could await that
        assert (orders.name, orders.id) == ("orders", (await orders.info()).id)
        with pytest.raises(errors.AlreadyExists, match="'orders'"):
            await braid.create("orders")
        with pytest.raises(errors.ConditionFailed):
            await braid.drop("orders")
        await braid.drop("orders", cascade=True)
        with pytest.raises(errors.NotFound):
            await braid.log("orders")
        with pytest.raises(errors.Gone):
            await orders.tail()

    play(site.open(), claim)


def test_appends_take_and_tell_the_same(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        assert await log.append(b"a", key=b"k", headers={"h": b"v"}, timestamp=7) == 0
        assert await log.append_many([b"b", Record(b"c", timestamp=8)], timestamp=9) == range(1, 3)
        assert await log.append_many([]) == range(3, 3)
        assert await log.append(b"d", ack="durable") is None
        assert await log.append(b"e", writer="w", sequence=1, expected_tail=4) == 4
        assert await log.append(b"e", writer="w", sequence=1) == 4
        with pytest.raises(errors.ConditionFailed, match="ends at 5, not at 0"):
            await log.append(b"x", expected_tail=0)
        with pytest.raises(errors.InvalidArgument, match="'never'"):
            await log.append(b"x", ack="never")  # type: ignore[arg-type]
        assert values(await log.read(0)) == [b"a", b"b", b"c", b"d", b"e"]
        assert await log[0] == Record(b"a", b"k", (("h", b"v"),), 7, 0)

    play(site.open(), claim)


def test_uploads_are_begun_published_and_discarded_the_same(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        if isinstance(site, MemorySite):
            with pytest.raises(errors.InvalidArgument, match="in the memory"):
                await log.upload()
            return
        upload = await log.upload(ttl=60)
        with bulk.ObjectWriter(upload) as writer:
            writer.add(pa.table({"value": [b"a", b"b"]}))
        await log.discard(await log.upload())
        assert await log.publish(writer.close(), uploads=[upload], writer="w", sequence=1) == range(2)
        assert await log.publish(writer.close(), writer="w", sequence=1) == range(2)
        fork = await log.cfork(promotable=True)
        blocked = await log.cfork()
        with bulk.ObjectWriter(await blocked.upload()) as writer:
            writer.add(pa.table({"value": [b"c"]}))
        with pytest.raises(errors.Blocked):
            await blocked.publish(writer.close())
        waiting = asyncio.ensure_future(blocked.publish(iter(writer.close()), wait=PATIENCE_S))
        await fork.squash()
        assert await waiting == range(2, 3)

    play(site.open(), claim)


def test_tickets_tell_the_same(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        ticket = await log.submit([b"a", b"b"])
        await ticket.durable()
        assert ticket.done
        assert await ticket.position() == range(2)
        assert (await braid.resolve(ticket.request_id)).positions == range(2)
        refused = await log.submit(b"x", expected_tail=0)
        with pytest.raises(errors.ConditionFailed):
            await refused.durable()
        fork = await log.cfork("trial", promotable=True)
        await fork.append(b"mine")
        held = await log.submit(b"held")
        with pytest.raises(errors.Timeout, match=r"0\.01 s"):
            await held.position(0.01)
        waiting = await begun(braid, held.position())
        assert await fork.promote()
        assert await waiting == 3

    play(site.open(), claim)


def test_reads_return_and_raise_the_same(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append_many(numbered(5), timestamp=10)
        assert (await log.tail(), (await log.info()).tail) == (5, 5)
        assert values(await log.read(1, 4, max_records=2)) == numbered(2, 1)
        assert await log.read(5) == await log.read(5, wait=0.01) == []
        assert values(await log[-2:]) == numbered(2, 3)
        assert (await log.read_arrow(1, 3)).column("value").to_pylist() == numbered(2, 1)
        assert [part.stop for part in (await log.plan()).parts] == [5]
        assert (await log.position_at(10), await log.position_at(11)) == (0, 5)
        assert await log.trim(2) == 2
        for call, error in (
            (log.read(6), errors.OutOfRange),
            (log[7], IndexError),
            (log.read(1), errors.Trimmed),
            (log.read(-1), errors.InvalidArgument),
            (log.read_arrow(-1), errors.InvalidArgument),
        ):
            with pytest.raises(error):
                await call

    play(site.open(), claim)


def test_a_log_is_not_iterated_by_mistake(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with pytest.raises(TypeError):
            iter(log)

    play(site.open(), claim)


def test_forks_are_made_and_decided_the_same(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append(b"a")
        fork = await log.cfork("trial", promotable=True, lease=10, ttl=20)
        await fork.append(b"mine")
        assert await log.append(b"hidden") is None
        with pytest.raises(errors.Blocked) as caught:
            await log.read(1)
        assert caught.value.by == "orders"
        await fork.renew()
        assert values((await fork.diff()).own) == [b"mine"]
        assert [step.name for step in await fork.lineage()] == ["trial", "orders"]
        assert await fork.promote(expected_own=2) is False
        assert await fork.promote(expected_own=1, into=log) is True
        past = await log.sfork("past", at=2)
        assert values(await past.read(0)) == [b"a", b"mine"]
        await past.squash()
        with pytest.raises(errors.NotPromotable):
            await log.promote()

    play(site.open(), claim)


def test_blocked_calls_wait_for_the_decision(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        plain = await log.cfork("plain")
        trial = await log.cfork("trial", promotable=True)
        with pytest.raises(errors.Blocked):
            await plain.append(b"x", wait=0.01)
        await log.append(b"hidden")
        calls = [
            await begun(braid, plain.append(b"x", wait=PATIENCE_S)),
            await begun(braid, plain.cfork("nested", promotable=True, wait=PATIENCE_S)),
            await begun(braid, log.sfork("past", wait=PATIENCE_S)),
            await begun(braid, log.read(0, wait=PATIENCE_S)),
        ]
        await trial.squash()
        _, nested, past, read = await asyncio.gather(*calls)
        assert (nested.name, past.name, values(read)) == ("nested", "past", [b"hidden"])
        assert (await plain.info()).own == 1
        assert left_behind(braid) == 0

    play(site.open(), claim)


def test_a_closed_braid_refuses_every_call(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append(b"x")
        await asyncio.gather(braid.close(), braid.close())
        for call in (
            braid.create("other"),
            braid.log("orders"),
            braid.drop("orders"),
            log.append(b"x"),
            log.submit(b"x"),
            log.tail(),
            log.read(0),
            log.read_arrow(),
            log[0],
            log.subscribe(),
            log.cfork(),
        ):
            with pytest.raises(errors.Unavailable, match="closed"):
                await call

    play(site.open(), claim)


def test_open_is_awaited_and_raises_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "x", serve=False) as braid:
            await (await braid.create("orders")).append(b"x")
            assert "aio" in repr(braid)
            with pytest.raises(errors.Locked):
                await aio.open(tmp_path / "x")
            async with await aio.open(braid.url, read_only=True) as reader:
                log = await reader.log("orders")
                assert reader.read_only
                assert values(await log.read(0)) == [b"x"]
                with pytest.raises(errors.InvalidArgument, match="read-only"):
                    await log.append(b"y")
        with pytest.raises(errors.InvalidArgument, match="http"):
            await aio.open("http://x")

    asyncio.run(main())


# --- following -----------------------------------------------------------------------------------------------------


def test_a_subscription_waits_for_what_comes_and_ends_with_a_reason(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append(b"a")
        fork = await log.cfork("trial", promotable=True)
        subscription = await fork.subscribe()
        assert (await anext(subscription)).value == b"a"
        waiting = await begun(braid, anext(subscription))
        await fork.append(b"mine")
        assert (await waiting).value == b"mine"
        assert (subscription.position, subscription.end) == (2, None)
        rest = await begun(braid, _all(subscription))
        await fork.promote()
        assert await rest == []
        assert subscription.end == EndOfLog("promoted", 2, "orders")

    play(site.open(), claim)


async def _all(subscription: aio.Subscription) -> list[bytes]:
    return [record.value async for record in subscription]


def test_a_subscription_pauses_at_a_hold(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        trial = await log.cfork(promotable=True)
        await log.append(b"hidden")
        subscription = await log.subscribe()
        assert await subscription.poll() == []
        waiting = await begun(braid, subscription.poll(PATIENCE_S))
        await trial.append(b"other")
        await trial.squash()
        assert values(await waiting) == [b"hidden"]

    play(site.open(), claim)


def test_a_subscription_starts_anywhere_and_may_end_at_the_tail(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append_many(numbered(3))
        assert await _all(await log.subscribe(1, follow=False)) == numbered(2, 1)
        assert (await log.subscribe("tail")).position == 3
        with pytest.raises(errors.OutOfRange):
            await log.subscribe(4)

    play(site.open(), claim)


def test_closing_a_subscription_wakes_who_waits_for_it(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        async with await log.subscribe() as subscription:
            waiting = await begun(braid, _all(subscription))
        assert await waiting == []
        assert subscription.end == EndOfLog("closed", 0)

    play(site.open(), claim)


def test_closing_the_braid_wakes_everybody(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.cfork(promotable=True)
        ticket = await log.submit(b"held")
        following = await begun(braid, _all(await log.subscribe()))
        reading = await begun(braid, log.read(0, wait=PATIENCE_S))
        deciding = await begun(braid, ticket.position())
        await braid.close()
        assert await following == []
        for waiting in (reading, deciding):
            with pytest.raises(errors.Unavailable, match="closed"):
                await waiting

    play(site.open(), claim)


def test_appends_that_are_begun_together_stand_in_their_order(site: Site) -> None:
    """Also the first of a log, for which it is to be found out who serves it."""

    async def claim(braid: aio.Braid) -> None:
        for attempt in range(5):
            log = await braid.create(f"log-{attempt}")
            await asyncio.gather(*(log.append(value) for value in numbered(20)))
            assert values(await log.read(0)) == numbered(20)

    play(site.open(), claim)


def test_many_followers_each_get_everything_in_order(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")

        async def follow() -> list[bytes]:
            subscription = await log.subscribe()
            return [(await anext(subscription)).value for _ in range(200)]

        followers = [asyncio.create_task(follow()) for _ in range(10)]
        for first in range(0, 200, 20):
            await asyncio.gather(*(log.append(value) for value in numbered(20, first)))
        assert all(found == numbered(200) for found in await asyncio.gather(*followers))
        assert left_behind(braid) == 0

    play(site.open(), claim)


# --- concurrency ---------------------------------------------------------------------------------------------------


def test_a_thousand_concurrent_appends_share_a_few_syncs() -> None:
    files = RecordingFiles()

    def syncs() -> int:
        return sum(isinstance(operation, Sync) for operation in files.operations)

    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        before = syncs()
        positions = await asyncio.gather(*(log.append(value) for value in numbered(1000)))
        assert syncs() - before < 250
        assert positions == list(range(1000))
        assert values(await log.read(0)) == numbered(1000)

    play(open_files(files, "memory://", folder=None), claim)


@in_process
def test_everything_that_queued_is_one_commit(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with site.stalled(braid._braid):
            commits = appends_of_commits(braid)
            appends = asyncio.gather(*(log.append(value) for value in numbered(1000)))
            await queued(braid, 1000)
        assert await appends == list(range(1000))
        assert sum(commits) == 1000
        assert not any(pair == (True, True) for pair in pairwise(map(bool, commits)))  # only a collection parts them

    play(site.open(), claim)


@in_process
def test_appends_need_no_thread_each(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        before = threading.active_count()
        with site.stalled(braid._braid):
            appends = asyncio.gather(*(log.append(value) for value in numbered(100)))
            await queued(braid, 100)
            assert threading.active_count() == before
        await appends

    play(site.open(), claim)


def test_submit_waits_for_room_and_the_loop_goes_on(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        large = bytes(limits.RECORD_BYTES_MAX)
        fitting = limits.SUBMIT_OUTSTANDING_BYTES_MAX // len(large)
        with site.stalled(braid._braid):
            tickets = [await log.submit(large) for _ in range(fitting)]
            with pytest.raises(errors.Timeout, match=f"{limits.SUBMIT_OUTSTANDING_BYTES_MAX:,}"):
                await log.submit(b"x", timeout=0.01)
            waiting = asyncio.create_task(log.submit(b"x"))
            while not braid._bridge._room:
                await asyncio.sleep(0)
            assert not any(ticket.done for ticket in tickets)
        assert await (await waiting).position() == fitting

    play(site.open(), claim)


@in_process
def test_appends_wait_for_the_packer_and_the_loop_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append(b"rides inline")
        monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", 0)
        waiting = await begun(braid, log.append(b"x"))
        assert await asyncio.to_thread(site.pack, braid._braid)
        assert await waiting == 1

    play(site.open(), claim)


@in_process
def test_a_change_that_waits_for_the_disk_does_not_block_the_loop(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with site.stalled(braid._braid):
            fork = asyncio.create_task(log.cfork("trial"))
            await queued(braid, 1)
            assert await log.tail() == 0
        assert (await fork).name == "trial"

    play(site.open(), claim)


@in_process
def test_what_was_queued_before_closing_is_carried_out(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with site.stalled(braid._braid):
            appends = asyncio.gather(*(log.append(value) for value in numbered(100)))
            await queued(braid, 100)
        await braid.close()
        assert await appends == list(range(100))

    play(site.open(), claim)
    assert site.open().log("orders").tail() == 100


@in_process
def test_an_append_that_storage_does_not_answer_in_time_can_be_resolved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        monkeypatch.setattr(limits, "COMMIT_TIMEOUT_S", 0.01)
        with site.stalled(braid._braid), pytest.raises(errors.OutcomeUnknown) as caught:
            await log.append(b"x")
        assert values(await log.read(0, wait=PATIENCE_S)) == [b"x"]
        assert (await braid.resolve(caught.value.request_id)).positions == range(1)

    play(site.open(), claim)


# --- cancelling ----------------------------------------------------------------------------------------------------


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_wait_leaves_nothing_behind(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        plain = await log.cfork("plain")
        await log.cfork("trial", promotable=True)
        ticket = await log.submit(b"held")
        await ticket.durable()
        subscription = await log.subscribe()
        for waiting in (
            log.read(0, wait=PATIENCE_S),
            plain.append(b"x", wait=PATIENCE_S),
            plain.cfork("nested", promotable=True, wait=PATIENCE_S),
            log.sfork("past", wait=PATIENCE_S),
            ticket.position(),
            anext(subscription),
            subscription.poll(None),
        ):
            await cancelled(await begun(braid, waiting))
            assert left_behind(braid) == 0
        assert (await plain.info()).own == 0
        assert [found.name async for found in braid.logs()] == ["orders", "plain", "trial"]

    play(site.open(), claim)


@in_process
def test_a_cancelled_append_may_still_happen_and_harms_nobody(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with site.stalled(braid._braid):
            one, other = asyncio.create_task(log.append(b"one")), asyncio.create_task(log.append(b"other"))
            await queued(braid, 2)
            await cancelled(one)
        assert await other == 1
        assert values(await log.read(0)) == [b"one", b"other"]

    play(site.open(), claim)


def test_cancelling_one_who_waits_on_a_ticket_does_not_cancel_the_others(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        with site.stalled(braid._braid):
            ticket = await log.submit(b"x")
            one, other = asyncio.create_task(ticket.durable()), asyncio.create_task(ticket.position())
            await asyncio.sleep(0)
            await cancelled(one)
        assert await other == 0

    play(site.open(), claim)


def test_a_cancelled_wait_for_room_takes_none(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        large = bytes(limits.RECORD_BYTES_MAX)
        fitting = limits.SUBMIT_OUTSTANDING_BYTES_MAX // len(large)
        with site.stalled(braid._braid):
            tickets = [await log.submit(large) for _ in range(fitting)]
            waiting = asyncio.create_task(log.submit(large))
            while not braid._bridge._room:
                await asyncio.sleep(0)
            await cancelled(waiting)
        for ticket in tickets:
            await ticket.durable()
        again = [await log.submit(large, timeout=0) for _ in range(fitting)]
        assert [await ticket.position() for ticket in again] == list(range(fitting, 2 * fitting))

    play(site.open(), claim)


def test_a_subscription_loses_and_repeats_nothing_when_cancelled(site: Site) -> None:
    async def claim(braid: aio.Braid) -> None:
        log = await braid.create("orders")
        await log.append_many(numbered(3))
        subscription = await log.subscribe(follow=False)
        backend: Any = braid._bridge.backend
        read, reading, go_on = backend.read, asyncio.Event(), threading.Event()

        def slow(*arguments: Any) -> list[Record]:
            braid._bridge.loop.call_soon_threadsafe(reading.set)
            assert go_on.wait(PATIENCE_S)
            found: list[Record] = read(*arguments)
            return found

        backend.read = slow
        first = asyncio.create_task(anext(subscription))
        await reading.wait()
        await cancelled(first)
        go_on.set()
        assert await _all(subscription) == numbered(3)

    play(site.open(), claim)


def test_a_cancelled_opening_is_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opens, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Opened:
        def close(self) -> None:
            closed.set()

    def slow(*_: object, **__: object) -> Opened:
        opens.set()
        assert go_on.wait(PATIENCE_S)
        return Opened()

    monkeypatch.setattr(opening, "open", slow)

    async def main() -> None:
        task = asyncio.create_task(aio.open("memory://"))
        assert await asyncio.to_thread(opens.wait, PATIENCE_S)
        await cancelled(task)
        go_on.set()

    asyncio.run(main())
    assert closed.wait(PATIENCE_S)


@in_process
def test_a_closed_loop_is_not_called_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    braid = site.open()
    log = braid.create("orders")

    async def main() -> None:
        awaited = aio.Braid(braid)
        followed = await awaited.log("orders")
        abandoned = [
            asyncio.ensure_future(followed.append(b"never awaited")),
            asyncio.ensure_future(followed.read(0, wait=PATIENCE_S)),
        ]
        await queued(awaited, 1)
        assert not any(task.done() for task in abandoned)

    with site.stalled(braid):
        asyncio.run(main())
    with ThreadPoolExecutor(1) as other:
        assert other.submit(log.append, b"afterwards").result(PATIENCE_S) == 1
    assert values(log.read(0)) == [b"never awaited", b"afterwards"]
    assert failures == []
