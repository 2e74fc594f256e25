"""Frames: how a piece of metadata looks on a disk. Pure bytes, no files.

A frame starts at a multiple of 16 bytes: a header of 32 bytes, a payload, and zeros up to the next multiple of 16.
The header, little endian:

    magic u32 | version u16 | kind u16 | sequence u64 | length u32 | payload crc32c u32 | header crc32c u32 | zeros

Every bit is guarded: the header by its own checksum and the payload by the one in the header; padding must be zero.
The header's checksum is judged before its version, so that a damaged header never passes for one of a newer braidlog.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from crc32c import crc32c

from braidlog.errors import Corrupt, InvalidArgument

Part: TypeAlias = bytes | bytearray | memoryview
Payload: TypeAlias = Part | Sequence[Part]

VERSION: Final = 1
ALIGNMENT_BYTES: Final = 16
HEADER_BYTES: Final = 32
PAYLOAD_BYTES_MAX: Final = 2**32 - 1  # what the length field can say
MAGIC: Final = b"\xb7Brd"  # not valid UTF-8 and not a small number, so that few other bytes look like it

_GUARDED: Final = struct.Struct("<4sHHQII")  # what the header's checksum covers
_CHECKSUM: Final = struct.Struct("<II")  # the checksum and the zeros behind it
_BLANK: Final = bytes(HEADER_BYTES)


class Kind(IntEnum):
    DATA = 1
    END = 2  # the mark of a clean close
    SEGMENT = 3  # the first frame of each file of the command log
    SNAPSHOT = 4


class NoFrame(Enum):
    """Why bytes are no header."""

    BLANK = "only zeros"
    BAD = "damaged or never a header"


@dataclass(frozen=True, slots=True)
class Header:
    kind: Kind
    sequence: int
    length: int  # of the payload, without padding
    checksum: int  # of the payload

    @property
    def stored_bytes(self) -> int:
        """What the payload takes behind the header, with its padding."""
        return self.length + _padding(self.length)

    @property
    def frame_bytes(self) -> int:
        return frame_bytes(self.length)


def frame_bytes(length: int) -> int:
    """What a frame takes whose payload has so many bytes."""
    return HEADER_BYTES + length + _padding(length)


def payload_bytes(payload: Payload) -> int:
    return sum(memoryview(part).nbytes for part in _parts(payload))


def encode(kind: Kind, sequence: int, payload: Payload) -> bytes:
    """One whole frame. The parts of the payload are copied once."""
    length = payload_bytes(payload)
    if length > PAYLOAD_BYTES_MAX:
        raise InvalidArgument(f"a payload of {length:,} bytes does not fit a frame: at most {PAYLOAD_BYTES_MAX:,}")
    parts = _parts(payload)
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    guarded = _GUARDED.pack(MAGIC, VERSION, kind, sequence, length, checksum)
    return b"".join((guarded, _CHECKSUM.pack(crc32c(guarded), 0), *parts, bytes(_padding(length))))


def parse_header(data: bytes) -> Header | NoFrame:
    """The header that `data` begins with. Fewer than 32 bytes, as at the end of a file, are no header.

    Raises Corrupt if an intact header is of a newer format, which must be neither skipped nor cut.
    """
    head = data[:HEADER_BYTES]
    if head == _BLANK[: len(head)]:
        return NoFrame.BLANK
    if len(head) < HEADER_BYTES:
        return NoFrame.BAD
    if _CHECKSUM.unpack_from(head, _GUARDED.size) != (crc32c(head[: _GUARDED.size]), 0):
        return NoFrame.BAD
    magic, version, kind, sequence, length, checksum = _GUARDED.unpack_from(head)
    if magic != MAGIC:
        return NoFrame.BAD
    if version != VERSION:
        raise Corrupt(
            f"a frame of format {version}: a newer braidlog wrote it and this one reads format {VERSION}; "
            "upgrade braidlog"
        )
    try:
        known = Kind(kind)
    except ValueError:
        raise Corrupt(f"a frame of the unknown kind {kind}: a newer braidlog wrote it; upgrade braidlog") from None
    return Header(known, sequence, length, checksum)


def checked_payload(header: Header, stored: bytes | memoryview) -> memoryview | None:
    """The payload within what is stored behind the header, uncopied; None if it is damaged or incomplete."""
    if len(stored) != header.stored_bytes:
        return None
    padding = len(stored) - header.length
    payload = memoryview(stored)[: header.length]
    if crc32c(payload) != header.checksum or bytes(stored[header.length :]) != bytes(padding):
        return None
    return payload


def _parts(payload: Payload) -> Sequence[Part]:
    return (payload,) if isinstance(payload, bytes | bytearray | memoryview) else payload


def _padding(length: int) -> int:
    return -length % ALIGNMENT_BYTES
