"""The command log on a disk: one frame for each group commit, in segment files that readers can follow.

The folder `log` holds segments named `<first sequence in 16 hex digits>.log`. A segment begins with a SEGMENT frame
that repeats that number; DATA and END frames follow, one sequence number each, without gaps within and across segments.

What makes damage distinguishable from a power cut:
- Frame n+1 is written only after frame n was synced. So a power cut can spoil only the very last frame. That one is cut
  when the log is opened, and the cut is reported; a bad frame with a valid one behind it is Corrupt.
- A segment gets its name only when its first frame is durable, and frames only when its name is. So a segment without
  an intact first frame is Corrupt.
- `log/SYNCED` says how far the log was synced. It is rewritten in place after each sync and is not itself synced, so it
  may lag behind after a power cut, but never runs ahead: a bad or missing frame that it covers is Corrupt.
  A record of it that fails its check says nothing.

Files grow by zeros written ahead, so that a commit overwrites bytes that the file system has already placed. Zeros
behind the last frame, or a file that ends there, mean the same.

Readers in other processes must see only what was synced. Frame n is durable if SYNCED covers it, or if the header of
frame n+1 is there, or if the next segment is. They gather that evidence before they read the frame, because a frame
that looks half-written may be whole, and followed by the next one, a moment later.

A failed write or sync ends this `FileLog`: the kernel may have dropped what it could not write, so a second sync that
succeeds would prove nothing. None of the classes here may be used by two threads at once.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from crc32c import crc32c

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.metadata import frames
from braidlog.metadata.directory import begin_file, finish_file, put_file, storage, sweep_unfinished
from braidlog.metadata.frames import ALIGNMENT_BYTES, HEADER_BYTES, Header, Kind, NoFrame
from braidlog.objects.files import File, Files

FOLDER: Final = "log"
SYNCED: Final = f"{FOLDER}/SYNCED"

_NAME: Final = re.compile(r"([0-9a-f]{16})\.log")
_LOG_KINDS: Final = (Kind.DATA, Kind.END)
_ZEROS: Final = bytes(limits.LOG_GROWTH_BYTES)
_LOOK_BYTES: Final = limits.MIB  # how much of a damaged or blank stretch is looked at in one go

_SYNCED_BODY: Final = struct.Struct("<4sQQQ")  # magic, then the fields of _Synced
_SYNCED_CHECKSUM: Final = struct.Struct("<I")
_SYNCED_BYTES: Final = _SYNCED_BODY.size + _SYNCED_CHECKSUM.size
_SYNCED_MAGIC: Final = b"\xb7Syn"


class Superseded(Exception):
    """The segment that a follower needs was dropped: load the latest snapshot and follow from there."""


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

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """The payloads behind the snapshot with their sequences, in order; one is in memory at a time.

        To be used before anything is dropped. Frames appended since opening are not among them.
        """
        sequence = self._after
        with storage("read the command log"):
            for first in self._segments:
                if sequence == self.last_sequence:
                    return
                with _Reading(self._files, first) as segment:
                    for found in _scan(segment):
                        if isinstance(found, _Damage):
                            raise Corrupt(found.describe(segment.path))
                        if found.sequence > self._after:
                            sequence = found.sequence
                            if found.kind is Kind.DATA:
                                yield sequence, found.payload
                            if sequence == self.last_sequence:
                                return
        raise Corrupt(f"{FOLDER}: frames {sequence + 1} to {self.last_sequence} vanished since the log was opened")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the command log that is not as it was written."""

    path: str
    offset: int
    message: str
    torn: bool  # only an unfinished last commit, never acknowledged: the next open cuts it


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What `check_log` looked at, and what it found."""

    segments: int
    frames: int
    bytes: int  # of intact frames
    last_sequence: int
    clean: bool
    findings: tuple[Finding, ...]


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
    def open(cls, files: Files, after: int) -> tuple[FileLog, Recovery]:
        """Open the log for writing; `after` is the sequence that the snapshot covers, 0 if there is none.

        Nothing is changed before all of the log behind `after` has passed its checks.
        """
        with storage("open the command log"):
            files.make_dir(FOLDER)
            synced = _read_synced(files)
            segments = _list_segments(files)
            if not segments and after == 0 and synced is None:
                put_file(files, _path(1), _first_frame(1))
                segments = [1]
            needed = _needed(segments, after, synced)
            with contextlib.ExitStack() as opened:
                file = files.open(_path(segments[-1]))
                opened.callback(file.close)
                # What a killed process wrote may be in memory only, names too, and is not to be trusted until synced.
                file.sync()
                files.sync_dir(FOLDER)
                tail = _find_tail(files, needed, after, synced)
                cut = None
                if tail.damage is not None:
                    cut = Cut(_path(segments[-1]), tail.offset, tail.damage.end - tail.offset)
                    file.truncate(tail.offset)
                    file.sync()
                elif tail.last_offset is not None and not _covers(synced, tail.last_sequence):
                    # If the sync of this frame failed, its pages may count as clean without being on the disk, and
                    # the sync above did nothing for them. Writing them again makes it count.
                    file.write(tail.last_offset, file.read(tail.last_offset, tail.offset - tail.last_offset))
                    file.sync()
                sweep_unfinished(files, FOLDER)
                mark = _Mark(files)
                opened.callback(mark.close)
                mark.write(_Synced(segments[-1], tail.offset, tail.last_sequence))
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
        path = _path(first)
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
                self._files.remove(_path(self._segments[0]))
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
            self._refuse(f"frame {sequence} could not be stored in {_path(self._segments[-1])}: {error!r}")
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
                f"cannot extend {_path(self._segments[-1])}: {error}; free some space, then try again"
            ) from error

    def _publish(self) -> None:
        """Tell readers in other processes how far they may go."""
        try:
            self._mark.write(_Synced(self._segments[-1], self._offset, self._last_sequence))
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


class LogFollower:
    """Reads the command log while another process writes it. It changes nothing and sees only what was synced."""

    def __init__(self, files: Files, after: int) -> None:
        self._files = files
        self._after = after
        self._segment: _Reading | None = None
        self._finished = False  # the segment is known to have a successor, so all of it is synced
        self._offset = HEADER_BYTES
        self._next = after + 1
        self._synced: File | None = None

    def poll(self) -> list[tuple[int, bytes]]:
        """The payloads that became durable since the last poll, with their sequences, in order.

        Raises Superseded if the next one was dropped, and Corrupt if it was damaged after it had been synced.
        """
        found: list[tuple[int, bytes]] = []
        try:
            with storage("follow the command log"):
                durable = max(self._after, self._read_synced())
                while (frame := self._next_frame(durable)) is not None:
                    if frame.kind is Kind.DATA and frame.sequence > self._after:
                        found.append((frame.sequence, frame.payload))
        except (Corrupt, Superseded, Unavailable):
            if not found:  # else the caller first gets what is good: the next poll meets the same obstacle
                raise
        return found

    def close(self) -> None:
        """Let go of the files. Safe to call again."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        if self._synced is not None:
            self._synced.close()
            self._synced = None

    def _read_synced(self) -> int:
        if self._synced is None:
            try:
                self._synced = self._files.open_read(SYNCED)
            except FileNotFoundError:
                return 0
        synced = _Synced.decode(self._synced.read(0, _SYNCED_BYTES))
        return 0 if synced is None else synced.last_sequence

    def _next_frame(self, durable: int) -> _Frame | None:
        while True:
            segment = self._segment or self._enter_first()
            if segment is None:
                return None
            header = segment.header(self._offset)
            if isinstance(header, Header):
                if self._next <= durable or self._is_followed(segment, header) or self._is_finished(segment):
                    return self._take(segment, header)
                return None
            if not self._is_finished(segment):
                if self._next <= durable:
                    self._raise_missing(segment, f"frame {self._next} was synced, but there is no header")
                return None
            # Now that nobody writes this segment any more, what it says here is final.
            header = segment.header(self._offset)
            if isinstance(header, Header):
                return self._take(segment, header)
            if header is NoFrame.BAD:
                raise Corrupt(_describe(segment.path, self._offset, f"the header of frame {self._next} is damaged"))
            self._enter_following(segment)

    def _take(self, segment: _Reading, header: Header) -> _Frame:
        if problem := _unexpected(header, self._next):
            raise Corrupt(_describe(segment.path, self._offset, problem))
        payload = segment.payload(self._offset, header)
        if payload is None:
            raise Corrupt(_describe(segment.path, self._offset, f"frame {self._next} was synced and is damaged now"))
        frame = _Frame(header.kind, self._next, self._offset, payload)
        self._offset += header.frame_bytes
        self._next += 1
        return frame

    def _is_followed(self, segment: _Reading, header: Header) -> bool:
        successor = segment.header(self._offset + header.frame_bytes)
        return isinstance(successor, Header) and successor.sequence == self._next + 1

    def _is_finished(self, segment: _Reading) -> bool:
        if not self._finished:
            self._finished = any(first > segment.first for first in _list_segments(self._files))
        return self._finished

    def _enter_first(self) -> _Reading | None:
        segments = _list_segments(self._files)
        if not segments and self._after == 0:
            return None
        held = [first for first in segments if first <= self._next]
        if not held:
            raise Superseded(f"the log no longer holds frame {self._next}")
        self._enter(held[-1])
        self._next = held[-1]
        return self._segment

    def _enter_following(self, segment: _Reading) -> None:
        try:
            self._enter(self._next)
        except Superseded:
            # A later segment is there, so this one was once. Segments are dropped oldest first.
            self._raise_missing(segment, f"the segment ends before frame {self._next}, and {_path(self._next)} is gone")

    def _enter(self, first: int) -> None:
        try:
            segment = _Reading(self._files, first)
        except FileNotFoundError:
            raise Superseded(f"{_path(first)} was dropped") from None
        if problem := _first_frame_problem(segment):
            segment.close()
            raise Corrupt(_describe(segment.path, 0, problem))
        if self._segment is not None:
            self._segment.close()
        self._segment = segment
        self._finished = False
        self._offset = HEADER_BYTES

    def _raise_missing(self, segment: _Reading, problem: str) -> NoReturn:
        if self._files.exists(segment.path):
            raise Corrupt(_describe(segment.path, self._offset, problem))
        raise Superseded(f"{segment.path} was dropped")


def check_log(files: Files, after: int) -> LogCheck:
    """Go through all of the log behind `after` without changing anything, past damage too.

    While a writer is at work its last commit may look torn, and a checkpoint may drop what is being checked.
    """
    findings: list[Finding] = []
    count = size = 0
    clean = False
    with storage("check the command log"):
        synced = _read_synced(files)
        segments = _list_segments(files)
        if segments or after or synced is not None:
            try:
                segments = _needed(segments, after, synced)
            except Corrupt as error:
                findings.append(Finding(FOLDER, 0, str(error), torn=False))
        expected = segments[0] if segments else after + 1
        for first in segments:
            if first != expected:
                findings.append(Finding(_path(first), 0, _gap(first, expected), torn=False))
            expected = first
            with _Reading(files, first) as segment:
                try:
                    for found in _scan(segment):
                        clean = isinstance(found, _Frame) and found.kind is Kind.END
                        if isinstance(found, _Frame):
                            count += 1
                            size += frames.frame_bytes(len(found.payload))
                            expected = found.sequence + 1
                        else:
                            torn = first == segments[-1] and not found.fatal and not _covers(synced, found.expected)
                            findings.append(Finding(segment.path, found.offset, found.message, torn))
                except Corrupt as error:  # a frame of a newer format: nothing behind it can be judged
                    findings.append(Finding(segment.path, 0, str(error), torn=False))
    if segments and (lost := _lost(expected - 1, after, synced)):
        findings.append(Finding(_path(segments[-1]), 0, lost, torn=False))
    return LogCheck(len(segments), count, size, expected - 1, clean, tuple(findings))


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: Kind
    sequence: int
    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Damage:
    """A place where frame `expected` should be, or nothing, and something else is."""

    offset: int
    end: int  # of the bytes that belong to no frame
    expected: int
    message: str
    fatal: bool  # no power cut explains it

    def describe(self, path: str) -> str:
        return _describe(path, self.offset, self.message)


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where the log ends."""

    offset: int  # in the last segment
    last_sequence: int
    last_offset: int | None  # of the last frame, if it stands in the last segment
    clean: bool
    damage: _Damage | None  # what is to be cut there


@dataclass(frozen=True, slots=True)
class _Synced:
    """How far the log was synced when this was written: up to byte `end` of the segment that begins with `segment`."""

    segment: int
    end: int
    last_sequence: int

    def encode(self) -> bytes:
        body = _SYNCED_BODY.pack(_SYNCED_MAGIC, self.segment, self.end, self.last_sequence)
        return body + _SYNCED_CHECKSUM.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes) -> _Synced | None:
        if len(data) != _SYNCED_BYTES:
            return None
        magic, segment, end, last_sequence = _SYNCED_BODY.unpack_from(data)
        (checksum,) = _SYNCED_CHECKSUM.unpack_from(data, _SYNCED_BODY.size)
        if magic != _SYNCED_MAGIC or checksum != crc32c(data[: _SYNCED_BODY.size]):
            return None
        return cls(segment, end, last_sequence)


class _Mark:
    """The file SYNCED, open for its writer."""

    def __init__(self, files: Files) -> None:
        try:
            self._file = files.open(SYNCED)
        except FileNotFoundError:
            self._file = files.create(SYNCED)

    def write(self, synced: _Synced) -> None:
        self._file.write(0, synced.encode())

    def close(self) -> None:
        self._file.close()


class _Reading:
    """A segment that is open for reading. FileNotFoundError if there is none with that first sequence."""

    def __init__(self, files: Files, first: int) -> None:
        self.first = first
        self.path = _path(first)
        self._file = files.open_read(self.path)

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def header(self, offset: int) -> Header | NoFrame:
        try:
            return frames.parse_header(self._file.read(offset, HEADER_BYTES))
        except Corrupt as error:
            raise Corrupt(_describe(self.path, offset, str(error))) from None

    def payload(self, offset: int, header: Header) -> bytes | None:
        """The payload of the frame at `offset`; None if it is damaged or incomplete."""
        return frames.checked_payload(header, self._file.read(offset + HEADER_BYTES, header.stored_bytes))

    def end_of_bytes(self, offset: int) -> int:
        """Behind the last byte from `offset` on that is not zero; `offset` if there is none."""
        end = at = offset
        while chunk := self._file.read(at, _LOOK_BYTES):
            if length := len(chunk.rstrip(b"\0")):
                end = at + length
            at += len(chunk)
        return end

    def find_frame(self, start: int, origin: int, expected: int) -> tuple[int, int] | None:
        """The offset and sequence of the first intact frame from `start` on, if frame `expected` was due at `origin`.

        Payloads may hold anything, the bytes of another log too. So a sequence that cannot have been reached by then,
        as each frame takes at least a header, is no frame of this log.
        """
        at = start
        while chunk := self._file.read(at, _LOOK_BYTES + HEADER_BYTES):
            place = chunk.find(frames.MAGIC)
            while 0 <= place < _LOOK_BYTES:
                offset = at + place
                if offset % ALIGNMENT_BYTES == 0:
                    header = self.header(offset)
                    if (
                        isinstance(header, Header)
                        and header.kind in _LOG_KINDS
                        and expected <= header.sequence <= expected + (offset - origin) // HEADER_BYTES
                        and self.payload(offset, header) is not None
                    ):
                        return offset, header.sequence
                place = chunk.find(frames.MAGIC, place + 1)
            at += _LOOK_BYTES
        return None


def _scan(segment: _Reading) -> Iterator[_Frame | _Damage]:
    """All of a segment in order: its frames, and the damage between and behind them."""
    if problem := _first_frame_problem(segment):
        yield _Damage(0, HEADER_BYTES, segment.first, problem, fatal=True)
    offset, expected = HEADER_BYTES, segment.first
    while True:
        header = segment.header(offset)
        problem = ""
        search_from = offset + ALIGNMENT_BYTES
        if isinstance(header, Header):
            search_from = offset + header.frame_bytes
            payload = segment.payload(offset, header)
            problem = _unexpected(header, expected)
            if payload is not None and not problem:
                yield _Frame(header.kind, expected, offset, payload)
                offset, expected = search_from, expected + 1
                continue
            if payload is not None:
                yield _Damage(offset, search_from, expected, problem, fatal=True)
                offset, expected = search_from, header.sequence + 1
                continue
        end = segment.end_of_bytes(offset)
        if end == offset:
            return
        following = segment.find_frame(search_from, offset, expected)
        fatal = following is not None or bool(problem)
        problem = problem or f"frame {expected} is damaged or incomplete"
        if following is not None:
            problem += f", with frame {following[1]} intact behind it"
        yield _Damage(offset, end, expected, problem, fatal)
        if following is None:
            return
        offset, expected = following


def _find_tail(files: Files, segments: Sequence[int], after: int, synced: _Synced | None) -> _Tail:
    """Check all of the log in these segments. Raises Corrupt unless it is whole, but for a torn last commit."""
    expected = segments[0]
    clean = False
    offset, last_offset, damage = HEADER_BYTES, None, None
    for first in segments:
        if first != expected:
            raise Corrupt(_describe(_path(first), 0, _gap(first, expected)))
        offset, last_offset = HEADER_BYTES, None
        with _Reading(files, first) as segment:
            for found in _scan(segment):
                if isinstance(found, _Frame):
                    last_offset = found.offset
                    offset = found.offset + frames.frame_bytes(len(found.payload))
                    expected = found.sequence + 1
                    clean = found.kind is Kind.END
                elif found.fatal:
                    raise Corrupt(found.describe(segment.path))
                elif first != segments[-1]:
                    raise Corrupt(_describe(segment.path, found.offset, f"{found.message}, with a segment behind it"))
                elif _covers(synced, found.expected):
                    raise Corrupt(_describe(segment.path, found.offset, f"{found.message}, but it was synced"))
                else:
                    damage = found
                    clean = False
    if lost := _lost(expected - 1, after, synced):
        raise Corrupt(_describe(_path(segments[-1]), offset, lost))
    return _Tail(offset, expected - 1, last_offset, clean, damage)


def _needed(segments: list[int], after: int, synced: _Synced | None) -> list[int]:
    """The segments that hold what the snapshot does not cover; older ones are left from an interrupted checkpoint."""
    held = [first for first in segments if first <= after + 1]
    if not held:
        raise Corrupt(f"{FOLDER}: the segment with frame {after + 1} is missing")
    if synced is not None and synced.segment > segments[-1]:
        raise Corrupt(f"{_path(synced.segment)}: the segment is missing, though {SYNCED} knows it")
    return segments[segments.index(held[-1]) :]


def _lost(last_sequence: int, after: int, synced: _Synced | None) -> str:
    if after > last_sequence:
        return f"the log ends with frame {last_sequence}, but the snapshot covers {after}"
    if synced is not None and synced.last_sequence > last_sequence:
        return (
            f"the log ends with frame {last_sequence}, but it was synced through frame {synced.last_sequence}, "
            f"byte {synced.end:,} of {_path(synced.segment)}"
        )
    return ""


def _unexpected(header: Header, expected: int) -> str:
    if header.kind not in _LOG_KINDS:
        return f"a {header.kind.name} frame where frame {expected} should be"
    if header.sequence != expected:
        return f"frame {header.sequence} where frame {expected} should be"
    return ""


def _first_frame_problem(segment: _Reading) -> str:
    header = segment.header(0)
    if isinstance(header, NoFrame):
        return f"the first header of the segment is {header.value}"
    if header.kind is not Kind.SEGMENT or header.sequence != segment.first or header.length:
        return f"the first frame is a {header.kind.name} of frame {header.sequence}: the file was renamed or mixed up"
    return ""


def _gap(first: int, expected: int) -> str:
    return f"the segment begins with frame {first}, but the one before it ends before frame {expected}"


def _covers(synced: _Synced | None, sequence: int) -> bool:
    return synced is not None and sequence <= synced.last_sequence


def _read_synced(files: Files) -> _Synced | None:
    try:
        file = files.open_read(SYNCED)
    except FileNotFoundError:
        return None
    try:
        return _Synced.decode(file.read(0, _SYNCED_BYTES))
    finally:
        file.close()


def _list_segments(files: Files) -> list[int]:
    """Their first sequences, ascending, as fixed-width hex sorts like the numbers."""
    return [int(match[1], 16) for name in files.list(FOLDER) if (match := _NAME.fullmatch(name))]


def _first_frame(first: int) -> bytes:
    return frames.encode(Kind.SEGMENT, first, b"") + _ZEROS


def _path(first: int) -> str:
    return f"{FOLDER}/{first:016x}.log"


def _describe(path: str, offset: int, problem: str) -> str:
    return f"{path} at byte {offset:,}: {problem}"
