"""A broker's connection to the metadata: `Calls` driven by the loop. It opens again by itself when it breaks.

One that says nothing while it owes an answer is asked whether it is there, and given up if it does not answer that: its
machine may be gone without a word, and another one lead by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from braidlog import limits
from braidlog.broker import entry
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.wire import tls
from braidlog.wire.calls import Call, Calls, Done, Refused
from braidlog.wire.frames import Malformed
from braidlog.wire.messages import Note, Ping, Request, Welcome

_log = logging.getLogger("braidlog.broker")


class MetadataLink:
    """To the one of several metadata processes that has the wanted role: the others say what they are, and are left.

    For the loop's thread alone.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        client: bytes,
        name: str,
        role: str = "metadata",
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._addresses = deque(addresses)
        self._role = role
        self._tls = tls
        self._token = token
        # Its own id as the link's: what an older connection still carries is not to be read any more.
        self._calls = Calls(client, name, client, token=token)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._flushing = False
        self._heard = 0.0  # when it last said something
        self._pinged = False
        self._closed = False
        self._tried = 0  # addresses, since the last that was what was wanted
        self._found = False
        self._hurried = asyncio.Event()
        self._warned: dict[str, tuple[str, float]] = {}  # by address: what was told last, and when
        self._calls.on_greeted = self._greeted
        self.on_connected: Callable[[Welcome], None] = lambda _: None  # what it asks for goes before all that waited
        self.on_lost: Callable[[], None] = lambda: None
        self.on_refused: Callable[[BraidError], None] = lambda _: None  # for what does not mend itself
        self._refused = False
        self._task: asyncio.Task[Any] = self._loop.create_task(self._run())
        self._ticking: asyncio.Task[Any] = self._loop.create_task(self._tick())

    @property
    def host(self) -> str:
        return self._addresses[0][0]

    @property
    def port(self) -> int:
        return self._addresses[0][1]

    @property
    def seen(self) -> int:
        return self._calls.seen

    @seen.setter
    def seen(self, seen: int) -> None:
        self._calls.seen = seen

    @property
    def connected(self) -> bool:
        return self._calls.welcome is not None

    def call(self, request: Request, done: Done, *, timeout: float | None = None) -> Call:
        """`done` is called with the answer, or with what went wrong."""
        patience = limits.METADATA_TIMEOUT_S if timeout is None else timeout
        call = self._calls.begin(request, b"", self._loop.time() + patience, done)
        self._flush_soon()
        return call

    def note(self, call: Call, note: Note) -> None:
        self._calls.note(call, note)
        self._flush_soon()

    def forget(self, call: Call) -> None:
        self._calls.forget(call)

    def hurry(self) -> None:
        """Something has changed: look for the wanted one again now, and not only when it is time to."""
        if not self.connected:
            self._hurried.set()

    def close(self) -> None:
        self._closed = True
        self._task.cancel()
        self._ticking.cancel()
        if self._transport is not None:
            self._transport.close()
        self._calls.fail("the broker is shutting down")
        self._hand_out()

    async def _run(self) -> None:
        pause = limits.RECONNECT_S
        while not self._closed:
            self._ended = asyncio.Event()
            try:
                self._refused = False
                async with asyncio.timeout(limits.CONNECT_TIMEOUT_S):
                    await self._loop.create_connection(lambda: _Protocol(self), self.host, self.port, ssl=self._tls)
                await self._ended.wait()
                if self._found:
                    pause, self._tried, self._found = limits.RECONNECT_S, 0, False
                    self._warned.clear()
                if self._refused:
                    pause = limits.RECONNECT_MAX_S
            except (OSError, ValueError, TimeoutError) as error:  # a host that cannot be one is a ValueError
                why = tls.explained(error, f"{self.host}:{self.port}")
                self._warn(f"metadata at {self.host}:{self.port} cannot be reached: {why}")
                if isinstance(why, BraidError):
                    self.on_refused(why)
            except Exception as error:  # a mistake of ours: without this task nothing is ever answered
                _log.exception("the connection to the metadata at %s:%d failed", self.host, self.port)
                self.on_refused(Unavailable(f"the connection to the metadata failed: {type(error).__name__}: {error}"))
            self._addresses.rotate(-1)
            self._tried += 1
            if self._tried >= len(self._addresses):  # all of them, one after the other
                self._tried = 0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._hurried.wait()
                        pause = limits.RECONNECT_S
                self._hurried.clear()
                pause = min(2 * pause, limits.RECONNECT_MAX_S)

    def _warn(self, told: str) -> None:
        """The same of an address is told now and then, and not at each attempt."""
        now = self._loop.time()
        where = f"{self.host}:{self.port}"
        before, when = self._warned.get(where, ("", 0.0))
        if told != before or now - when >= limits.RECONNECT_TOLD_S:
            self._warned[where] = (told, now)
            _log.warning("%s", told)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(limits.LINK_TICK_S)
            try:
                self._mind_silence()
                self._calls.expire(self._loop.time(), "the metadata did not answer in time")
                self._hand_out()
            except Exception:  # of whoever is told: the next are to be given up in time too
                _log.exception("what was to be done with an answer of the metadata failed")

    def _mind_silence(self) -> None:
        if self._transport is None or not len(self._calls):
            self._heard = self._loop.time()  # it owes nothing, and so its silence says nothing
            return
        silent_s = self._loop.time() - self._heard
        if silent_s > limits.SILENCE_S:
            _log.warning("metadata at %s:%d said nothing for %.1f s and is given up", self.host, self.port, silent_s)
            self._transport.abort()
        elif silent_s > limits.PING_S and not self._pinged:
            self._pinged = True
            self.call(Ping(), self._ponged, timeout=limits.SILENCE_S)

    def _ponged(self, *_: object) -> None:
        self._pinged = False

    # --- what the protocol tells ---------------------------------------------------------------------------------

    def _greeted(self, welcome: Welcome) -> None:
        if welcome.role != self._role and (self._role == "standby" or welcome.role in ("standby", "starting")):
            self._calls.decline()
            if self._transport is not None:
                self._transport.close()
            return
        self._found = True
        self.on_connected(welcome)

    def made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._heard = self._loop.time()
        if self._token and (refusal := entry.token_refusal(entry.peer_of(transport))):
            self._refuse(InvalidArgument(refusal))
            return
        self._calls.connected()
        self._flush()

    def room(self) -> memoryview | None:
        return self._calls.room()

    def received(self, data: bytes | int) -> None:
        """Bytes arrived, or so many were put into the room."""
        self._heard = self._loop.time()
        try:
            if isinstance(data, int):
                self._calls.filled(data)
            else:
                self._calls.receive(data)
        except Refused as refused:
            self._refuse(refused.error)
            return
        except Malformed as error:
            _log.warning("metadata at %s:%d: %s", self.host, self.port, error)
            if self._transport is not None:
                self._transport.abort()
            return
        self._hand_out()
        self._flush_soon()
        if self._calls.leaving and not self._calls.owed and self._transport is not None:
            self._transport.close()

    def _refuse(self, error: BraidError) -> None:
        _log.warning("metadata at %s:%d does not let this broker in: %s", self.host, self.port, error)
        self._refused = True
        if self._transport is not None:
            self._transport.abort()
        self.on_refused(error)

    def lost(self) -> None:
        self._transport = None
        self._pinged = False
        self._calls.lost()
        self._hand_out()
        self._ended.set()
        self.on_lost()

    def _hand_out(self) -> None:
        while self._calls.finished:
            finished, self._calls.finished = self._calls.finished, []
            for call, answer, body in finished:
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
    def __init__(self, link: MetadataLink) -> None:
        self._link = link
        self._scratch = memoryview(bytearray(limits.RECEIVE_BYTES))
        self._room: memoryview | None = None  # where the rest of a large frame goes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own
        self._link.made(transport)

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        self._room = self._link.room()
        return self._scratch if self._room is None else self._room

    def buffer_updated(self, count: int) -> None:
        if self._room is None:
            self._link.received(bytes(self._scratch[:count]))
        else:
            self._room = None
            self._link.received(count)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._link.lost()
