"""The event loop of a simulated process: asyncio as far as the servers, links and tasks of braidlog use it.

Callbacks run in one fiber of the process, one after the other. A callback that blocks (on a lock, or on the command
log) keeps the others waiting, as it would in a real loop.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.network import Listener, Network
from sim.world import THREAD_WAKE_S

if TYPE_CHECKING:
    from sim.world import Fiber, Process


class Handle:
    """As asyncio's."""

    __slots__ = ("_cancelled", "_when")

    def __init__(self, when: float) -> None:
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class Loop(asyncio.AbstractEventLoop):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._ready: deque[tuple[Handle | None, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._fiber: Fiber | None = None
        self._idle = False
        self._kicked = False
        self.network: Network | None = None

    def start(self) -> None:
        self._fiber = self._world.spawn(self._process, self._run, "loop")

    def enter(self) -> None:
        """Its process runs now."""
        events._set_running_loop(self)

    def leave(self) -> None:
        events._set_running_loop(None)

    def _run(self) -> None:
        ready = self._ready
        while True:
            while ready:
                handle, call, arguments = ready.popleft()
                if handle is None or not handle._cancelled:
                    call(*arguments)
            self._idle = True
            self._world.wait()

    def post(self, call: Callable[..., Any], *arguments: Any, delay_s: float = 0.0) -> None:
        """Have it called from outside the loop's fiber: by a timer, the network, or another thread."""
        self._ready.append((None, call, arguments))
        self._kick(delay_s)

    def _kick(self, delay_s: float = 0.0) -> None:
        if self._idle and self._fiber is not None:
            self._idle = False
            self._world.wake(self._fiber, self._fiber.waiting, delay_s)

    # --- asyncio -------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        del context
        handle = Handle(self._world.now)
        self._ready.append((handle, callback, args))
        self._kick()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        del context
        handle = Handle(self._world.now)
        if self._process.alive and not self._world.closing:
            self._ready.append((handle, callback, args))
            self._kick(self._world.rng.random() * THREAD_WAKE_S)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        del context
        handle = Handle(when)
        self._world.at(when, lambda: self._ripe(handle, callback, args))
        return handle

    def _ripe(self, handle: Handle, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not handle._cancelled and self._process.alive:
            self._world.events += 1
            self._ready.append((handle, callback, args))
            self._kick()

    def create_future(self) -> Any:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        del context
        return asyncio.Task(coro, loop=self, name=name)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self._world.closing:
            self._world.fail(error)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None
        return await self.network.connect(self._process, protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None
        return self.network.listen(Listener(self._process, protocol_factory, str(host), int(port)))
