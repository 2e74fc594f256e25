"""A service that stops and starts under its clients, and connections that break at any byte: nothing acknowledged is
lost, nothing is there twice, and every client's records stand in the order in which it sent them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import pytest

import braidlog
from braidlog import aio, limits
from braidlog.broker.service import Caller, Reply
from braidlog.client.remote.backend import RemoteBackend
from braidlog.client.remote.link import Link
from braidlog.errors import BraidError, OutcomeUnknown, Unavailable
from braidlog.wire import messages as m
from tests.faults.service import PATIENCE_S, Served


class Worker:
    """Appends and submits all the while, and keeps count of what it was told."""

    def __init__(self, braid: braidlog.Braid, number: int) -> None:
        self._log = braid.log("orders")
        self._number = number
        self._stopping = threading.Event()
        self.acknowledged: dict[bytes, int] = {}
        self.unknown: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.sent = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        tickets: list[tuple[bytes, braidlog.Ticket]] = []
        while not self._stopping.is_set():
            value = b"%d %d" % (self._number, self.sent)
            self.sent += 1
            if self.sent % 3:
                tickets.append((value, self._log.submit(value)))
                if len(tickets) < 20:
                    continue
            else:
                self._note(value, None)
            for earlier, ticket in tickets:
                self._note(earlier, ticket)
            tickets.clear()
        for earlier, ticket in tickets:
            self._note(earlier, ticket)

    def _note(self, value: bytes, ticket: braidlog.Ticket | None) -> None:
        try:
            at = self._log.append(value) if ticket is None else ticket.position(PATIENCE_S)
            assert isinstance(at, int)
            self.acknowledged[value] = at
        except OutcomeUnknown:
            self.unknown.add(value)
        except Unavailable:
            self.refused.add(value)

    def stop(self) -> None:
        self._stopping.set()
        self.thread.join(2 * PATIENCE_S)
        assert not self.thread.is_alive()

    def check(self, values: list[bytes]) -> None:
        mine = [value for value in values if value.startswith(b"%d " % self._number)]
        assert len(mine) == len(set(mine)), "something is there twice"
        for value, at in self.acknowledged.items():
            assert values[at] == value
        assert not self.refused & set(mine)
        assert len(self.acknowledged) + len(self.unknown) + len(self.refused) == self.sent
        # What it sent later stands later; an append goes behind all that was submitted before it.
        numbers = [int(value.split()[1]) for value in mine]
        assert numbers == sorted(numbers)


def values_of(served: Served) -> list[bytes]:
    with served.open() as braid:
        return [record.value for record in braid.log("orders").read(0)]


def test_restarts_under_load_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    with Served(tmp_path / "site.braid") as served:
        with served.open() as braid:
            braid.create("orders")
        braids = [served.open() for _ in range(4)]
        workers = [Worker(braid, number) for number, braid in enumerate(braids)]
        followed: list[bytes] = []
        enough = threading.Event()

        def follow() -> None:
            with served.open() as braid, braid.log("orders").subscribe(0) as subscription:
                while not enough.is_set() or len(followed) < goal:
                    followed.extend(record.value for record in subscription.poll(0.1))

        goal = 0
        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        rng = random.Random(2)
        for _ in range(5):
            before = sum(len(worker.acknowledged) for worker in workers)
            _until(lambda before=before: sum(len(w.acknowledged) for w in workers) > before + 100)  # type: ignore[misc]
            served.stop(grace_s=rng.choice([0.0, 5.0]))
            served.start()
        for worker in workers:
            worker.stop()
        values = values_of(served)
        for worker in workers:
            worker.check(values)
            assert not worker.unknown  # there was time enough for all
            assert not worker.refused
        goal = len(values)
        enough.set()
        follower.join(PATIENCE_S)
        assert followed == values
        for braid in braids:
            braid.close()


def test_a_poll_ends_in_time_though_the_service_is_gone_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with Served(tmp_path / "site.braid") as served, served.open(PATIENCE_S) as braid:
        log = braid.create("orders")
        log.append(b"1")
        with log.subscribe(0) as known, log.subscribe(0) as new:
            assert [record.value for record in known.poll()] == [b"1"]
            served.stop()
            _until(lambda: not _link(braid).connected)
            for subscription in (known, new):
                _in_time(lambda subscription=subscription: subscription.poll(0.05))  # type: ignore[misc]
            served.start()
            log.append(b"2")
            assert [record.value for record in known.poll(PATIENCE_S)] == [b"2"]
            found: list[bytes] = []
            while len(found) < 2:
                found += [record.value for record in new.poll(PATIENCE_S)]
            assert found == [b"1", b"2"]


def test_a_poll_ends_in_time_though_the_service_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POLL_ANSWER_S", 0.1)
    with Served(tmp_path / "site.braid") as served, served.open(PATIENCE_S) as braid:
        log = braid.create("orders")
        log.append(b"1")
        stand, go_on = threading.Event(), threading.Event()
        with log.subscribe(0) as known, log.subscribe(0) as new:
            assert [record.value for record in known.poll()] == [b"1"]
            log.append(b"2")  # something new is there, and `known` would like to know of it
            served.service._cross(lambda: (stand.set(), go_on.wait(PATIENCE_S)))  # type: ignore[arg-type]
            assert stand.wait(PATIENCE_S)
            try:
                known.poll()
                _in_time(lambda: known.poll(0.05))
                _in_time(lambda: new.poll(0.05))
            finally:
                go_on.set()
            assert [record.value for record in new.poll(PATIENCE_S)]


class Cutter:
    """Passes bytes on between clients and a server, and cuts the line after a while."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._target = port
        self._rng = rng
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self.cutting = True
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target), PATIENCE_S)
            except OSError:
                return
            for source, sink in ((client, server), (server, client)):
                room = self._rng.choice([300, 3000, 30_000]) + self._rng.randrange(1000)
                threading.Thread(target=self._pass_on, args=(source, sink, room), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, room: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(8192):
                if self.cutting and len(data) > room:
                    sink.sendall(data[:room])  # in the middle of a frame, as like as not
                    self.cuts += 1
                    break
                sink.sendall(data)
                room -= len(data) if self.cutting else 0
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closing = True
        self._listener.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "site.braid") as opened:
        yield opened
        opened.eventually(opened.is_quiet)


def test_lines_that_break_at_any_byte_lose_nothing_and_double_nothing(served: Served) -> None:
    with served.open() as braid:
        braid.create("orders")
    cutter = Cutter(served.port, random.Random(5))
    braids = [braidlog.open(f"braid://127.0.0.1:{cutter.port}", timeout=PATIENCE_S) for _ in range(3)]
    workers = [Worker(braid, number) for number, braid in enumerate(braids)]
    _until(lambda: cutter.cuts >= 40 and all(len(worker.acknowledged) > 100 for worker in workers))
    cutter.cutting = False
    for worker in workers:
        worker.stop()
    for braid in braids:
        braid.close()
    cutter.close()
    values = values_of(served)
    for worker in workers:
        worker.check(values)
        assert not worker.unknown
        assert not worker.refused


def test_who_waits_longer_than_it_may_for_a_service_that_is_gone_is_told_the_truth(tmp_path: Path) -> None:
    served = Served(tmp_path / "site.braid")
    braid = served.open(timeout=0.5)
    log = braid.create("orders")
    assert log.append(b"there") == 0
    served.stop()
    with pytest.raises(BraidError):
        log.tail()  # by now it is known that nobody is there
    with pytest.raises(Unavailable, match="nothing was changed"):
        log.append(b"not there")
    served.start()
    assert log.append(b"there again") == 1
    assert [record.value for record in log.read(0)] == [b"there", b"there again"]
    braid.close()
    served.stop()


def test_an_awaited_append_is_told_the_same_truth_and_waits_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its patience is that of its braid, not that with a disk."""
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT_S", 0.05)

    async def append(url: str, timeout: float) -> int | None:
        async with await aio.open(url, timeout=timeout) as braid:
            log = await braid.log("orders")
            ready.set()
            await asyncio.to_thread(go_on.wait, PATIENCE_S)
            return await log.append(b"1")

    def run(timeout: float) -> int | None:
        return asyncio.run(append(served.url, timeout))

    with ThreadPoolExecutor() as threads, Served(tmp_path / "site.braid") as served:
        with served.open() as braid:
            braid.create("orders")
        ready, go_on = threading.Event(), threading.Event()
        patient = threads.submit(run, PATIENCE_S)
        with served.writer.committer.alone():
            assert ready.wait(PATIENCE_S)
            go_on.set()
            with pytest.raises(FutureTimeout):
                patient.result(0.5)
        assert patient.result(PATIENCE_S) == 0

        ready, go_on = threading.Event(), threading.Event()
        told = threads.submit(run, 0.5)
        assert ready.wait(PATIENCE_S)
        served.stop()
        go_on.set()
        with pytest.raises(Unavailable, match="nothing was changed"):
            told.result(PATIENCE_S)
        served.start()


def test_an_awaited_append_of_nothing_does_not_keep_the_loop_from_going_on(tmp_path: Path) -> None:
    """It looks at the log, and the service hangs."""
    stand, go_on = threading.Event(), threading.Event()

    async def play(url: str) -> None:
        async with await aio.open(url, timeout=PATIENCE_S) as braid:
            log = await braid.create("orders")
            served.service._cross(lambda: (stand.set(), go_on.wait(PATIENCE_S)))  # type: ignore[arg-type]
            await asyncio.to_thread(stand.wait, PATIENCE_S)
            appending = asyncio.create_task(log.append_many([]))
            try:
                await asyncio.sleep(0)  # it has begun
                await asyncio.sleep(0)
                assert not appending.done()
            finally:
                go_on.set()
            assert await appending == range(0)

    with Served(tmp_path / "site.braid") as served:
        asyncio.run(play(served.url))


def test_a_change_that_was_sent_and_never_answered_is_unknown_and_can_be_asked_for(served: Served) -> None:
    with served.open(timeout=0.3) as impatient, served.open() as patient:
        log = patient.create("orders")
        with served.writer.committer.alone():
            tickets = [impatient.log("orders").submit(b"%d" % n) for n in range(3)]
            for ticket in tickets:
                with pytest.raises(OutcomeUnknown) as told:
                    ticket.durable(PATIENCE_S)
                assert told.value.request_id
        assert log.read(0, wait=PATIENCE_S)
        for n, ticket in enumerate(tickets):
            assert patient.resolve(ticket.request_id).positions == range(n, n + 1)


def test_a_deadline_is_kept_though_there_is_always_something_to_receive(served: Served) -> None:
    with served.open(timeout=0.5) as braid, served.open() as other:
        busy, mine = other.create("busy"), other.create("mine")
        stopping = threading.Event()

        def flood() -> None:
            while not stopping.is_set():
                busy.append_many([bytes(100)] * 10)

        subscription = braid.log("busy").subscribe(0)
        flooding = threading.Thread(target=flood, daemon=True)
        flooding.start()
        try:
            handle = served.service.handle
            lost = threading.Event()
            number = mine.info().id

            withheld: list[Reply] = []

            def deaf(caller: Caller, request: m.Request, body: memoryview, reply: Reply) -> None:
                if getattr(getattr(request, "command", None), "log", None) == number:
                    withheld.append(reply)
                    lost.set()
                else:
                    handle(caller, request, body, reply)

            served.service.handle = deaf  # type: ignore[method-assign]
            ticket = braid.log("mine").submit(b"never answered")
            assert lost.wait(PATIENCE_S)
            waiting = threading.Thread(target=lambda: [subscription.poll(0.05) for _ in range(40)], daemon=True)
            waiting.start()
            with pytest.raises(OutcomeUnknown):
                ticket.durable(5.0)
            waiting.join(PATIENCE_S)
        finally:
            stopping.set()
            flooding.join(PATIENCE_S)
            subscription.close()
        served.on_loop(lambda: withheld[0](Unavailable("it was lost"), None))


def _link(braid: braidlog.Braid) -> Link:
    backend = braid._session.backend
    assert isinstance(backend, RemoteBackend)
    return backend.link


def _in_time(poll: Callable[[], list[braidlog.Record]]) -> None:
    """It comes back long before the time of a call is over."""
    begun = time.monotonic()
    assert poll() == []
    assert time.monotonic() - begun < PATIENCE_S / 4


def _until(holds: object) -> None:
    assert callable(holds)
    turn = threading.Event()
    for _ in range(int(3 * PATIENCE_S / 0.01)):
        if holds():
            return
        turn.wait(0.01)
    raise AssertionError("it does not come to be so")
