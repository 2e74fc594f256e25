"""How much agents may write: bytes and a rate for each, as the policy of the log says. In memory, for one process.

What is on a fork is counted by the log itself, so the bytes of a fork hold across processes, but for what several of
them write on it at the very same time; the rate is kept here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from braidlog import Info, Log, limits
from braidlog.agents.policy import Rule
from braidlog.errors import ConditionFailed, Unavailable


class Budgets:
    """Of all agents of one server. Safe to use from several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._spent: dict[tuple[str, str], tuple[float, float]] = {}  # (agent, log) -> what is owed, as of when
        self._making: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._writing: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()

    def spend(self, agent: str, info: Info, log: str, size: int, rule: Rule) -> int:
        """Let an agent write so many bytes on a fork of a log, or say why not. Returns what is left of the fork's."""
        left = rule.fork_bytes - info.own_bytes - size
        if left < 0:
            raise ConditionFailed(
                f"{info.name!r} has {info.own_bytes:,} bytes, and an agent may write {rule.fork_bytes:,} on one fork: "
                f"{size:,} more do not fit. Propose what is there, or squash it and begin anew"
            )
        rate = max(1, rule.fork_bytes_per_s)
        burst = rate * limits.MCP_APPEND_BURST_S
        if size > burst:
            raise ConditionFailed(f"{size:,} bytes at once are too many: append at most {int(burst):,}, then wait")
        with self._lock:
            now = self._now()
            owed, since = self._spent.get((agent, log), (0.0, now))
            owed = max(0.0, owed - (now - since) * rate)
            if owed + size > burst:
                wait = math.ceil((owed + size - burst) / rate)
                raise ConditionFailed(
                    f"{agent!r} writes faster than the {rate:,} bytes a second that it may: wait {wait} s, then append"
                )
            self._spent[agent, log] = (owed + size, now)
        return left

    @contextmanager
    def making(self, agent: str) -> Iterator[None]:
        """One fork of an agent is made at a time, so that they can be counted."""
        with self._lock:
            lock = self._making.setdefault(agent, threading.Lock())
        with _turn(lock, f"another fork of {agent!r}"):
            yield

    @contextmanager
    def writing(self, fork: Log) -> Iterator[Info]:
        """One append to a fork at a time: what is on it, as it stays until this one is there."""
        with self._lock:
            lock = self._writing.setdefault(fork.id, threading.Lock())
        with _turn(lock, f"another append to {fork.name!r}"):
            yield fork.info()


@contextmanager
def _turn(lock: threading.Lock, other: str) -> Iterator[None]:
    """Unavailable if it does not come: whoever waits has a thread that others want."""
    if not lock.acquire(timeout=limits.MCP_TURN_S):
        raise Unavailable(f"{other} takes its time, and nothing was done")
    try:
        yield
    finally:
        lock.release()
