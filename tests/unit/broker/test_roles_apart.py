"""A broker and its metadata, both in this process: what one client does to the others of the same broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog import bulk, limits
from braidlog.broker.metadata import MetadataService
from braidlog.broker.remote import BrokerService
from braidlog.broker.service import Caller
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import write_directory
from braidlog.embedded.writer import Writer
from braidlog.objects.store import FileStore
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
