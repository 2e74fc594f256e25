"""The bytes of an object: one Arrow IPC file, which any Arrow reader can open.

A block is one record batch. Its place is the byte range of that record batch's message inside the file, with
the CRC-32C of just those bytes, so that a reader fetches and checks one block without the rest of the object.
Nothing is compressed: a block is read without a copy.

Bytes that are not what was written surface as Corrupt, which names the object and the place in it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

from braidlog.errors import Corrupt, Unavailable
from braidlog.objects.batch import FORMAT, FORMAT_KEY, SCHEMA

Bytes = bytes | bytearray | memoryview

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
    """Gathers blocks into an object. Add them one by one, then finish once."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> int:
        """Add a record batch of SCHEMA as the next block; returns its index in the blocks of the object."""
        self._batches.append(batch)
        return len(self._batches) - 1

    def finish(self) -> Object:
        """Lay the blocks out as a file. Large blocks are not copied: the object points to where they are."""
        lengths = [pa.ipc.get_record_batch_size(batch) for batch in self._batches]
        if sum(lengths) >= _JOINED_BYTES_MAX * len(lengths):
            gathered = _Gathered()
            places = self._write(pa.PythonFile(gathered, mode="w"), lengths)
            parts = gathered.finish()
        else:
            # The memory is taken once, in full: growing it would copy it again and again.
            buffer = pa.allocate_buffer(sum(lengths) + _FRAMING_BYTES + _FRAMING_BLOCK_BYTES * len(lengths))
            sink = pa.FixedSizeBufferWriter(buffer)
            places = self._write(sink, lengths)
            parts = [memoryview(buffer).cast("B")[: sink.tell()]]
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        return Object(parts, crc, _blocks(parts, places))

    def _write(self, sink: pa.NativeFile, lengths: list[int]) -> list[tuple[int, int]]:
        """Write the file; answers the offset and the length of each block."""
        places: list[tuple[int, int]] = []
        with pa.ipc.new_file(sink, SCHEMA) as file:
            for batch, length in zip(self._batches, lengths, strict=True):
                file.write_batch(batch)
                # Counted back from the end, because the first write puts the file's own head in front of the message.
                places.append((sink.tell() - length, length))
        return places


class _Gathered(io.RawIOBase):
    """A file that keeps what is written to it in parts, the large ones uncopied."""

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._small: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        """`data` is bytes, or a buffer of Arrow that stays as it is as long as it is referred to."""
        length = len(data)
        self._size += length
        if length < _JOINED_BYTES_MAX:
            self._small.append(bytes(data))
        else:
            self._join()
            self._parts.append(memoryview(data).cast("B"))
        return length

    def finish(self) -> list[memoryview]:
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._small:
            self._parts.append(memoryview(b"".join(self._small)))
            self._small = []


def _blocks(parts: list[memoryview], places: list[tuple[int, int]]) -> list[BlockPlace]:
    """The places with the checksums of what stands there. They ascend and do not overlap."""
    blocks: list[BlockPlace] = []
    index = at = 0
    for offset, length in places:
        end = offset + length
        crc = 0
        while at < end:
            part = parts[index]
            crc = crc32c(part[max(offset - at, 0) : end - at], crc)
            if at + len(part) > end:
                break  # the next block begins in it
            at += len(part)
            index += 1
        blocks.append(BlockPlace(offset, length, crc))
    return blocks


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
