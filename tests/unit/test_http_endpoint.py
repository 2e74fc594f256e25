"""The HTTP endpoint answers those who look after it, and bears everybody else."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from braidlog import limits
from braidlog.observe.http import Endpoint, Health, serve_http
from braidlog.observe.metrics import Registry
from tests.e2e.conformance import PATIENCE_S
from tests.unit.prometheus_text import parse

GET = b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n"


class Observed:
    """Something to look at."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.counter("braidlog_appends_total", "Batches.").add(3)
        self.trouble = ""
        self.beside: list[Endpoint] = []

    def health(self) -> Health:
        return Health(self.trouble, {"role": "serve"})

    def accompany(self, beside: Endpoint) -> None:
        self.beside.append(beside)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


Ask = Callable[[bytes], Awaitable[bytes]]


def with_endpoint(use: Callable[[Observed, Ask, int], Awaitable[None]]) -> None:
    """Do something with an endpoint, which is to work as ever afterwards."""

    async def run() -> None:
        observed = Observed()
        host, port = await serve_http(observed, "127.0.0.1", 0)

        async def ask(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(data)
            try:
                return await asyncio.wait_for(reader.read(), PATIENCE_S)
            except ConnectionError:
                return b""
            finally:
                writer.close()

        await use(observed, ask, port)
        observed.trouble = ""
        assert answer(await ask(GET % b"/health")).status == 200
        [endpoint] = observed.beside
        endpoint.close()

    asyncio.run(run())


def answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *fields = head.decode("ascii").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = dict(field.split(": ", 1) for field in fields)
    assert headers["Connection"] == "close"
    return Answer(int(status), headers, body)


def test_metrics_are_as_prometheus_reads_them() -> None:
    async def use(_: Observed, ask: Ask, __: int) -> None:
        found = answer(await ask(GET % b"/metrics?x=y"))
        assert found.status == 200
        assert found.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert found.headers["Content-Length"] == str(len(found.body))
        assert parse(found.body)["braidlog_appends_total"].value() == 3

    with_endpoint(use)


def test_health_says_why_not() -> None:
    async def use(observed: Observed, ask: Ask, _: int) -> None:
        found = answer(await ask(GET % b"/health"))
        assert (found.status, json.loads(found.body)) == (200, {"status": "ok", "role": "serve"})
        observed.trouble = "the disk is full"
        found = answer(await ask(GET % b"/health"))
        assert found.status == 503
        assert json.loads(found.body) == {"status": "unavailable", "reason": "the disk is full", "role": "serve"}

    with_endpoint(use)


def test_head_answers_without_a_body() -> None:
    async def use(_: Observed, ask: Ask, __: int) -> None:
        found = answer(await ask(b"HEAD /metrics HTTP/1.0\r\n\r\n"))
        assert (found.status, found.body) == (200, b"")
        assert int(found.headers["Content-Length"]) > 0

    with_endpoint(use)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\nHost: here\r\n\r\n", 404),
        (b"GET /../health HTTP/1.1\r\nHost: here\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\nHost: here\r\n\r\n", 405),
        (b"DELETE /metrics HTTP/1.1\r\nHost: here\r\n\r\n", 405),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),  # without a host
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\nHost: here\r\n\r\n", 400),
        (b"GET http://here/health HTTP/1.1\r\nHost: here\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\nHost: here\r\n\r\n", 400),
        (b"get /health HTTP/1.1\r\nHost: here\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\r\nbad header\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\r\nX: a\r\n b\r\n\r\n", 400),  # a folded one
        (b"GET /health HTTP/1.1\r\nHost: here\r\nX : a\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\nX: a\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /\x00health HTTP/1.1\r\nHost: here\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\xfe\xfd\r\n\r\n", 400),
        (b"braid\x01\x00\x00" + bytes(40) + b"\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: here\r\nX: " + b"a" * limits.HTTP_HEADER_BYTES_MAX + b"\r\n\r\n", 431),
        (b"a" * (1 << 17), 431),
    ],
)
def test_what_is_not_exactly_a_request_is_told_so(request_: bytes, status: int) -> None:
    async def use(_: Observed, ask: Ask, __: int) -> None:
        assert answer(await ask(request_)).status == status

    with_endpoint(use)


def test_what_follows_a_request_is_thrown_away() -> None:
    async def use(_: Observed, ask: Ask, __: int) -> None:
        found = await ask((GET % b"/health") + (GET % b"/metrics") * 100)
        assert found.count(b"HTTP/1.1") == 1
        assert answer(found).status == 200

    with_endpoint(use)


def test_a_request_may_come_byte_by_byte() -> None:
    async def use(_: Observed, __: Ask, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in GET % b"/health":
            writer.write(bytes([byte]))
            await writer.drain()
        assert answer(await asyncio.wait_for(reader.read(), PATIENCE_S)).status == 200
        writer.close()

    with_endpoint(use)


def test_who_takes_too_long_is_told_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_REQUEST_S", 0.01)

    async def use(_: Observed, ask: Ask, __: int) -> None:
        assert answer(await ask(b"GET /health HTTP/1.1\r\nHost:")).status == 408
        monkeypatch.setattr(limits, "HTTP_REQUEST_S", PATIENCE_S)

    with_endpoint(use)


def test_who_does_not_leave_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_LINGER_S", 0.01)

    async def use(observed: Observed, _: Ask, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"/health")
        assert answer(await asyncio.wait_for(reader.read(), PATIENCE_S)).status == 200
        [endpoint] = observed.beside
        async with asyncio.timeout(PATIENCE_S):
            while endpoint.connections:
                await asyncio.sleep(0)
        writer.close()

    with_endpoint(use)


def test_only_so_many_are_let_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 2)

    async def use(observed: Observed, ask: Ask, port: int) -> None:
        [endpoint] = observed.beside
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while len(endpoint.connections) < 2:
                await asyncio.sleep(0)
        assert await ask(GET % b"/health") == b""
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while endpoint.connections:
                await asyncio.sleep(0)

    with_endpoint(use)


def test_a_page_that_fails_is_an_error_of_ours_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def use(observed: Observed, ask: Ask, _: int) -> None:
        def fail() -> int:
            raise RuntimeError("no idea")

        observed.registry.gauge("braidlog_logs", "Logs.", read=fail)
        found = answer(await ask(GET % b"/metrics"))
        assert (found.status, found.body) == (500, b"500 Internal Server Error\n")

    with_endpoint(use)
    assert "no idea" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_garbage_harms_nothing(seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        b"GET ",
        b"HEAD ",
        b"/health",
        b"/metrics",
        b" HTTP/1.1",
        b"\r\n",
        b"\r\n\r\n",
        b"Host: x",
        b"\0",
        b": ",
        b"\n",
    ]

    def garbage() -> bytes:
        return (
            b"".join(
                chance.choice(parts) if chance.random() < 0.8 else chance.randbytes(chance.randrange(1, 50))
                for _ in range(chance.randrange(1, 40))
            )
            + b"\r\n\r\n"
        )

    async def use(_: Observed, ask: Ask, __: int) -> None:
        for _ in range(40):
            assert answer(await ask(garbage())).status in (200, 400, 404, 405, 431)

    with_endpoint(use)
