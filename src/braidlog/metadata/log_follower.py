"""The command log as another process reads it while its writer is at work.

Promises: every payload once, in order, and only after it was synced. Frame n is durable if SYNCED covers it, or if the
header of frame n+1 is there, or if the next segment is. That evidence is gathered before the frame is read, because a
frame that looks half-written may be whole, and followed by the next one, a moment later.

Assumes what `segments` says of the order in which the writer works, and that it drops the oldest segment first. Never
changes anything, and never waits: whoever follows polls. Not to be used by two threads at once.
"""

from __future__ import annotations

from typing import NoReturn

from braidlog.errors import Corrupt, Unavailable
from braidlog.metadata.directory import storage
from braidlog.metadata.frames import HEADER_BYTES, Header, Kind, NoFrame
from braidlog.metadata.segments import (
    SYNCED,
    SYNCED_BYTES,
    Frame,
    Segment,
    Synced,
    describe,
    first_frame_problem,
    header_problem,
    list_segments,
    segment_path,
)
from braidlog.objects.files import File, Files


class Superseded(Exception):
    """The segment that a follower needs was dropped: load the latest snapshot and follow from there."""


class LogFollower:
    """Reads the command log while another process writes it. It changes nothing and sees only what was synced."""

    def __init__(self, files: Files, after: int) -> None:
        self._files = files
        self._after = after
        self._segment: Segment | None = None
        self._finished = False  # the segment is known to have a successor, so all of it is synced
        self._offset = HEADER_BYTES
        self._next = after + 1
        self._synced: File | None = None

    def poll(self) -> list[tuple[int, memoryview]]:
        """The payloads that became durable since the last poll, with their sequences, in order.

        Raises Superseded if the next one was dropped, and Corrupt if it was damaged after it had been synced.
        """
        found: list[tuple[int, memoryview]] = []
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
        synced = Synced.decode(self._synced.read(0, SYNCED_BYTES))
        return 0 if synced is None else synced.last_sequence

    def _next_frame(self, durable: int) -> Frame | None:
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
                raise Corrupt(describe(segment.path, self._offset, f"the header of frame {self._next} is damaged"))
            self._enter_following(segment)

    def _take(self, segment: Segment, header: Header) -> Frame:
        if problem := header_problem(header, self._next):
            raise Corrupt(describe(segment.path, self._offset, problem))
        payload = segment.payload(self._offset, header)
        if payload is None:
            raise Corrupt(describe(segment.path, self._offset, f"frame {self._next} was synced and is damaged now"))
        frame = Frame(header.kind, self._next, self._offset, payload)
        self._offset += header.frame_bytes
        self._next += 1
        return frame

    def _is_followed(self, segment: Segment, header: Header) -> bool:
        successor = segment.header(self._offset + header.frame_bytes)
        return isinstance(successor, Header) and successor.sequence == self._next + 1

    def _is_finished(self, segment: Segment) -> bool:
        if not self._finished:
            self._finished = any(first > segment.first for first in list_segments(self._files))
        return self._finished

    def _enter_first(self) -> Segment | None:
        segments = list_segments(self._files)
        if not segments and self._after == 0:
            return None
        held = [first for first in segments if first <= self._next]
        if not held:
            raise Superseded(f"the log no longer holds frame {self._next}")
        self._enter(held[-1])
        self._next = held[-1]
        return self._segment

    def _enter_following(self, segment: Segment) -> None:
        try:
            self._enter(self._next)
        except Superseded:
            # A later segment is there, so this one was once. Segments are dropped oldest first.
            self._raise_missing(
                segment, f"the segment ends before frame {self._next}, and {segment_path(self._next)} is gone"
            )

    def _enter(self, first: int) -> None:
        try:
            segment = Segment(self._files, first)
        except FileNotFoundError:
            raise Superseded(f"{segment_path(first)} was dropped") from None
        if problem := first_frame_problem(segment):
            segment.close()
            raise Corrupt(describe(segment.path, 0, problem))
        if self._segment is not None:
            self._segment.close()
        self._segment = segment
        self._finished = False
        self._offset = HEADER_BYTES

    def _raise_missing(self, segment: Segment, problem: str) -> NoReturn:
        if self._files.exists(segment.path):
            raise Corrupt(describe(segment.path, self._offset, problem))
        raise Superseded(f"{segment.path} was dropped")
