"""Between an event loop and the threads behind a braid: what `braidlog.aio` stands on.

The loop is never blocked: what takes time runs in a few threads that the bridge owns, what waits is woken from them,
and wake-ups that come close together cross together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from braidlog import limits
from braidlog.client import appends
from braidlog.client.session import Session
from braidlog.client.waiting import Deadline, finished
from braidlog.embedded.committer import Pending
from braidlog.errors import Blocked
from braidlog.forest import commands as c
from braidlog.objects.batch import Batch

T = TypeVar("T")


class Sleepers:
    """Tasks that wait for something to happen. Belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asleep: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._asleep)

    async def sleep(self, timeout: float | None, first: Callable[[], Awaitable[object]] | None = None) -> None:
        """Until woken, or until so many seconds have passed. `first` is done when it can be woken already."""
        woken = self._loop.create_future()
        self._asleep.add(woken)
        try:
            if first is not None:
                await first()
            await asyncio.wait([woken], timeout=timeout)
        finally:
            self._asleep.discard(woken)

    def wake(self) -> None:
        for woken in self._asleep:
            resolve(woken)


def resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Bridge:
    """Between a loop and the threads behind a braid. Everything but `cross` is for the loop's thread alone."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.backend = session.backend
        self.loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(limits.AIO_THREADS_MAX, "braidlog-aio")
        self.changes = Sleepers(self.loop)
        self._room = Sleepers(self.loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._crossing = False
        self._asking: dict[int, asyncio.Future[None]] = {}  # by log: who serves it
        self._unwatch: Callable[[], None] | None = None

    # --- onto the loop, from any thread --------------------------------------------------------------------------

    def cross(self, call: Callable[[], None]) -> None:
        """Call it on the loop. Calls that come close together cross together: one wake-up for a whole commit."""
        if self.loop.is_closed():
            return
        self._calls.append(call)
        if self._crossing:
            return
        self._crossing = True
        with contextlib.suppress(RuntimeError):  # the loop was closed just now: nobody waits any more
            self.loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self._crossing = False  # first, so that whoever finds it set is still carried along
        while self._calls:
            self._calls.popleft()()

    # --- off the loop --------------------------------------------------------------------------------------------

    async def run(self, call: Callable[[], T]) -> T:
        """Call it in a thread, for it touches the disk. A closed braid's calls only say that it is closed."""
        if self.backend.closed:
            return call()
        return await self.loop.run_in_executor(self.pool, call)

    # --- waiting -------------------------------------------------------------------------------------------------

    async def look(self, call: Callable[[], T]) -> T:
        """Call what only looks: here, or in a thread if somebody else has to be asked."""
        return call() if self.backend.instant else await self.run(call)

    async def changed(
        self, seen: int, timeout: float | None, log_id: int | None, idle: Callable[[], bool] = lambda: True
    ) -> None:
        """Return once something may have changed since `seen`, or when the timeout passed, or at once if not idle."""
        if not self.backend.instant:
            stops: list[Callable[[], None]] = []

            def watch() -> None:
                stops.append(self.backend.watch(lambda: self.cross(self.changes.wake), log_id, seen))

            async def arm() -> None:
                armed = asyncio.ensure_future(self.run(watch))
                try:
                    await asyncio.shield(armed)
                except asyncio.CancelledError:
                    await armed  # it is under way in a thread, and would stay
                    raise
                if not idle() or self.backend.closed:
                    self.changes.wake()

            try:
                await self.changes.sleep(timeout, arm)
            finally:
                for stop in stops:
                    await self.run(stop)
            return
        if self._unwatch is None:
            self._unwatch = self.backend.watch(lambda: self.cross(self.changes.wake))
        try:
            if self.backend.version == seen and not self.backend.closed:
                await self.changes.sleep(timeout)
        finally:
            if not self.changes and self._unwatch is not None:
                self._unwatch()
                self._unwatch = None

    async def patiently(
        self,
        log_id: int,
        attempt: Callable[[], Awaitable[T]],
        deadline: Deadline,
        unfinished: Callable[[T], bool] = finished,
    ) -> T:
        """`waiting.patiently`, awaited."""
        while True:
            seen = self.backend.version
            try:
                result = await attempt()
            except Blocked:
                if deadline.passed:
                    raise
            else:
                if deadline.passed or not unfinished(result):
                    return result
            await self.changed(seen, deadline.left, log_id)

    # --- appending -----------------------------------------------------------------------------------------------

    async def queue(
        self, append: c.Append, batch: Batch, timeout: float | None
    ) -> tuple[Pending, asyncio.Future[None]]:
        """Queue an append once there is room for it; the future is resolved when it is durable or has failed."""
        deadline = Deadline(limits.COMMIT_TIMEOUT_S if timeout is None else timeout)
        if append.log in self._asking or not self.backend.near(append.log):
            await self._approach(append.log)
        while True:
            seen = self.backend.version
            crowd = self.backend.crowded(append)
            if crowd is None:
                break
            if deadline.passed:
                raise crowd
            await self.changed(seen, deadline.left, append.log)
        outstanding = self.session.outstanding
        while not outstanding.try_take(append.size):
            if deadline.passed:
                raise outstanding.refusal()
            await self._room.sleep(deadline.left)
        done: asyncio.Future[None] = self.loop.create_future()
        return appends.queue(self.session, append, batch, lambda _: self.cross(partial(self._answered, done))), done

    async def _approach(self, log_id: int) -> None:
        """One finds out, and those who wait for him go on in the order in which they came."""
        asking = self._asking.get(log_id)
        if asking is None:
            asking = asyncio.ensure_future(self.run(partial(self.backend.approach, log_id)))
            self._asking[log_id] = asking
            asking.add_done_callback(lambda _: self._asking.pop(log_id, None))
        await asyncio.shield(asking)

    def _answered(self, done: asyncio.Future[None]) -> None:
        resolve(done)
        self._room.wake()

    async def commit(self, append: c.Append, batch: Batch) -> c.Result:
        """Append and wait for the answer."""
        pending, done = await self.queue(append, batch, None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.backend.append_timeout_s):
                await done
        return pending.result()
