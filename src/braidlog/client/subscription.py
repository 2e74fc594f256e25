"""Following a log: records as they become readable, until there is a reason to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from braidlog.client import arguments
from braidlog.client.backend import Backend, Following
from braidlog.client.waiting import Deadline
from braidlog.errors import InvalidArgument
from braidlog.facts import EndOfLog
from braidlog.record import Record


class Subscription:
    """An iterator over records. It fetches a bounded number ahead, pauses at holds, and says in `end` why it ended.

    Not to be shared between threads, except that `close` may be called from any.
    """

    def __init__(self, backend: Backend, cursor: Following, commit: Callable[[int], int] | None = None) -> None:
        self._backend = backend
        self._cursor = cursor
        self._commit = commit

    @property
    def position(self) -> int:
        """Of the record that comes next."""
        return self._cursor.position

    @property
    def end(self) -> EndOfLog | None:
        """Why it ended; None while it goes on."""
        return self._cursor.end

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        self._fill(Deadline(None))
        if not self._cursor.ahead:
            raise StopIteration
        return self._cursor.ahead.popleft()

    def poll(self, timeout: float | None = 0.0) -> list[Record]:
        """What came meanwhile, waiting up to `timeout` seconds for something; empty when nothing came or it ended."""
        self._fill(Deadline(arguments.seconds("timeout", timeout)))
        return self._cursor.take()

    def _fill(self, deadline: Deadline) -> None:
        while self._cursor.waits:
            seen = self._cursor.fetch(deadline.left)
            if seen is None:
                return
            if deadline.passed:
                if self._cursor.catch_up(deadline.left):
                    self._cursor.fetch(deadline.left)
                return
            self._cursor.wait(seen, deadline.left)

    def commit(self, position: int | None = None) -> int:
        """Remember durably how far the consumer got: up to the last record that was handed out, or to `position`.

        The next subscription of that consumer begins there. Returns the position. Not without a consumer.
        """
        return to_commit(self._commit)(self.position if position is None else position)

    def close(self) -> None:
        """End it: a waiting `next` returns when the log next changes, a later one at once."""
        self._cursor.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def to_commit(commit: Callable[[int], int] | None) -> Callable[[int], int]:
    """How a subscription commits; an error if nobody said for whom."""
    if commit is None:
        raise InvalidArgument("this subscription has no consumer to commit for: subscribe with consumer='a name'")
    return commit
