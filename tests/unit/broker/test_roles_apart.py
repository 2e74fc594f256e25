"""A broker and its metadata, both in this process: what one client does to the others of the same broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import braidlog
from braidlog import bulk, errors, limits
from braidlog.broker.measuring import _ids_in
from braidlog.broker.metadata import Member, MetadataService
from braidlog.broker.remote import BrokerService
from braidlog.broker.service import Caller, Reply
from braidlog.broker.threaded import ServerThread
from braidlog.cli.verbs import top
from braidlog.cli.vitals import vitals
from braidlog.client.opening import write_directory
from braidlog.client.remote.backend import RemoteBackend
from braidlog.embedded.writer import Writer
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.store import FileStore
from braidlog.observe.logs import Event
from braidlog.wire import messages as m
from braidlog.wire.frames import NOTHING

PATIENCE_S = 20.0


class Apart:
    def __init__(self, folder: Path) -> None:
        self.braid = write_directory(folder)
        writer = self.braid._session.backend
        assert isinstance(writer, Writer)
        self.writer = writer
        self.metadata_thread = ServerThread(lambda: MetadataService(writer), "metadata")
        self.where = self.metadata_thread.listen_tcp("127.0.0.1", 0)
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        joined = threading.Event()

        def make() -> BrokerService:
            self.broker = BrokerService([self.where], "the broker", self.address)
            self.broker.on_ready = joined.set
            return self.broker

        self.broker_thread = ServerThread(make, "the broker")
        self.broker_thread.listen_on(listening)
        assert joined.wait(PATIENCE_S)

    def open(self) -> braidlog.Braid:
        return braidlog.open(f"braid://{self.address}", timeout=PATIENCE_S)

    def on_broker(self, call: Callable[[], object]) -> None:
        self.broker._cross(lambda: (call(), None)[1])

    def close(self) -> None:
        self.broker_thread.close()
        self.metadata_thread.close()
        self.braid.close()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    apart = Apart(tmp_path / "d")
    yield apart
    apart.close()


class Gate:
    """A store whose reads come once it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.reached = threading.Semaphore(0)
        get = FileStore.get

        def slow(store: FileStore, *where: object) -> memoryview:
            self.reached.release()
            assert self.opened.wait(PATIENCE_S)
            return get(store, *where)  # type: ignore[arg-type]

        monkeypatch.setattr(FileStore, "get", slow)


def test_reads_from_a_slow_store_hold_up_no_append_and_no_publication(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apart.open() as braid:
        log = braid.create("big")
        for number in range(limits.FETCHERS):
            log.append_many([bytes([number]) * 1000] * 300)
        gate = Gate(monkeypatch)
        answers: list[object] = []
        everything = threading.Semaphore(0)
        number = apart.writer.find("big")

        def ask() -> None:
            def reply(answer: object, _: object) -> None:
                answers.append(answer)
                everything.release()

            for at in range(limits.FETCHERS):
                read = m.Read(number, at * 300, at * 300 + 300)
                apart.broker.handle(Caller(b"a reader", 0, "reader"), read, NOTHING, reply)

        apart.on_broker(ask)
        for _ in range(limits.FETCHERS):
            assert gate.reached.acquire(timeout=PATIENCE_S)
        assert log.append_many([b"-" * 1000] * 300)[0] == 300 * limits.FETCHERS
        with bulk.ObjectWriter(log.upload()) as writer:
            writer.add(pa.table({"value": [b"published"]}))
        assert log.publish(writer.close()) == range(300 * limits.FETCHERS + 300, 300 * limits.FETCHERS + 301)
        assert not answers
        gate.opened.set()
        for _ in range(limits.FETCHERS):
            assert everything.acquire(timeout=PATIENCE_S)
        assert all(isinstance(answer, m.Parts) for answer in answers)


def test_watches_of_one_client_keep_no_other_from_following(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them go over the broker's one connection to the metadata."""
    [link] = list(apart.metadata_thread.server.connections)
    monkeypatch.setattr(limits, "CONNECTION_SUBSCRIPTIONS_MAX", 20)
    with apart.open() as braid:
        logs = [braid.create(f"log-{number}") for number in range(30)]
        for log in logs:
            log.append(b"0")

        def watch() -> None:
            for log in logs:
                for _ in range(10):
                    apart.broker.watch(log._id, 1 << 60, lambda *_: None)

        apart.on_broker(watch)
        with logs[7].subscribe(0) as subscription:
            assert [record.value for record in subscription.poll(PATIENCE_S)] == [b"0"]
            logs[7].append(b"1")
            assert [record.value for record in subscription.poll(PATIENCE_S)] == [b"1"]
        assert link.watches <= 2 * len(logs)  # those of one log are one


def test_a_subscription_that_the_metadata_refuses_to_tell_of_ends_with_that_error(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: MetadataService, request: m.Await, reply: Reply) -> Callable[[], None]:
        reply(errors.InvalidArgument(f"log {request.log} is too much"), None)
        return lambda: None

    with apart.open() as braid:
        log = braid.create("orders")
        log.append(b"0")
        monkeypatch.setattr(MetadataService, "wait_for", refuse)
        with log.subscribe(0) as subscription:
            subscription.poll(PATIENCE_S)  # what there was before it was refused, or the end
            if subscription.end is None:
                subscription.poll(PATIENCE_S)
        assert subscription.end is not None
        assert subscription.end.reason == "failed"
        assert "is too much" in str(subscription.end.error)


def test_a_subscription_goes_on_once_the_metadata_can_tell_again(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECONNECT_MAX_S", 0.01)
    wait_for, refused = MetadataService.wait_for, []

    def refuse(service: MetadataService, request: m.Await, reply: Reply) -> Callable[[], None]:
        if len(refused) > 2:
            return wait_for(service, request, reply)
        refused.append(request)
        reply(errors.Unavailable("not now"), None)
        return lambda: None

    with apart.open() as braid:
        log = braid.create("orders")
        log.append(b"0")
        monkeypatch.setattr(MetadataService, "wait_for", refuse)
        with log.subscribe(0) as subscription:
            assert [record.value for record in subscription.poll(PATIENCE_S)] == [b"0"]
        assert len(refused) == 3


def test_brokers_of_one_name_are_told_apart(apart: Apart) -> None:
    metadata = apart.metadata_thread.server.service
    assert isinstance(metadata, MetadataService)
    found: list[set[str]] = []
    done = threading.Event()

    def look() -> None:
        for number in range(3):
            caller = Caller(b"broker %d" % number, 0, "a broker")
            metadata._members[caller] = Member("broker 1", f"10.0.0.{number}:7411", NONE)
        found.append({metadata._route(m.Route(log._id)).value for log in logs})
        done.set()

    with apart.open() as braid:
        logs = [braid.create(f"log-{number}") for number in range(30)]
        logs += [log.cfork() for log in logs]
        metadata._cross(look)
        assert done.wait(PATIENCE_S)
    assert found == [{apart.address, *(f"10.0.0.{number}:7411" for number in range(3))}]


def test_top_at_a_broker_says_who_knows_of_logs_and_holds(apart: Apart) -> None:
    shown = {}
    with apart.open() as braid, braidlog.open(f"braid://127.0.0.1:{apart.where[1]}", timeout=PATIENCE_S) as other:
        braid.create("orders").cfork("trial", promotable=True)
        for role, looked_at in (("broker", braid), ("metadata", other)):
            backend = looked_at._session.backend
            assert isinstance(backend, RemoteBackend)
            console = Console(width=200)
            with console.capture() as capture:
                console.print(top.draw(vitals(backend.status())))
            shown[role] = capture.get()
    assert "1 root" in shown["metadata"]
    assert "1 logs, 0 leases overdue" in shown["metadata"]
    assert shown["broker"].count("look at the metadata") == 2
    assert "overdue" not in shown["broker"]


def test_a_slow_binding_names_some_of_the_requests_in_it(
    apart: Apart, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with apart.open() as braid:
        log = braid.create("orders")
        monkeypatch.setattr(limits, "SLOW_REQUEST_S", -1.0)
        ticket = log.submit(b"x")
        ticket.durable()
        told = [event.msg.fields for event in caplog.records if isinstance(event.msg, Event)]
        assert [fields["requests"] for fields in told if fields.get("kind") == "bind"] == [ticket.request_id]
    many = m.Bind([c.Append(1, 1, 1, 0, 0, request=bytes([n]) * 16) for n in range(9)])
    assert _ids_in(many) == f"{'00' * 16} {'01' * 16} {'02' * 16} and 6 more"
