"""Group commit: everything that queued while the disk was busy becomes durable with the next sync.

Whoever waits for a commit carries it out himself when nobody else is at it, and so a lone append pays no hand-over
between threads. What he finds queued goes along. The committer's own thread takes the rest: what was submitted without
waiting, and what queued behind a leader who got his.

One round: large batches are stored first, several in an object; then all commands are written as one frame and
synced; only then are they applied, and only then answered. A failed sync is final: what was in that round has an
unknown outcome, and nothing is acknowledged ever after.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.log import Outcome
from braidlog.objects.format import ObjectWriter

_encoder = msgspec.msgpack.Encoder()


class Pending:
    """A command on its way, and its answer once it has one."""

    __slots__ = ("_gate", "_then", "answer", "columns", "command", "done", "kept", "size")

    def __init__(self, command: c.Command, size: int = 256, columns: pa.RecordBatch | None = None) -> None:
        self.command = command
        self.columns = columns  # of a batch too large to ride inline
        self.size = size
        self.done = False
        self.answer: c.Result | BraidError | None = None
        self.kept: Outcome | None = None  # of an append whose position is withheld: the forest changes it when decided
        self._then: Callable[[Pending], None] | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def then(self, call: Callable[[Pending], None]) -> None:
        """Call when done, from the thread that finds it so. To be set before it is queued."""
        self._then = call

    def finish(self, answer: c.Result | BraidError) -> None:
        self.answer = answer
        self.done = True
        self._gate.release()
        if self._then is not None:
            self._then(self)

    def wait(self, timeout: float | None) -> bool:
        if self.done:
            return True
        if self._gate.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            self._gate.release()
        return self.done

    def result(self) -> c.Result:
        """The answer; errors are raised. Who did not wait until it is done does not know what became of it."""
        answer = self.answer
        if answer is None:
            request: bytes = getattr(self.command, "request", b"")
            raise OutcomeUnknown(
                f"storage did not answer within {limits.COMMIT_TIMEOUT_S:g} s: it may still happen; "
                "ask resolve() with its request id",
                request_id=request.hex(),
            )
        if isinstance(answer, BraidError):
            raise answer
        return answer


class Committer:
    """The queue in front of a command log.

    `store_object(writer) -> Register` makes an object durable; `write(payload)` makes a frame durable; `apply`
    takes the commands into the forest. All three are called by one thread at a time.
    """

    def __init__(
        self,
        store_object: Callable[[ObjectWriter], tuple[c.Register, list[tuple[int, int, int]]]],
        write: Callable[[bytes], None],
        apply: Callable[[list[c.Command]], list[c.Result | BraidError]],
    ) -> None:
        self._store_object = store_object
        self._write = write
        self._apply = apply
        self._queue: deque[Pending] = deque()
        self._leading = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._refusal: Unavailable | None = None  # of what comes after the end
        self.failure: Unavailable | None = None
        self._storers = ThreadPoolExecutor(limits.STORERS, thread_name_prefix="braidlog-storer")
        self._thread = threading.Thread(target=self._run, name="braidlog-committer", daemon=True)
        self._thread.start()

    def submit(self, pending: Pending) -> None:
        """Queue it and go on."""
        self._queue.append(pending)
        self._hand_over()

    def carry_out(
        self, pending: Pending, timeout: float | None = limits.COMMIT_TIMEOUT_S, *, behind: Sequence[Pending] = ()
    ) -> None:
        """Queue it, behind others, and return once it is done, and so are they.

        Returning without it being done means that the time ran out.
        """
        self._queue.extend(behind)
        self._queue.append(pending)
        while not pending.done:
            if self._leading.acquire(blocking=False):
                try:
                    while not pending.done:
                        self._round()
                finally:
                    self._leading.release()
                    self._hand_over()
            elif not pending.wait(timeout):
                return

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep all commits out, for example while a snapshot is taken."""
        try:
            with self._leading:
                yield
        finally:
            self._hand_over()

    def stop(self, refusal: Unavailable) -> None:
        """Carry out what is queued and stop the thread. What comes later is refused, and no commit is under way."""
        self._stopping = True
        self._wake.set()
        self._thread.join()
        with self._leading:  # whoever leads now has taken his round from the queue, and ends it
            self._refusal = refusal
        self._drain()
        self._storers.shutdown()

    def fail(self, failure: Unavailable) -> None:
        """Acknowledge nothing from now on."""
        self.failure = self.failure or failure

    def disown(self, failure: Unavailable) -> None:
        """In the child of a fork of the process: the commits are the parent's, and so are those who carry them out."""
        self._queue.clear()
        self._leading = threading.Lock()  # whoever held it is not here
        self.fail(failure)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._drain()
            if self._stopping:
                return

    def _hand_over(self) -> None:
        """Let somebody else see to what queued while we led: those who queued it could not lead, and wait."""
        if self._queue:
            self._wake.set()
            if self._refusal is not None:  # nobody listens any more
                self._drain()

    def _drain(self) -> None:
        while self._queue:  # looked at again after the lock was let go, for the same reason
            with self._leading:
                while self._queue:
                    self._round()

    def _round(self) -> None:
        taken = self._take()
        if not taken:
            return
        refusal = self.failure or self._refusal
        if refusal is not None:
            for pending in taken:
                pending.finish(refusal)
            return
        try:
            self._commit(taken)
        except BaseException as error:
            self.fail(Unavailable(f"the command log failed and takes nothing more: {error}; mend it, then reopen"))
            for pending in taken:
                if not pending.done:
                    pending.finish(_unknown(pending, error))
            if not isinstance(error, Exception):
                raise

    def _take(self) -> list[Pending]:
        taken: list[Pending] = []
        inline = stored = 0
        queue = self._queue
        while queue and inline < limits.FRAME_TARGET_BYTES and stored < limits.ROUND_BYTES_MAX:
            # A collection goes alone: between an object's registration and the appends that refer to it, it would
            # find that nobody does.
            if taken and c.Collect in (type(queue[0].command), type(taken[-1].command)):
                break
            pending = queue.popleft()
            taken.append(pending)
            if pending.columns is None:
                inline += pending.size
            else:
                stored += pending.size
        return taken

    def _commit(self, taken: list[Pending]) -> None:
        batch: list[c.Command] = []
        groups = _grouped([pending for pending in taken if pending.columns is not None])
        # Several objects are stored side by side: while one waits for its sync, the next is written.
        stored = self._storers.map(self._store, groups) if len(groups) > 1 else map(self._store, groups)
        batch += [registration for registration in stored if registration is not None]
        taken = [pending for pending in taken if not pending.done]
        if not taken:
            return
        first = len(batch)
        batch += [pending.command for pending in taken]
        try:
            self._write(_encoder.encode(batch))
        except (Unavailable, InvalidArgument) as refusal:  # nothing was written
            for pending in taken:
                pending.finish(refusal)
            return
        answers = self._apply(batch)
        for pending, answer in zip(taken, answers[first:], strict=True):
            pending.finish(answer)

    def _store(self, large: list[Pending]) -> c.Register | None:
        """Make an object of these. If that fails they are refused, and nothing refers to what was not stored."""
        try:
            writer = ObjectWriter()
            for pending in large:
                writer.add(pending.columns)
            registration, places = self._store_object(writer)
        except Exception as error:  # a lack of memory too: the log itself is untouched and goes on
            refusal = Unavailable(f"the batch could not be stored: {error}; free some space, then try again")
            for pending in large:
                pending.finish(refusal)
            return None
        for pending, (offset, length, crc) in zip(large, places, strict=True):
            assert isinstance(pending.command, c.Append)
            pending.command = msgspec.structs.replace(
                pending.command, object=registration.object, offset=offset, length=length, crc=crc
            )
            pending.columns = None
        return registration


def _grouped(large: list[Pending]) -> list[list[Pending]]:
    """Batches that will share an object, in order; one larger than the bound goes alone."""
    groups: list[list[Pending]] = []
    size = limits.OBJECT_BYTES_MAX
    for pending in large:
        if size + pending.size > limits.OBJECT_BYTES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(pending)
        size += pending.size
    return groups


def _unknown(pending: Pending, error: BaseException) -> OutcomeUnknown:
    request: bytes = getattr(pending.command, "request", b"")
    return OutcomeUnknown(
        f"the command log failed while this was written ({error}): it may or may not have happened; "
        "reopen and ask resolve() with its request id",
        request_id=request.hex(),
    )
