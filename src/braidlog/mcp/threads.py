"""Threads that calls are carried out in, so many and no more: what was begun counts until it has ended, though nobody
waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class Threads:
    """Room for so many calls at once. Others wait for their turn."""

    def __init__(self, most: int) -> None:
        self._room = anyio.CapacityLimiter(most)
        self._any = anyio.CapacityLimiter(math.inf)

    async def run(self, do: Callable[[], T]) -> T:
        """Carry something out. Whoever is cancelled does not wait for its end; its place is free only then."""
        turn = _Turn(self._room, asyncio.get_running_loop())
        await self._room.acquire_on_behalf_of(turn)
        try:
            return await anyio.to_thread.run_sync(turn.take, do, limiter=self._any, abandon_on_cancel=True)
        finally:
            turn.leave()


class _Turn:
    """A place, from when it was got until what is done in it has ended."""

    def __init__(self, room: anyio.CapacityLimiter, loop: asyncio.AbstractEventLoop) -> None:
        self._room = room
        self._loop = loop
        self._taken = threading.Lock()

    def take(self, do: Callable[[], T]) -> T:
        """In the thread."""
        if not self._taken.acquire(blocking=False):
            raise asyncio.CancelledError  # nobody waited any more before this began
        try:
            return do()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits for a place
                self._loop.call_soon_threadsafe(self._room.release_on_behalf_of, self)

    def leave(self) -> None:
        """In the loop, which waits no more. What was never begun never will be."""
        if self._taken.acquire(blocking=False):
            self._room.release_on_behalf_of(self)
