"""The bytes of an object: one Arrow IPC file, which any Arrow reader can open.

A block is one record batch. Its place is the byte range of that record batch's message inside the file, with
the CRC-32C of just those bytes, so that a reader fetches and checks one block without the rest of the object.
Nothing is compressed: a block is read without a copy.

Bytes that are not what was written surface as Corrupt, which names the object and the place in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

from braidlog.errors import Corrupt, Unavailable
from braidlog.objects.batch import FORMAT, FORMAT_KEY, SCHEMA
from braidlog.objects.checksums import JOINED_BYTES_MIN, joined
from braidlog.objects.messages import Message, as_message, file_foot, file_head
from braidlog.objects.store import Making

Bytes = bytes | bytearray | memoryview
Columns: TypeAlias = pa.RecordBatch | Message | Callable[[], pa.RecordBatch]

# What pyarrow raises for bytes that it cannot make sense of. Only some of it is an ArrowException.
_UNREADABLE = (pa.ArrowException, OSError, EOFError, ValueError)


# Room for what a file holds besides its blocks: head and schema twice, and an entry in the foot for each block.
_FRAMING_BYTES = 8192
_FRAMING_BLOCK_BYTES = 64

# Buffers of at least so many bytes are written from where they are; smaller ones are joined, which costs less.
_JOINED_BYTES_MAX = 65_536


class BlockPlace(Struct, frozen=True):
    """Where a block's bytes are in its object, and their CRC-32C."""

    offset: int
    length: int
    crc: int


class Object(Struct, frozen=True):
    """A whole object, ready to be put: its bytes in parts, their CRC-32C, and its blocks in the order of `add`."""

    parts: list[memoryview]
    crc: int
    blocks: list[BlockPlace]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class ObjectWriter:
    """Gathers blocks into an object. Add them one by one, then lay them out once.

    `size`, `crc` and `blocks` are true once all parts were taken.
    """

    def __init__(self) -> None:
        self._columns: list[Columns] = []
        self.size = 0
        self.crc = 0
        self.blocks: list[BlockPlace] = []

    def add(self, columns: Columns) -> int:
        """Add a record batch of SCHEMA as the next block; returns its index in the blocks of the object.

        A large one may be given as a function: it is made when its turn comes, and let go when its bytes were taken,
        so that the memory of one serves for the next. Or as the message that it is in the file.
        """
        self._columns.append(columns)
        return len(self._columns) - 1

    def parts(self) -> Iterator[memoryview]:
        """The bytes of the file in order. Those of a large block are not copied: a part points to where they are."""
        for chunk, places in _chunks(self._columns):
            blocks, self.crc = _blocks(chunk, places, self.size, self.crc)
            self.blocks += blocks
            self.size += sum(map(len, chunk))
            while chunk:
                part = chunk.pop(0)
                yield part
                del part  # before the next block is made: it shall find this one's memory free

    def finish(self) -> Object:
        """All parts at once."""
        parts = list(self.parts())
        return Object(parts, self.crc, self.blocks)


class GrowingObject:
    """An object whose blocks are stored as they come, and not kept. `size` and `crc` are true at its end."""

    def __init__(self, making: Making) -> None:
        self._making = making
        self._entries: list[tuple[int, int, int]] = []  # of the foot
        self.size = 0
        self.crc = 0
        self.blocks: list[BlockPlace] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """A record batch of SCHEMA is the next block."""
        if not self.size:
            self._write_plain(file_head())
        message = _message_of(batch)
        length = len(message.data)
        self._entries.append((self.size, message.head, length - message.head))
        own = crc32c(message.data)
        self.blocks.append(BlockPlace(self.size, length, own))
        crc = joined(self.crc, own, length) if length >= JOINED_BYTES_MIN else crc32c(message.data, self.crc)
        self._write(message.data, crc)

    def finish(self) -> None:
        """There is at least one block. It is durable on return; if this or anything before it fails, abandon it."""
        self._write_plain(file_foot(self._entries))
        self._making.finish()

    def abandon(self) -> None:
        self._making.abandon()

    def _write_plain(self, data: bytes) -> None:
        self._write(memoryview(data), crc32c(data, self.crc))

    def _write(self, data: memoryview, crc: int) -> None:
        self._making.write(data)
        self.size += len(data)
        self.crc = crc


# Where a block is to be: its offset in the file, its length, and its CRC-32C if that is known.
_Place: TypeAlias = tuple[int, int, int | None]
# Some bytes of a file in parts, and the blocks in them.
_Chunk: TypeAlias = tuple[list[memoryview], list[_Place]]


def _chunks(columns: list[Columns]) -> Iterable[_Chunk]:
    if any(isinstance(made, Message) for made in columns):
        return _as_they_are(columns)
    small = _all_small(columns)
    return [_in_one_piece(small)] if small is not None else _one_by_one(columns)


def _all_small(columns: list[Columns]) -> list[tuple[pa.RecordBatch, int]] | None:
    """Each record batch with the bytes that it takes, if they are so small that they are better copied."""
    sized: list[tuple[pa.RecordBatch, int]] = []
    for batch in columns:
        if not isinstance(batch, pa.RecordBatch):
            return None
        sized.append((batch, pa.ipc.get_record_batch_size(batch)))
    return sized if sum(length for _, length in sized) <= _JOINED_BYTES_MAX * len(sized) else None


def _in_one_piece(sized: list[tuple[pa.RecordBatch, int]]) -> _Chunk:
    """A file of small blocks. Its memory is taken once, in full: growing it would copy it again and again."""
    total = sum(length for _, length in sized)
    buffer = pa.allocate_buffer(total + _FRAMING_BYTES + _FRAMING_BLOCK_BYTES * len(sized))
    sink = pa.FixedSizeBufferWriter(buffer)
    places: list[_Place] = []
    with pa.ipc.new_file(sink, SCHEMA) as file:
        for batch, length in sized:
            file.write_batch(batch)
            # Counted back from the end, because the first write puts the file's own head in front of the message.
            places.append((sink.tell() - length, length, None))
    return [memoryview(buffer).cast("B")[: sink.tell()]], places


def _one_by_one(columns: list[Columns]) -> Iterator[_Chunk]:
    """A file of large blocks, each of them a chunk. The last chunk is its foot."""
    gathered = _Gathered()
    # What is small is joined before it comes to Python, where each single write would wait for the interpreter.
    sink = pa.BufferedOutputStream(pa.PythonFile(gathered, mode="w"), _JOINED_BYTES_MAX)
    with pa.ipc.new_file(sink, SCHEMA) as file:
        for made in columns:
            assert not isinstance(made, Message)
            batch = made if isinstance(made, pa.RecordBatch) else made()
            length = pa.ipc.get_record_batch_size(batch)
            file.write_batch(batch)
            del batch  # its memory is free as soon as its parts were taken
            sink.flush()
            yield gathered.take(), [(gathered.tell() - length, length, None)]
    sink.flush()
    yield gathered.take(), []


def _as_they_are(columns: list[Columns]) -> Iterator[_Chunk]:
    """The same of blocks that are messages already; others are made such."""
    chunk = [memoryview(file_head())]
    at = len(chunk[0])
    blocks: list[tuple[int, int, int]] = []
    for made in columns:
        message = made if isinstance(made, Message) else _message_of(made)
        length = len(message.data)
        blocks.append((at, message.head, length - message.head))
        places: list[_Place] = [(at, length, message.crc)]
        chunk.append(message.data)
        del message
        yield chunk, places
        at += length
        chunk = []
    yield [memoryview(file_foot(blocks))], []


def _message_of(columns: pa.RecordBatch | Callable[[], pa.RecordBatch]) -> Message:
    batch = columns if isinstance(columns, pa.RecordBatch) else columns()
    message = as_message(memoryview(batch.serialize()).cast("B"))
    assert message is not None
    return message


class _Gathered(io.RawIOBase):
    """A file that keeps what is written to it in parts, uncopied if it is large."""

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        """`data` is bytes, or a buffer of Arrow that stays as it is as long as it is referred to."""
        length = len(data)
        self._size += length
        self._parts.append(memoryview(data).cast("B"))
        return length

    def take(self) -> list[memoryview]:
        """What was written since the last time."""
        parts, self._parts = self._parts, []
        return parts


def _blocks(parts: list[memoryview], places: list[_Place], at: int, crc: int) -> tuple[list[BlockPlace], int]:
    """The places with the checksums of what stands there, and what `crc` becomes when all of the parts follow it.

    The places ascend and do not overlap; the parts begin at `at`.
    """
    blocks: list[BlockPlace] = []
    end = at
    for offset, length, known in places:
        crc = _checksum(parts, at, end, offset, crc)
        end = offset + length
        own = _checksum(parts, at, offset, end, 0) if known is None else known
        blocks.append(BlockPlace(offset, length, own))
        crc = joined(crc, own, length) if length >= JOINED_BYTES_MIN else _checksum(parts, at, offset, end, crc)
    return blocks, _checksum(parts, at, end, at + sum(map(len, parts)), crc)


def _checksum(parts: list[memoryview], at: int, start: int, stop: int, crc: int) -> int:
    """What `crc` becomes when the bytes from start to stop follow it; the parts begin at `at`."""
    for part in parts:
        end = at + len(part)
        if at < stop and start < end:
            crc = crc32c(part[max(start - at, 0) : stop - at], crc)
        at = end
    return crc


def read_block(name: str, place: BlockPlace, data: Bytes) -> pa.RecordBatch:
    """The block at `place` of the object `name`, from its bytes, once they were checked against the place.

    The record batch keeps `data` alive and points into it.
    """
    if len(data) != place.length:
        raise Corrupt(f"{_describe(name, place)} is cut short: {len(data)} bytes are there")
    crc = crc32c(data)
    if crc != place.crc:
        raise Corrupt(f"{_describe(name, place)} has CRC-32C {crc:08x}, but {place.crc:08x} was written")
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
    except _UNREADABLE as error:
        raise Corrupt(f"{_describe(name, place)} is not a record batch: {error}") from error


def check_object(name: str, data: Bytes, crc: int, blocks: Sequence[BlockPlace]) -> None:
    """Check all that can be checked of a whole object: too slow for a read, made for a doctor.

    `crc` is the checksum of all its bytes, and `blocks` are the places in it that are referred to. Raises
    Unavailable if a newer braidlog wrote the object, and Corrupt for every other deviation.
    """
    actual = crc32c(data)
    if actual != crc:
        raise Corrupt(f"object {name} ({len(data)} bytes) has CRC-32C {actual:08x}, but {crc:08x} was written")
    try:
        file = pa.ipc.open_file(pa.py_buffer(data))
    except _UNREADABLE as error:
        raise Corrupt(f"object {name} is not an Arrow file: {error}") from error
    _check_schema(name, file.schema)
    for index in range(file.num_record_batches):
        try:
            file.get_batch(index).validate(full=True)
        except _UNREADABLE as error:
            raise Corrupt(f"object {name}: record batch {index} is not valid: {error}") from error
    view = memoryview(data)
    for place in blocks:
        block = read_block(name, place, view[place.offset : place.offset + place.length])
        try:
            block.validate(full=True)
        except _UNREADABLE as error:
            raise Corrupt(f"{_describe(name, place)} is not valid: {error}") from error


def _check_schema(name: str, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(FORMAT_KEY)
    if version is None:
        raise Corrupt(f"object {name} is an Arrow file that braidlog did not write: it names no format")
    if version != FORMAT:
        raise Unavailable(
            f"object {name} has format {version.decode(errors='replace')}, and this braidlog knows only "
            f"{FORMAT.decode()}: a newer braidlog wrote it, use that one"
        )
    if not schema.equals(SCHEMA, check_metadata=True):
        raise Corrupt(f"object {name} has other columns than format {FORMAT.decode()}: {schema.to_string()}")


def _describe(name: str, place: BlockPlace) -> str:
    return f"object {name}: the block at offset {place.offset} of {place.length} bytes"
