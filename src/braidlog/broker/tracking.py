"""Which logs somebody waits on, and when something about them last changed. PURE.

What a waiter may wait for is in a log's *stamp*: how far it reaches, what holds it, whether it lives. After a commit
the stamps of the logs that are tracked, and of no others, are taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Stamp(NamedTuple):
    """`readable` is -1 once the log is no more."""

    readable: int
    tail: int
    holder: int
    held: int  # how many undecided forks
    epoch: int


GONE = Stamp(-1, -1, -1, -1, -1)
UNKNOWN = Stamp(-2, -2, -2, -2, -2)  # unlike any that a log can have


class _Tracked:
    __slots__ = ("changed_at", "stamp", "waiters")

    def __init__(self, stamp: Stamp, changed_at: int) -> None:
        self.stamp = stamp
        self.changed_at = changed_at
        self.waiters: dict[int, Callable[[Stamp], None]] = {}


class Tracking:
    """Waiters by log. A waiter is called after each change until it is removed; the last one's log is forgotten late:
    who waits in rounds finds it still tracked."""

    def __init__(self, idle_kept: int = 4096) -> None:
        self._logs: dict[int, _Tracked] = {}
        self._idle: dict[int, None] = {}  # tracked logs without waiters, oldest first
        self._idle_kept = idle_kept
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._logs)

    def logs(self) -> Iterable[int]:
        return self._logs.keys()

    def add(self, log: int, stamp: Stamp, seen: int, waiter: Callable[[Stamp], None]) -> int:
        """Wait for changes; `stamp` is what the log is now, at commit index `seen`. Returns the waiter's number."""
        tracked = self._logs.get(log)
        if tracked is None or (stamp == UNKNOWN and not tracked.waiters):
            tracked = self._logs[log] = _Tracked(stamp, seen)
        self._numbers += 1
        tracked.waiters[self._numbers] = waiter
        self._idle.pop(log, None)
        return self._numbers

    def stamp(self, log: int) -> Stamp:
        """What is known of it."""
        tracked = self._logs.get(log)
        return UNKNOWN if tracked is None else tracked.stamp

    def waited_for(self, log: int) -> bool:
        tracked = self._logs.get(log)
        return tracked is not None and bool(tracked.waiters)

    def changed_since(self, log: int, since: int) -> bool:
        """Whether it may have changed after `since`. Of what is not tracked nobody knows."""
        tracked = self._logs.get(log)
        return tracked is None or tracked.changed_at > since

    def remove(self, log: int, number: int) -> None:
        tracked = self._logs.get(log)
        if tracked is None or tracked.waiters.pop(number, None) is None or tracked.waiters:
            return
        self._idle[log] = None
        while len(self._idle) > self._idle_kept:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            del self._logs[oldest]

    def update(self, log: int, stamp: Stamp, seen: int) -> None:
        """The log's stamp at commit index `seen`: whoever waits is called if it is another one."""
        tracked = self._logs.get(log)
        if tracked is None or tracked.stamp == stamp:
            return
        tracked.stamp = stamp
        tracked.changed_at = seen
        for waiter in list(tracked.waiters.values()):
            waiter(stamp)
