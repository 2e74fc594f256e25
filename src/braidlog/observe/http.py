"""An HTTP endpoint beside a server, on its loop: `/health` and `/metrics`, and nothing else.

It speaks just enough HTTP/1.1 for those who look after services: GET and HEAD, one request for each connection. It is
written for an open port: what a peer may send, how long it may take and how many may come at once is bounded, a request
that is not exactly one is answered with 400, and whatever follows it is thrown away. Nothing in it can be changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, cast

from braidlog import limits
from braidlog.observe.exposition import CONTENT_TYPE, render
from braidlog.observe.metrics import Registry

_log = logging.getLogger("braidlog.http")

_END: Final = b"\r\n\r\n"
_REQUEST: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*)")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Health(NamedTuple):
    """`trouble` is why no writes can be taken; empty if they can."""

    trouble: str
    facts: Mapping[str, str | int | float]


class Observed(Protocol):
    """What there is to be looked at: a broker's Server is one."""

    @property
    def registry(self) -> Registry: ...
    def health(self) -> Health: ...
    def accompany(self, beside: Endpoint) -> None:
        """Close this endpoint when everything is over."""


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes
    extra: str = ""


async def serve_http(server: Observed, host: str, port: int) -> tuple[str, int]:
    """Answer `/health` and `/metrics` until the server is closed. Port 0 takes a free one; returns where.

    To be called on the server's loop. While the server shuts down, `/health` answers 503.
    """
    endpoint = Endpoint(server.health, lambda: server.registry)
    where = await endpoint.listen(host, port)
    server.accompany(endpoint)
    return where


class Endpoint:
    """The listening socket and the connections that came over it. For the loop's thread alone.

    It may listen before there is a server: what `health` and `registry` answer is asked anew each time."""

    def __init__(self, health: Callable[[], Health], registry: Callable[[], Registry]) -> None:
        self.connections: set[_Connection] = set()
        self._tell_health = health
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        self._listener = await self._loop.create_server(lambda: _Connection(self, self._loop), host, port)
        where: tuple[str, int] = self._listener.sockets[0].getsockname()[:2]
        return where

    async def listen_on(self, bound: socket.socket) -> None:
        """Listen on a socket that is bound already."""
        self._listener = await self._loop.create_server(lambda: _Connection(self, self._loop), sock=bound)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort()

    def answer(self, path: str) -> _Answer:
        try:
            if path == "/metrics":
                return _Answer(200, CONTENT_TYPE, render(self._registry().collect()))
            if path == "/health":
                return self._health()
        except Exception:
            _log.exception("%s cannot be told", path)
            return plain(500)
        return plain(404)

    def _health(self) -> _Answer:
        trouble, facts = self._tell_health()
        document: dict[str, str | int | float] = {"status": "unavailable" if trouble else "ok"}
        if trouble:
            document["reason"] = trouble
        body = json.dumps(document | dict(facts)).encode() + b"\n"
        return _Answer(503 if trouble else 200, "application/json", body)


class _Connection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False
        self._ignored = 0  # bytes that came after the request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own
        self._transport = transport
        if len(self._endpoint.connections) >= limits.HTTP_CONNECTIONS_MAX:
            transport.abort()
            return
        self._endpoint.connections.add(self)
        self._timer = self._loop.call_later(limits.HTTP_REQUEST_S, self._too_slow)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._endpoint.connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            self._ignored += len(data)
            if self._ignored > limits.HTTP_IGNORED_BYTES_MAX:
                self.abort()
            return
        self._received += data
        end = self._received.find(_END)
        if 0 <= end <= limits.HTTP_HEADER_BYTES_MAX:
            self._answer(bytes(self._received[:end]))
        elif len(self._received) > limits.HTTP_HEADER_BYTES_MAX:
            self._send(plain(431), body=True)

    def eof_received(self) -> bool:
        return False  # whoever says no more before it asked is not answered; an answer that is under way is still sent

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _too_slow(self) -> None:
        if self._answered:
            self.abort()
        else:
            self._send(plain(408), body=True)

    def _answer(self, head: bytes) -> None:
        first, *fields = head.split(b"\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None or not _proper(fields, needs_host=request[3] == b"1"):
            self._send(plain(400), body=True)
        elif request[1] not in (b"GET", b"HEAD"):
            self._send(plain(405, "Allow: GET, HEAD\r\n"), body=True)
        else:
            path = request[2].partition(b"?")[0].decode("ascii")
            self._send(self._endpoint.answer(path), body=request[1] == b"GET")

    def _send(self, answer: _Answer, *, body: bool) -> None:
        """Answer and end. What the peer still sends is read and thrown away: closing with bytes unread would have the
        system reset the connection, and take the answer from the peer."""
        assert self._transport is not None
        self._answered = True
        self._received.clear()
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n"
            f"{answer.extra}"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("ascii") + (answer.body if body else b""))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limits.HTTP_LINGER_S, self._too_slow)


def plain(status: int, extra: str = "") -> _Answer:
    return _Answer(status, "text/plain; charset=utf-8", f"{status} {_REASONS[status]}\n".encode(), extra)


def _proper(fields: list[bytes], *, needs_host: bool) -> bool:
    """Whether these are header fields of a request without a body."""
    hosts = 0
    for field in fields:
        match = _FIELD.fullmatch(field)
        if match is None:
            return False
        name, value = match[1].lower(), match[2].strip()
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return False
    return hosts == 1 if needs_host else hosts <= 1
