"""What a server sent as records, in the forms that callers want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from braidlog.errors import Corrupt
from braidlog.facts import DiffEntry
from braidlog.objects.batch import SCHEMA, decode, records, with_positions
from braidlog.objects.batch import records_of as records_of_batch
from braidlog.record import Record
from braidlog.wire.messages import Part, Parts


def records_of(parts: Parts, body: memoryview) -> list[Record]:
    found: list[Record] = []
    for part, data in _divided(parts, body):
        found += _records(part, data)
    return found


def entries_of(parts: Parts, body: memoryview) -> list[DiffEntry]:
    return [DiffEntry(record, part.own) for part, data in _divided(parts, body) for record in _records(part, data)]


def table_of(chunks: Sequence[tuple[Parts, memoryview]]) -> pa.Table:
    return with_positions(
        [(part.position, _columns(data)) for parts, body in chunks for part, data in _divided(parts, body)]
    )


def _divided(parts: Parts, body: memoryview) -> Iterator[tuple[Part, memoryview]]:
    at = 0
    for part in parts.parts:
        yield part, body[at : at + part.length]
        at += part.length
    if at != len(body):
        raise Corrupt(f"an answer whose parts have {at} bytes, and its body {len(body)}")


def _records(part: Part, data: memoryview) -> list[Record]:
    if part.arrow:
        return records(_columns(data), 0, part.rows, part.position)
    return records_of_batch(decode(data), 0, part.rows, part.position)


def _columns(data: memoryview) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise Corrupt(f"the server sent a block that is none: {error}") from error
