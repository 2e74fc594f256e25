"""Reading for others: where records are, and their bytes in the form in which they travel.

`locate` asks the forest and is quick; `assemble` may have to fetch from the store. Whole blocks and whole inline
batches pass through as they are; parts of them are cut without looking at single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor

import pyarrow as pa

from braidlog import limits
from braidlog.embedded.pieces import Piece as Stretch
from braidlog.embedded.replica import Replica
from braidlog.errors import Corrupt
from braidlog.forest.log import Log
from braidlog.forest.tails import reach
from braidlog.objects.batch import Batch, cut, decode, encode, to_arrow
from braidlog.objects.cache import BlockCache
from braidlog.objects.format import BlockPlace, read_block
from braidlog.wire.messages import Located, Part, Parts, Piece

Blocks = BlockCache[pa.RecordBatch | Batch]
Payloads = list[bytes | memoryview]
Get = Callable[[str, int, int], memoryview]  # bytes of an object, as of a Store


def locate(replica: Replica, log_id: int, start: int, stop: int | None, max_bytes: int) -> tuple[Located, Payloads]:
    """Where the records of a read are, and the bytes of those that are in no object yet."""
    room = min(max_bytes or limits.WIRE_READ_BYTES_MAX, limits.WIRE_READ_BYTES_MAX)
    end = replica.affordable(log_id, start, stop, room, limits.WIRE_READ_RECORDS_MAX)
    with replica.lock:
        log = replica.forest.live(log_id)
        low, high = replica.clip(log, start, end)
        stretches = replica.some_pieces(log, low, high, limits.WIRE_READ_RUNS_MAX)
        if stretches:
            high = stretches[-1].stop
        return _located(replica, log, stretches, high)


def _located(replica: Replica, log: Log, stretches: list[Stretch], end: int) -> tuple[Located, Payloads]:
    inline = replica.forest.space.inline
    pieces: list[Piece] = []
    payloads: Payloads = []
    for stretch in stretches:
        place = stretch.place
        if place is not None:
            pieces.append(
                Piece(
                    stretch.position,
                    stretch.rows,
                    stretch.row,
                    False,
                    stretch.own,
                    place.object,
                    place.offset,
                    place.length,
                    place.crc,
                )
            )
        else:
            assert stretch.payload is not None
            whole = stretch.row == 0 and inline[stretch.block][1] == stretch.rows
            pieces.append(
                Piece(
                    stretch.position,
                    stretch.rows,
                    stretch.row,
                    whole,
                    stretch.own,
                    "",
                    stretch.block,
                    len(stretch.payload),
                    0,
                )
            )
            payloads.append(stretch.payload)
    return Located(pieces, end, reach(log).readable, log.fork_point, log.name), payloads


def at_hand(located: Located, cache: Blocks) -> bool:
    """Whether assembling it takes no time: there is little to be done, and nothing is needed from the store."""
    pieces = located.pieces
    return len(pieces) <= limits.READ_HERE_RUNS_MAX and all(
        not piece.object or (piece.object, piece.offset) in cache for piece in pieces
    )


def nowhere(name: str, offset: int, length: int) -> memoryview:
    """A `Get` for what is at hand: there is no time to fetch anything."""
    del offset, length
    raise FileNotFoundError(name)


def assemble(
    located: Located,
    payloads: Sequence[bytes | memoryview],
    get: Get,
    cache: Blocks,
    *,
    arrow: bool,
    aside: Executor | None = None,
) -> tuple[Parts, Payloads]:
    """The records themselves. FileNotFoundError if an object was compacted away meanwhile: locate again.

    `aside` fetches blocks side by side, from a store that is far away.
    """
    if aside is not None:
        missing = {(p.object, p.offset): p for p in located.pieces if p.object and (p.object, p.offset) not in cache}
        if len(missing) > 1:
            list(aside.map(lambda piece: _block_of(piece, get, cache), missing.values()))
    parts: list[Part] = []
    bodies: Payloads = []
    inline = iter(payloads)
    for piece, *others in _together(located.pieces) if arrow else ([piece] for piece in located.pieces):
        body: bytes | memoryview
        rows = piece.rows
        if piece.object:
            body, is_arrow = _from_object(piece, get, cache), True
        elif arrow:
            batches = [_batch_of(one, next(inline)) for one in (piece, *others)]
            body, is_arrow = memoryview(to_arrow(batches).serialize()).cast("B"), True
            rows = sum(batch.count for batch in batches)
        else:
            body, is_arrow = _from_inline(piece, next(inline)), False
        parts.append(Part(piece.position, rows, len(body), is_arrow, piece.own))
        bodies.append(body)
    return Parts(parts, located.next, located.readable, located.fork_point, located.name), bodies


def _from_object(piece: Piece, get: Get, cache: Blocks) -> memoryview:
    block = cache.get((piece.object, piece.offset))
    if block is None:
        block, data = _block_of(piece, get, cache)
        if piece.row == 0 and piece.rows == block.num_rows:
            return data
    assert isinstance(block, pa.RecordBatch)
    if piece.row + piece.rows > block.num_rows:
        raise Corrupt(
            f"object {piece.object}: the block at offset {piece.offset} has {block.num_rows} rows, and {piece.rows} "
            f"from {piece.row} on were asked for: run `braid doctor`"
        )
    return memoryview(block.slice(piece.row, piece.rows).serialize()).cast("B")


def _block_of(piece: Piece, get: Get, cache: Blocks) -> tuple[pa.RecordBatch, memoryview]:
    data = get(piece.object, piece.offset, piece.length)
    block = read_block(piece.object, BlockPlace(piece.offset, piece.length, piece.crc), data)
    cache.put((piece.object, piece.offset), block, piece.length)
    return block, data


def _together(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Each by itself, but for neighbours that are in no object and are better one message than many small ones."""
    group: list[Piece] = []
    size = rows = 0
    for piece in pieces:
        full = size + piece.length > limits.PLAN_JOINED_BYTES_MAX or rows + piece.rows > limits.PLAN_JOINED_RECORDS_MAX
        if group and (full or piece.object or group[-1].object or piece.own != group[-1].own):
            yield group
            group, size, rows = [], 0, 0
        group.append(piece)
        size += piece.length
        rows += piece.rows
    if group:
        yield group


def _batch_of(piece: Piece, payload: bytes | memoryview) -> Batch:
    batch = decode(payload)
    return batch if piece.whole else cut(batch, piece.row, piece.rows)


def _from_inline(piece: Piece, payload: bytes | memoryview) -> bytes | memoryview:
    return payload if piece.whole else encode(_batch_of(piece, payload))
