"""A broker's connection to the metadata, over a real socket, to a server that stops talking."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from braidlog import limits
from braidlog.broker.link import MetadataLink
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import PREFACE, Kind

DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINK_TICK_S", 0.01)
    monkeypatch.setattr(limits, "PING_S", 0.03)
    monkeypatch.setattr(limits, "SILENCE_S", 0.1)


def test_one_that_says_nothing_any_more_is_given_up_and_the_next_is_asked_again() -> None:
    """The first server says welcome and nothing else. What it was asked goes to the next one, which answers."""

    async def play() -> m.Answer:
        came = 0
        kept: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal came
            came += 1
            kept.append(writer)
            welcome = frames.encode(Kind.ANSWER, 0, 0, m.encode(m.Welcome("s", "metadata", None, 1)))
            writer.writelines([PREFACE, *welcome])
            if came > 1:
                await reader.readexactly(len(PREFACE) + 1)
                writer.writelines(frames.encode(Kind.ANSWER, call.number, 0, m.encode(m.Number(7))))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        link = MetadataLink([server.sockets[0].getsockname()[:2]], b"8 bytes.", "tests")
        answered: asyncio.Future[m.Answer] = asyncio.get_running_loop().create_future()
        call = link.call(m.Tail(1), lambda _, answer, __: answered.set_result(answer))
        try:
            return await asyncio.wait_for(answered, DEADLINE_S)
        finally:
            link.close()
            for writer in kept:
                writer.close()
            server.close()

    assert asyncio.run(play()) == m.Number(7)


def test_one_that_cannot_be_reached_is_told_of_once_and_now_and_then_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at each attempt: there are many in a second."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = nobody.getsockname()[:2]
    monkeypatch.setattr(limits, "RECONNECT_MAX_S", limits.RECONNECT_S)
    attempts = 0

    async def play(enough: int) -> list[str]:
        nonlocal attempts
        attempts = 0
        caplog.clear()
        loop = asyncio.get_running_loop()
        connect = loop.create_connection

        async def counted(*args: object, **named: object) -> object:
            nonlocal attempts
            attempts += 1
            if attempts == enough:
                done.set()
            return await connect(*args, **named)  # type: ignore[arg-type]

        done = asyncio.Event()
        monkeypatch.setattr(loop, "create_connection", counted)
        link = MetadataLink([address], b"8 bytes.", "tests")
        try:
            await asyncio.wait_for(done.wait(), DEADLINE_S)
        finally:
            link.close()
        return [record.message for record in caplog.records if "cannot be reached" in record.message]

    with caplog.at_level(logging.WARNING, "braidlog.broker"):
        assert len(asyncio.run(play(10))) == 1
        monkeypatch.setattr(limits, "RECONNECT_TOLD_S", 0.0)
        assert len(asyncio.run(play(10))) >= 9


@pytest.mark.parametrize("error", [UnicodeError("label empty or too long"), RuntimeError("a mistake of ours")])
def test_whatever_goes_wrong_at_one_address_the_next_is_tried(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the task that connects a broker would live on, and never say why nothing is answered."""

    async def play() -> list[str]:
        loop = asyncio.get_running_loop()
        connect = loop.create_connection
        greeted = asyncio.Event()
        told: list[str] = []

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            welcome = frames.encode(Kind.ANSWER, 0, 0, m.encode(m.Welcome("s", "metadata", None, 1)))
            writer.writelines([PREFACE, *welcome])

        async def connecting(factory: Any, host: str, port: int, **options: Any) -> Any:
            if host == "wrong":
                raise error
            return await connect(factory, host, port, **options)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setattr(loop, "create_connection", connecting)
        link = MetadataLink([("wrong", 1), server.sockets[0].getsockname()[:2]], b"8 bytes.", "tests")
        link.on_connected = lambda _: greeted.set()
        link.on_refused = lambda refused: told.append(str(refused))
        try:
            await asyncio.wait_for(greeted.wait(), DEADLINE_S)
            return told
        finally:
            link.close()
            server.close()

    told = asyncio.run(play())
    assert len(told) == isinstance(error, RuntimeError)  # who starts with a mistake of ours ends with it
    assert all("a mistake of ours" in text for text in told)
