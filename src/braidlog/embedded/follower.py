"""A read-only view of what another process may be writing: a directory, or a command log that is shared otherwise.

It applies what the writer has made durable and nothing beyond it, and it writes nothing, not even a lock. When the
writer drops the part of the command log that comes next, the follower starts again from the newest snapshot; positions
mean the same in it, so nobody who reads by position notices. What it shows never goes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from braidlog import limits
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.embedded.committer import Pending
from braidlog.embedded.replica import Replica
from braidlog.embedded.writer import absorb_frame, load_snapshot
from braidlog.errors import BraidError, Corrupt, InvalidArgument, NotFound, Unavailable
from braidlog.forest import commands as c
from braidlog.metadata import directory, object_place, snapshots
from braidlog.metadata.log_follower import LogFollower, Superseded
from braidlog.objects.batch import Batch
from braidlog.objects.files import Files, OsFiles
from braidlog.objects.store import Store

_REFUSAL = "this braid is open read-only: open it without read_only=True to change anything"

_FROM_A_COPY = "files of the command log or its snapshots are gone; restore the directory from a copy"


class Following(Protocol):
    """A command log from some frame on, as it grows."""

    def poll(self) -> list[tuple[int, memoryview]]:
        """The payloads that became durable since the last poll, with their sequences, in order. Superseded if the next
        one was dropped."""

    def wait(self, stop: threading.Event) -> bool:
        """Return when there may be more; True once `stop` is set, which may be noticed a little later."""

    @property
    def failing(self) -> str:
        """Why what comes next cannot be heard of now; empty while all is well."""

    def silent_s(self) -> float:
        """For how long nothing was heard from where the log is, not even that there is nothing new."""

    def close(self) -> None:
        """Let go of it. Safe to call again."""


class Source(Protocol):
    """What is followed."""

    store: Store
    folder: str | None  # of the objects, if they are files

    def latest(self) -> tuple[int, memoryview] | None:
        """The newest snapshot and the sequence that it covers."""

    def follow(self, after: int) -> Following:
        """The command log behind that frame."""

    def unwritten(self) -> bool:
        """Whether it is sure that nobody writes it now."""


class DirectorySource:
    """A braidlog directory."""

    def __init__(self, files: Files, folder: str | None) -> None:
        if directory.read_format(files) is None:
            raise NotFound("there is no braidlog directory here: open it for writing once to create it")
        self._files = files
        self.folder, self.store = object_place.open_for_reading(files, folder)

    def latest(self) -> tuple[int, memoryview] | None:
        return snapshots.latest(self._files)

    def follow(self, after: int) -> Following:
        return _PolledLog(LogFollower(self._files, after))

    def unwritten(self) -> bool:
        return isinstance(self._files, OsFiles) and not directory.is_held(self._files.root)


class _PolledLog:
    failing = ""

    def __init__(self, log: LogFollower) -> None:
        self._log = log
        self.poll = log.poll
        self.close = log.close

    def wait(self, stop: threading.Event) -> bool:
        return stop.wait(limits.READ_ONLY_POLL_S)

    def silent_s(self) -> float:
        """It is looked at: what cannot be read raises."""
        return 0.0


class Follower(Replica):
    """Follows a writer's command log."""

    def __init__(self, source: Source, clock: Clock | None = None) -> None:
        self._source = source
        self.clock = clock or SystemClock()
        after, forest, payloads = load_snapshot(source.latest())
        super().__init__(forest, payloads, source.store, source.folder)
        self._follower = source.follow(after)
        self._polling = threading.Lock()
        self._failure: BraidError | None = None
        self._fresh: Replica | None = None  # begun again from a snapshot, and not yet as far as what is shown
        self._stop = threading.Event()
        try:
            if self.poll():
                self.poll()  # meets the damage, if that was why the first one took no more
        except BaseException:
            self._follower.close()
            raise
        self._thread = threading.Thread(target=self._run, name="braidlog-follower", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BraidError | None:
        """Why it does not follow now."""
        return self._failure

    def poll(self) -> bool:
        """Take in what became durable since; says whether there was something.

        What is corrupt stays so. Any other failure may pass: the next poll tries again, and until one succeeds reading
        says what is the matter instead of showing what may be old.
        """
        with self._polling:
            if isinstance(self._failure, Corrupt):
                raise self._failure
            try:
                taken = self._take_in()
            except Corrupt as error:
                self._failure = error
                raise
            except (BraidError, OSError) as error:
                self._failure = Unavailable(f"cannot follow the writer now: {error}; it is tried again by itself")
                raise self._failure from error
            self._failure = None
            return taken

    def silence(self) -> tuple[float, str]:
        """For how long nothing was heard from the log, and why, if that is known."""
        return self._follower.silent_s(), self._follower.failing

    def _take_in(self) -> bool:
        try:
            frames = self._follower.poll()
        except Superseded:
            self._begin_again()
            return True
        for sequence, payload in frames:
            absorb_frame(self._fresh or self, sequence, payload)
        self._show_fresh()
        return bool(frames)

    def _begin_again(self) -> None:
        """From the newest snapshot, aside: what was shown once is shown until the new state has come as far."""
        unwritten = False
        for _ in range(limits.OBJECT_GONE_RETRIES):
            after, forest, payloads = load_snapshot(self._source.latest())
            self._follower.close()
            self._follower = self._source.follow(after)
            self._fresh = Replica(forest, payloads, self.store, self.folder)
            try:
                for sequence, payload in self._follower.poll():
                    absorb_frame(self._fresh, sequence, payload)
            except Superseded as gone:  # the writer was faster than we were, if there is one
                if unwritten and self._source.unwritten():
                    raise Corrupt(f"{gone}, and nobody is writing who could have dropped it: {_FROM_A_COPY}") from None
                unwritten = self._source.unwritten()
                continue
            self._show_fresh()
            return
        raise Unavailable("the writer drops its command log faster than this process can follow: try again")

    def _show_fresh(self) -> None:
        fresh = self._fresh
        if fresh is not None and fresh.forest.applied >= self.forest.applied:
            with self.lock:
                self.forest, self.payloads, self.inline_bytes = fresh.forest, fresh.payloads, fresh.inline_bytes
            self._fresh = None
            self._announce()

    def _run(self) -> None:
        failing = False
        while not self._follower.wait(self._stop):
            try:
                self.poll()
                failing = False
            except BraidError as error:
                if not failing:  # those who wait look again, and are told; once is enough
                    self._announce()
                failing = True
                if isinstance(error, Corrupt):
                    return

    def _object_vanished(self) -> None:
        self.poll()

    def _check_readable(self) -> None:
        super()._check_readable()
        if self._failure is not None:
            raise self._failure

    def execute(self, command: c.Command) -> c.Result:
        raise InvalidArgument(f"cannot {type(command).__name__.lower()}: {_REFUSAL}")

    def append(self, command: c.Append, batch: Batch) -> c.Appended:
        raise InvalidArgument(f"cannot append {batch.count} records to log number {command.log}: {_REFUSAL}")

    def submit(self, command: c.Append, batch: Batch, then: Callable[[Pending], None]) -> Pending:
        del then  # nothing will be done
        raise InvalidArgument(f"cannot submit {batch.count} records to log number {command.log}: {_REFUSAL}")

    @property
    def append_timeout_s(self) -> float:
        """It takes no time to refuse one."""
        return 0.0

    def crowded(self, command: c.Append) -> None:
        """Nothing is taken here, so nothing has to wait."""

    def wait_for_room(self, command: c.Append, timeout: float | None = None) -> None:
        """The same."""

    def close(self) -> None:
        if self._closed:
            return
        self._stop.set()
        self._thread.join()
        self._follower.close()
        self._close_reading()
