"""The server: sockets and a loop around `Conversation`s and one `Service`.

It runs in a loop of its own thread (`ServerThread`), beside whatever else the process does, or in the main thread of a
`braid` command. Answers of one turn of the loop leave in one write for each connection. A peer that does not read is
not read from, and gets no pushes and nothing large, until it does. One that stops in the middle of something is
dropped, and so is one that has come back over another connection: what it sent over the first and was not read yet is
on its way again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from braidlog import limits
from braidlog.broker import entry as entering
from braidlog.broker import handles
from braidlog.broker.answering import Answering
from braidlog.broker.arriving import Arriving
from braidlog.broker.connection import Connection
from braidlog.broker.entry import Entry
from braidlog.broker.greeting import TokenChecks
from braidlog.broker.measuring import ServerMeasures
from braidlog.broker.service import Service
from braidlog.observe.http import Endpoint, Health
from braidlog.observe.logs import Event
from braidlog.observe.metrics import Registry
from braidlog.version import VERSION

_log = logging.getLogger("braidlog.server")


class Server:
    """Serves one service on any number of sockets. For the loop's thread alone."""

    def __init__(self, service: Service, name: str, entry: Entry | None = None) -> None:
        self.service = service
        self.name = name
        self.entry = entry or Entry()
        self.pauses = entering.Pauses()
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.connections_max = handles.connections_max()
        self.bytes_in_flight = 0
        self.bytes_arriving = 0  # of those, the memory for frames that are not whole
        self.arriving: Arriving[Connection] = Arriving()
        self.answering: Answering[Connection] = Answering()
        self._looking = False  # whether it will be looked for room for answers
        self.requests = 0
        self.scratch = memoryview(bytearray(limits.RECEIVE_BYTES))  # for what arrives, until its connection has a copy
        self._loop = asyncio.get_running_loop()
        self._listeners: list[asyncio.AbstractServer] = []
        self._links: dict[bytes, Connection] = {}
        self._ending = False
        self._dirty: list[Connection] = []
        self._began = self._loop.time()
        self._beside: list[Endpoint] = []
        self.measures = ServerMeasures(self)
        service.served_by(self.dismiss)
        self._sweep = self._loop.call_later(limits.CONNECTION_STALLED_S / 4, self._drop_stalled)
        self._token_checks = TokenChecks(self)

    async def listen_tcp(self, host: str, port: int) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns where."""
        listener = await self._loop.create_server(lambda: Connection(self), host, port)
        self._listeners.append(listener)
        where: tuple[str, int] = listener.sockets[0].getsockname()[:2]
        _log.info(Event("start", server=self.name, role=self.service.role, address=f"{where[0]}:{where[1]}"))
        return where

    async def listen_on(self, bound: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a socket that is bound already."""
        if bound.family == socket.AF_UNIX:
            self._listeners.append(await self._loop.create_unix_server(lambda: Connection(self), sock=bound))
            return
        handshake_s = None if tls is None else limits.TLS_HANDSHAKE_S
        self._listeners.append(
            await self._loop.create_server(
                lambda: Connection(self), sock=bound, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        )

    async def close(self, grace_s: float = limits.SHUTDOWN_GRACE_S) -> None:
        """Answer what was asked, take nothing more, and close."""
        self._ending = True
        self._sweep.cancel()
        self._token_checks.stop()
        _log.info(Event("stopping", server=self.name, connections=len(self.connections), grace_s=grace_s))
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
        self.measures.stop()
        for endpoint in self._beside:
            endpoint.close()
        _log.info(Event("stop", server=self.name, uptime_s=round(self.uptime_s, 3)))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call)

    def dismiss(self, reason: str) -> None:
        """Send everybody away who is here."""
        for connection in list(self.connections):
            connection.drop(reason)

    def arrived(self, connection: Connection) -> bool:
        """A new connection; says whether it may stay."""
        self.connections[connection] = None
        return not self._ending

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than there may be."""
        return len(self.connections) > self.connections_max

    def greeted(self, connection: Connection, link: bytes) -> None:
        """It is the only one of its link now."""
        older = self._links.get(link)
        self._links[link] = connection
        if older is not None:
            older.abort()

    def left(self, connection: Connection, link: bytes) -> None:
        self.connections.pop(connection, None)
        if self._links.get(link) is connection:
            del self._links[link]

    @property
    def bytes_taken(self) -> int:
        """Of requests that came as a whole and are not answered yet."""
        return self.bytes_in_flight - self.bytes_arriving

    def let_come(self) -> None:
        """Large frames whose turn it is now."""
        for connection in self.arriving.turn(self.bytes_taken):
            connection.may_come()

    def may_answer(self, connection: Connection) -> bool:
        """Whether there is room for one more large answer to this peer; it is told once there may be."""
        may = self.answering.may_begin(connection)
        if not may and not self._looking:
            self._looking = True
            self.later(limits.SERVER_ANSWERS_LOOK_S, self._look_for_room)
        return may

    def _look_for_room(self) -> None:
        """Nobody says when a peer has read: so what is unsent is counted anew, while others wait for it."""
        self._looking = False
        for connection in list(self.answering.owed):
            connection.count_answers()
        waiting, self.answering.waiting = list(self.answering.waiting), {}
        for connection in waiting:
            connection.serve_held()

    @property
    def listening(self) -> list[socket.socket]:
        """What it listens on. A server of uvloop's is of no class of asyncio's, but has sockets too."""
        return [bound for listener in self._listeners for bound in getattr(listener, "sockets", ())]

    @property
    def now(self) -> float:
        return self._loop.time()

    @property
    def uptime_s(self) -> float:
        return self._loop.time() - self._began

    @property
    def registry(self) -> Registry:
        """All its metrics."""
        return self.measures.registry

    def health(self) -> Health:
        """Whether it can take writes."""
        trouble = "the server is shutting down" if self._ending else self.service.trouble()
        facts: dict[str, str | int | float] = {"server": self.name, "role": self.service.role, "version": VERSION}
        return Health(trouble, facts | {"uptime_s": round(self.uptime_s, 3)})

    def accompany(self, beside: Endpoint) -> None:
        """Close this endpoint last of all."""
        self._beside.append(beside)

    def _drop_stalled(self) -> None:
        for connection in list(self.connections):
            if connection.stalled(self.now - limits.CONNECTION_STALLED_S):
                connection.expel("it stopped in the middle of something")
        self._sweep = self._loop.call_later(limits.CONNECTION_STALLED_S / 4, self._drop_stalled)

    def flush_soon(self, connection: Connection) -> None:
        if not self._dirty:
            self._loop.call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()
