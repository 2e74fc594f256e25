"""Frames: how messages travel over a byte stream, TCP or a Unix socket.

Whoever connects begins with a preface, the word `braid` and the version it speaks; the other side answers with its
own. From then on both send frames: a header of fixed size, a head (msgpack, see `messages`), and a body of raw bytes.
A checksum covers header, head and body, so that bytes that are no frame are told from a frame, wherever they come from.

PURE: `Parser` is fed bytes and yields frames; nothing here knows a socket. Bytes that are no frame raise Malformed,
and after it the stream is worth nothing: there is no next frame to find.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from braidlog import limits
from braidlog.objects.checksums import JOINED_BYTES_MIN, joined

VERSION: Final = 1
PREFACE: Final = b"braid" + bytes([VERSION, 0, 0])  # eight bytes: the word, the version, two for later

# length of head and body, length of the head, CRC-32C, kind, flags, nothing, number, seen
_HEADER: Final = struct.Struct("<IIIBBHIQ")
_COVERED: Final = struct.Struct("<IIBBHIQ")  # the header as the checksum sees it: all but the checksum
HEADER_BYTES: Final = _HEADER.size
SEEN_MAX: Final = (1 << 64) - 1

_DIRECT_BYTES_MIN: Final = 64 * 1024  # what is left of a frame that is worth to be received in its place
_ROOM_BYTES: Final = 2 * 1024 * 1024  # the memory for a frame of so many bytes is taken at once
_AHEAD_BYTES: Final = 32 * 1024  # that may come along behind the rest of a large frame, and are copied then
_MALLOC: Final = pa.system_memory_pool()


class Malformed(Exception):
    """These bytes are no frame. The connection they came over is of no use any more."""


class Kind(IntEnum):
    """What a frame is to its receiver."""

    REQUEST = 1  # to be answered once, under its number
    ANSWER = 2
    ERROR = 3  # an answer too
    PUSH = 4  # more of what the request of that number subscribed to
    NOTE = 5  # about the request of that number, or the connection; never answered
    GOODBYE = 6  # the sender takes no more requests, and answers those it has


class Body(NamedTuple):
    """Raw bytes, and the CRC-32C of just those, if they are so many that nobody should look at them again for it."""

    data: memoryview
    crc: int | None


NOTHING: Final = Body(memoryview(b""), None)


class Frame(NamedTuple):
    """`seen` is the commit index that its sender had seen: answers are at least as new as what was asked for."""

    kind: Kind
    number: int
    seen: int
    head: memoryview
    body: Body


def encode(kind: Kind, number: int, seen: int, head: bytes, *body: bytes | memoryview) -> list[bytes | memoryview]:
    """A frame as pieces to be written one after the other. The body may come in pieces; none is copied."""
    pieces = [piece for piece in body if piece]
    length = len(head) + sum(map(len, pieces))
    crc = crc32c(_COVERED.pack(length, len(head), kind, 0, 0, number, seen))
    crc = crc32c(head, crc)
    for piece in pieces:
        crc = crc32c(piece, crc)
    header = _HEADER.pack(length, len(head), crc, kind, 0, 0, number, seen)
    return [header + head, *pieces]


class Parser:
    """The receiving end of a stream. `feed` takes what arrived and yields the frames that it completes.

    While a large frame is under way, `room` is where the rest of it may be put right away, and `filled` says how much
    of that was: so it is copied once, by whoever receives it. There is room for the beginning of the next frame too,
    which tells where that one is to be put: so one after the other takes one call each to receive.
    """

    def __init__(self, *, frame_bytes_max: int = limits.WIRE_FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest = memoryview(b"")  # room for a frame that is not whole yet
        self._have = 0  # bytes of it
        self._need = HEADER_BYTES  # bytes until more of it can be said

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        view = memoryview(data)
        while self._have and view:
            piece = view[: self._need - self._have]
            view = view[len(piece) :]
            self._make_room(len(piece))
            self._rest[self._have : self._have + len(piece)] = piece
            yield from self.filled(len(piece))
        at = 0
        while len(view) - at >= HEADER_BYTES:
            stop = at + HEADER_BYTES + self._length_of(view, at)
            if stop > len(view):
                break
            yield _frame(view[at:stop])
            at = stop
        if at < len(view):
            self._keep(view[at:])

    def room(self) -> memoryview | None:
        """Where the bytes that come next are to be put, if many more belong to this frame; None: feed them."""
        if self._need - self._have < _DIRECT_BYTES_MIN:
            return None
        self._make_room(_DIRECT_BYTES_MIN)
        return self._rest[self._have :]

    def filled(self, count: int) -> Iterator[Frame]:
        """So many bytes were put into the room."""
        self._have += count
        if self._have < self._need:
            return
        if self._need == HEADER_BYTES:
            self._need += self._length_of(self._rest, 0)
            if self._have < self._need:
                return
        whole, next_one = self._rest[: self._need], bytes(self._rest[self._need : self._have])
        self._rest, self._have, self._need = memoryview(b""), 0, HEADER_BYTES
        yield _frame(whole)
        if next_one:  # a copy, or what is small could keep in memory what is large
            yield from self.feed(next_one)

    @property
    def held(self) -> int:
        """The bytes of a frame that is not whole yet."""
        return self._have

    @property
    def expected(self) -> int:
        """The bytes that it will have, as far as that is known."""
        return self._need if self._have else 0

    @property
    def taken(self) -> int:
        """The memory that such a frame has been given: a header alone can ask for much."""
        return len(self._rest)

    def _keep(self, view: memoryview) -> None:
        """The beginning of a frame."""
        self._need = HEADER_BYTES
        if len(view) >= HEADER_BYTES:
            self._need += self._length_of(view, 0)
        self._make_room(len(view))
        self._rest[: len(view)] = view
        self._have = len(view)

    def _make_room(self, count: int) -> None:
        """Room for so many bytes more, and for all of the frame unless it is very large: it may never come."""
        if self._have + count > len(self._rest):
            whole = self._need + (_AHEAD_BYTES if self._need >= _DIRECT_BYTES_MIN else 0)
            larger = _memory(min(whole, max(_ROOM_BYTES, 2 * (self._have + count))))
            larger[: self._have] = self._rest[: self._have]
            self._rest = larger

    def _length_of(self, view: memoryview, at: int) -> int:
        """Of head and body of the frame whose header is there."""
        length, head_length, _, _, flags, nothing, _, _ = _HEADER.unpack_from(view, at)
        if length > self.frame_bytes_max or head_length > length:
            raise Malformed(
                f"a frame of {length:,} bytes with a head of {head_length:,}: at most {self.frame_bytes_max:,}"
            )
        if flags or nothing:
            raise Malformed("a frame with flags that version 1 does not know")
        return int(length)


def _memory(size: int) -> memoryview:
    """As malloc has it: a bytearray is filled with zeros first, which took as long as to fill it with a frame, and
    Arrow's own allocator gives memory back to the system and takes it anew, page by page."""
    return memoryview(pa.allocate_buffer(size, memory_pool=_MALLOC)).cast("B")


def _frame(view: memoryview) -> Frame:
    """The frame that these bytes are, if its checksum says so."""
    length, head_length, crc, kind, flags, nothing, number, seen = _HEADER.unpack_from(view)
    body_at = HEADER_BYTES + head_length
    head, body = view[HEADER_BYTES:body_at], Body(view[body_at:], None) if body_at < len(view) else NOTHING
    found = crc32c(head, crc32c(_COVERED.pack(length, head_length, kind, flags, nothing, number, seen)))
    if len(body.data) < JOINED_BYTES_MIN:
        found = crc32c(body.data, found)
    else:
        own = crc32c(body.data)
        found = joined(found, own, len(body.data))
        body = Body(body.data, own)
    if found != crc:
        raise Malformed(f"a frame of {length:,} bytes whose checksum is wrong")
    try:
        named = _KINDS[kind]
    except KeyError:
        raise Malformed(f"a frame of kind {kind}, which version 1 does not know") from None
    return Frame(named, number, seen, head, body)


_KINDS: Final = {int(kind): kind for kind in Kind}


def check_preface(preface: bytes) -> None:
    """Raise Malformed unless it is one of ours."""
    if preface[:5] != PREFACE[:5]:
        raise Malformed("this is not the braid protocol")
    if preface[5] != VERSION:
        raise Malformed(f"the other side speaks version {preface[5]} of the protocol, and this one {VERSION}")
