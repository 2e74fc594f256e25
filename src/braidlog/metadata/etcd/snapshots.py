"""Snapshots of a forest whose log is in etcd: blobs, of which a key in etcd names the newest.

A snapshot is the blob `snapshots/<sequence in 16 hex digits>-<random>`, one frame as `metadata.frames` has it. It is
there before it is named, and stays a while after another one is: who read the name can read the blob.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import Final

from braidlog.errors import Corrupt, InvalidArgument, Unavailable
from braidlog.metadata import frames
from braidlog.metadata.frames import Kind
from braidlog.objects.blobs import Blobs

FOLDER: Final = "snapshots/"
_KEY: Final = re.compile(r"snapshots/([0-9a-f]{16})-[0-9a-f]{32}")
_KEPT: Final = 2  # older ones, for those who read a name just before it changed


@contextlib.contextmanager
def blob_storage(doing: str) -> Iterator[None]:
    """Let a failure of the object store surface as Unavailable."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"cannot {doing}: {error}; mend the object store, then try again") from error


def write(blobs: Blobs, sequence: int, payload: frames.Payload) -> str:
    """Store the state after a frame, durably; answers the blob's key, which nobody knows yet."""
    length = frames.payload_bytes(payload)
    if length > frames.PAYLOAD_BYTES_MAX:
        raise InvalidArgument(
            f"a snapshot of {length:,} bytes cannot be stored: at most {frames.PAYLOAD_BYTES_MAX:,}; "
            "drop or trim logs that are no longer needed"
        )
    key = f"{FOLDER}{sequence:016x}-{uuid.uuid4().hex}"
    with blob_storage(f"write the snapshot at {sequence}"):
        blobs.create(key, frames.encode(Kind.SNAPSHOT, sequence, payload))
    return key


def read(blobs: Blobs, key: str) -> tuple[int, memoryview]:
    """(the sequence it covers, the state); FileNotFoundError if the blob is gone."""
    sequence = sequence_of(key)
    with blob_storage("read the newest snapshot"):
        stored = blobs.read(key, 0, blobs.size(key))
    try:
        header = frames.parse_header(bytes(stored[: frames.HEADER_BYTES]))
    except Corrupt as error:
        raise Corrupt(f"{key}: {error}") from None
    if not isinstance(header, frames.Header):
        raise Corrupt(f"{key}: the header is {header.value}")
    if header.kind is not Kind.SNAPSHOT or header.sequence != sequence:
        raise Corrupt(f"{key}: holds a {header.kind.name} frame at {header.sequence}")
    payload = frames.checked_payload(header, stored[frames.HEADER_BYTES :])
    if payload is None:
        raise Corrupt(f"{key}: the state at {sequence} fails its check ({len(stored):,} bytes)")
    return sequence, payload


def sequence_of(key: str) -> int:
    match = _KEY.fullmatch(key)
    if match is None:
        raise Corrupt(f"the snapshot that etcd names is {key[:200]!r}: that is not what braidlog writes there")
    return int(match[1], 16)


def drop_before(blobs: Blobs, sequence: int) -> None:
    """Delete the snapshots that cover less, but for the last few of them.

    Only once one that covers this much was named: whoever leads by now names none that covers less.
    """
    with blob_storage("remove old snapshots"):
        old = [key for key in blobs.list(FOLDER) if _KEY.fullmatch(key) and sequence_of(key) < sequence]
        for key in old[:-_KEPT]:
            blobs.delete(key)
