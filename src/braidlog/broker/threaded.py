"""A server beside its process's own work: in a thread, with a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from braidlog import limits
from braidlog.broker.server import Server
from braidlog.broker.service import Service
from braidlog.errors import Unavailable

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop there is: uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class ServerThread:
    """Starts, listens, and stops again, all from another thread."""

    def __init__(self, make_service: Callable[[], Service], name: str) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name="braidlog-server", daemon=True)
        self._thread.start()

        async def make() -> Server:
            return Server(make_service(), name)

        self.server = self._call(make())

    def listen_tcp(self, host: str, port: int) -> tuple[str, int]:
        return self._call(self.server.listen_tcp(host, port))

    def listen_on(self, bound: socket.socket) -> None:
        self._call(self.server.listen_on(bound))

    def close(self, grace_s: float = limits.SHUTDOWN_GRACE_S) -> None:
        """Answer what was asked, and stop."""
        if self._loop.is_closed():
            return
        try:
            self._call(self.server.close(grace_s), grace_s + limits.CALL_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(limits.CALL_TIMEOUT_S)
            if not self._loop.is_running():
                self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _call(self, work: Coroutine[Any, Any, T], timeout: float = limits.CALL_TIMEOUT_S) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            raise Unavailable(f"the server's thread did not answer within {timeout:g} s") from None
