"""A server beside its process's own work: in a thread, with a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from braidlog import limits
from braidlog.broker.entry import Entry
from braidlog.broker.server import Server
from braidlog.broker.service import Service
from braidlog.errors import Unavailable
from braidlog.observe.http import serve_http

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

    def __init__(self, make_service: Callable[[], Service], name: str, entry: Entry | None = None) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._run, name="braidlog-server", daemon=True)
        self._thread.start()

        async def make() -> Server:
            return Server(make_service(), name, entry)

        try:
            self.server = self._call(make())
        except BaseException:
            self._stop()
            raise
        _threads.add(self)

    def listen_tcp(self, host: str, port: int) -> tuple[str, int]:
        return self._call(self.server.listen_tcp(host, port))

    def listen_on(self, bound: socket.socket) -> None:
        self._call(self.server.listen_on(bound))

    def listen_http(self, host: str, port: int) -> tuple[str, int]:
        """Answer `/health` and `/metrics` there."""
        return self._call(serve_http(self.server, host, port))

    def close(self, grace_s: float = limits.SHUTDOWN_GRACE_S) -> None:
        """Answer what was asked, and stop."""
        if self._loop.is_closed() or self not in _threads:
            return
        try:
            self._call(self.server.close(grace_s), grace_s + limits.CALL_TIMEOUT_S)
        finally:
            self._stop()

    def disown(self, nothing: int) -> None:
        """In the child of a fork of the process: the peers are the parent's. Left open, they would not learn of its
        end before ours. `nothing` is a file that takes the place of each."""
        for bound in [*self.server.listening, *(connection.socket for connection in self.server.connections)]:
            with contextlib.suppress(OSError):
                if bound is not None and bound.fileno() >= 0:
                    os.dup2(nothing, bound.fileno(), inheritable=False)

    def _stop(self) -> None:
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


_threads: weakref.WeakSet[ServerThread] = weakref.WeakSet()


def _disown_all() -> None:
    disowned = list(_threads)
    _threads.clear()
    if disowned:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for thread in disowned:
            thread.disown(nothing)
        os.close(nothing)


os.register_at_fork(after_in_child=_disown_all)
