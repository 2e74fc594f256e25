"""Carrying out a plan: the records of its parts as Arrow, straight from the store, without asking anybody.

Every block is checked against the CRC-32C that its plan names, and none is looked at record by record. Batches come in
the order of the parts and in a size that those who take them are quick with: small neighbours are joined, and large
blocks are cut, neither of which changes a record. An object that is gone was compacted away, and then the positions are
planned again, if the caller says how.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument, Unavailable
from braidlog.facts import Plan, PlanPart
from braidlog.objects.batch import POSITIONED_SCHEMA
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.format import BlockPlace, read_block
from braidlog.objects.locations import is_location, open_store
from braidlog.objects.store import checked_name

COLUMNS: Final = tuple(POSITIONED_SCHEMA.names)

Replan: TypeAlias = Callable[[int, int], Iterable[Plan]]
_Home: TypeAlias = tuple[str, int]  # the object and the offset of a block
_Blocks: TypeAlias = dict[_Home, pa.RecordBatch]


def read_parts(
    objects: str | None,
    parts: Iterable[PlanPart],
    columns: Sequence[str] = COLUMNS,
    *,
    replan: Replan | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of plan parts, as record batches of `columns` in that order.

    `objects` is what the plan says of where its objects are. `replan` is asked where a range of positions is when an
    object is gone; without it that is Corrupt, as it is when asking does not help. Corrupt names what does not check,
    Unavailable a store that cannot be reached from here.
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or not columns:
        raise InvalidArgument(f"there are the columns {', '.join(COLUMNS)}, not {', '.join(unknown) or 'none'}")
    return _joined(_rows(objects, parts, replan, limits.OBJECT_GONE_RETRIES), list(columns))


class _Rows(NamedTuple):
    """Records that stand together: the first one's position, and about how many bytes they take."""

    position: int
    batch: pa.RecordBatch
    size: int


def _rows(objects: str | None, parts: Iterable[PlanPart], replan: Replan | None, retries: int) -> Iterator[_Rows]:
    shelf = _shelf(objects)
    for window, fetched in _ahead(shelf, _windows(parts, shelf.window_bytes)):
        try:
            blocks = fetched()
            found = [_slice(part, blocks) for part in window]
        except FileNotFoundError as error:
            shelf.check_reachable()
            if replan is None or retries <= 0:
                raise Corrupt(f"{_spanned(window)}: an object is missing from the store: {error}") from None
            for plan in replan(window[0].start, window[-1].stop):
                yield from _rows(plan.objects, plan.parts, replan, retries - 1)
            continue
        except Corrupt as error:
            raise Corrupt(f"{_spanned(window)}: {error}") from None
        except OSError as error:
            raise Unavailable(f"{_spanned(window)} cannot be read now: {error}") from error
        yield from found


def _spanned(window: list[PlanPart]) -> str:
    return f"positions {window[0].start} to {window[-1].stop}"


def _windows(parts: Iterable[PlanPart], window_bytes: int) -> Iterator[list[PlanPart]]:
    """Neighbouring parts, cut so that their blocks have not much more than so many bytes."""
    window: list[PlanPart] = []
    homes: set[_Home] = set()
    size = 0
    for part in parts:
        if window and (size >= window_bytes or part.start != window[-1].stop):
            yield window
            window, homes, size = [], set(), 0
        window.append(part)
        if part.object is not None and (home := (part.object, part.offset)) not in homes:
            homes.add(home)
            size += part.length
        elif part.data is not None:
            size += part.length
    if window:
        yield window


def _ahead(shelf: _Shelf, windows: Iterator[list[PlanPart]]) -> Iterator[tuple[list[PlanPart], Callable[[], _Blocks]]]:
    """Each window with how to get its blocks; the next one's are on their way by then, if they are far."""
    coming: tuple[list[PlanPart], Callable[[], _Blocks]] | None = None
    for window in windows:
        if coming is None:
            coming = window, shelf.fetch(window)
            continue
        present, coming = coming, (window, shelf.fetch(window))
        yield present
    if coming is not None:
        yield coming


def _slice(part: PlanPart, blocks: _Blocks) -> _Rows:
    if part.data is not None:
        block = read_block("of the plan itself", BlockPlace(0, part.length, part.crc), part.data)
    else:
        block = blocks[_home(part)]
    rows = part.stop - part.start
    found = block.slice(part.row, rows)
    if found.num_rows != rows:
        raise Corrupt(f"a block has {found.num_rows} of the {rows} rows from {part.row} on: run `braid doctor`")
    return _Rows(part.start, found, part.length * rows // max(block.num_rows, 1))


def _home(part: PlanPart) -> _Home:
    assert part.object is not None
    return part.object, part.offset


# --- where blocks are ----------------------------------------------------------------------------------------------


class _Shelf(Protocol):
    """Somewhere that objects are."""

    window_bytes: int

    def fetch(self, parts: list[PlanPart]) -> Callable[[], _Blocks]:
        """Begin to get the blocks of the parts; what is returned waits for them. FileNotFoundError if one is gone."""

    def check_reachable(self) -> None:
        """Unavailable if it is not an object that is gone, but the place."""


def _shelf(objects: str | None) -> _Shelf:
    if objects is None:
        return _Nowhere()
    return _distant(objects) if is_location(objects) else _folder(objects)


class _Nowhere:
    """The objects of a braid in memory: only what rides in a plan can be read."""

    window_bytes = 0

    def fetch(self, parts: list[PlanPart]) -> Callable[[], _Blocks]:
        if any(part.data is None for part in parts):
            raise Unavailable(
                f"{_spanned(parts)}: these objects are in the memory of the process that serves them, where nobody "
                "else can read them: keep them in a folder or an object store"
            )
        return dict

    def check_reachable(self) -> None:
        """There is no place."""


class _Folder:
    """Objects as files, which are mapped: that took half the time of reading small blocks, and no more for large ones.

    An object that was deleted stays readable while it is mapped. A process may outlive a whole directory, and see
    another one in its place: so blocks are known by their sums, and what does not check is mapped again first.
    """

    window_bytes = 0  # there is nothing to be won by looking ahead

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._maps: OrderedDict[str, memoryview] = OrderedDict()
        self._blocks: OrderedDict[tuple[str, BlockPlace], pa.RecordBatch] = OrderedDict()  # forks come back to the last

    def fetch(self, parts: list[PlanPart]) -> Callable[[], _Blocks]:
        return lambda: {_home(part): self._block(part) for part in parts if part.object is not None}

    def check_reachable(self) -> None:
        if not self._folder.is_dir():
            raise Unavailable(
                f"there is no folder {self._folder} here: whoever reads has to reach the objects; share the folder, or "
                "keep them in an object store"
            )

    def _block(self, part: PlanPart) -> pa.RecordBatch:
        assert part.object is not None
        name, place = part.object, BlockPlace(part.offset, part.length, part.crc)
        known = self._blocks.get((name, place))
        if known is None:
            try:
                known = self._mapped(name, place)
            except Corrupt:
                self._maps.pop(name, None)
                known = self._mapped(name, place)
            self._blocks[name, place] = known
            if len(self._blocks) > limits.BULK_KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return known

    def _mapped(self, name: str, place: BlockPlace) -> pa.RecordBatch:
        data = self._maps.get(name)
        if data is None:
            with pa.memory_map(str(self._folder / checked_name(name))) as file:
                data = self._maps[name] = memoryview(file.read_buffer())  # read_at would copy what it reads
            if len(self._maps) > limits.BULK_MAPPED_OBJECTS:
                self._maps.popitem(last=False)  # unmapped when the last batch in it is let go
        return read_block(name, place, data[place.offset : place.offset + place.length])


class _Distant:
    """Objects in a store elsewhere, where the time goes into asking: neighbours are asked for together, and several
    questions at once."""

    window_bytes = limits.BULK_WINDOW_BYTES

    def __init__(self, url: str) -> None:
        self._store: BlobStore = open_store(url)
        self._threads = ThreadPoolExecutor(limits.STORE_READERS, thread_name_prefix="braidlog-bulk")

    def fetch(self, parts: list[PlanPart]) -> Callable[[], _Blocks]:
        homes = {_home(part): part for part in parts if part.object is not None}
        spans: list[Future[_Blocks]] = [
            self._threads.submit(self._span, span)
            for _, blocks in groupby(sorted(homes), key=lambda home: home[0])
            for span in _spans([homes[home] for home in blocks])
        ]

        def wait() -> _Blocks:
            found: _Blocks = {}
            for span in spans:
                found |= span.result()
            return found

        return wait

    def check_reachable(self) -> None:
        """A store that is not there fails otherwise than an object that is not."""

    def _span(self, span: list[PlanPart]) -> _Blocks:
        first, last = span[0], span[-1]
        assert first.object is not None
        data = self._store.get(first.object, first.offset, last.offset + last.length - first.offset)
        found: _Blocks = {}
        for part in span:
            begin = part.offset - first.offset
            place = BlockPlace(part.offset, part.length, part.crc)
            found[_home(part)] = read_block(first.object, place, data[begin : begin + part.length])
        return found


def _spans(blocks: list[PlanPart]) -> Iterator[list[PlanPart]]:
    """Blocks of one object in the order of their offsets; those near each other together, up to some bytes."""
    span: list[PlanPart] = []
    for block in blocks:
        if span:
            end = span[-1].offset + span[-1].length
            near = block.offset - end <= limits.BULK_GAP_BYTES
            if not near or block.offset + block.length - span[0].offset > limits.BULK_FETCH_BYTES:
                yield span
                span = []
        span.append(block)
    if span:
        yield span


@lru_cache(maxsize=8)
def _folder(folder: str) -> _Folder:
    return _Folder(folder)


@lru_cache(maxsize=8)
def _distant(url: str) -> _Distant:
    return _Distant(url)


# --- in pieces that are good to take -------------------------------------------------------------------------------


def _joined(found: Iterator[_Rows], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Small neighbours together, large ones in pieces, with the columns that were asked for."""
    stored = [name for name in columns if name != "position"]
    schema = pa.schema([POSITIONED_SCHEMA.field(name) for name in columns])
    at = columns.index("position") if "position" in columns else None

    def finished(position: int, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        arrays = list(batch.columns)
        if at is not None:
            arrays.insert(at, pa.arange(position, position + sum(piece.num_rows for piece in batches)))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    held: list[pa.RecordBatch] = []
    first = rows = size = 0
    for run in found:
        batch = run.batch.select(stored)
        if held and (
            first + rows != run.position
            or rows + batch.num_rows > limits.BULK_BATCH_ROWS
            or size + run.size > limits.BULK_BATCH_BYTES
        ):
            yield finished(first, held)
            held, rows, size = [], 0, 0
        if batch.num_rows > limits.BULK_BATCH_ROWS or run.size > limits.BULK_BATCH_BYTES:
            pieces = max(-(-batch.num_rows // limits.BULK_BATCH_ROWS), -(-run.size // limits.BULK_BATCH_BYTES))
            step = -(-batch.num_rows // pieces)
            for row in range(0, batch.num_rows, step):
                yield finished(run.position + row, [batch.slice(row, step)])
            continue
        if not held:
            first = run.position
        held.append(batch)
        rows += batch.num_rows
        size += run.size
    if held:
        yield finished(first, held)
