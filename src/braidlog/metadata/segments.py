"""What the command log looks like on a disk, and how one segment of it is read: shared by writer, follower and check.

The folder `log` holds segments named `<first sequence in 16 hex digits>.log`. A segment begins with a SEGMENT frame
that repeats that number; DATA and END frames follow, one sequence number each, without gaps within and across segments.
Zeros behind the last frame, or a file that ends there, mean the same.

What makes damage distinguishable from a power cut:
- Frame n+1 is written only after frame n was synced. So a power cut can spoil only the very last frame; a bad frame
  with a valid one behind it is damage.
- A segment gets its name only when its first frame is durable, and frames only when its name is. So a segment without
  an intact first frame is damaged.
- `log/SYNCED` says how far the log was synced. It is rewritten in place after each sync and is not itself synced, so it
  may lag behind after a power cut, but never runs ahead: a bad or missing frame that it covers is damage.
  A record of it that fails its check says nothing.

Promises: a frame is handed out only if it is whole and in its place, and one payload is in memory at a time, unless
the segment is read whole. Assumes that writers keep to the order above. Never writes, and lets OSErrors through:
callers say what they were about. No `Segment` may be used by two threads at once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from braidlog import limits
from braidlog.errors import Corrupt
from braidlog.metadata import frames
from braidlog.metadata.frames import ALIGNMENT_BYTES, HEADER_BYTES, Header, Kind, NoFrame
from braidlog.objects.files import Files, read_whole

FOLDER: Final = "log"
SYNCED: Final = f"{FOLDER}/SYNCED"

_NAME: Final = re.compile(r"([0-9a-f]{16})\.log")
_LOG_KINDS: Final = (Kind.DATA, Kind.END)
_WHOLE_BYTES_MAX: Final = 128 * limits.MIB  # a segment above this is read frame by frame
_LOOK_BYTES: Final = 64 * limits.KIB  # how much of a damaged or blank stretch is looked at in one go
_BLANK: Final = bytes(_LOOK_BYTES)

_SYNCED_BODY: Final = struct.Struct("<4sQQQ")  # magic, then the fields of Synced
_SYNCED_CHECKSUM: Final = struct.Struct("<I")
_SYNCED_MAGIC: Final = b"\xb7Syn"
SYNCED_BYTES: Final = _SYNCED_BODY.size + _SYNCED_CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Frame:
    """A DATA or END frame that is whole and stands where it should."""

    kind: Kind
    sequence: int
    offset: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where frame `expected` should be, or nothing, and something else is."""

    offset: int
    end: int  # of the bytes that belong to no frame
    expected: int
    message: str
    fatal: bool  # no power cut explains it

    def describe(self, path: str) -> str:
        """The message with its place, for the segment at `path`."""
        return describe(path, self.offset, self.message)


@dataclass(frozen=True, slots=True)
class Synced:
    """How far the log was synced when this was written: up to byte `end` of the segment that begins with `segment`."""

    segment: int
    end: int
    last_sequence: int

    def encode(self) -> bytes:
        """The bytes of SYNCED."""
        body = _SYNCED_BODY.pack(_SYNCED_MAGIC, self.segment, self.end, self.last_sequence)
        return body + _SYNCED_CHECKSUM.pack(crc32c(body))

    @classmethod
    def decode(cls, data: bytes) -> Synced | None:
        """What `encode` made; None if it fails its check, and so says nothing."""
        if len(data) != SYNCED_BYTES:
            return None
        magic, segment, end, last_sequence = _SYNCED_BODY.unpack_from(data)
        (checksum,) = _SYNCED_CHECKSUM.unpack_from(data, _SYNCED_BODY.size)
        if magic != _SYNCED_MAGIC or checksum != crc32c(data[: _SYNCED_BODY.size]):
            return None
        return cls(segment, end, last_sequence)


class Segment:
    """A segment that is open for reading. FileNotFoundError if there is none with that first sequence.

    `whole` reads it in one go, for one whose payloads will be kept anyway: they all point into that memory.
    """

    def __init__(self, files: Files, first: int, *, whole: bool = False) -> None:
        self.first = first
        self.path = segment_path(first)
        self._file = files.open_read(self.path)
        try:
            self._whole = read_whole(self._file) if whole and self._file.size() <= _WHOLE_BYTES_MAX else None
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Safe to call again."""
        self._file.close()

    def header(self, offset: int) -> Header | NoFrame:
        """The header at `offset`, or why there is none. Corrupt if it is of a newer format."""
        try:
            return frames.parse_header(bytes(self._read(offset, HEADER_BYTES)))
        except Corrupt as error:
            raise Corrupt(describe(self.path, offset, str(error))) from None

    def payload(self, offset: int, header: Header) -> memoryview | None:
        """The payload of the frame at `offset`; None if it is damaged or incomplete."""
        return frames.checked_payload(header, self._read(offset + HEADER_BYTES, header.stored_bytes))

    def _read(self, offset: int, length: int) -> bytes | memoryview:
        if self._whole is not None:
            return self._whole[offset : offset + length]
        return self._file.read(offset, length)

    def end_of_bytes(self, offset: int) -> int:
        """Behind the last byte from `offset` on that is not zero; `offset` if there is none."""
        end = at = offset
        while chunk := self._file.read(at, _LOOK_BYTES):
            if chunk != _BLANK[: len(chunk)]:  # which is what it mostly is, and is soon seen
                end = at + len(chunk.rstrip(b"\0"))
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


def scan(segment: Segment) -> Iterator[Frame | Damage]:
    """All of a segment in order: its frames, and the damage between and behind them."""
    if problem := first_frame_problem(segment):
        yield Damage(0, HEADER_BYTES, segment.first, problem, fatal=True)
    offset, expected = HEADER_BYTES, segment.first
    while True:
        header = segment.header(offset)
        problem = ""
        search_from = offset + ALIGNMENT_BYTES
        if isinstance(header, Header):
            search_from = offset + header.frame_bytes
            payload = segment.payload(offset, header)
            problem = header_problem(header, expected)
            if payload is not None and not problem:
                yield Frame(header.kind, expected, offset, payload)
                offset, expected = search_from, expected + 1
                continue
            if payload is not None:
                yield Damage(offset, search_from, expected, problem, fatal=True)
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
        yield Damage(offset, end, expected, problem, fatal)
        if following is None:
            return
        offset, expected = following


def list_segments(files: Files) -> list[int]:
    """The first sequences of all segments, ascending, as fixed-width hex sorts like the numbers."""
    return [int(match[1], 16) for name in files.list(FOLDER) if (match := _NAME.fullmatch(name))]


def segment_path(first: int) -> str:
    """Where the segment that begins with this sequence stands."""
    return f"{FOLDER}/{first:016x}.log"


def read_synced(files: Files) -> Synced | None:
    """What SYNCED says; None if it is not there or says nothing."""
    try:
        file = files.open_read(SYNCED)
    except FileNotFoundError:
        return None
    try:
        return Synced.decode(file.read(0, SYNCED_BYTES))
    finally:
        file.close()


def covers(synced: Synced | None, sequence: int) -> bool:
    """Whether SYNCED proves that this frame was synced."""
    return synced is not None and sequence <= synced.last_sequence


def needed_segments(segments: list[int], after: int, synced: Synced | None) -> list[int]:
    """The segments that hold what the snapshot does not cover; older ones are left from an interrupted checkpoint."""
    held = [first for first in segments if first <= after + 1]
    if not held:
        raise Corrupt(f"{FOLDER}: the segment with frame {after + 1} is missing")
    if synced is not None and synced.segment > segments[-1]:
        raise Corrupt(f"{segment_path(synced.segment)}: the segment is missing, though {SYNCED} knows it")
    return segments[segments.index(held[-1]) :]


def loss_problem(last_sequence: int, after: int, synced: Synced | None) -> str:
    """What is missing at the end of a log that ends with `last_sequence`; "" if nothing is."""
    if after > last_sequence:
        return f"the log ends with frame {last_sequence}, but the snapshot covers {after}"
    if synced is not None and synced.last_sequence > last_sequence:
        return (
            f"the log ends with frame {last_sequence}, but it was synced through frame {synced.last_sequence}, "
            f"byte {synced.end:,} of {segment_path(synced.segment)}"
        )
    return ""


def gap_problem(first: int, expected: int) -> str:
    """What to say of a segment that begins with `first` where the one with `expected` should."""
    return f"the segment begins with frame {first}, but the one before it ends before frame {expected}"


def header_problem(header: Header, expected: int) -> str:
    """Why this header cannot be that of frame `expected`; "" if it can."""
    if header.kind not in _LOG_KINDS:
        return f"a {header.kind.name} frame where frame {expected} should be"
    if header.sequence != expected:
        return f"frame {header.sequence} where frame {expected} should be"
    return ""


def first_frame_problem(segment: Segment) -> str:
    """Why the file does not begin as this segment does; "" if it does."""
    header = segment.header(0)
    if isinstance(header, NoFrame):
        return f"the first header of the segment is {header.value}"
    if header.kind is not Kind.SEGMENT or header.sequence != segment.first or header.length:
        return f"the first frame is a {header.kind.name} of frame {header.sequence}: the file was renamed or mixed up"
    return ""


def describe(path: str, offset: int, problem: str) -> str:
    """A problem with its place."""
    return f"{path} at byte {offset:,}: {problem}"
