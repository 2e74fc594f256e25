"""Trying again after each change, while there is time: the one rule behind every `wait=` and `timeout=`."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from braidlog.client import arguments
from braidlog.client.backend import Backend
from braidlog.errors import Blocked
from braidlog.record import Record

T = TypeVar("T")


class Deadline:
    """When patience ends: after so many seconds, or, with None, never."""

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds, not below 0; None if there is no end."""
        return None if self._at is None else max(self._at - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return self._at is not None and time.monotonic() >= self._at


def patience(wait: float | timedelta | None) -> Deadline:
    """The `wait=` of a call. None is not to wait at all."""
    return Deadline(arguments.seconds("wait", wait) or 0.0)


def nothing_yet(start: int, stop: int | None) -> Callable[[list[Record]], bool]:
    """Whether a read found nothing where something may come."""
    return finished if stop is not None and stop <= start else operator.not_


def finished(_: object) -> bool:
    """Any result is one."""
    return False


def patiently(
    backend: Backend,
    log_id: int,
    attempt: Callable[[], T],
    deadline: Deadline,
    unfinished: Callable[[T], bool] = finished,
) -> T:
    """Attempt it; while a hold stands in the way or the result is unfinished, and there is time, once more."""
    while True:
        seen = backend.version
        try:
            result = attempt()
        except Blocked:
            if deadline.passed:
                raise
        else:
            if deadline.passed or not unfinished(result):
                return result
        backend.wait_for_change(seen, deadline.left, log_id)
