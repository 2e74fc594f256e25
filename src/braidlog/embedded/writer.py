"""The one process that writes a directory, or a log in memory: a replica whose commands come from here.

Opening recovers: the newest snapshot, then every frame behind it. It begins a new epoch, so that objects which an older
writer stored but never registered can be told from ours and swept. Closing packs what rides inline, writes a snapshot
and marks the log's end, so that the next opening has nothing to replay.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from braidlog import limits
from braidlog.embedded import orphans
from braidlog.embedded.clock import Clock
from braidlog.embedded.committer import Committer, Pending
from braidlog.embedded.measures import WriterMeasures
from braidlog.embedded.replica import COMMANDS, Replica, closed
from braidlog.embedded.vouching import vouch
from braidlog.errors import BraidError, Corrupt, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw
from braidlog.metadata import directory
from braidlog.metadata.home import Home
from braidlog.objects.batch import Batch, encode, to_arrow
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.format import ObjectWriter
from braidlog.objects.store import object_name


class Snapshot(msgspec.Struct, array_like=True):
    """What a snapshot file holds: the forest, and the bytes that still ride inline."""

    forest: c.Payload
    payloads: dict[int, c.Payload]


SNAPSHOTS = msgspec.msgpack.Decoder(Snapshot)


class Writer(Replica):
    """Commits commands, and shows what is committed."""

    def __init__(
        self, home: Home, clock: Clock, *, release: Callable[[], None] = lambda: None, sweep: bool = True
    ) -> None:
        """Without `sweep`, what others left is removed only by `sweep_stored`: that may take long."""
        self._home = home
        self.clock = clock
        self._release = release
        self._closing = False
        self.measures = WriterMeasures()
        self.failing: dict[str, str] = {}  # duties behind the scenes that do not get on, and why
        self.commands_since_checkpoint = 0
        with _uncollected():
            after, forest, payloads = load_snapshot(home.latest())
            super().__init__(forest, payloads, home.store, home.folder)
            self.log, self.clean, self.cut = home.open_log(after, self._replay)
        try:
            self.log.drop_through(after)
            home.drop_before(after)
            self._objects_named = 0
            self._forest_bytes = 0  # in the last snapshot
            self._room = threading.Condition()
            self.on_full: Callable[[], object] = lambda: None  # called when much rides inline; wakes the keeper
        except BaseException:
            self.log.close()
            raise
        self.committer = Committer(self._store_object, self._write, self._apply, self._tell_of_failure)
        _writers.add(self)
        try:
            if isinstance(self.store, BlobStore):  # which is not copied along with a directory
                with directory.storage("list the objects"):
                    orphans.refuse_if_behind(self.forest.space, self.store)
            self.execute(c.Opened(self.forest.space.newest_epoch + 1, clock.now_us()))
            if sweep:
                with directory.storage("sweep the objects"):
                    orphans.sweep(self.forest.space, self.store)
        except BaseException:
            self.committer.stop(closed())
            self.log.close()
            raise

    def _replay(self, sequence: int, payload: memoryview) -> None:
        self.commands_since_checkpoint += absorb_frame(self, sequence, payload)

    # --- committing ----------------------------------------------------------------------------------------------

    def execute(self, command: c.Command) -> c.Result:
        """Make one command durable, apply it, and answer; errors are raised."""
        self.check_open()
        if isinstance(command, c.CFork | c.SFork | c.Publish):
            self.check_holds(command)
        if isinstance(command, c.Publish):
            return self._publish(command)
        pending = Pending(command)
        self.committer.carry_out(pending)
        return pending.result()

    def _publish(self, command: c.Publish) -> c.Result:
        vouched, refusal = vouch(self.store, command, self.aside)
        pending = Pending(vouched, vouched.weight)
        self.committer.carry_out(pending)
        try:
            return pending.result()
        except InvalidArgument as error:
            raise refusal or error from None

    def append(self, command: c.Append, batch: Batch) -> c.Appended:
        """Append a batch and wait for its position."""
        self.wait_for_room(command)
        pending = self.prepare(command, batch)
        self.committer.carry_out(pending)
        answer = pending.result()
        assert isinstance(answer, c.Appended)
        return answer

    def submit(self, command: c.Append, batch: Batch, then: Callable[[Pending], None]) -> Pending:
        """Queue a batch and go on, whether there is room or not; `then` is called when it is durable or has failed."""

        def done(pending: Pending) -> None:
            if isinstance(pending.answer, c.Appended) and pending.answer.withheld:
                with self.lock:  # the forest remembers only so many after the decision, and any number may wait for it
                    pending.kept = self.forest.pending.get(command.request)
            then(pending)

        pending = self.prepare(command, batch)
        pending.then(done)
        self.committer.submit(pending)
        return pending

    def prepare(self, command: c.Append, batch: Batch) -> Pending:
        """Give a batch its form: inline if it is small, columns for an object, when it is stored, if it is large."""
        self.check_open()
        self.check_holds(command)
        if command.size > limits.INLINE_BYTES_MAX:
            return Pending(command, command.size, partial(to_arrow, [batch]))
        payload = encode(batch)
        return Pending(msgspec.structs.replace(command, payload=payload), len(payload))

    def check_holds(self, command: c.Append | c.Publish | c.CFork | c.SFork | c.Again) -> None:
        """Refuse what is blocked without writing anything: who waits for a decision may try often."""
        with self.lock:
            self.forest.check_holds(command)

    def check_open(self) -> None:
        if self._closing:
            raise closed()
        if self.committer.failure is not None:
            raise self.committer.failure

    @property
    def append_timeout_s(self) -> float:
        """How long storage may take."""
        return limits.COMMIT_TIMEOUT_S

    def crowded(self, command: c.Append) -> Unavailable | None:
        """Why an append has to wait: more rides inline than the packer has put away. None if there is room."""
        if self.inline_bytes <= limits.UNPACKED_BYTES_MAX or command.size > limits.INLINE_BYTES_MAX:
            return None
        if self._closed or self.committer.failure is not None:
            return None  # there never will be room, and whoever goes on is told why
        return Unavailable(
            f"{self.inline_bytes:,} bytes wait to be packed into objects and the packer does not get on: "
            "is the disk full, or the object store down?"
        )

    def wait_for_room(self, command: c.Append, timeout: float | None = None) -> None:
        """Return once there is room; raise if there is none for too long."""
        if self.crowded(command) is None:
            return
        self.on_full()
        with self._room:
            self._room.wait_for(
                lambda: self.crowded(command) is None, limits.COMMIT_TIMEOUT_S if timeout is None else timeout
            )
        refusal = self.crowded(command)
        if refusal is not None:
            raise refusal

    def _tell_of_room(self) -> None:
        with self._room:
            self._room.notify_all()

    def _tell_of_failure(self) -> None:
        """Whoever waits for room, or for anything to change, waits in vain."""
        self.measures.commits.failures.add()
        self._tell_of_room()
        self._announce()

    def _store_object(self, writer: ObjectWriter) -> tuple[c.Register, list[tuple[int, int, int]]]:
        """Make an object durable; answers how to register it and where its blocks are."""
        name = self.next_object_name()
        self.store.put(name, writer.parts())
        registration = c.Register(name, self.forest.space.epoch, writer.size, writer.crc, self.clock.now_us())
        return registration, [(block.offset, block.length, block.crc) for block in writer.blocks]

    def next_object_name(self) -> str:
        with self.lock:
            self._objects_named += 1
            return object_name(self.forest.space.epoch, self._objects_named)

    def put_object(self, writer: ObjectWriter) -> tuple[c.Register, list[tuple[int, int, int]]]:
        """The same for the packer and the compactor, with failures as errors of ours."""
        with directory.storage("store an object"):
            return self._store_object(writer)

    def _write(self, payload: bytes) -> None:
        if self.measures.census is None:  # nobody looks
            self.log.append(payload)
            return
        now = self.clock.monotonic_s
        began = now()
        self.log.append(payload)
        self.measures.committed(now() - began)

    def _apply(self, batch: list[c.Command]) -> list[c.Result | BraidError]:
        answers = self.absorb(batch)
        if self.measures.census is not None:
            self.measures.applied(batch, answers)
        self.commands_since_checkpoint += len(batch)
        if self.inline_bytes >= limits.PACK_BYTES:
            self.on_full()
        return answers

    def execute_together(self, commands: Sequence[c.Command], *, despite: tuple[type[BraidError], ...] = ()) -> None:
        """Commands that follow one another, in as few commits as can be; the first error but `despite` is raised."""
        if not commands:
            return
        self.check_open()
        pendings = [Pending(command) for command in commands]
        self.committer.carry_out(pendings[-1], behind=pendings[:-1])
        for pending in pendings:
            with contextlib.suppress(*despite):
                pending.result()
        self._tell_of_room()

    # --- keeping recovery short ----------------------------------------------------------------------------------

    def checkpoint_due(self) -> bool:
        """Whether replaying the log would take long; never so often that snapshots cost more than what they save."""
        commands = max(limits.CHECKPOINT_COMMANDS, len(self.forest.logs))
        size = max(limits.CHECKPOINT_LOG_BYTES, limits.CHECKPOINT_LOG_PER_STATE_BYTES * self._forest_bytes)
        return self.commands_since_checkpoint >= commands or self.log.bytes_since_roll >= size

    def checkpoint(self) -> None:
        """Write a snapshot and drop the command log that it makes superfluous."""
        with self.committer.alone():
            if self.committer.failure is not None:
                raise self.committer.failure
            sequence = self.log.roll() - 1
            with self.lock:
                snapshot = Snapshot(freeze(self.forest), dict(self.payloads))
            covered = self.commands_since_checkpoint
        self._forest_bytes = len(snapshot.forest)
        self._home.save(sequence, msgspec.msgpack.encode(snapshot))
        with self.committer.alone():
            self.commands_since_checkpoint -= covered
        self.log.drop_through(sequence)
        self._home.drop_before(sequence)

    def sweep_stored(self) -> None:
        """Objects that nobody registered before this epoch can never be registered: remove them."""
        with directory.storage("remove what was never registered"):
            with self.lock:
                space = self.forest.space
                newest, current = space.newest_epoch, space.current_epochs
            orphans.sweep_stored(space, self.store, newest, current)

    def close(self) -> None:
        """Stop. What the keeper packed is checkpointed, and the log's end is marked."""
        if self._closed:
            return
        self._closing = True  # so that the queue comes to an end
        self.committer.stop(closed())
        try:
            if self.committer.failure is None:
                if self.commands_since_checkpoint:
                    self.checkpoint()
                self.log.append_end()
        finally:
            with contextlib.suppress(BraidError, OSError):
                self.log.close()
            self._close_reading()
            self._tell_of_room()
            self._release()


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _disown_all() -> None:
    """A forked child shares its parent's files, and would write over what the parent acknowledged."""
    for writer in _writers:
        writer.committer.disown(
            Unavailable(
                "this braid belongs to the process that opened it, and this process was forked from that one: write "
                "there, or close it there and open it here"
            )
        )


os.register_at_fork(after_in_child=_disown_all)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Thousands of objects come to life and none goes: looking for garbage among them took a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def load_snapshot(found: tuple[int, memoryview] | None) -> tuple[int, Forest, dict[int, c.Payload]]:
    """(the sequence it covers, the forest, the bytes that ride inline) of a snapshot; those of nothing, if None."""
    if found is None:
        return 0, Forest(), {}
    sequence, payload = found
    try:
        snapshot = SNAPSHOTS.decode(payload)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the snapshot at {sequence} cannot be decoded: {error}") from error
    return sequence, thaw(snapshot.forest), snapshot.payloads


def absorb_frame(replica: Replica, sequence: int, payload: bytes | memoryview) -> int:
    """Take in a frame that was read back; answers how many commands it held."""
    commands = _decode_frame(sequence, payload)
    try:
        replica.absorb(commands)
    except Exception as error:  # the forest answers what it refuses: no writer ever wrote what it cannot take at all
        raise Corrupt(f"frame {sequence} of the command log cannot be carried out: {error!r}") from error
    return len(commands)


def _decode_frame(sequence: int, payload: bytes | memoryview) -> list[c.Command]:
    try:
        return COMMANDS.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"frame {sequence} of the command log cannot be decoded: {error}") from error
