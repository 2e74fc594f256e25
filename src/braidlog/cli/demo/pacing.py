"""How fast the demo goes: a person wants to follow it, a test does not. Whoever paces can be stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from braidlog.errors import Timeout

PATIENCE_S: Final = 120.0  # for what must come; never reached when all is well
_LOOK_S: Final = 0.02


class Stopped(Exception):
    """Somebody else ended the demo."""


class Pace:
    """Pauses, each so many times as long as was meant: 0 is no pause at all."""

    def __init__(self, times: float = 1.0) -> None:
        self._times = times
        self._stopped = threading.Event()

    def pause(self, seconds: float) -> None:
        """Let others work, and people read."""
        if self._stopped.wait(seconds * self._times):
            raise Stopped

    def until(self, true: Callable[[], object], what: str, seconds: float) -> None:
        """Wait for what the story needs, however fast it goes. Timeout if it does not come."""
        deadline = time.monotonic() + seconds
        while not true():
            if self._stopped.wait(_LOOK_S):
                raise Stopped
            if time.monotonic() >= deadline:
                raise Timeout(f"not within {seconds:g} s: {what}")

    def stop(self) -> None:
        """Nobody waits any longer."""
        self._stopped.set()
