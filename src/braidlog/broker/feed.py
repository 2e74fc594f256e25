"""One subscription as its server sees it: reads ahead while there is credit, and pushes what it read. PURE.

At most one read is under way. It waits without polling: for the log to reach further, or for credit.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog import limits
from braidlog.broker.conversation import Pieces
from braidlog.broker.service import Push, Reply
from braidlog.broker.tracking import GONE, UNKNOWN, Stamp
from braidlog.errors import Blocked, BraidError, Gone, Trimmed
from braidlog.wire.faults import fault_of
from braidlog.wire.messages import Answer, Ending, Parts, Read


class LogFeed:
    """Pushes from `position` on; the last push is an Ending."""

    def __init__(
        self,
        read: Callable[[Read, Reply], None],
        end_of: Callable[[Callable[[Ending], None]], None],
        log: int,
        position: int,
        credit: int,
        push: Push,
        ready: Callable[[], bool],
        accepted: Callable[[int], None],
    ) -> None:
        self._read = read
        self._end_of = end_of
        self._log = log
        self._next = position
        self._credit = min(credit, limits.SUBSCRIBE_CREDIT_BYTES_MAX)
        self._push = push
        self._ready = ready
        self._accepted = accepted
        self._started = False
        self.readable = UNKNOWN.readable
        self._reading = False
        self._pumping = True  # until it is accepted
        self._closed = False
        self.on_close: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to push, once it is known how far the log reaches: that is told to `accepted` first."""
        self._started = True
        self._begin()

    def changed(self, stamp: Stamp) -> None:
        """The log is another than it was."""
        self.readable = stamp.readable
        self._begin()
        self._pump()

    def _begin(self) -> None:
        if self._started and self.readable != UNKNOWN.readable:
            self._started = False
            self._accepted(self.readable)
            self._pumping = False
            self._pump()

    def more(self, credit: int) -> None:
        self._credit = min(self._credit + credit, limits.SUBSCRIBE_CREDIT_BYTES_MAX)
        self._pump()

    def fail(self, error: BraidError) -> None:
        """Nobody can tell any more how the log changes."""
        if not self._closed:
            self._end(error)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.on_close()

    def _wants(self) -> bool:
        arrived = self.readable == GONE.readable or self.readable > self._next
        return arrived and self._credit > 0 and self._ready() and not self._reading and not self._closed

    def _pump(self) -> None:
        if self._pumping:  # a read that answered at once: the loop below goes on
            return
        self._pumping = True
        try:
            while self._wants():
                self._reading = True
                ask = Read(self._log, self._next, None, min(self._credit, limits.SUBSCRIBE_FETCH_BYTES))
                try:
                    self._read(ask, self._took)
                except BraidError as error:
                    self._took(error, None)
        finally:
            self._pumping = False

    def _took(self, answer: Answer | BraidError, body: Pieces | None) -> None:
        self._reading = False
        if self._closed:
            return
        if isinstance(answer, Parts) and answer.parts and not self._ready():
            return  # the listener stopped listening while it was fetched: it is fetched again when that is over
        if isinstance(answer, Parts):
            self._next = answer.next
            if not answer.parts:
                self.readable = answer.readable
            elif self.readable != GONE.readable:  # it may have ended while this was fetched
                self.readable = max(self.readable, answer.readable)
            if answer.parts:
                self._credit -= sum(part.length for part in answer.parts)
                self._push(answer, body)
        elif isinstance(answer, Blocked):
            self.readable = self._next  # it pauses here until the decision
        else:
            assert isinstance(answer, BraidError)
            self._end(answer)
        self._pump()

    def _end(self, error: BraidError) -> None:
        if isinstance(error, Trimmed):
            ending = Ending("trimmed", position=self._next)
        elif isinstance(error, Gone):
            self.close()
            self._end_of(self._ended)
            return
        else:
            ending = Ending("failed", position=self._next, error=fault_of(error))
        self.close()
        self._push(ending, None)

    def _ended(self, found: Ending) -> None:
        self._push(Ending(found.kind or "squashed", found.name, found.into, self._next, found.into_name), None)
