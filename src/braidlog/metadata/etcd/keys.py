"""What stands under which key in etcd. Pure.

    <prefix>/leader                     who writes: the owner's id, a line end, how to reach it. Bound to its lease
    <prefix>/head                       the sequence of the last frame, 16 hex digits
    <prefix>/log/<sequence>             a slot: one frame of the command log, or its beginning
    <prefix>/part/<sequence>/<id>/<n>   what did not fit into the slot that names this id
    <prefix>/snap                       the newest snapshot's key among the blobs

A slot's value: the id of the append (16 bytes), how many parts follow (4 bytes, little endian), 4 zeros, then the frame
as `metadata.frames` has it. Parts are written before their slot, and belong to nothing if the slot names another id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument
from braidlog.metadata import frames
from braidlog.metadata.frames import Kind

ID_BYTES: Final = 16
_SLOT: Final = struct.Struct(f"<{ID_BYTES}sII")
_SEQUENCE_DIGITS: Final = 16
SEQUENCE_MAX: Final = (1 << 63) - 1


class Keys:
    """The keys below a prefix."""

    def __init__(self, prefix: str) -> None:
        if not prefix or len(prefix) > limits.SETTING_CHARS_MAX or prefix.endswith("/") or not prefix.isprintable():
            raise InvalidArgument(
                f"prefix {prefix!r}: printable, 1 to {limits.SETTING_CHARS_MAX} characters, no / at its end"
            )
        self.prefix = prefix
        base = prefix.encode()
        self.leader: Final = base + b"/leader"
        self.head: Final = base + b"/head"
        self.snap: Final = base + b"/snap"
        self.slots: Final = base + b"/log/"
        self.parts: Final = base + b"/part/"

    def slot(self, sequence: int) -> bytes:
        return self.slots + _digits(sequence)

    def part(self, sequence: int, id: bytes, number: int) -> bytes:
        return self.parts + b"%s/%s/%08x" % (_digits(sequence), id.hex().encode(), number)

    def parts_of(self, sequence: int, id: bytes) -> bytes:
        """What the keys of an append's parts begin with."""
        return self.parts + b"%s/%s/" % (_digits(sequence), id.hex().encode())

    def parts_from(self, sequence: int) -> bytes:
        """Where the parts of this sequence begin."""
        return self.parts + _digits(sequence)

    def sequence_of(self, slot: bytes) -> int:
        return parse_sequence(slot[len(self.slots) :], slot)


def _digits(sequence: int) -> bytes:
    return b"%016x" % sequence


def encode_sequence(sequence: int) -> bytes:
    return _digits(sequence)


def parse_sequence(digits: bytes, key: bytes) -> int:
    try:
        sequence = int(digits, 16)
    except ValueError:
        sequence = -1
    if len(digits) != _SEQUENCE_DIGITS or not 0 <= sequence <= SEQUENCE_MAX:
        raise Corrupt(f"etcd key {key!r}: {digits[:64]!r} is not a sequence of 16 hex digits")
    return sequence


class Cut(NamedTuple):
    """A frame, cut to what one request can carry."""

    slot: bytes
    parts: tuple[bytes, ...]


def cut_frame(id: bytes, kind: Kind, sequence: int, payload: frames.Payload) -> Cut:
    frame = memoryview(frames.encode(kind, sequence, payload))
    piece = limits.ETCD_PIECE_BYTES_MAX
    parts = tuple(bytes(frame[at : at + piece]) for at in range(piece, len(frame), piece))
    return Cut(b"".join((_SLOT.pack(id, len(parts), 0), frame[:piece])), parts)


class Slot(NamedTuple):
    id: bytes
    parts: int
    beginning: memoryview  # of the frame


def parse_slot(value: bytes, key: bytes) -> Slot:
    if len(value) < _SLOT.size:
        raise Corrupt(f"etcd key {key!r}: {len(value)} bytes are no slot of the command log")
    id, parts, zeros = _SLOT.unpack_from(value)
    if zeros or parts * limits.ETCD_PIECE_BYTES_MAX > frames.frame_bytes(limits.FRAME_BYTES_MAX):
        raise Corrupt(f"etcd key {key!r}: this is no slot of the command log, or one of a newer braidlog")
    return Slot(id, parts, memoryview(value)[_SLOT.size :])


class Frame(NamedTuple):
    kind: Kind
    payload: memoryview


def join_frame(sequence: int, key: bytes, slot: Slot, parts: Sequence[bytes]) -> Frame:
    """The frame that a slot and its parts hold; Corrupt if it is not whole."""
    whole = slot.beginning if not parts else memoryview(b"".join((slot.beginning, *parts)))
    header = frames.parse_header(bytes(whole[: frames.HEADER_BYTES]))
    if not isinstance(header, frames.Header):
        raise Corrupt(f"etcd key {key!r}: the header of frame {sequence} is {header.value}")
    if header.sequence != sequence or header.kind not in (Kind.DATA, Kind.END):
        raise Corrupt(f"etcd key {key!r}: holds a {header.kind.name} frame at {header.sequence}")
    payload = frames.checked_payload(header, whole[frames.HEADER_BYTES :])
    if payload is None:
        raise Corrupt(f"etcd key {key!r}: frame {sequence} fails its check ({len(whole):,} bytes)")
    return Frame(header.kind, payload)


class Leader(NamedTuple):
    """Who holds the leader's key."""

    owner: bytes  # its random id
    description: str  # such as the address to reach it at


def encode_leader(leader: Leader) -> bytes:
    return leader.owner + b"\n" + leader.description.encode()


def parse_leader(value: bytes) -> Leader:
    """Whatever somebody put there: who compares owners does not care, and descriptions are for people."""
    owner, _, description = value.partition(b"\n")
    return Leader(owner, description.decode("utf-8", "replace"))
