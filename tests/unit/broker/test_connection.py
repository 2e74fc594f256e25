"""What a connection sends, and when."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from braidlog import limits
from braidlog.broker.answering import Answering
from braidlog.broker.arriving import Arriving
from braidlog.broker.connection import Connection
from braidlog.broker.conversation import Do
from braidlog.broker.policy import Scopes
from braidlog.broker.server import Server
from braidlog.broker.service import Caller, Reply, Service
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import PREFACE, Body, Frame, Kind, Parser

LARGE = bytes(range(256)) * 4096  # a MiB, four of which are an answer


class Library(Service):
    """Has four MiB for everybody who reads, and a number for everybody else."""

    role = "serve"
    objects = None
    seen = 1

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        del caller, body
        if isinstance(request, m.Read):
            reply(m.Parts([m.Part(0, 1, 4 * len(LARGE), True, True)], 1, 1), [LARGE] * 4)
        else:
            reply(m.Number(7), None)

    def subscribe(self, *_: Any) -> Any:
        return Begun()

    def watch(self, *_: Any) -> Any:
        return lambda: None

    wait_for = watch


class Begun:
    """A subscription that pushes nothing."""

    def start(self) -> None: ...
    def more(self, credit: int) -> None: ...
    def close(self) -> None: ...


class Line(asyncio.Transport):
    """Keeps what is sent, in the order in which it is over all lines."""

    def __init__(self, name: str, order: list[tuple[str, int]]) -> None:
        super().__init__()
        self.sent: list[bytes | memoryview] = []
        self.reading = True
        self.stuck = False  # nobody reads what is sent
        self._name = name
        self._order = order
        self._pair = socket.socketpair()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._pair[0] if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.sent)) if self.stuck else 0

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def close(self) -> None:
        for end in self._pair:
            end.close()

    def writelines(self, pieces: Any) -> None:
        pieces = list(pieces)
        self.sent += pieces
        self._order.append((self._name, sum(map(len, pieces))))

    def heard(self) -> list[Frame]:
        data = b"".join(self.sent)
        assert PREFACE.startswith(data[: len(PREFACE)])
        return list(Parser().feed(data[len(PREFACE) :]))


class Peer:
    def __init__(self, server: Server, name: str, order: list[tuple[str, int]]) -> None:
        self.line = Line(name, order)
        self.connection = Connection(server)
        self.connection.connection_made(self.line)
        self.say(m.Hello(name.encode().ljust(limits.CLIENT_ID_BYTES)), 0, PREFACE)

    def say(self, request: m.Request | m.Note, number: int, before: bytes = b"", *, kind: Kind = Kind.REQUEST) -> None:
        self.send(before + b"".join(frames.encode(kind, number, 0, m.encode(request))))

    def send(self, data: bytes) -> None:
        while data:
            room = self.connection.get_buffer(-1)
            count = min(len(data), len(room))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def answer(self, number: int) -> Frame | None:
        return next((frame for frame in self.line.heard() if frame.number == number), None)


def played(story: Callable[[Server, list[tuple[str, int]]], Any]) -> None:
    async def play() -> None:
        server = Server(Library(), "library")
        try:
            await asyncio.wait_for(story(server, []), 10)
        finally:
            for connection in list(server.connections):
                connection.connection_lost(None)
            await server.close(0)

    asyncio.run(play())


def test_who_asks_for_little_is_answered_amid_a_large_answer() -> None:
    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        reader, asker = Peer(server, "reader", order), Peer(server, "asker", order)
        await asyncio.sleep(0)
        del order[:]
        reader.say(m.Read(1, 0, 1, 1 << 30), 1)
        asker.say(m.Tail(1), 1)
        while reader.answer(1) is None:
            await asyncio.sleep(0)
        assert max(count for _, count in order) <= limits.SEND_BYTES
        assert [name for name, _ in order].index("asker") <= 1
        told = reader.answer(1)
        assert told is not None
        assert told.body.data == LARGE * 4
        reader.line.close()
        asker.line.close()

    played(story)


def test_a_large_answer_is_sent_from_where_it_is() -> None:
    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        reader = Peer(server, "reader", order)
        reader.say(m.Read(1, 0, 1, 1 << 30), 1)
        while reader.answer(1) is None:
            await asyncio.sleep(0)
        mine = [piece for piece in reader.line.sent if isinstance(piece, memoryview)]
        assert sum(map(len, mine)) == 4 * len(LARGE)
        assert all(piece.obj is LARGE for piece in mine)
        reader.line.close()

    played(story)


def test_one_large_frame_waits_for_another_while_small_ones_come() -> None:
    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        server.arriving = Arriving(8 * limits.MIB)
        first, second, third, asker = (Peer(server, name, order) for name in ("first", "second", "third", "asker"))
        await asyncio.sleep(0)
        append = m.encode(m.Append(m.c.Append(1, 1, 1, 0, 0)))
        large = b"".join(frames.encode(Kind.REQUEST, 1, 0, append, bytes(5 * limits.MIB)))
        for peer in (first, second, third):
            peer.send(large[: limits.RECEIVE_BYTES])
        assert [peer.line.reading for peer in (first, second, third)] == [True, False, False]
        asker.say(m.Tail(1), 1)
        asker.send(b"".join(frames.encode(Kind.REQUEST, 2, 0, append, bytes(1000))))
        await asyncio.sleep(0)
        assert asker.answer(1) is not None
        assert asker.answer(2) is not None
        first.send(large[limits.RECEIVE_BYTES :])
        assert [peer.line.reading for peer in (first, second, third)] == [True, True, False]
        second.connection.connection_lost(None)
        assert third.line.reading
        third.send(large[limits.RECEIVE_BYTES :] + large[:100])
        await asyncio.sleep(0)
        assert third.answer(1) is not None
        assert not server.arriving.waiting
        assert [server.arriving.comes(peer.connection) for peer in (first, second, third)] == [False, False, True]
        third.connection.connection_lost(None)
        assert (server.bytes_in_flight, server.bytes_arriving) == (0, 0)
        for peer in (first, second, third, asker):
            peer.line.close()

    played(story)


def test_those_who_do_not_read_are_owed_little_all_together_and_hold_nobody_up() -> None:
    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        server.answering = Answering(12 * limits.MIB)
        deaf = [Peer(server, f"deaf-{number}", order) for number in range(5)]
        reader = Peer(server, "reader", order)
        await asyncio.sleep(0)
        for peer in deaf:
            peer.line.stuck = True
            for number in range(1, 5):
                peer.say(m.Read(1, 0, 1, 1 << 30), number)
        assert server.answering.bytes <= (12 + 4 * len(deaf) + 1) * limits.MIB
        for number in range(1, 5):
            reader.say(m.Read(1, 0, 1, 1 << 30), number)
        while reader.answer(4) is None:
            await asyncio.sleep(0)
        assert deaf[-1].answer(2) is None
        for peer in deaf:
            peer.line.stuck = False
            peer.connection.resume_writing()
        while any(peer.answer(4) is None for peer in deaf):
            await asyncio.sleep(0)
        server._look_for_room()
        assert (server.answering.bytes, server.answering.owed) == (0, {})
        for peer in (*deaf, reader):
            peer.line.close()

    played(story)


@pytest.mark.parametrize("lasting", [m.Subscribe(1, 0, 1), m.Watch(1, 0), m.Await(1, 0, 0, 0, 0, 0)])
def test_what_is_cancelled_while_it_is_checked_is_not_begun(lasting: m.Request) -> None:
    """Nobody would ever end it."""

    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        peer = Peer(server, "peer", order)
        await asyncio.sleep(0)
        checked: list[Do] = []
        peer.connection._caller.scopes = Scopes.of("peer", ["admin:*"])
        peer.connection._gate.enter = lambda _, effect: checked.append(effect)  # type: ignore[method-assign]
        peer.say(lasting, 1)
        [effect] = checked
        peer.say(m.Cancel(), 1, kind=Kind.NOTE)
        peer.connection._carry_out_safely(effect)
        await asyncio.sleep(0)
        assert peer.answer(1) is None
        assert (peer.connection.subscriptions, peer.connection.watches) == (0, 0)
        peer.line.close()

    played(story)


def test_whoever_is_dropped_is_sent_all_that_was_said() -> None:
    async def story(server: Server, order: list[tuple[str, int]]) -> None:
        reader = Peer(server, "reader", order)
        reader.say(m.Read(1, 0, 1, 1 << 30), 1)
        reader.connection.drop("the server is shutting down")
        assert reader.answer(1) is not None

    played(story)
