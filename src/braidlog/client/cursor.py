"""Where a subscription stands, what it fetched ahead and why it ended. Whoever holds the cursor does the waiting."""

from __future__ import annotations

import contextlib
from collections import deque
from datetime import datetime
from typing import Literal

from braidlog import limits
from braidlog.client import arguments
from braidlog.client.backend import Backend, Following
from braidlog.errors import Blocked, BraidError, Gone, InvalidArgument, Trimmed
from braidlog.facts import EndOfLog
from braidlog.record import Record

Start = int | Literal["tail"] | datetime


class Cursor:
    """Fetches a bounded number of records ahead. Not to be shared between threads, except for `close`."""

    def __init__(self, backend: Backend, log_id: int, position: int, *, follow: bool) -> None:
        self._backend = backend
        self._log_id = log_id
        self._next = position  # the next to fetch
        self._follow = follow
        self._closed = False
        self._end: EndOfLog | None = None
        self.ahead: deque[Record] = deque()

    @property
    def position(self) -> int:
        """Of the record that comes next."""
        return self.ahead[0].position if self.ahead else self._next

    @property
    def end(self) -> EndOfLog | None:
        """Why it ended; None while it goes on."""
        return self._end if not self.ahead else None

    @property
    def waits(self) -> bool:
        """Whether it has nothing to give and has not ended."""
        return not self.ahead and self._end is None

    @property
    def watched(self) -> int | None:
        """The log whose changes it waits for."""
        return self._log_id

    def idle(self) -> bool:
        """Whether a fetch would find nothing new. Cheap: no bytes are read."""
        try:
            return self._follow and not self._closed and self._backend.tail(self._log_id) <= self._next
        except BraidError:
            return False

    def fetch(self, timeout: float | None = None) -> int | None:
        """Fetch ahead once, without waiting. Returns the version to wait on if there was nothing, else None."""
        del timeout
        if self._closed:
            self._end = EndOfLog("closed", self._next)
            return None
        seen = self._backend.version
        held = False
        records: list[Record] = []
        try:
            records = self._backend.read(
                self._log_id, self._next, None, limits.SUBSCRIBE_FETCH_RECORDS, limits.SUBSCRIBE_FETCH_BYTES
            )
        except Blocked:
            held = True
        except Trimmed:
            self._end = EndOfLog("trimmed", self._next)
            return None
        except Gone:
            self._end = self._gone()
            return None
        except BraidError as error:
            closed = self._backend.closed
            self._end = EndOfLog("closed" if closed else "failed", self._next, None, None if closed else error)
            return None
        if records:
            self.ahead.extend(records)
            self._next = records[-1].position + 1
            return None
        if not self._follow:
            self._end = EndOfLog("held" if held else "caught up", self._next)
            return None
        return seen

    def wait(self, seen: int, timeout: float | None) -> None:
        """Until there may be something new."""
        self._backend.wait_for_change(seen, timeout, self._log_id)

    def catch_up(self, timeout: float | None = None) -> bool:
        """What a fetch did not find is not there."""
        del timeout
        return False

    def _gone(self) -> EndOfLog:
        found = self._backend.end_of(self._log_id)
        if found is None:
            return EndOfLog("squashed", self._next)
        end, into = found
        return EndOfLog(end.kind, self._next, into or None)

    def take(self) -> list[Record]:
        """All that was fetched ahead."""
        taken = list(self.ahead)
        self.ahead.clear()
        return taken

    def close(self) -> None:
        """The next fetch ends it."""
        self._closed = True


def cursor_at(backend: Backend, log_id: int, start: Start, *, follow: bool, consumer: str | None = None) -> Following:
    """A cursor at a position, at the tail, or at a moment. Trimmed or OutOfRange if there is no such position.

    A consumer that committed a position begins there instead.
    """
    committed = None if consumer is None else _committed(backend, log_id, consumer)
    if committed is not None:
        position = committed
    elif isinstance(start, datetime):
        position = backend.position_at(log_id, arguments.moment(start))
    elif start == "tail":
        position = backend.tail(log_id)
    elif isinstance(start, str):
        raise InvalidArgument(f"start must be a position, 'tail' or a datetime, not {start!r}")
    else:
        position = arguments.position("start", start) or backend.describe(log_id).start
        with contextlib.suppress(Blocked):  # it pauses there
            backend.plan(log_id, position, position)
    pushed = backend.pushed(log_id, position) if follow else None
    return pushed or Cursor(backend, log_id, position, follow=follow)


def _committed(backend: Backend, log_id: int, consumer: str) -> int | None:
    """Where a consumer goes on; None if it has not committed anything yet."""
    for known in backend.consumers(log_id):
        if known.name == consumer:
            log = backend.describe(log_id)
            if known.position < log.start:
                raise Trimmed(
                    f"consumer {consumer!r} of log {log.name!r} stands at {known.position}, which was trimmed away: to "
                    f"go on with what is left, commit({consumer!r}, {log.start}) or a later position",
                    start=log.start,
                )
            return known.position
    return None
