"""Snapshots: the state after some frame of the command log, so that the log before it can go.

A snapshot is the file `snapshots/<sequence in 16 hex digits>.snap`, one frame, and is named only once it is durable.
So a file of that name that fails its check was damaged later: that is Corrupt, and never a reason to take an older
one, whose log may have been dropped.
"""

from __future__ import annotations

import re
from typing import Final

from braidlog.errors import Corrupt, InvalidArgument
from braidlog.metadata import directory, frames
from braidlog.metadata.directory import put_file, storage
from braidlog.objects.files import Files, read_whole

FOLDER: Final = "snapshots"

_NAME: Final = re.compile(r"([0-9a-f]{16})\.snap")


def write(files: Files, sequence: int, payload: frames.Payload) -> None:
    """Store the state after frame `sequence`, durably."""
    length = frames.payload_bytes(payload)
    if length > frames.PAYLOAD_BYTES_MAX:
        raise InvalidArgument(
            f"a snapshot of {length:,} bytes cannot be stored: at most {frames.PAYLOAD_BYTES_MAX:,}; "
            "drop or trim logs that are no longer needed"
        )
    with storage(f"write the snapshot at {sequence}"):
        files.make_dir(FOLDER)
        put_file(files, _path(sequence), frames.encode(frames.Kind.SNAPSHOT, sequence, payload))


def latest(files: Files) -> tuple[int, memoryview] | None:
    """The newest snapshot and the sequence it covers; None if there is none."""
    # A reader in another process may find that the writer has just dropped what it listed: then there is a newer one.
    # The writer drops only after it wrote, so finding the same newest name gone twice is no race.
    gone: int | None = None
    while True:
        with storage("read the newest snapshot"):
            sequences = _sequences(files)
            if not sequences:
                return None
            newest = sequences[-1]
            try:
                return newest, _read(files, newest)
            except FileNotFoundError:
                if newest == gone:
                    raise
                gone = newest


def drop_before(files: Files, sequence: int) -> None:
    """Remove the snapshots that cover less than `sequence`."""
    with storage("remove old snapshots"):
        old = [found for found in _sequences(files) if found < sequence]
        for found in old:
            files.remove(_path(found))
        if old:
            files.sync_dir(FOLDER)


def sweep_unfinished(files: Files) -> None:
    """Remove what interrupted writes left behind. Only the directory's writer may do so."""
    with storage("remove unfinished snapshots"):
        directory.sweep_unfinished(files, FOLDER)


def _read(files: Files, sequence: int) -> memoryview:
    path = _path(sequence)
    file = files.open_read(path)
    try:
        stored = read_whole(file)
        size = len(stored)
        try:
            header = frames.parse_header(bytes(stored[: frames.HEADER_BYTES]))
        except Corrupt as error:
            raise Corrupt(f"{path}: {error}") from None
        if not isinstance(header, frames.Header):
            raise Corrupt(f"{path}: the header is {header.value}")
        if header.kind is not frames.Kind.SNAPSHOT or header.sequence != sequence:
            raise Corrupt(f"{path}: holds a {header.kind.name} frame at {header.sequence}: the file was renamed")
        payload = None
        if size == header.frame_bytes:
            payload = frames.checked_payload(header, stored[frames.HEADER_BYTES :])
        if payload is None:
            raise Corrupt(f"{path}: the state at {sequence} fails its check ({size:,} bytes of {header.frame_bytes:,})")
        return payload
    finally:
        file.close()


def _sequences(files: Files) -> list[int]:
    """Ascending, as fixed-width hex sorts like the numbers."""
    return [int(match[1], 16) for name in files.list(FOLDER) if (match := _NAME.fullmatch(name))]


def _path(sequence: int) -> str:
    return f"{FOLDER}/{sequence:016x}.snap"
