"""What bounds an agent holds however it calls: again, at once, with names that collide."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

import braidlog
from braidlog import limits
from braidlog.agents import AGENT_LABEL, audit, discretion
from braidlog.client.backend import Backend
from braidlog.embedded.clock import SystemClock
from braidlog.errors import ConditionFailed, Gone, Timeout, Unavailable
from braidlog.mcp.house import Caller, House, OnlyCaller, Work
from braidlog.mcp.models import RecordIn
from braidlog.mcp.proposing import propose_promotion
from braidlog.mcp.watching import Watchers
from braidlog.mcp.working import append_records, create_fork
from tests.e2e.agent_clients import DEADLINE_S, Agent, agent_in, house_of, with_agent
from tests.e2e.agents_stage import paused


@pytest.fixture
def braid() -> Iterator[braidlog.Braid]:
    """A log of 100 records."""
    with braidlog.open("memory://") as opened:
        opened.create("orders").append_many([b"%d" % n for n in range(100)])
        yield opened


def test_what_is_asked_for_again_costs_no_budget(braid: braidlog.Braid) -> None:
    keys = ["k" * (limits.MCP_KEY_CHARS_MAX - 1) + end for end in "ab"]

    async def work(agent: Agent) -> None:
        fork = await agent.fork()

        async def append(key: str, value: str) -> tuple[int, int]:
            done = await agent.call("append_records", fork=fork, records=[{"value": value}], request_key=key)
            return done["first"], done["bytes_left"]

        assert await append(keys[0], "x" * 300) == (100, 700)
        for _ in range(3):  # more than the rate, and in the end than the fork allows
            assert await append(keys[0], "x" * 300) == (100, 700)
        assert await append(keys[1], "y" * 200) == (101, 500)  # the keys differ where the name of a writer is cut
        assert await append(keys[0], "x" * 300) == (100, 500)

    policy = "default.fork_bytes = 1000\ndefault.fork_bytes_per_s = 50"
    with_agent(braid, work, policy, name="a" * 100)


def test_the_bytes_of_a_fork_hold_when_two_write_on_it_at_once(braid: braidlog.Braid) -> None:
    fork = braid.log("orders").cfork("orders.tester.x", labels={AGENT_LABEL: "tester"})
    house = house_of(braid, policy="default.fork_bytes = 399")
    outcomes: list[str] = []

    def append(through: braidlog.Braid) -> None:
        try:
            append_records(
                Work(house, Caller("tester", through), lambda _: None), fork.name, [RecordIn(value="x" * 300)]
            )
            outcomes.append("ok")
        except ConditionFailed as refused:
            outcomes.append(str(refused))

    other = threading.Thread(target=append, args=(braid,))

    def meanwhile() -> None:
        other.start()
        other.join(0.3)  # it cannot end before the one that was first, unless they do not know of each other

    append(paused(braid, SystemClock(), 1, meanwhile)[0])
    other.join()
    assert outcomes[0] == "ok"
    assert "do not fit" in outcomes[1]
    assert fork.info().own_bytes == 300


def test_what_is_refused_for_its_size_is_not_sent(braid: braidlog.Braid) -> None:
    sent: list[int] = []

    class Weighing:
        def __getattr__(self, name: str) -> Any:
            found = getattr(braid._session.backend, name)
            return weighed(found) if name in ("append", "submit") else found

    def weighed(append: Any) -> Any:
        def weigh(command: Any, batch: Any, *rest: Any) -> Any:
            sent.append(batch.size)
            return append(command, batch, *rest)

        return weigh

    fork = braid.log("orders").cfork("orders.tester.x", labels={AGENT_LABEL: "tester"})
    house = house_of(braid, policy="default.fork_bytes = 9000")
    work = Work(
        house,
        Caller("tester", braidlog.Braid(cast(Backend, Weighing()), braid.url, read_only=False)),
        lambda _: None,
    )
    with pytest.raises(ConditionFailed, match="do not fit"):
        append_records(work, fork.name, [RecordIn(value="x" * 9001)], request_key="k")
    assert sent == [0]  # the question whether it was done before
    two = [RecordIn(value="x"), RecordIn(value="y")]
    for _ in range(2):
        done = append_records(work, fork.name, two, request_key="k")
        assert (done.first, done.count) == (100, 2)
    assert fork.info().own == 2


def test_what_nobody_waits_for_is_not_done_later(braid: braidlog.Braid) -> None:
    fork = braid.log("orders").cfork("orders.tester.x", labels={AGENT_LABEL: "tester"})
    work = Work(house_of(braid), Caller("tester", braid), lambda _: None)
    work.end()
    with pytest.raises(Timeout, match="nobody waits"):
        append_records(work, fork.name, [RecordIn(value="late")])
    with pytest.raises(Timeout, match="nobody waits"):
        create_fork(work, "orders", name="late")
    assert fork.info().own == 0
    assert "orders.tester.late" not in braid


def test_nobody_waits_for_a_turn_for_ever(braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_TURN_S", 0.01)
    fork = braid.log("orders").cfork("orders.tester.x", labels={AGENT_LABEL: "tester"})
    house = house_of(braid)
    work = Work(house, Caller("tester", braid), lambda _: None)
    with house.budgets.writing(fork), pytest.raises(Unavailable, match="another append to 'orders\\.tester"):
        append_records(work, fork.name, [RecordIn(value="x")])
    with house.budgets.making("tester"), pytest.raises(Unavailable, match="another fork of 'tester'"):
        create_fork(work, "orders")
    append_records(work, fork.name, [RecordIn(value="x")])
    assert fork.info().own == 1


def test_arguments_are_looked_through_beside_the_loop(braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many of them it takes a while, and everybody else would wait."""
    threads: list[threading.Thread] = []

    def told_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return discretion.told_of(arguments)

    monkeypatch.setattr(audit, "told_of", told_of)

    async def work(agent: Agent) -> None:
        await agent.call("search_records", log="orders", contains="7")

    with_agent(braid, work)
    assert threads
    assert threading.main_thread() not in threads
    [entry] = audit.Audit(braid).read()
    assert entry.arguments == {"log": "orders", "contains": "7"}


def test_a_fork_that_was_made_anew_under_the_name_of_another_is_not_proposed(braid: braidlog.Braid) -> None:
    fork = braid.log("orders").cfork("orders.tester.x", labels={AGENT_LABEL: "tester"})
    fork.append(b"seen")
    house = house_of(braid)

    def meanwhile(_: braidlog.Log) -> None:
        fork.squash()
        braid.log("orders").cfork(fork.name).append(b"unseen")

    class Swapped(Work):
        def own_fork(self, name: str, to: str) -> tuple[braidlog.Log, braidlog.Info]:
            found = super().own_fork(name, to)
            meanwhile(found[0])
            return found

    with pytest.raises(Gone, match="another has its name"):
        propose_promotion(Swapped(house, Caller("tester", braid), lambda _: None), fork.name, "more")
    assert house.desk.list() == []


class Flaky:
    """A backend that can be out of reach for a while."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.down = False
        self.refused = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if self.down and name != "closed":
            self.refused.set()
            raise Unavailable("it is not there now")
        return getattr(self._backend, name)


def test_who_listens_hears_again_when_a_service_is_back(braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_WATCH_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCH_RETRY_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCH_PAUSE_S", 0.02)
    flaky = Flaky(braid._session.backend)
    theirs = braidlog.Braid(cast(Backend, flaky), braid.url, read_only=False)
    house = House.of(braid, OnlyCaller(Caller("tester", theirs)))

    async def heard(changes: Any) -> None:
        while True:  # a watcher that has just begun, or begun again, does not know what came before
            braid.log("orders").append(b"more")
            try:
                async with asyncio.timeout(0.3):
                    assert (await anext(changes)).uri == "log://orders/tail"
                    return
            except TimeoutError:
                continue

    async def listen() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            agent_in(house) as agent,
            agent.client.listen(resource_subscriptions=["log://orders/tail"]) as changes,
        ):
            await heard(changes)
            flaky.down = True
            assert await asyncio.to_thread(flaky.refused.wait, DEADLINE_S)
            flaky.down = False
            for _ in range(5):  # one word would be that of a watcher that ends
                await heard(changes)

    asyncio.run(listen())


def test_nobody_takes_all_places_to_listen(braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_WATCH_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCHED_LOGS_EACH_MAX", 1)
    orders = braid.log("orders")
    watchers = Watchers(InMemorySubscriptionBus())

    async def listen() -> None:
        ann, bob = Caller("ann", braid), Caller("bob", braid)
        async with asyncio.timeout(DEADLINE_S), watchers.watching([orders], ann):
            with pytest.raises(MCPError, match="you may listen to 1 logs"):
                async with watchers.watching([orders], ann):
                    pass
            async with watchers.watching([orders], bob):
                pass
        async with watchers.watching([orders], ann):
            pass

    asyncio.run(listen())


def test_who_listens_on_a_connection_that_is_closed_is_told_and_has_no_place_any_more(
    braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its token was revoked."""
    monkeypatch.setattr(limits, "MCP_WATCH_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCH_RETRY_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCHED_LOGS_EACH_MAX", 1)
    told: list[str] = []

    async def tell(uri: str) -> None:
        told.append(uri)

    async def listen() -> None:
        watchers = Watchers(InMemorySubscriptionBus())
        with braidlog.open("memory://") as theirs:
            log = theirs.create("notes")
            async with asyncio.timeout(DEADLINE_S), watchers.watching([log], Caller("ann", theirs), tell) as over:
                theirs.close()
                await over.wait()
                assert told == ["log://notes/tail"]
                async with watchers.watching([braid.log("orders")], Caller("ann", braid), tell):
                    pass

    asyncio.run(listen())


def test_who_unsubscribes_before_it_has_begun_is_answered(braid: braidlog.Braid) -> None:
    looked, go_on = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, name: str) -> Any:
            if name == "find":
                looked.set()
                assert go_on.wait(DEADLINE_S)
            return getattr(braid._session.backend, name)

    theirs = braidlog.Braid(cast(Backend, Slow()), braid.url, read_only=False)
    house = House.of(braid, OnlyCaller(Caller("tester", theirs)))

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_S), agent_in(house, mode="legacy") as agent:
            try:
                asked = asyncio.ensure_future(agent.client.subscribe_resource("log://orders/tail"))
                assert await asyncio.to_thread(looked.wait, DEADLINE_S)
                await agent.client.unsubscribe_resource("log://orders/tail")
                async with asyncio.timeout(5):
                    with pytest.raises(MCPError, match="unsubscribed before it began"):
                        await asked
            finally:
                go_on.set()
            await agent.client.subscribe_resource("log://orders/tail")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        asyncio.run(work())


def test_clients_of_earlier_protocols_subscribe_and_are_told(
    braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MCP_WATCH_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCH_PAUSE_S", 0.02)
    monkeypatch.setattr(limits, "MCP_WATCHED_LOGS_MAX", 2)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            told.put_nowait(str(message.params.uri))

    async def heard(log: str) -> None:
        while True:
            braid.log(log).append(b"more")
            try:
                async with asyncio.timeout(0.3):
                    if await told.get() == f"log://{log}/tail":
                        return
            except TimeoutError:
                continue

    async def work(agent: Agent) -> None:
        client = agent.client
        assert client.server_capabilities.resources.subscribe
        for _ in range(2):  # the second time nothing is to be done
            await client.subscribe_resource("log://orders/tail")
        await client.subscribe_resource("log://notes/tail")
        for log in ("orders", "notes", "orders"):
            await heard(log)
        for uri, why in (("log://more/tail", "2 logs are listened to already"), ("log://orders", "does not change")):
            with pytest.raises(MCPError, match=why):
                await client.subscribe_resource(uri)
        with pytest.raises(MCPError, match="system log"):
            await client.subscribe_resource("log://braidlog.audit/tail")
        await client.unsubscribe_resource("log://notes/tail")
        await client.subscribe_resource("log://more/tail")  # there is room again
        await heard("more")
        braid.drop("more")
        while await told.get() != "log://more/tail":
            pass
        braid.create("more")
        again = False
        while (
            not again
        ):  # it is another one, and can be subscribed to anew as soon as the watcher of the former is gone
            await client.subscribe_resource("log://more/tail")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await heard("more")
                    again = True

    for name in ("notes", "more"):
        braid.create(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        with_agent(braid, work, mode="legacy", message_handler=hear)
