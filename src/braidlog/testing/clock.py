"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import threading
from typing import Final

from braidlog.embedded.clock import Clock
from braidlog.errors import InvalidArgument

BEGINNING_US: Final = 1_700_000_000_000_000  # some moment in November 2023: the same in every run


class VirtualClock(Clock):
    """Wall time and monotonic time that move together, and only by `advance`. Safe to use from several threads.

    Leases, times to live, retention by age and grace periods are judged by the clock that a braid was opened with.
    """

    def __init__(self, now_us: int = BEGINNING_US) -> None:
        self._lock = threading.Lock()
        self._began_us = now_us
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us

    def monotonic_s(self) -> float:
        return (self._now_us - self._began_us) / 1e6

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        if seconds < 0:
            raise InvalidArgument(f"seconds must be 0 or more, not {seconds}: time does not go back")
        with self._lock:
            self._now_us += round(seconds * 1_000_000)
