"""From other threads onto the loop's: calls that come close together cross together, with one wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

_log = logging.getLogger("braidlog.server")


class Crossing:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._under_way = False

    def __call__(self, call: Callable[[], None]) -> None:
        """Call it on the loop, soon. From any thread; after the loop has closed nothing happens."""
        self._calls.append(call)
        if self._under_way:
            return
        self._under_way = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self._under_way = False  # first, so that whoever finds it set is still carried along
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception:  # the others are to arrive all the same
                _log.exception("what was to be done on the loop failed")
