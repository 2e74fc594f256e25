"""The command log looked over for the doctor: everything that is not as it was written, not just the first of it.

Promises: a finding for each damaged place. If none is there but a torn one, opening cuts it; else opening is refused.
Assumes nothing of what the files hold. Never changes anything, and never raises Corrupt: that is what findings are for.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.errors import Corrupt
from braidlog.metadata import frames
from braidlog.metadata.directory import storage
from braidlog.metadata.frames import Kind
from braidlog.metadata.segments import (
    FOLDER,
    Frame,
    Segment,
    covers,
    gap_problem,
    list_segments,
    loss_problem,
    needed_segments,
    read_synced,
    scan,
    segment_path,
)
from braidlog.objects.files import Files


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


def check_log(files: Files, after: int) -> LogCheck:
    """Go through all of the log behind `after` without changing anything, past damage too.

    While a writer is at work its last commit may look torn, and a checkpoint may drop what is being checked.
    """
    findings: list[Finding] = []
    count = size = 0
    clean = False
    with storage("check the command log"):
        synced = read_synced(files)
        segments = list_segments(files)
        if segments or after or synced is not None:
            try:
                segments = needed_segments(segments, after, synced)
            except Corrupt as error:
                findings.append(Finding(FOLDER, 0, str(error), torn=False))
        expected = segments[0] if segments else after + 1
        for first in segments:
            if first != expected:
                findings.append(Finding(segment_path(first), 0, gap_problem(first, expected), torn=False))
            expected = first
            with Segment(files, first) as segment:
                try:
                    for found in scan(segment):
                        clean = isinstance(found, Frame) and found.kind is Kind.END
                        if isinstance(found, Frame):
                            count += 1
                            size += frames.frame_bytes(len(found.payload))
                            expected = found.sequence + 1
                        else:
                            torn = first == segments[-1] and not found.fatal and not covers(synced, found.expected)
                            findings.append(Finding(segment.path, found.offset, found.message, torn))
                except Corrupt as error:  # a frame of a newer format: nothing behind it can be judged
                    findings.append(Finding(segment.path, 0, str(error), torn=False))
    if segments and (lost := loss_problem(expected - 1, after, synced)):
        findings.append(Finding(segment_path(segments[-1]), 0, lost, torn=False))
    return LogCheck(len(segments), count, size, expected - 1, clean, tuple(findings))
