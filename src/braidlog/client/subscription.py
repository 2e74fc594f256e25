"""Following a log: records as they become readable, until there is a reason to end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from braidlog import limits
from braidlog.client.backend import Backend
from braidlog.errors import Blocked, BraidError, Gone, Trimmed
from braidlog.facts import EndOfLog
from braidlog.record import Record


class Subscription:
    """An iterator over records. It fetches a bounded number ahead, pauses at holds, and says in `end` why it ended.

    Not to be shared between threads, except that `close` may be called from any.
    """

    def __init__(self, backend: Backend, log_id: int, position: int, *, follow: bool) -> None:
        self._backend = backend
        self._log_id = log_id
        self._next = position  # the next to fetch
        self._ahead: deque[Record] = deque()
        self._follow = follow
        self._closed = False
        self._end: EndOfLog | None = None

    @property
    def position(self) -> int:
        """Of the record that comes next."""
        return self._ahead[0].position if self._ahead else self._next

    @property
    def end(self) -> EndOfLog | None:
        """Why it ended; None while it goes on."""
        return self._end if not self._ahead else None

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        while not self._ahead:
            if self._end is not None:
                raise StopIteration
            seen = self.fetch()
            if seen is not None:
                self._backend.wait_for_change(seen, None)
        return self._ahead.popleft()

    def poll(self, timeout: float | None = 0.0) -> list[Record]:
        """What came meanwhile, waiting up to `timeout` seconds for something; empty when nothing came or it ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ahead and self._end is None:
            seen = self.fetch()
            left = None if deadline is None else deadline - time.monotonic()
            if seen is None:
                continue
            if left is not None and left <= 0:
                break
            self._backend.wait_for_change(seen, left)
        got = list(self._ahead)
        self._ahead.clear()
        return got

    def fetch(self) -> int | None:
        """Fetch ahead once, without waiting. Returns the version to wait on if there was nothing, else None."""
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
            self._ahead.extend(records)
            self._next = records[-1].position + 1
            return None
        if not self._follow:
            self._end = EndOfLog("held" if held else "caught up", self._next)
            return None
        return seen

    def _gone(self) -> EndOfLog:
        found = self._backend.end_of(self._log_id)
        if found is None:
            return EndOfLog("squashed", self._next)
        end, into = found
        return EndOfLog(end.kind, self._next, into or None)

    def close(self) -> None:
        """End it: a waiting `next` returns when the log next changes, a later one at once."""
        self._closed = True

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
