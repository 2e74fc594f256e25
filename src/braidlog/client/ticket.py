"""The receipt for an append that was submitted and not waited for."""

from __future__ import annotations

import threading
import time

from braidlog import limits
from braidlog.client.backend import Backend
from braidlog.embedded.committer import Pending
from braidlog.errors import Gone, Timeout
from braidlog.forest import commands as c


class Outstanding:
    """Bounds the bytes that were submitted and are not durable yet."""

    def __init__(self, bytes_max: int = limits.SUBMIT_OUTSTANDING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._less = threading.Condition()

    def take(self, size: int, timeout: float | None) -> None:
        """Wait until there is room. A single batch larger than the bound goes alone."""
        with self._less:
            fits = self._less.wait_for(
                lambda: self._bytes == 0 or self._bytes + size <= self._bytes_max,
                limits.COMMIT_TIMEOUT_S if timeout is None else timeout,
            )
            if not fits:
                raise Timeout(
                    f"{self._bytes:,} bytes are submitted and not durable yet, and at most {self._bytes_max:,} may be: "
                    "submit more slowly, or wait on earlier tickets"
                )
            self._bytes += size

    def give_back(self, size: int) -> None:
        with self._less:
            self._bytes -= size
            self._less.notify_all()


class Ticket:
    """What became of a submitted append: wait for it to be durable, or for its position."""

    __slots__ = ("_backend", "_pending", "_request", "_single")

    def __init__(self, backend: Backend, pending: Pending, request: bytes, *, single: bool) -> None:
        self._backend = backend
        self._pending = pending
        self._request = request
        self._single = single

    @property
    def request_id(self) -> str:
        """What `Braid.resolve` takes, also after a restart."""
        return self._request.hex()

    @property
    def done(self) -> bool:
        """Whether it is durable, or has failed."""
        return self._pending.done

    def durable(self, timeout: float | None = None) -> None:
        """Return once the append cannot be lost; raise what went wrong if it failed."""
        if not self._pending.wait(timeout):
            raise Timeout(f"the append is not durable after {timeout} s: wait longer")
        self._pending.result()

    def position(self, timeout: float | None = None) -> int | range:
        """The position, or the range of a batch's. Waits for the decision when a hold withholds it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.durable(timeout)
        answer = self._pending.result()
        assert isinstance(answer, c.Appended)
        if not answer.withheld:
            return self._form(range(answer.first, answer.first + answer.count))
        while True:
            seen = self._backend.version
            outcome = self._backend.outcome(self._request, self.request_id)
            if outcome.positions is not None:
                return self._form(outcome.positions)
            if not outcome.withheld:
                raise Gone(f"log {self._backend.name_of(answer.log)!r} ended before the position was decided")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Timeout(f"the position is still withheld by a hold after {timeout} s: wait for its decision")
            self._backend.wait_for_change(seen, left)

    def _form(self, positions: range) -> int | range:
        return positions.start if self._single else positions
