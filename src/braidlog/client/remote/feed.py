"""A subscription over the wire, as a cursor: the server pushes, and this hands out."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.client.remote.records import records_of
from braidlog.errors import BraidError, Gone, Trimmed
from braidlog.facts import EndOfLog
from braidlog.record import Record
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Lost
from braidlog.wire.faults import error_of

if TYPE_CHECKING:
    from braidlog.client.remote.backend import RemoteBackend


class RemoteCursor:
    """The same as `Cursor`, for what is pushed. Bytes that were pushed and not taken are bounded by the credit."""

    def __init__(self, backend: RemoteBackend, log_id: int, position: int) -> None:
        self._backend = backend
        self._log_id = log_id
        self._next = position  # the next to be handed out, once `ahead` is empty
        self._expected = position  # the next that will be pushed
        self._promised: int | None = None  # what was readable when it was subscribed to is on its way
        self._closed = False
        self._end: EndOfLog | None = None
        self._lock = threading.Lock()
        self._arrived: deque[tuple[m.Parts, memoryview]] = deque()
        self._ending: EndOfLog | None = None
        self._call: Call | None = None  # the latest
        self._subscribed = False  # it was begun, and not lost
        self._link = backend.link
        self._caught_up_at = -1
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
    def watched(self) -> None:
        """It is told."""

    def idle(self) -> bool:
        """Whether a fetch would find nothing new."""
        return not self._arrived and self._ending is None and not self._closed and self._subscribed

    def fetch(self, timeout: float | None = None) -> int | None:
        """Take what was pushed. Returns the version to wait on if there was nothing, else None."""
        if self._closed:
            self._end = EndOfLog("closed", self._next)
            return None
        seen = self._backend.arrivals
        if not self._subscribed and self._ending is None and not self._arrived:
            self._subscribe(timeout)
            self._await_promised(self._patience(timeout))
        with self._lock:
            arrived = self._arrived.popleft() if self._arrived else None
            ending = self._ending
        if arrived is not None:
            parts, body = arrived
            self.ahead.extend(records_of(parts, body))
            self._next = parts.next
            call = self._call
            if call is not None:
                self._link.note(call, m.Credit(len(body)))
            return None
        if ending is not None:
            self._end = self._explained(ending)
            return None
        return seen

    def _explained(self, ending: EndOfLog) -> EndOfLog:
        """What became of the log by now: what it was promoted into may have been promoted itself since."""
        if isinstance(ending.error, Trimmed):
            return EndOfLog("trimmed", ending.position)
        if not isinstance(ending.error, Gone) and ending.reason != "promoted":
            return ending
        try:
            found = self._backend.end_of(self._log_id)
        except BraidError:
            return ending
        kind, into = (found[0].kind, found[1]) if found is not None else ("squashed", "")
        return EndOfLog(kind, ending.position, into or None)

    def _subscribe(self, timeout: float | None) -> None:
        try:
            self._promised = None
            self._subscribed = True  # before it can be lost
            # It lasts, and so it may take a while to find out where, unless there is nobody to ask.
            self._link = self._backend.link_for(self._log_id, None if self._backend.link.connected else timeout)
            self._call = self._link.begin(
                m.Subscribe(self._log_id, self._expected, limits.SUBSCRIBE_CREDIT_BYTES),
                b"",
                self._backend.timeout,
                self._pushed,
            )
        except BraidError as error:
            self._ending = self._failed(error)

    def _patience(self, timeout: float | None) -> float:
        """How long whoever waits no longer than `timeout` waits for what is to come: even for one who does not wait at
        all a server that is there may answer, for else he would never find anything; for one that is not he does not.
        """
        if timeout is None:
            return self._backend.timeout
        least = limits.POLL_ANSWER_S if self._link.connected else 0.0
        return min(max(timeout, least), self._backend.timeout)

    def _await_promised(self, patience_s: float) -> bool:
        """So that a new subscription finds what was there before it, without a pause for the round trip. False if it
        has not come in time."""
        deadline = time.monotonic() + patience_s
        while self._subscribed and self._ending is None and not self._closed and not self._arrived:
            if self._promised is not None and self._promised <= self._expected:
                return True
            seen = self._backend.arrivals
            if not self._arrived and self._ending is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._backend.wait_for_arrival(seen, left)
        return True

    def catch_up(self, timeout: float | None = None) -> bool:
        """Whether there is something that was not pushed yet: what this client knows to be there, it finds."""
        if self._backend.version <= self._caught_up_at or self._call is None or self._closed:
            return False
        seen = self._backend.version
        deadline = time.monotonic() + self._patience(timeout)
        try:
            self._promised = self._backend.tail(self._log_id, self._patience(timeout))
        except BraidError:  # it is gone, and soon this is told; or nobody answers
            return False
        if self._await_promised(deadline - time.monotonic()):
            self._caught_up_at = seen
        return bool(self._arrived) or self._ending is not None

    def _pushed(self, call: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
        """From the receiving thread."""
        with self._lock:
            if isinstance(answer, m.Number):
                call.deadline = float("inf")  # it is accepted, and lasts
                self._promised = answer.value
            elif isinstance(answer, m.Parts):
                self._arrived.append((answer, body))
                self._expected = answer.next
            elif isinstance(answer, Lost):
                self._subscribed = False  # the next fetch subscribes again, from where this one was
            elif isinstance(answer, m.Ending):
                error = error_of(answer.error) if answer.error is not None else None
                self._ending = EndOfLog(answer.kind, answer.position, answer.into_name or None, error)
            elif isinstance(answer, BraidError):
                self._ending = self._failed(answer)
        self._backend.announce()

    def _failed(self, error: BraidError) -> EndOfLog:
        closed = self._backend.closed
        return EndOfLog("closed" if closed else "failed", self._expected, None, None if closed else error)

    def wait(self, seen: int, timeout: float | None) -> None:
        """Until something arrived, for this one or another."""
        self._backend.wait_for_arrival(seen, timeout)

    def take(self) -> list[Record]:
        """All that was fetched ahead."""
        taken = list(self.ahead)
        self.ahead.clear()
        return taken

    def close(self) -> None:
        """The next fetch ends it."""
        self._closed = True
        call = self._call
        if call is not None and not self._backend.closed:
            self._link.note(call, m.Cancel())
            self._link.forget(call)
        self._backend.announce()
