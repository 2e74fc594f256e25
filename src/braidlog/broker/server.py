"""The server: sockets and a loop around `Conversation`s and one `Service`.

It runs in a loop of its own thread (`ServerThread`), beside whatever else the process does, or in the main thread of a
`braid` command. Answers of one turn of the loop leave in one write for each connection. A peer that does not read is
not read from, and gets no pushes, until it does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from functools import partial

from braidlog import limits
from braidlog.broker import conversation as conv
from braidlog.broker.conversation import Conversation, Pieces
from braidlog.broker.service import Caller, Feed, Service
from braidlog.errors import BraidError, Unavailable
from braidlog.wire.messages import (
    Answer,
    Append,
    Cancel,
    Credit,
    Ending,
    Floor,
    Hello,
    Number,
    Parts,
    Subscribe,
    Watch,
    Welcome,
)

_log = logging.getLogger("braidlog.server")


class Server:
    """Serves one service on any number of sockets. For the loop's thread alone."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        self.name = name
        self.connections: set[Connection] = set()
        self.bytes_in_flight = 0
        self.requests = 0
        self._loop = asyncio.get_running_loop()
        self._listeners: list[asyncio.AbstractServer] = []
        self._ending = False
        self._dirty: list[Connection] = []

    async def listen_tcp(self, host: str, port: int) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns where."""
        listener = await self._loop.create_server(lambda: Connection(self), host, port)
        self._listeners.append(listener)
        where: tuple[str, int] = listener.sockets[0].getsockname()[:2]
        return where

    async def listen_on(self, bound: socket.socket) -> None:
        """Listen on a socket that is bound already."""
        make = self._loop.create_unix_server if bound.family == socket.AF_UNIX else self._loop.create_server
        self._listeners.append(await make(lambda: Connection(self), sock=bound))

    async def close(self, grace_s: float = limits.SHUTDOWN_GRACE_S) -> None:
        """Answer what was asked, take nothing more, and close."""
        self._ending = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.end()
        deadline = self._loop.time() + grace_s
        while any(not c.idle for c in self.connections) and self._loop.time() < deadline:
            await asyncio.sleep(limits.SHUTDOWN_POLL_S)
        for connection in list(self.connections):
            connection.drop("the server is shutting down")
        while self.connections and self._loop.time() < deadline:
            await asyncio.sleep(limits.SHUTDOWN_POLL_S)
        for connection in list(self.connections):
            connection.abort()
        self.service.close()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call)

    def flush_soon(self, connection: Connection) -> None:
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()


class Connection(asyncio.Protocol):
    """One peer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._service = server.service
        self._conversation = Conversation()
        self._transport: asyncio.Transport | None = None
        self._caller = Caller(b"", 0, "")
        self._feeds: dict[int, Feed] = {}
        self._watches: dict[int, Callable[[], None]] = {}
        self._dirty = False
        self._choked = False  # the peer does not read what it asked for
        self._paused = False  # it asked for too much at once
        self._counted = 0
        self._slowed = 0  # pauses that are not over

    # --- what the loop calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=limits.CONNECTION_UNSENT_BYTES_MAX)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._carry_out(self._conversation.receive(data))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._server.connections.discard(self)
        self._transport = None
        for feed in self._feeds.values():
            feed.close()
        for stop in self._watches.values():
            stop()
        self._feeds.clear()
        self._watches.clear()
        self._service.left(self._caller)
        self._recount(gone=True)

    def pause_writing(self) -> None:
        self._choked = True
        self._listen()

    def resume_writing(self) -> None:
        self._choked = False
        self._listen()
        for feed in list(self._feeds.values()):
            feed.more(0)

    # --- what the server calls -----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self._conversation.idle

    @property
    def who(self) -> str:
        return self._caller.name

    def end(self) -> None:
        self._conversation.end()
        self._touch()

    def drop(self, reason: str) -> None:
        _log.debug("connection of %s closed: %s", self._caller.name or "a stranger", reason)
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        self._dirty = False
        out = self._conversation.out
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)
        self._conversation.out = []

    # --- carrying out --------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[conv.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, conv.Do):
                self._do(effect)
            elif isinstance(effect, conv.Heed):
                self._heed(effect)
            elif isinstance(effect, conv.Drop):
                _log.info("dropping the connection of %s: %s", self._caller.name or "a stranger", effect.reason)
                self.drop(effect.reason)
            else:
                self._paused = isinstance(effect, conv.Pause)
                self._listen()
        self._recount()
        self._touch()

    def _do(self, effect: conv.Do) -> None:
        number, request, body = effect
        self._server.requests += 1
        reply = partial(self._reply, number)
        if isinstance(request, Hello):
            self._caller = Caller(request.client, request.floor, request.name)
            self._caller.pause = self._pause
            service = self._service
            reply(
                Welcome(self._server.name, service.role, service.objects, limits.CONNECTION_IN_FLIGHT_BYTES_MAX), None
            )
        elif isinstance(request, Subscribe):
            self._subscribe(number, request)
        elif isinstance(request, Watch):
            stop = self._service.watch(request.log, request.since, partial(self._watched, number))
            if self._conversation.owes(number):
                self._watches[number] = stop
        elif isinstance(request, Append) and self._server.bytes_in_flight > limits.SERVER_IN_FLIGHT_BYTES_MAX:
            reply(
                Unavailable(
                    f"the server has {self._server.bytes_in_flight:,} bytes under way and takes at most "
                    f"{limits.SERVER_IN_FLIGHT_BYTES_MAX:,}: try again later, or send more slowly"
                ),
                None,
            )
        else:
            self._service.handle(self._caller, request, body, reply)

    def _subscribe(self, number: int, request: Subscribe) -> None:
        try:
            feed = self._service.subscribe(
                request.log,
                request.position,
                request.credit,
                partial(self._push, number),
                lambda: not self._choked,
                lambda readable: self._reply(number, Number(readable), None),
            )
        except BraidError as error:
            self._reply(number, error, None)
            return
        self._feeds[number] = feed
        feed.start()

    def _push(self, number: int, answer: Parts | Ending, body: Pieces | None) -> None:
        last = isinstance(answer, Ending)
        if last:
            self._feeds.pop(number, None)
        self._conversation.push(number, self._service.seen, answer, body, last=last)
        self._touch()

    def _watched(self, number: int, answer: Answer | BraidError, body: Pieces | None) -> None:
        self._watches.pop(number, None)
        self._reply(number, answer, body)

    def _heed(self, effect: conv.Heed) -> None:
        number, note = effect
        if isinstance(note, Floor):
            self._caller.floor = max(self._caller.floor, note.floor)
        elif isinstance(note, Cancel):
            feed = self._feeds.pop(number, None)
            if feed is not None:
                feed.close()
            stop = self._watches.pop(number, None)
            if stop is not None:
                stop()
        elif isinstance(note, Credit):
            feed = self._feeds.get(number)
            if feed is not None:
                feed.more(note.bytes)

    def _reply(self, number: int, answer: Answer | BraidError, body: Pieces | None) -> None:
        if self._transport is None:
            return
        if isinstance(answer, BraidError):
            self._conversation.refuse(number, answer, self._service.seen)
            effects = self._conversation.relieved()
        else:
            effects = self._conversation.answer(number, self._service.seen, answer, body)
        for effect in effects:
            assert isinstance(effect, conv.Resume)
            self._paused = False
            self._listen()
        self._recount()
        self._touch()

    def _touch(self) -> None:
        if not self._dirty and self._conversation.out:
            self._dirty = True
            self._server.flush_soon(self)

    def _listen(self) -> None:
        """Read from the peer, or not."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused or self._choked or self._slowed:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _pause(self, seconds: float) -> None:
        """Do not listen to the peer for a while: it sends faster than it may."""
        self._slowed += 1
        self._listen()
        self._server.later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._slowed -= 1
        self._listen()

    def _recount(self, *, gone: bool = False) -> None:
        now = 0 if gone else self._conversation.bytes_in_flight
        self._server.bytes_in_flight += now - self._counted
        self._counted = now
