"""Group commit: everything that queued while the disk was busy becomes durable with the next sync.

Whoever waits for a commit carries it out himself when nobody else is at it, and so a lone append pays no hand-over
between threads. What he finds queued goes along. The committer's own thread takes the rest: what was submitted without
waiting, and what queued behind a leader who got his.

One round takes what is at the queue's head, in its order: all commands are written as one frame and synced; only then
are they applied, and only then answered. A large batch joins a round once it is stored; storing begins as soon as it
is queued (see `storing`), while earlier rounds are written. A failed sync is final: what was in that round has an
unknown outcome, and nothing is acknowledged ever after.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from braidlog import limits
from braidlog.embedded.storing import Load, Parcel, StoreObject, Storing
from braidlog.errors import BraidError, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.log import Outcome
from braidlog.metadata.home import Deposed
from braidlog.objects.format import Columns

_COMMAND_BYTES = 256  # about what a command takes in a frame, without a payload
_encoder = msgspec.msgpack.Encoder()


class Pending:
    """A command on its way, and its answer once it has one."""

    __slots__ = ("_gate", "_then", "alias", "answer", "command", "done", "kept", "load", "size")

    def __init__(self, command: c.Command, payload: int = 0, columns: Columns | None = None) -> None:
        self.command = command
        self.load = Load(columns, payload) if columns is not None else None  # a batch too large to ride inline
        self.size = _COMMAND_BYTES + (payload if columns is None else 0)  # in a frame
        self.done = False
        self.answer: c.Result | BraidError | None = None
        self.alias = ""  # the id it is known under, if it travelled with others
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

    `store_object(writer)` makes an object durable, and is called by several threads at once; `write(payload)` makes a
    frame durable and `apply` takes the commands into the forest, and both are called by one thread at a time.
    """

    def __init__(
        self,
        store_object: StoreObject,
        write: Callable[[bytes], None],
        apply: Callable[[list[c.Command]], list[c.Result | BraidError]],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._storing = Storing(store_object)
        self._write = write
        self._apply = apply
        self._on_failure = on_failure  # called once nothing will be acknowledged any more
        self._queue: deque[Pending] = deque()
        self._leading = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._refusal: Unavailable | None = None  # of what comes after the end
        self.failure: Unavailable | None = None
        self._thread = threading.Thread(target=self._run, name="braidlog-committer", daemon=True)
        self._thread.start()

    def submit(self, pending: Pending) -> None:
        """Queue it and go on."""
        self._enqueue(pending)
        self._storing.begin()
        self._hand_over()

    def submit_all(self, pendings: Sequence[Pending], *, here: bool = False) -> None:
        """Queue them and go on; or, with `here`, carry them out right here if nobody else is at it."""
        here = here and not self._queue  # whoever is ahead of them may wait for a store
        for pending in pendings:
            self._enqueue(pending)
        if here and self._leading.acquire(blocking=False):
            try:
                while self._queue and not pendings[-1].done:
                    self._round()
            finally:
                self._leading.release()
        self._storing.begin()
        self._hand_over()

    def carry_out(
        self, pending: Pending, timeout: float | None = limits.COMMIT_TIMEOUT_S, *, behind: Sequence[Pending] = ()
    ) -> None:
        """Queue it, behind others, and return once it is done, and so are they.

        Returning without it being done means that the time ran out.
        """
        for other in behind:
            self._enqueue(other)
        self._enqueue(pending)
        while not pending.done:
            if self._leading.acquire(blocking=False):
                try:
                    while not pending.done:
                        self._round()
                finally:
                    self._leading.release()
                    self._hand_over()
            else:
                self._storing.begin()
                if not pending.wait(timeout):
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
        self._storing.close()

    def fail(self, failure: Unavailable) -> None:
        """Acknowledge nothing from now on."""
        self.failure = self.failure or failure
        self._storing.end()

    def disown(self, failure: Unavailable) -> None:
        """In the child of a fork of the process: the commits are the parent's, and so are those who carry them out."""
        self._queue.clear()
        self._leading = threading.Lock()  # whoever held it is not here
        self._storing.disown()
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

    def _enqueue(self, pending: Pending) -> None:
        if pending.load is not None:
            with self._storing.order:
                self._queue.append(pending)
                self._storing.add(pending.load)
        elif type(pending.command) is c.Collect:
            # Between an object's registration and the last append that refers to it, it would find that nobody does.
            with self._storing.order:
                self._queue.append(pending)
                self._storing.divide()
        else:
            self._queue.append(pending)

    def _round(self) -> None:
        refusal = self.failure or self._refusal
        if refusal is not None:
            while self._queue:
                self._queue.popleft().finish(refusal)
            return
        taken = self._take()
        if not taken:
            return
        try:
            self._commit(taken)
        except BaseException as error:
            self.fail(Unavailable(f"the command log failed and takes nothing more: {error}; mend it, then reopen"))
            for pending in taken:
                if not pending.done:
                    pending.finish(_unknown(pending, error))
            self._on_failure()
            if not isinstance(error, Exception):
                raise

    def _take(self) -> list[Pending]:
        """What stands at the queue's head and is stored if it has to be; waits only if that were nothing."""
        taken: list[Pending] = []
        size = 0
        queue = self._queue
        if queue and (load := queue[0].load) is not None:
            self._storing.complete(load)
        while queue and size < limits.FRAME_TARGET_BYTES:
            pending = queue[0]
            load = pending.load
            if load is not None and not load.done:
                break
            # A collection goes alone, so that no registration is in one frame with it.
            if taken and c.Collect in (type(pending.command), type(taken[-1].command)):
                break
            queue.popleft()
            if load is not None and load.parcel is not None and load.parcel.refusal is not None:
                pending.finish(load.parcel.refusal)
                continue
            taken.append(pending)
            size += pending.size
        return taken

    def _commit(self, taken: list[Pending]) -> None:
        parcels = _unregistered(taken)
        batch: list[c.Command] = [parcel.registration for parcel in parcels if parcel.registration is not None]
        first = len(batch)
        batch += [_placed(pending) for pending in taken]
        try:
            self._write(_encoder.encode(batch))
        except (Unavailable, InvalidArgument) as refusal:  # nothing was written
            if isinstance(refusal, Deposed):
                self.fail(refusal)  # first, so that whoever is told knows that it is for ever
            for pending in taken:
                pending.finish(refusal)
            if isinstance(refusal, Deposed):
                self._on_failure()
            return
        for parcel in parcels:
            parcel.registered = True
        answers = self._apply(batch)
        for pending, answer in zip(taken, answers[first:], strict=True):
            pending.finish(answer)


def _unregistered(taken: list[Pending]) -> list[Parcel]:
    """The objects that these are the first to refer to, in order."""
    parcels = dict.fromkeys(pending.load.parcel for pending in taken if pending.load is not None)
    return [parcel for parcel in parcels if parcel is not None and not parcel.registered]


def _placed(pending: Pending) -> c.Command:
    """The command, with the place of what was stored for it."""
    load = pending.load
    if load is None or load.parcel is None or load.parcel.registration is None:
        return pending.command
    command = pending.command
    append = command.command if isinstance(command, c.Again) else command
    assert isinstance(append, c.Append)
    offset, length, crc = load.place
    placed = msgspec.structs.replace(
        append, object=load.parcel.registration.object, offset=offset, length=length, crc=crc
    )
    return c.Again(placed, command.since) if isinstance(command, c.Again) else placed


def _unknown(pending: Pending, error: BaseException) -> OutcomeUnknown:
    request: bytes = getattr(pending.command, "request", b"")
    return OutcomeUnknown(
        f"the command log failed while this was written ({error}): it may or may not have happened; "
        "reopen and ask resolve() with its request id",
        request_id=request.hex(),
    )
