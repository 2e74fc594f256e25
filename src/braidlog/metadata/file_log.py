"""The writer of the command log: one frame for each group commit, in segment files that readers can follow.

Promises: what `append` returned for is on the disk, and opening finds all of it again or raises Corrupt. Only the very
last commit, if a power cut tore it and nobody was told of it, is cut when the log is opened, and the cut is reported.
Opening changes nothing before all that it needs has passed its checks. What distinguishes damage from a power cut is in
`segments`; the writer keeps to the order that makes it so: frame, sync, SYNCED; first frame, name, further frames.

Assumes that it is the only writer (`directory` holds the lock), and is not used by two threads at once.

Files grow by zeros written ahead, so that a commit overwrites bytes that the file system has already placed.

Never goes on after a failed write or sync of a frame, which ends this `FileLog`: the kernel may have dropped what it
could not write, so a second sync that succeeds would prove nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.metadata import frames
from braidlog.metadata.directory import begin_file, finish_file, put_file, storage, sweep_unfinished
from braidlog.metadata.frames import HEADER_BYTES, Kind
from braidlog.metadata.segments import (
    FOLDER,
    SYNCED,
    Damage,
    Frame,
    Segment,
    Synced,
    covers,
    describe,
    gap_problem,
    list_segments,
    loss_problem,
    needed_segments,
    read_synced,
    scan,
    segment_path,
)
from braidlog.objects.files import File, Files

_ZEROS: Final = bytes(limits.LOG_GROWTH_BYTES)

Take: TypeAlias = Callable[[int, memoryview], object]  # of a sequence and its payload


@dataclass(frozen=True, slots=True)
class Cut:
    """The last commit before an unclean stop was not whole and was removed. It was never acknowledged."""

    path: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening found."""

    clean: bool  # the last writer closed the log, and nothing was cut
    cut: Cut | None
    last_sequence: int
    _files: Files
    _segments: tuple[int, ...]
    _after: int

    def replay(self) -> Iterator[tuple[int, memoryview]]:
        """The payloads behind the snapshot with their sequences, in order; one is in memory at a time.

        To be used before anything is dropped. Frames appended since opening are not among them.
        """
        sequence = self._after
        with storage("read the command log"):
            for first in self._segments:
                if sequence == self.last_sequence:
                    return
                with Segment(self._files, first) as segment:
                    for found in scan(segment):
                        if isinstance(found, Damage):
                            raise Corrupt(found.describe(segment.path))
                        if found.sequence > self._after:
                            sequence = found.sequence
                            if found.kind is Kind.DATA:
                                yield sequence, found.payload
                            if sequence == self.last_sequence:
                                return
        raise Corrupt(f"{FOLDER}: frames {sequence + 1} to {self.last_sequence} vanished since the log was opened")


class FileLog:
    """The one writer of the command log."""

    def __init__(
        self, files: Files, segments: list[int], file: File, mark: _Mark, offset: int, last_sequence: int
    ) -> None:
        self._files = files
        self._segments = segments  # first sequences, ascending; the last one is being written
        self._file = file
        self._mark = mark
        self._offset = offset  # a multiple of 16: where the next frame goes
        self._size = file.size()  # all zeros from _offset to here
        self._last_sequence = last_sequence
        self._refusal = ""  # why nothing can be appended any more

    @classmethod
    def open(cls, files: Files, after: int, take: Take | None = None) -> tuple[FileLog, Recovery]:
        """Open the log for writing; `after` is the sequence that the snapshot covers, 0 if there is none.

        Nothing is changed before all of the log behind `after` has passed its checks. `take` is handed each payload
        behind `after` while it is checked, so that the log need not be read twice: what it made of them is to be
        forgotten if opening fails.
        """
        with storage("open the command log"):
            files.make_dir(FOLDER)
            synced = read_synced(files)
            segments = list_segments(files)
            if not segments and after == 0 and synced is None:
                put_file(files, segment_path(1), _first_frame(1))
                segments = [1]
            needed = needed_segments(segments, after, synced)
            with contextlib.ExitStack() as opened:
                file = files.open(segment_path(segments[-1]))
                opened.callback(file.close)
                # What a killed process wrote may be in memory only, names too, and is not to be trusted until synced.
                file.sync()
                files.sync_dir(FOLDER)
                tail = _find_tail(files, needed, after, synced, take)
                cut = None
                if tail.damage is not None:
                    cut = Cut(segment_path(segments[-1]), tail.offset, tail.damage.end - tail.offset)
                    file.truncate(tail.offset)
                    file.sync()
                elif tail.last_offset is not None and not covers(synced, tail.last_sequence):
                    # If the sync of this frame failed, its pages may count as clean without being on the disk, and
                    # the sync above did nothing for them. Writing them again makes it count.
                    file.write(tail.last_offset, file.read(tail.last_offset, tail.offset - tail.last_offset))
                    file.sync()
                sweep_unfinished(files, FOLDER)
                mark = _Mark(files)
                opened.callback(mark.close)
                mark.write(Synced(segments[-1], tail.offset, tail.last_sequence))
                log = cls(files, segments, file, mark, tail.offset, tail.last_sequence)
                opened.pop_all()
        return log, Recovery(tail.clean, cut, tail.last_sequence, files, tuple(needed), after)

    @property
    def last_sequence(self) -> int:
        """The last frame that was synced; 0 before the first."""
        return self._last_sequence

    @property
    def bytes_since_roll(self) -> int:
        """Bytes of frames in the current segment."""
        return self._offset - HEADER_BYTES

    def append(self, payload: frames.Payload) -> int:
        """Write and sync one DATA frame; returns its sequence.

        Raises OutcomeUnknown if the frame may or may not be stored, and Unavailable from then on.
        """
        length = frames.payload_bytes(payload)
        if length > limits.FRAME_BYTES_MAX:
            raise InvalidArgument(f"a commit of {length:,} bytes: at most {limits.FRAME_BYTES_MAX:,} are allowed")
        return self._commit(Kind.DATA, payload)

    def append_end(self) -> int:
        """Write and sync the mark of a clean close; it takes a sequence too."""
        return self._commit(Kind.END, b"")

    def roll(self) -> int:
        """Begin a new segment; returns its first sequence. A segment without frames is kept instead."""
        self._require_usable()
        first = self._last_sequence + 1
        if first == self._segments[-1]:
            return first
        path = segment_path(first)
        try:
            file = begin_file(self._files, path, _first_frame(first))
        except OSError as error:
            # It has no name: frames may go on where they are, and the next attempt may find room.
            raise Unavailable(f"cannot begin {path}: {error}; free some space, then try again") from error
        try:
            finish_file(self._files, path, file)
            file = self._files.open(path)
        except BaseException as error:
            # The name may be there when the log is opened again: frames must not go on in the segment before it.
            refusal = self._refuse(f"cannot begin {path}: {error!r}")
            if not isinstance(error, OSError):
                raise
            raise refusal from error
        self._file.close()
        self._file = file
        self._segments.append(first)
        self._offset = HEADER_BYTES
        self._size = HEADER_BYTES + limits.LOG_GROWTH_BYTES
        self._publish()
        return first

    def drop_through(self, sequence: int) -> None:
        """Remove the segments that hold no frame above `sequence`; never the current one."""
        dropped = False
        with storage("remove old segments of the command log"):
            # Oldest first, so that a follower that still sees its own segment knows that the next one is there too.
            while len(self._segments) > 1 and self._segments[1] <= sequence + 1:
                self._files.remove(segment_path(self._segments[0]))
                del self._segments[0]
                dropped = True
            if dropped:
                self._files.sync_dir(FOLDER)

    def close(self) -> None:
        """Let go of the files. It writes nothing: a clean close appends the END mark first. Safe to call again."""
        self._refusal = self._refusal or "the command log is closed"
        self._file.close()
        self._mark.close()

    def _commit(self, kind: Kind, payload: frames.Payload) -> int:
        self._require_usable()
        sequence = self._last_sequence + 1
        frame = frames.encode(kind, sequence, payload)
        end = self._offset + len(frame)
        if end > self._size:
            self._grow(end)
        try:
            self._file.write(self._offset, frame)
            self._file.sync()
        except BaseException as error:
            # An interrupt too leaves a frame of which nobody knows how much is there: nothing may be written over it.
            self._refuse(f"frame {sequence} could not be stored in {segment_path(self._segments[-1])}: {error!r}")
            if not isinstance(error, OSError):
                raise
            raise OutcomeUnknown(f"{self._refusal}; it may or may not be there when the log is opened again") from error
        self._offset = end
        self._last_sequence = sequence
        self._publish()
        return sequence

    def _grow(self, needed: int) -> None:
        """Zeros up to `needed` and then some. They go before the frame, so that a full disk is met with nothing of
        it written; the sync of the frame serves them too."""
        try:
            while self._size < needed + limits.LOG_GROWTH_BYTES:
                self._file.write(self._size, _ZEROS)
                self._size += len(_ZEROS)
        except OSError as error:
            # Nothing was written that anybody will read: the next commit may find room.
            raise Unavailable(
                f"cannot extend {segment_path(self._segments[-1])}: {error}; free some space, then try again"
            ) from error

    def _publish(self) -> None:
        """Tell readers in other processes how far they may go."""
        try:
            self._mark.write(Synced(self._segments[-1], self._offset, self._last_sequence))
        except OSError as error:
            # What is synced stays synced, so this commit succeeded; but readers would be kept waiting from now on.
            self._refuse(f"cannot write {SYNCED}: {error}")

    def _refuse(self, reason: str) -> Unavailable:
        self._refusal = reason
        return self._unavailable()

    def _require_usable(self) -> None:
        if self._refusal:
            raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"{self._refusal}; nothing can be appended until the directory is opened again")


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where the log ends."""

    offset: int  # in the last segment
    last_sequence: int
    last_offset: int | None  # of the last frame, if it stands in the last segment
    clean: bool
    damage: Damage | None  # what is to be cut there


class _Mark:
    """The file SYNCED, open for its writer."""

    def __init__(self, files: Files) -> None:
        try:
            self._file = files.open(SYNCED)
        except FileNotFoundError:
            self._file = files.create(SYNCED)

    def write(self, synced: Synced) -> None:
        self._file.write(0, synced.encode())

    def close(self) -> None:
        self._file.close()


def _find_tail(files: Files, segments: Sequence[int], after: int, synced: Synced | None, take: Take | None) -> _Tail:
    """Check all of the log in these segments. Raises Corrupt unless it is whole, but for a torn last commit."""
    expected = segments[0]
    clean = False
    offset, last_offset, damage = HEADER_BYTES, None, None
    for first in segments:
        if first != expected:
            raise Corrupt(describe(segment_path(first), 0, gap_problem(first, expected)))
        offset, last_offset = HEADER_BYTES, None
        with Segment(files, first, whole=take is not None) as segment:
            for found in scan(segment):
                if isinstance(found, Frame):
                    last_offset = found.offset
                    offset = found.offset + frames.frame_bytes(len(found.payload))
                    expected = found.sequence + 1
                    clean = found.kind is Kind.END
                    if take is not None and found.kind is Kind.DATA and found.sequence > after:
                        take(found.sequence, found.payload)
                elif found.fatal:
                    raise Corrupt(found.describe(segment.path))
                elif first != segments[-1]:
                    raise Corrupt(describe(segment.path, found.offset, f"{found.message}, with a segment behind it"))
                elif covers(synced, found.expected):
                    raise Corrupt(describe(segment.path, found.offset, f"{found.message}, but it was synced"))
                else:
                    damage = found
                    clean = False
    if lost := loss_problem(expected - 1, after, synced):
        raise Corrupt(describe(segment_path(segments[-1]), offset, lost))
    return _Tail(offset, expected - 1, last_offset, clean, damage)


def _first_frame(first: int) -> bytes:
    return frames.encode(Kind.SEGMENT, first, b"") + _ZEROS
