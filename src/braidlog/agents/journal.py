"""A system log that events are written to, each only behind everything that its writer has read.

So several processes can decide at the same time, and none decides on what is no longer true. What was decided is told
by the log alone: whoever reads it from the beginning knows as much as anybody.
"""

from __future__ import annotations

import contextlib
from typing import Final

from braidlog import Braid, Log, Record, limits
from braidlog.errors import (
    AlreadyExists,
    ConditionFailed,
    InvalidArgument,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Trimmed,
)

_LABELS: Final = {"braidlog.system": "yes"}


def system_log(braid: Braid, name: str) -> Log:
    """The system log of that name, made if it is not there."""
    try:
        log = braid.log(name)
    except NotFound:
        try:
            log = braid.create(name, labels=_LABELS)
        except AlreadyExists:
            log = braid.log(name)
    return log


class Journal:
    """The events of one system log, read in order and extended one by one. Not safe for several threads."""

    def __init__(self, braid: Braid, name: str) -> None:
        self._braid = braid
        self._name = name
        self._log: Log | None = None
        self._next = 0

    @property
    def end(self) -> int:
        """Where the next event will stand, as far as was read."""
        return self._next

    def news(self) -> list[Record]:
        """The events that came since this was asked last, from the first one on."""
        if self._log is None:
            try:
                self._log = self._braid.log(self._name)
            except NotFound:
                return []
            if self._log.info().kind != "root":
                self._log = None
                raise InvalidArgument(f"{self._name!r} is a fork and no system log: squash it")
        found: list[Record] = []
        while True:
            try:
                records = self._log.read(self._next, max_bytes=limits.SUBSCRIBE_FETCH_BYTES)
            except Trimmed as trimmed:
                self._next = trimmed.start
                continue
            if not records:
                return found
            found += records
            self._next = records[-1].position + 1

    def forget(self, before: int) -> None:
        """Trim what stands below a position, if there is anything and whoever asks may."""
        if self._log is not None and self._log.info().start < before:
            with contextlib.suppress(NotPermitted):
                self._log.trim(before)

    def write(self, event: bytes) -> bool:
        """Append an event, which has to differ from all others, behind all that was read. False if there is more to
        read by now: read it, and decide again. The event itself comes back with the news."""
        if self._log is None:
            self._log = system_log(self._braid, self._name)
        unknown: OutcomeUnknown | None = None
        for _ in range(limits.JOURNAL_ATTEMPTS):
            try:
                self._log.append(event, expected_tail=self._next)
                return True
            except OutcomeUnknown as error:  # it can only stand at this very position: to ask again is safe
                unknown = error
            except ConditionFailed:
                return unknown is not None and self._log.read(self._next, self._next + 1)[0].value == event
        assert unknown is not None
        raise unknown
