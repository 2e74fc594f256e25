"""Where a writer's forest lives: a command log, snapshots of it, and a store of objects. The seam below `Writer`.

A writer loads the newest snapshot, opens the command log behind it, and from then on is the only one who appends to it,
as long as appending succeeds. What `append` returned from is durable, and is what every later writer finds. Failures:
Unavailable (nothing was written; if it is Deposed, nothing ever will be), OutcomeUnknown (it may have been: the writer
appends nothing more), Corrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from braidlog.errors import Unavailable
from braidlog.metadata import directory, snapshots
from braidlog.metadata.file_log import Cut, FileLog
from braidlog.metadata.frames import Payload
from braidlog.objects.files import Files
from braidlog.objects.store import FileStore, Store

Take: TypeAlias = Callable[[int, memoryview], object]  # of a sequence and its payload


class Deposed(Unavailable):
    """This writer is the writer no more, and never will be again: another process may be. Nothing was written."""


class CommandLog(Protocol):
    """Frames in order, numbered from 1 without gaps. For one thread at a time."""

    @property
    def last_sequence(self) -> int:
        """Of the last frame that is durable; 0 before the first."""

    @property
    def bytes_since_roll(self) -> int:
        """Bytes of frames behind the last `roll`: what the next writer would have to read."""

    def append(self, payload: Payload) -> int:
        """Make one frame durable; returns its sequence."""

    def append_end(self) -> int:
        """Make it known that this writer ended as it should."""

    def roll(self) -> int:
        """A snapshot of all that is here is about to be taken; returns the sequence of the next frame."""

    def drop_through(self, sequence: int) -> None:
        """Frames up to this one are in a snapshot, and need not be kept."""

    def close(self) -> None:
        """Let go of it. Safe to call again."""


class Found(NamedTuple):
    """The log as a writer found it."""

    log: CommandLog
    clean: bool  # whether the writer before ended as it should
    cut: Cut | None  # what a power cut left of a frame that nobody was told of


class Home(Protocol):
    """For one writer."""

    store: Store
    folder: str | None  # of the objects, or the URL of their store: where others can read them

    def latest(self) -> tuple[int, memoryview] | None:
        """The newest snapshot and the sequence that it covers."""

    def open_log(self, after: int, take: Take) -> Found:
        """The log, for writing; each frame behind `after` is handed to `take` on the way."""

    def save(self, sequence: int, payload: Payload) -> None:
        """Keep a snapshot of the state after a frame, durably."""

    def drop_before(self, sequence: int) -> None:
        """Snapshots of earlier states are no longer needed."""


class DirectoryHome:
    """A braidlog directory, which is made one if it is not."""

    def __init__(self, files: Files, new_id: str, *, folder: str | None, store: Store | None = None) -> None:
        self._files = files
        self.folder = folder
        self.store: Store = FileStore(files) if store is None else store
        directory.bring_format(files, new_id)
        snapshots.sweep_unfinished(files)

    def latest(self) -> tuple[int, memoryview] | None:
        return snapshots.latest(self._files)

    def open_log(self, after: int, take: Take) -> Found:
        log, recovery = FileLog.open(self._files, after, take)
        return Found(log, recovery.clean, recovery.cut)

    def save(self, sequence: int, payload: Payload) -> None:
        snapshots.write(self._files, sequence, payload)

    def drop_before(self, sequence: int) -> None:
        snapshots.drop_before(self._files, sequence)
