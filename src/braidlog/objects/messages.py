"""Blocks that come with the bytes that they have in a file, and what an Arrow file holds around them.

A client sends a block as the very message that a file would hold. Once it was checked it is written as it is: to have
Arrow write it anew took a server more than the checks, most of it in changes of threads. The head and the foot are
those of a file that Arrow wrote; only where the blocks are is entered into the foot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
from msgspec import Struct

from braidlog.objects.batch import SCHEMA

_MARKER: Final = -1  # begins a message
_END: Final = struct.pack("<ii", _MARKER, 0)  # of the messages
_LAST_BYTES: Final = 10  # of a file: the length of its foot, and a magic word
_ALIGNMENT_BYTES: Final = 8
_BLOCK: Final = struct.Struct("<qi4xq")  # where a block is: offset, length of what describes it, length of its columns

# Numbers of fields in Arrow's tables.
_BODY_LENGTH: Final = 3  # of a Message
_RECORD_BATCHES: Final = 3  # of a Footer


class Message(Struct, frozen=True):
    """A record batch as bytes that can stand in a file; `head` of them describe its columns, which follow."""

    data: memoryview
    head: int
    crc: int | None = None  # CRC-32C of all of them, if it is known


def as_message(data: memoryview, crc: int | None = None) -> Message | None:
    """The message that these bytes are, if they can stand in a file as they are. Arrow must have read them before."""
    marker, length = struct.unpack_from("<ii", data)
    head = 8 + length
    if marker != _MARKER or head % _ALIGNMENT_BYTES or len(data) % _ALIGNMENT_BYTES:
        return None
    table = data[8:head]
    place = field(table, struct.unpack_from("<I", table)[0], _BODY_LENGTH)
    body: int = struct.unpack_from("<q", table, place)[0] if place else 0
    return Message(data, head, crc) if head + body == len(data) else None


def field(table: bytes | memoryview, at: int, number: int) -> int:
    """Where a field of a flatbuffer's table is; 0 if it is not there."""
    layout = at - struct.unpack_from("<i", table, at)[0]
    if layout < 0:
        raise IndexError("a table without a layout")
    size = struct.unpack_from("<H", table, layout)[0]
    place = 4 + 2 * number
    offset: int = struct.unpack_from("<H", table, layout + place)[0] if place + 2 <= size else 0
    return at + offset if offset else 0


@lru_cache(maxsize=1)
def file_head() -> bytes:
    """What a file begins with: a magic word, and the schema as a message."""
    empty = _file_of(0)
    _, length = struct.unpack_from("<ii", empty, 8)
    return empty[: 16 + length]


def file_foot(blocks: Sequence[tuple[int, int, int]]) -> bytes:
    """What a file with these blocks ends with. Each is told by its offset, and the lengths of its head and the rest."""
    template, at = _foot_of(len(blocks))
    foot = bytearray(template)
    for number, block in enumerate(blocks):
        _BLOCK.pack_into(foot, at + number * _BLOCK.size, *block)
    return _END + foot


@lru_cache(maxsize=64)
def _foot_of(count: int) -> tuple[bytes, int]:
    """The foot of a file with so many blocks, and where in it the first of them is told of."""
    file = _file_of(count)
    length = struct.unpack_from("<i", file, len(file) - _LAST_BYTES)[0]
    foot = file[-_LAST_BYTES - length :]
    vector = field(foot, struct.unpack_from("<I", foot)[0], _RECORD_BATCHES)
    return foot, vector + struct.unpack_from("<I", foot, vector)[0] + 4


def _file_of(count: int) -> bytes:
    """With so many blocks, all of them empty."""
    sink = pa.BufferOutputStream()
    empty = pa.RecordBatch.from_pylist([], SCHEMA)
    with pa.ipc.new_file(sink, SCHEMA) as file:
        for _ in range(count):
            file.write_batch(empty)
    return bytes(sink.getvalue())
