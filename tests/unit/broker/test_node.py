"""Several metadata processes: one binds, the others follow, and whoever takes over has everything that was promised."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import braidlog
from braidlog import errors, limits
from braidlog.broker.node import MetadataNode, StandbyService
from braidlog.broker.remote import BrokerService
from braidlog.broker.service import Caller
from braidlog.broker.threaded import ServerThread
from braidlog.embedded.follower import DirectorySource, Source
from braidlog.errors import Unavailable
from braidlog.metadata.frames import Payload
from braidlog.metadata.home import CommandLog, DirectoryHome, Found, Take
from braidlog.objects.files import OsFiles
from braidlog.wire import messages as m
from braidlog.wire.frames import NOTHING

PATIENCE_S = 20.0
T = TypeVar("T")


class Throne:
    """Who leads. Whoever is deposed learns of it when it writes, or when it is told."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.holder: FakeTerm | None = None

    def depose(self, *, tell: bool) -> None:
        with self.changed:
            assert self.holder is not None
            if tell:
                self.holder.lost.set()
            self.holder = None
            self.changed.notify_all()


class FakeTerm:
    def __init__(self, throne: Throne, who: str) -> None:
        self.throne = throne
        self.who = who
        self.lost = threading.Event()

    def left_s(self) -> float:
        return 0.0 if self.lost.is_set() else 1.0

    def resign(self) -> None:
        with self.throne.changed:
            if self.throne.holder is self:
                self.throne.holder = None
                self.throne.changed.notify_all()


class FencedLog:
    """The command log of a directory, for as long as its writer leads."""

    def __init__(self, log: CommandLog, term: FakeTerm) -> None:
        self._log = log
        self._term = term
        self.append_end = log.append_end
        self.roll = log.roll
        self.drop_through = log.drop_through
        self.close = log.close

    @property
    def last_sequence(self) -> int:
        return self._log.last_sequence

    @property
    def bytes_since_roll(self) -> int:
        return self._log.bytes_since_roll

    def append(self, payload: Payload) -> int:
        with self._term.throne.changed:
            if self._term.throne.holder is not self._term:
                raise errors.OutcomeUnknown("another one leads")
            return self._log.append(payload)


class FencedHome(DirectoryHome):
    def __init__(self, where: Path, term: FakeTerm) -> None:
        super().__init__(OsFiles(where), "0" * 32, folder=str(where / "objects"))
        self._term = term

    def open_log(self, after: int, take: Take) -> Found:
        found = super().open_log(after, take)
        return found._replace(log=FencedLog(found.log, self._term))


class FakeRivalry:
    def __init__(self, throne: Throne, where: Path, who: str) -> None:
        self.throne = throne
        self.where = where
        self.who = who
        self.allowed = threading.Event()
        self.allowed.set()

    @property
    def source(self) -> Source:
        return DirectorySource(OsFiles(self.where), str(self.where / "objects"))

    def win(self, stop: threading.Event) -> FakeTerm | None:
        while not stop.is_set():
            with self.throne.changed:
                if self.throne.holder is None and self.allowed.is_set():
                    self.throne.holder = FakeTerm(self.throne, self.who)
                    return self.throne.holder
                self.throne.changed.wait(0.02)
        return None

    def home(self, term: object) -> FencedHome:
        assert isinstance(term, FakeTerm)
        return FencedHome(self.where, term)

    def leader(self) -> str:
        holder = self.throne.holder
        return holder.who if holder is not None else ""

    def close(self) -> None:
        pass


class Node:
    def __init__(self, throne: Throne, where: Path, name: str) -> None:
        self.name = name
        self.rivalry = FakeRivalry(throne, where, name)
        self.roles: list[str] = []
        self.changed = threading.Condition()
        self.node: MetadataNode | None = None

        def make() -> MetadataNode:
            self.node = MetadataNode(self.rivalry)
            self.node.on_role = self._noted
            return self.node

        self.thread = ServerThread(make, name)
        self.where = self.thread.listen_tcp("127.0.0.1", 0)

    def _noted(self, role: str) -> None:
        with self.changed:
            self.roles.append(role)
            self.changed.notify_all()

    def wait_for(self, role: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.roles[-1:] == [role], PATIENCE_S), self.roles

    def close(self) -> None:
        assert self.node is not None
        self.thread.close()
        self.node.release()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with braidlog.open(folder):
            pass  # so that there is something to follow
        self.throne = Throne()
        self.nodes = [Node(self.throne, folder, f"node-{number}") for number in range(2)]
        self.leader().wait_for("metadata")
        self.brokers: list[ServerThread] = []
        self.urls: list[str] = []
        for number in range(2):
            self._add_broker(f"broker-{number}")

    def leader(self) -> Node:
        with self.throne.changed:
            assert self.throne.changed.wait_for(lambda: self.throne.holder is not None, PATIENCE_S)
            assert self.throne.holder is not None
            return next(node for node in self.nodes if node.name == self.throne.holder.who)

    def standby(self) -> Node:
        leader = self.leader()
        return next(node for node in self.nodes if node is not leader)

    def _add_broker(self, name: str) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        joined = threading.Event()

        def make() -> BrokerService:
            broker = BrokerService([node.where for node in self.nodes], name, address)
            broker.on_ready = joined.set
            return broker

        thread = ServerThread(make, name)
        thread.listen_on(listening)
        assert joined.wait(PATIENCE_S)
        self.brokers.append(thread)
        self.urls.append(address)

    @property
    def url(self) -> str:
        return "braid://" + ",".join(self.urls)

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
        for node in self.nodes:
            node.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "d")
    yield world
    world.close()


@pytest.mark.parametrize("tell", [True, False], ids=["told", "fenced"])
def test_another_one_takes_over_with_everything_that_was_acknowledged(world: World, tell: bool) -> None:
    with braidlog.open(world.url) as braid:
        log = braid.create("orders")
        first = [log.append(b"%d" % n) for n in range(20)]
        fork = log.cfork("try")
        fork.append(b"own")
        old = world.leader()
        old.rivalry.allowed.clear()
        world.throne.depose(tell=tell)
        more = [log.append(b"%d" % n) for n in range(20, 40)]
        new = world.leader()
        assert new is not old
        new.wait_for("metadata")
        old.wait_for("standby")
        assert [*first, *more] == list(range(40))
        assert [r.value for r in log.read(0)] == [b"%d" % n for n in range(40)]
        assert [r.value for r in fork.read(20, 21)] == [b"own"]
        assert fork.tail() == 41
        old.rivalry.allowed.set()
        new.rivalry.allowed.clear()
        world.throne.depose(tell=tell)
        assert log.append(b"40") == 40
        assert world.leader() is old


def test_a_subscription_goes_on_behind_a_new_leader(world: World) -> None:
    with braidlog.open(world.url) as braid:
        log = braid.create("orders")
        got: list[int] = []
        for number in range(60):
            log.append(b"%d" % number)
            if number % 20 == 10:
                world.throne.depose(tell=True)
        for record in log.subscribe(0):
            got.append(record.position)
            if len(got) == 60:
                break
        assert got == list(range(60))


def asked(node: Node, service: StandbyService, request: m.Request, seen: int) -> m.Answer | errors.BraidError:
    """What a standby answers to somebody who has seen so much."""
    caller = Caller(b"c", 0, "tester")
    caller.seen = seen
    return _on_loop(node, lambda then: service.handle(caller, request, NOTHING, lambda answer, _: then(answer)))


def _on_loop(node: Node, call: Callable[[Callable[[T], None]], None]) -> T:
    """What it hands on, called on the loop's thread."""
    answered = threading.Event()
    answers: list[T] = []

    def take(answer: T) -> None:
        answers.append(answer)
        answered.set()

    node.thread._loop.call_soon_threadsafe(lambda: call(take))
    assert answered.wait(PATIENCE_S)
    return answers[0]


def test_a_standby_answers_what_its_caller_may_know_and_refuses_changes(world: World) -> None:
    with braidlog.open(world.url) as braid:
        log = braid.create("orders")
        log.append(b"x")
        seen = world.leader().thread.server.service.seen
        standby = world.standby()
        standby.wait_for("standby")
        assert standby.node is not None
        service = standby.node.current
        assert isinstance(service, StandbyService)

        def ask(request: m.Request, seen: int) -> m.Answer | errors.BraidError:
            return asked(standby, service, request, seen)

        assert ask(m.Tail(log._id), seen) == m.Number(1)
        behind = ask(m.Tail(log._id), seen + 1000)
        assert isinstance(behind, Unavailable)
        assert "not seen yet" in str(behind)
        refused = ask(m.Execute(braidlog.forest.commands.Promote(1)), 0)
        assert isinstance(refused, Unavailable)
        assert "ask the leader" in str(refused)
        assert world.leader().name in str(refused)


def test_what_is_long_readable_is_planned_by_a_standby_and_the_end_by_the_leader(world: World) -> None:
    with braidlog.open(world.url) as braid:
        log = braid.create("orders")
        for number in range(50):
            log.append(b"%d" % number)
        assert len(log.read(0)) == 50
        world.standby().wait_for("standby")
        services = [thread.server.service for thread in world.brokers]
        before = sum(service.planned_aside for service in services if isinstance(service, BrokerService))
        for _ in range(50):
            assert [r.value for r in log.read(10, 20)] == [b"%d" % number for number in range(10, 20)]
            assert log.append(b"more") == log.tail() - 1
            assert log.read(log.tail() - 1)[0].value == b"more"
        after = sum(service.planned_aside for service in services if isinstance(service, BrokerService))
        assert after > before


def test_a_standby_that_hears_nothing_any_more_answers_nothing_and_trusts_no_token(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with braidlog.open(world.url) as braid:
        log = braid.create("orders")
        log.append(b"x")
        standby = world.standby()
        standby.wait_for("standby")
        assert standby.node is not None
        service = standby.node.current
        assert isinstance(service, StandbyService)
        seen = world.leader().thread.server.service.seen
        assert asked(standby, service, m.Tail(log._id), seen) == m.Number(1)
        silent_s = limits.STANDBY_SILENCE_S
        monkeypatch.setattr(service._follower, "silence", lambda: (silent_s, "no route"))
        assert standby.thread.server.health().trouble == ""
        assert isinstance(_on_loop(standby, lambda then: service.identify([], then)), m.Identities)
        silent_s += 0.1
        refused = asked(standby, service, m.Tail(log._id), 0)
        assert isinstance(refused, Unavailable)
        assert "heard nothing" in str(refused)
        assert isinstance(_on_loop(standby, lambda then: service.identify([], then)), Unavailable)
        assert isinstance(
            _on_loop(standby, lambda then: service.watch(log._id, 0, lambda answer, _: then(answer))), Unavailable
        )
        trouble = standby.thread.server.health().trouble
        assert "heard nothing" in trouble
        assert "no route" in trouble
        [silence] = [
            family
            for family in standby.thread.server.registry.families()
            if family.name == "braidlog_standby_silence_seconds"
        ]
        assert silence.kind == "gauge"
        assert log.append(b"y") == 1  # the leader goes on
        assert [record.value for record in log.read(0)] == [b"x", b"y"]
