"""The receipt for an append that was submitted and not waited for."""

from __future__ import annotations

import threading

import msgspec

from braidlog import limits
from braidlog.client import arguments
from braidlog.client.backend import Backend
from braidlog.client.waiting import Deadline, patiently
from braidlog.embedded.committer import Pending
from braidlog.errors import Gone, InvalidArgument, Timeout
from braidlog.facts import Outcome
from braidlog.forest import commands as c
from braidlog.forest.log import Outcome as Kept


class Outstanding:
    """Bounds the bytes that were submitted and are not durable yet."""

    def __init__(self, bytes_max: int = limits.SUBMIT_OUTSTANDING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._less = threading.Condition()

    def take(self, size: int, timeout: float | None) -> None:
        """Wait until there is room. A single batch larger than the bound goes alone."""
        with self._less:
            if not self._less.wait_for(
                lambda: self._fits(size), limits.COMMIT_TIMEOUT_S if timeout is None else timeout
            ):
                raise self.refusal()
            self._bytes += size

    def try_take(self, size: int) -> bool:
        """Take room if there is some."""
        with self._less:
            fits = self._fits(size)
            if fits:
                self._bytes += size
            return fits

    def give_back(self, size: int) -> None:
        with self._less:
            self._bytes -= size
            self._less.notify_all()

    def refusal(self) -> Timeout:
        return Timeout(
            f"{self._bytes:,} bytes are submitted and not durable yet, and at most {self._bytes_max:,} may be: "
            "submit more slowly, or wait on earlier tickets"
        )

    def _fits(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= self._bytes_max


def recall(backend: Backend, request_id: str, kept: Kept | None = None) -> Outcome:
    """What became of a request. The id of one that travelled with others ends in `.offset.count`."""
    try:
        text, _, share = request_id.partition(".")
        request = bytes.fromhex(text)
        offset, count = (int(number) for number in share.split(".")) if share else (0, 0)
    except (ValueError, TypeError, AttributeError):
        request, offset, count = b"", 0, 0
    if len(request) != limits.REQUEST_ID_BYTES or offset < 0:
        raise InvalidArgument(f"request_id is {2 * limits.REQUEST_ID_BYTES} hex digits, not {request_id!r:.80}")
    outcome = backend.outcome(request, text, kept)
    if not share:
        return outcome
    positions = outcome.positions[offset : offset + count] if outcome.positions is not None else None
    return msgspec.structs.replace(outcome, request_id=request_id, positions=positions)


class Receipt:
    """What is known of a submitted append right now. Whoever holds it does the waiting."""

    __slots__ = ("_backend", "_request", "_single", "pending")

    def __init__(self, backend: Backend, pending: Pending, request: bytes, *, single: bool) -> None:
        self.pending = pending
        self._backend = backend
        self._request = request
        self._single = single

    @property
    def request_id(self) -> str:
        return self.pending.alias or self._request.hex()

    def position(self) -> int | range | None:
        """Where it stands, once it is durable; None while a hold withholds that."""
        answer = self.pending.result()
        assert isinstance(answer, c.Appended)
        if not answer.withheld:
            return self._form(range(answer.first, answer.first + answer.count))
        outcome = self._outcome()
        if outcome.positions is not None:
            return self._form(outcome.positions)
        if outcome.withheld:
            return None
        raise Gone(f"log {self._backend.name_of(answer.log)!r} ended before the position was decided")

    @property
    def log(self) -> int:
        command = self.pending.command
        assert isinstance(command, c.Append)
        return command.log

    def _outcome(self) -> Outcome:
        return recall(self._backend, self.request_id, self.pending.kept)

    def _form(self, positions: range) -> int | range:
        return positions.start if self._single else positions

    @staticmethod
    def not_durable(timeout: float | None) -> Timeout:
        return Timeout(f"the append is not durable after {timeout} s: wait longer")

    @staticmethod
    def not_decided(timeout: float | None) -> Timeout:
        return Timeout(f"the position is still withheld by a hold after {timeout} s: wait for its decision")


def undecided(position: int | range | None) -> bool:
    return position is None


class Ticket:
    """What became of a submitted append: wait for it to be durable, or for its position."""

    __slots__ = ("_backend", "_receipt")

    def __init__(self, backend: Backend, receipt: Receipt) -> None:
        self._backend = backend
        self._receipt = receipt

    @property
    def request_id(self) -> str:
        """What `Braid.resolve` takes, also after a restart."""
        return self._receipt.request_id

    @property
    def done(self) -> bool:
        """Whether it is durable, or has failed."""
        return self._receipt.pending.done

    def durable(self, timeout: float | None = None) -> None:
        """Return once the append cannot be lost; raise what went wrong if it failed."""
        if not self._receipt.pending.wait(arguments.seconds("timeout", timeout)):
            raise self._receipt.not_durable(timeout)
        self._receipt.pending.result()

    def position(self, timeout: float | None = None) -> int | range:
        """The position, or the range of a batch's. Waits for the decision when a hold withholds it."""
        deadline = Deadline(arguments.seconds("timeout", timeout))
        self.durable(timeout)
        found = patiently(self._backend, self._receipt.log, self._receipt.position, deadline, undecided)
        if found is None:
            raise self._receipt.not_decided(timeout)
        return found
