"""A client's connection: `Calls` driven as `braidlog.client.remote.link` drives it, by a loop instead of threads.

It connects to whichever address answers, in turn, sends again what was not answered, asks a silent server whether it is
there and gives it up if not, and gives up calls whose time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from braidlog import limits
from braidlog.errors import BraidError
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Calls, Done
from braidlog.wire.frames import Malformed
from sim.network import End

TICK_S = 0.25
ANY_PORT = 1


class ClientLink:
    """For the loop's fiber alone."""

    def __init__(self, addresses: Sequence[str], client: bytes, name: str, link: bytes, siblings: list[Calls]) -> None:
        self._loop = asyncio.get_running_loop()
        self._addresses = list(addresses)
        self._calls = Calls(client, name, link, siblings=siblings)
        self._transport: Any = None
        self._ended = asyncio.Event()
        self._heard = 0.0
        self._pinged = False
        self._flushing = False
        self.resent = 0  # changes that were sent over more than one connection
        self._tasks = [self._loop.create_task(self._run()), self._loop.create_task(self._tick())]

    @property
    def connected(self) -> bool:
        return self._calls.welcome is not None

    @property
    def changing(self) -> bool:
        return self._calls.changing

    def begin(self, request: m.Request, body: bytes | memoryview, timeout: float, done: Done) -> Call:
        call = self._calls.begin(request, body, self._loop.time() + timeout, done)
        self._flush_soon()
        return call

    async def ask(self, request: m.Request, timeout: float, body: bytes | memoryview = b"") -> tuple[Any, memoryview]:
        """The answer; errors are raised."""
        waiting: asyncio.Future[tuple[m.Answer | BraidError, memoryview]] = self._loop.create_future()
        self.begin(request, body, timeout, lambda _, answer, data: waiting.set_result((answer, data)))
        answer, data = await waiting
        if isinstance(answer, BraidError):
            raise answer
        return answer, data

    def note(self, call: Call, note: m.Note) -> None:
        self._calls.note(call, note)
        self._flush_soon()

    def forget(self, call: Call) -> None:
        self._calls.forget(call)

    async def _run(self) -> None:
        failures = turn = 0
        while True:
            address = self._addresses[turn % len(self._addresses)]
            turn += 1
            self._ended = asyncio.Event()
            began = self._loop.time()
            greeted = False
            try:
                async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
                    await self._loop.create_connection(lambda: _Protocol(self), address, ANY_PORT)
                await self._ended.wait()
                greeted = True
            except (OSError, TimeoutError):
                pass
            lasted = self._loop.time() - began > limits.RECONNECT_MAX_S
            failures = (0 if lasted else 1) if greeted else failures + 1
            if failures:
                doubled = limits.RECONNECT_S * 2 ** min(failures // len(self._addresses), 10)
                await asyncio.sleep(min(doubled, limits.RECONNECT_MAX_S))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._transport is not None and len(self._calls):
                silent_s = self._loop.time() - self._heard
                if silent_s > limits.SILENCE_S:
                    self._transport.abort()
                elif silent_s > limits.PING_S and not self._pinged:
                    self._pinged = True
                    self.begin(m.Ping(), b"", limits.SILENCE_S, self._ponged)
            self._calls.expire(self._loop.time(), "it took too long")
            self._hand_out()

    def _ponged(self, *_: object) -> None:
        self._pinged = False

    # --- what the protocol tells ---------------------------------------------------------------------------------

    def made(self, transport: End) -> None:
        self._transport = transport
        self._heard = self._loop.time()
        self._calls.connected()
        self._flush()

    def received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._calls.receive(data)
        except Malformed as error:
            if not str(error).startswith("the server refuses the connection"):  # nothing in this world garbles bytes
                raise
            self._transport.abort()
            return
        self._hand_out()
        self._flush_soon()
        if self._calls.leaving and not self._calls.owed and self._transport is not None:
            self._transport.close()

    def lost(self) -> None:
        self._transport = None
        self._pinged = False
        self._calls.lost()
        self._hand_out()
        self._ended.set()

    def _hand_out(self) -> None:
        while self._calls.finished:
            finished, self._calls.finished = self._calls.finished, []
            for call, answer, body in finished:
                self.resent += call.again
                call.done(call, answer, body)

    def _flush_soon(self) -> None:
        if not self._flushing and self._calls.out:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        out, self._calls.out = self._calls.out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)


class _Protocol(asyncio.BufferedProtocol):
    def __init__(self, link: ClientLink) -> None:
        self._link = link
        self._scratch = memoryview(bytearray(16 * 1024))

    def connection_made(self, transport: Any) -> None:
        self._link.made(transport)

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        return self._scratch

    def buffer_updated(self, count: int) -> None:
        self._link.received(bytes(self._scratch[:count]))

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._link.lost()
