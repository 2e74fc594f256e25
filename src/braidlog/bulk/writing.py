"""Arrow data written to the object store by whoever has it, for one log: see `Log.upload` and `Log.publish`.

Works in any process that can reach the store; no server is asked for anything. Records are gathered into blocks, blocks
into objects. Memory is bounded: a block is written as soon as it is full, and only for a store that takes objects as a
whole an object's worth is kept. Nothing is seen of what is written before somebody publishes it, and what nobody
publishes is deleted.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog import limits
from braidlog.bulk.columns import ROW_BYTES, Measured, check_schema, convert, measure
from braidlog.client import arguments
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.facts import Upload, UploadedBlock, UploadedObject
from braidlog.objects.format import GrowingObject
from braidlog.objects.locations import is_location, store_at
from braidlog.objects.store import Making, Store, object_name

_CUT_OFF: Final = "cut off by a failure, and what it had stored was deleted"


class ObjectWriter:
    """Writes records to objects of an upload. For one thread at a time; any number of writers may share an upload.

    As a context manager it closes itself, or aborts if there was an exception; else `close` or `abort` it, as it has a
    file open. `close` says what to publish. Once storing failed it has deleted all it stored, and is done.
    """

    def __init__(
        self,
        upload: Upload,
        *,
        timestamp: datetime | int | None = None,
        block_bytes: int = limits.UPLOAD_BLOCK_BYTES,
        object_bytes: int = limits.UPLOAD_OBJECT_BYTES,
    ) -> None:
        """`timestamp` is that of records that come without one: a datetime, or microseconds since 1970 UTC; None is
        when they are added. Blocks and objects become about as large as is said, and a record is never cut."""
        if not isinstance(upload, Upload):
            raise InvalidArgument(f"upload must be what Log.upload answered, not {type(upload).__name__}")
        if not 0 < block_bytes <= limits.UPLOAD_BLOCK_BYTES_MAX:
            raise InvalidArgument(
                f"block_bytes must be between 1 and {limits.UPLOAD_BLOCK_BYTES_MAX:,}, not {block_bytes}"
            )
        if not 0 < object_bytes <= limits.UPLOAD_OBJECT_BYTES_MAX:
            raise InvalidArgument(
                f"object_bytes must be between 1 and {limits.UPLOAD_OBJECT_BYTES_MAX:,}, not {object_bytes}"
            )
        self.upload = upload
        self._timestamp = None if timestamp is None else arguments.moment(timestamp)
        self._block_bytes = block_bytes
        self._object_bytes = object_bytes
        self._store = _reachable(upload.objects)
        self._rows = 0  # ever added
        self._pieces: list[pa.RecordBatch] = []  # of the block in the making
        self._pieces_size = 0
        self._pieces_weight = 0
        self._growing: _Growing | None = None
        self._stored: list[UploadedObject] = []
        self._over = ""

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take records: a column `value`, and as they like `key`, `headers` and `timestamp`.

        Values and keys are binary or string; a key may be null, a value may not. Headers are lists of structs of
        `name` (or `key`) and `value`. A timestamp is an Arrow timestamp or int64 microseconds. If something is wrong
        with the data, nothing of it is taken.
        """
        if self._over:
            raise InvalidArgument(f"this writer was {self._over}: make another one")
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise InvalidArgument(f"add a pyarrow RecordBatch or Table, not {type(batch).__name__}")
        check_schema(batch.schema)
        now_us = time.time_ns() // 1000 if self._timestamp is None else self._timestamp
        chunks = [chunk for chunk in (batch.to_batches() if isinstance(batch, pa.Table) else [batch]) if len(chunk)]
        measured: list[Measured] = []
        row = self._rows
        for chunk in chunks:  # all of it is looked at before any of it is taken
            measured.append(measure(chunk, row))
            row += chunk.num_rows
        with self._storing():
            for chunk, measures in zip(chunks, measured, strict=True):
                self._take(chunk, measures, now_us)

    def close(self) -> list[UploadedObject]:
        """Store what is left; what comes back is durable, and is for `Log.publish`. Once more, it is the same."""
        if self._over not in ("", "closed"):
            raise InvalidArgument(
                f"this writer was {self._over}, so there is nothing to publish: write all of it with another one"
            )
        if not self._over:
            with self._storing():
                self._finish_block()
                self._finish_object()
            self._over = "closed"
            self._store.close()
        return list(self._stored)

    def abort(self) -> None:
        """Delete what was stored, as far as the store can be reached: what stays is deleted when the upload is over.

        What `close` told of is left alone, as it may be published by now: `Log.discard` knows whether it was.
        """
        if not self._over:
            self._end("aborted")

    def _end(self, how: str) -> None:
        """Leave nothing behind."""
        self._over = how
        self._pieces = []
        if self._growing is not None:
            self._growing.object.abandon()
            self._growing = None
        for uploaded in self._stored:
            with contextlib.suppress(OSError):
                self._store.delete(uploaded.object)
        self._stored = []
        self._store.close()

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        """If it fails, half of an addition may be stored: nothing of this writer is to be published then."""
        try:
            yield
        except BaseException as error:
            self._end(_CUT_OFF)
            if not isinstance(error, OSError):
                raise
            mend = "free some space or mend the store"
            if isinstance(error, FileNotFoundError):
                mend = "its upload is over, or the folder is gone: begin another upload"
            raise Unavailable(
                f"an object could not be stored at {self.upload.objects}: {error}; {mend}, then write all of it with "
                "another writer"
            ) from error

    def _take(self, chunk: pa.RecordBatch, measured: Measured, now_us: int) -> None:
        """Cut it where blocks end, and convert the pieces.

        A block that is half full is not filled up by a piece of what is too large for it: to join two pieces takes a
        copy, and what is left of the chunk would have to be joined to the next one again.
        """
        row = 0
        while row < chunk.num_rows:
            left = measured.weight(chunk.num_rows) - measured.weight(row)
            room = self._block_bytes - self._pieces_weight
            if left > room and 2 * room <= self._block_bytes:
                self._finish_block()
                continue
            if not self._pieces and left > room:
                room = -(-left // -(-left // room))  # as even as can be
            most = row + limits.BATCH_RECORDS_MAX - sum(map(len, self._pieces))
            end = measured.rows_within(row, min(most, chunk.num_rows), room)
            if end == row and not self._pieces:
                end = row + 1  # larger than a block: it has one of its own
            if end > row:
                self._pieces.append(convert(chunk.slice(row, end - row), now_us))
                self._pieces_size += measured.size(end) - measured.size(row)
                self._pieces_weight += measured.weight(end) - measured.weight(row)
                self._rows += end - row
                row = end
            if row < chunk.num_rows or self._pieces_weight + ROW_BYTES > self._block_bytes:
                self._finish_block()

    def _finish_block(self) -> None:
        if not self._pieces:
            return
        block = self._pieces[0] if len(self._pieces) == 1 else pa.concat_batches(self._pieces)
        if self._growing is None:
            self._growing = self._begin()
        self._growing.add(block, self._pieces_size, self._pieces_weight)
        self._pieces, self._pieces_size, self._pieces_weight = [], 0, 0
        if self._growing.weight >= self._object_bytes:
            self._finish_object()

    def _finish_object(self) -> None:
        growing = self._growing
        if growing is not None:
            self._stored.append(growing.finish())
            self._growing = None

    def _begin(self) -> _Growing:
        """Under a name that nobody else has: who writes with the same upload is not known here."""
        for _ in range(limits.UPLOAD_NAME_ATTEMPTS):
            name = object_name(self.upload.epoch, secrets.randbits(32))
            with contextlib.suppress(FileExistsError):
                return _Growing(name, self._store.begin(name))
        raise Unavailable(f"no name is free at {self.upload.objects} for another object of upload {self.upload.epoch}")


class _Growing:
    """An object that is being written, and what is told of it in the end."""

    def __init__(self, name: str, making: Making) -> None:
        self.object = GrowingObject(making)
        self.weight = 0
        self._name = name
        self._facts: list[tuple[int, int, int, int]] = []  # of each block: records, bytes, first and last timestamp

    def add(self, block: pa.RecordBatch, size: int, weight: int) -> None:
        self.weight += weight
        times = pc.min_max(block.column("timestamp"))
        self._facts.append((block.num_rows, size, times["min"].value, times["max"].value))
        self.object.add(block)

    def finish(self) -> UploadedObject:
        self.object.finish()
        blocks = [
            UploadedBlock(place.offset, place.length, place.crc, *facts)
            for place, facts in zip(self.object.blocks, self._facts, strict=True)
        ]
        return UploadedObject(self._name, self.object.size, self.object.crc, blocks)


def _reachable(objects: str) -> Store:
    """The store, if it can be seen from here. A folder is not made: it would be another one, on another machine."""
    if not is_location(objects) and not Path(objects).parent.is_dir():
        raise Unavailable(
            f"the log keeps its objects in {objects}, which is not there on this machine: write where that folder is "
            "mounted, or keep objects in a store that all machines reach"
        )
    return store_at(objects, shared=True)
