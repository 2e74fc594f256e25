"""What a process uses, and how late its loop is."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from time import perf_counter  # the loop's own time may be that of its last turn

from braidlog import limits
from braidlog.observe.metrics import Histogram


def cpu_seconds() -> float:
    """Processor time of all threads of the process, since it began."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Memory that is resident now; where the system does not tell, the most that ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * limits.KIB


class LoopLag:
    """Has itself called by the loop every so often, and observes how late it is: what a request may wait for its turn.

    To be made on the loop's thread."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        self._due = perf_counter() + limits.LOOP_LAG_PERIOD_S
        self._timer = self._loop.call_later(limits.LOOP_LAG_PERIOD_S, self._called)

    def _called(self) -> None:
        self._histogram.observe(max(perf_counter() - self._due, 0.0))
        self._next()
