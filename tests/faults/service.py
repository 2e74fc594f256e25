"""A service in a thread of this process, with a look behind its scenes, and peers that speak to it byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import braidlog
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import write_directory
from braidlog.embedded.writer import Writer
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import PREFACE, Frame, Kind, Parser

T = TypeVar("T")

PATIENCE_S: Final = 20.0  # how long a test waits for what must come; never reached when all is well


class Served:
    """A directory served over TCP. It can be stopped and served again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = "127.0.0.1"
        self.port = 0
        self.start()

    def start(self) -> None:
        self.braid = write_directory(self._folder)
        backend = self.braid._session.backend
        assert isinstance(backend, Writer)
        self.writer = backend
        self.thread = ServerThread(self._make, "tests")
        _, self.port = self.thread.listen_tcp(self._host, self.port)

    def _make(self) -> LocalService:
        self.service = LocalService(self.writer)
        return self.service

    def stop(self, grace_s: float = 5.0) -> None:
        self.thread.close(grace_s)
        self.braid.close()

    @property
    def url(self) -> str:
        return f"braid://{self._host}:{self.port}"

    def open(self, timeout: float = PATIENCE_S) -> braidlog.Braid:
        return braidlog.open(self.url, timeout=timeout)

    def connect(self) -> Peer:
        return Peer(self._host, self.port)

    def on_loop(self, call: Callable[[], T]) -> T:
        """What the call finds on the server's own thread."""
        found: list[T] = []
        ready = threading.Event()

        def run() -> None:
            found.append(call())
            ready.set()

        self.service._cross(run)
        assert ready.wait(PATIENCE_S)
        return found[0]

    def eventually(self, holds: Callable[[], bool]) -> None:
        """Return once something is so on the server's thread."""
        deadline = time.monotonic() + PATIENCE_S
        turn = threading.Event()
        while not self.on_loop(holds):
            assert time.monotonic() < deadline, "it does not come to be so"
            turn.wait(0.005)

    def waiters(self) -> int:
        return sum(len(tracked.waiters) for tracked in self.service._tracking._logs.values())

    def is_quiet(self) -> bool:
        """Whether nothing is left of any peer."""
        server = self.thread.server
        return not server.connections and server.bytes_in_flight == 0 and self.waiters() == 0

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()


class Peer:
    """Somebody who connects and says what he likes."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), PATIENCE_S)
        self._parser = Parser()
        self._preface = b""
        self._frames: Iterator[Frame] = iter(())

    def greet(self, client: bytes = b"8 bytes.", link: bytes = b"") -> Peer:
        self.send(PREFACE + said(m.Hello(client, link=link), 0))
        assert isinstance(self.answer()[1], m.Welcome)
        return self

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def try_send(self, data: bytes) -> None:
        """The other side may have hung up."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def answer(self) -> tuple[int, m.Answer, memoryview]:
        """The next that arrives; EOFError once the other side has hung up."""
        while True:
            for frame in self._frames:
                return frame.number, m.decode_answer(frame.head), frame.body.data
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            wanted = len(PREFACE) - len(self._preface)
            self._preface += data[:wanted]
            self._frames = self._parser.feed(data[wanted:])

    def is_hung_up_on(self) -> bool:
        """Whether the other side hangs up, having said what it may."""
        try:
            while True:
                self.answer()
        except EOFError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def said(message: m.Request | m.Note, number: int = 1, body: bytes = b"", kind: Kind = Kind.REQUEST) -> bytes:
    return b"".join(frames.encode(kind, number, 0, m.encode(message), body))


class Regular:
    """A client that behaves: it appends and reads all the while, and notes the longest that it had to wait."""

    def __init__(self, served: Served, name: str = "regular") -> None:
        self._braid = served.open()
        self._log = self._braid.create(name)
        self._stopping = threading.Event()
        self.count = 0
        self.longest_s = 0.0
        self.error: BaseException | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._begun.wait(PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                value = b"%d" % self.count
                assert self._log.append(value) == self.count
                assert [record.value for record in self._log.read(self.count)] == [value]
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.count += 1
                self._begun.set()
        except BaseException as error:
            self.error = error
            self._begun.set()

    def go_on(self, more: int = 20) -> None:
        """Return once it has done so much more."""
        goal = self.count + more
        deadline = time.monotonic() + PATIENCE_S
        turn = threading.Event()
        while self.count < goal and self.error is None:
            assert time.monotonic() < deadline, "the regular client is kept waiting"
            turn.wait(0.002)

    def __enter__(self) -> Regular:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        try:
            if kind is None:
                if self.error is not None:
                    raise self.error
                values = [record.value for record in self._log.read(0)]
                assert values == [b"%d" % n for n in range(self.count)]
        finally:
            self._braid.close()
