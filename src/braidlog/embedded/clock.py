"""Where time comes from. Everything that looks at a clock is given one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time in microseconds since 1970 UTC."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    monotonic_s = staticmethod(time.monotonic)
