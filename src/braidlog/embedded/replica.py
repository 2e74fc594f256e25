"""A forest with its bytes: everything that reading needs, the same for the writer and for read-only processes.

A replica is fed batches of commands that are durable already (`absorb`) and so can show all it has. It keeps the bytes
of batches that ride inline, fetches the others from the store, and checks every block it fetches.

Thread-safe: `lock` guards the forest; bytes are fetched outside it. An object that compaction removed meanwhile is no
error: the range is planned anew. Waiters are told of every change through `wait_for_change`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from braidlog import limits
from braidlog.embedded.pieces import Piece, parts_of
from braidlog.errors import BraidError, Corrupt, InvalidArgument, NotFound, OutOfRange, Trimmed, Unavailable
from braidlog.facts import Ancestor, Consumer, Diff, DiffEntry, Info, Outcome, Plan, Retention
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.forks import blocked_by
from braidlog.forest.log import Log
from braidlog.forest.log import Outcome as Kept
from braidlog.forest.machine import End, Forest, repeat
from braidlog.forest.reading import Extent, locate, resolve, size_of
from braidlog.forest.tails import reach
from braidlog.objects.batch import Batch, decode, records, records_of, to_arrow, with_positions
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.cache import BlockCache
from braidlog.objects.format import BlockPlace, read_block
from braidlog.objects.store import Store
from braidlog.record import Record

T = TypeVar("T")

COMMANDS = msgspec.msgpack.Decoder(list[c.Command])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW_ROWS = 4096  # how far a read that is bounded by bytes looks ahead
_FAR = 1 << 62
_SCAN_ROWS = 1_000_000  # how far a search by time plans at once


class Replica:
    """Forest and bytes together."""

    instant: Final = True  # looking takes no time

    def __init__(self, forest: Forest, payloads: dict[int, c.Payload], store: Store, folder: str | None) -> None:
        self.lock = threading.Lock()
        self.forest = forest
        self.payloads = payloads
        self.inline_bytes = sum(map(len, payloads.values()))
        self.store = store
        self.folder = folder
        self.cache: BlockCache[pa.RecordBatch | Batch] = BlockCache(limits.CACHE_BYTES)
        self.littered = True  # something may have become unreachable since the last collection
        self.forsaken = False  # an upload ended, and may have left objects that nobody registered
        self.version = 0
        distant = isinstance(store, BlobStore)
        self._readers = ThreadPoolExecutor(
            limits.STORE_READERS if distant else limits.READERS, thread_name_prefix="braidlog-reader"
        )
        self.aside = self._readers if distant else None  # who fetches side by side what takes long to come
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []
        self._closed = False

    # --- taking in -----------------------------------------------------------------------------------------------

    def absorb(self, batch: Sequence[c.Command]) -> list[c.Result | BraidError]:
        """Apply commands that are durable, and keep or drop bytes as they say."""
        with self.lock:
            answers = [self._absorb_one(command) for command in batch]
        self._announce()
        return answers

    def _absorb_one(self, command: c.Command) -> c.Result | BraidError:
        answer = self.forest.apply(command)
        if isinstance(command, c.Again):
            command = command.command
        if isinstance(command, c.Append):
            if isinstance(answer, c.Appended) and answer.block != NONE and command.payload:
                self.payloads[answer.block] = command.payload
                self.inline_bytes += len(command.payload)
            elif command.object and not (isinstance(answer, c.Appended) and answer.block != NONE):
                self.littered = True  # refused or a repetition: its object was stored for nothing
        elif isinstance(command, c.Publish | c.Discard):
            self.forsaken = True
        elif isinstance(answer, c.Collected):
            for block in answer.blocks:
                self.inline_bytes -= len(self.payloads.pop(block, b""))
        elif isinstance(command, c.Squash | c.Drop | c.Expire | c.Trim | c.Retain | c.Promote | c.Relocate):
            self.littered = True
        return answer

    def objects_of(self, _: int) -> str | None:
        return self.folder

    def _announce(self) -> None:
        with self._changed:
            self.version += 1
            self._changed.notify_all()
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def wait_for_change(self, seen: int, timeout: float | None, log_id: int | None = None) -> int:
        """Return the version once it differs from `seen`, or when the timeout passed. All logs share one version."""
        del log_id
        with self._changed:
            self._changed.wait_for(lambda: self.version != seen or self._closed, timeout)
            return self.version

    def watch(self, watcher: Callable[[], None], log_id: int | None = None, seen: int = 0) -> Callable[[], None]:
        """Call `watcher` (quickly, from any thread) after each change; returns how to stop that."""
        del log_id, seen
        with self._changed:
            self._watchers.append(watcher)

        def stop() -> None:
            with self._changed:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return stop

    @property
    def closed(self) -> bool:
        return self._closed

    def _close_reading(self) -> None:
        self._closed = True
        self._announce()
        self._readers.shutdown()
        self.store.close()

    # --- what there is -------------------------------------------------------------------------------------------

    def _check_readable(self) -> None:
        """Raise if this replica can no longer be trusted to show what there is."""
        if self._closed:
            raise closed()

    def find(self, name: str) -> int:
        self._check_readable()
        with self.lock:
            return self.forest.by_name(name).id

    def listing(self) -> list[tuple[int, str]]:
        """Number and name of every living log, oldest first."""
        self._check_readable()
        with self.lock:
            return [(log.id, log.name) for log in self.forest.logs.values()]

    def name_of(self, log_id: int) -> str:
        with self.lock:
            log = self.forest.logs.get(log_id)
            end = self.forest.ends.get(log_id)
            return log.name if log is not None else end.name if end is not None else f"#{log_id}"

    def end_of(self, log_id: int) -> tuple[End, str] | None:
        """How a log ended and the log it goes on as, if any; None while it lives."""
        with self.lock:
            if log_id in self.forest.logs:
                return None
            end = self.forest.ends.get(log_id)
            if end is None:
                return End("squashed", f"#{log_id}", NONE, 0), ""
            return end, self.forest.ends_into(end)

    def tail(self, log_id: int) -> int:
        self._check_readable()
        with self.lock:
            return reach(self.forest.live(log_id)).readable

    def describe(self, log_id: int) -> Info:
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            at = reach(log)
            everything = size_of(log.view, log.start, at.tail)
            own_before = log.view.index.own_before(log.start)[1]
            return Info(
                name=log.name,
                id=log.id,
                kind=log.kind,
                parent=self._parent_name(log),
                fork_point=log.fork_point if log.kind != "root" else None,
                promotable=log.promotable,
                dedicated=log.dedicated,
                discipline=log.discipline,
                start=log.start,
                tail=at.tail,
                readable_tail=at.readable,
                limited_by=at.holder.name if at.holder is not None else None,
                own=log.own,
                own_bytes=log.own_size,
                shared_bytes=everything - (log.own_size - own_before),
                epoch=log.epoch,
                created=_moment(log.created),
                expires=_moment(log.expires) if log.expires != NONE else None,
                lease_expires=_moment(log.lease_expires) if log.lease_expires != NONE else None,
                owner=log.owner,
                labels=dict(log.labels),
                retention=_retention(log),
            )

    def _parent_name(self, log: Log) -> str | None:
        if log.parent is not None:
            return log.parent.name
        if log.kind == "root":
            return None
        living = self.forest.logs.get(log.origin_id)
        return living.name if living is not None else log.origin_name

    def lineage(self, log_id: int) -> list[Ancestor]:
        self._check_readable()
        with self.lock:
            log: Log | None = self.forest.live(log_id)
            steps: list[Ancestor] = []
            below: int | None = None
            while log is not None:
                steps.append(Ancestor(name=log.name, id=log.id, kind=log.kind, fork_point=below, living=True))
                below = log.fork_point if log.kind != "root" else None
                if log.parent is not None or log.kind == "root":
                    log = log.parent
                    continue
                source = self.forest.logs.get(log.origin_id)
                if source is None:
                    steps.append(
                        Ancestor(name=log.origin_name, id=log.origin_id, kind=None, fork_point=below, living=False)
                    )
                log = source
            return steps

    def consumers(self, log_id: int) -> list[Consumer]:
        """How far each consumer of a log got, by name."""
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            readable = reach(log).readable
            found = []
            for name, (position, updated) in sorted(log.consumers.items()):
                at = min(position, log.consumers_ceiling)
                lag = readable - max(at, log.start)
                found.append(Consumer(name=name, position=at, lag=lag, updated=_moment(updated)))
            return found

    def outcome(self, request: bytes, request_id: str, kept: Kept | None = None) -> Outcome:
        """What is known of a request; `kept` is what its ticket kept of it, so that it needs not be remembered here."""
        self._check_readable()
        with self.lock:
            known = repeat(kept) if kept is not None else self.forest.recall(request)
            if known is None:
                raise NotFound(
                    f"request {request_id!r} is not known: it never took effect, or it is older than the last "
                    f"{limits.OUTCOMES_KEPT_MAX:,} requests, which are remembered"
                )
            if isinstance(known, c.Appended):
                return self._outcome_of_append(known, request_id)
            if isinstance(known, c.Promotion):
                return Outcome(request_id=request_id, what="promote", promoted=known.promoted)
            if isinstance(known, c.Opening):
                log = self.forest.logs.get(known.log)
                return Outcome(request_id=request_id, what="create", log=log.name if log is not None else None)
            return Outcome(request_id=request_id, what="end" if isinstance(known, c.Ended) else "change")

    def _outcome_of_append(self, known: c.Appended, request_id: str) -> Outcome:
        log = self.forest.logs.get(known.log)
        name = log.name if log is not None else ""
        if log is None and (end := self.forest.ends.get(known.log)) is not None:
            name = self.forest.ends_into(end)
        positions = None
        if known.first != NONE and not known.withheld:
            positions = range(known.first, known.first + known.count)
        return Outcome(
            request_id=request_id, what="append", log=name or None, positions=positions, withheld=known.withheld
        )

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, log_id: int, start: int, stop: int | None, max_records: int | None, max_bytes: int | None
    ) -> list[Record]:
        """What is readable of [start, stop); see `clip` for the errors."""
        found: list[Record] = []
        room = max_bytes
        while True:
            asked = stop
            if max_records is not None:
                asked = min(stop, start + max_records) if stop is not None else start + max_records
            try:
                window = asked if room is None else self.affordable(log_id, start, asked, room)
                got = self._fetch(log_id, start, window, self._records_of)
            except BraidError:
                if found:  # the log ended, or was trimmed, between two windows: what was read is true
                    return found
                raise
            part = [record for chunk in got for record in chunk]
            if room is None:
                return part
            for record in part:
                room -= _weight(record)
                if room < 0 and found:
                    return found
                found.append(record)
                if room <= 0:
                    return found
            if not part or (asked is not None and start + len(part) >= asked):
                return found
            start += len(part)
            if max_records is not None:
                max_records -= len(part)

    def affordable(self, log_id: int, start: int, stop: int | None, room: int, rows: int = _WINDOW_ROWS) -> int:
        """Where to end a range so that it has not much more than `room` bytes, or else one record."""
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            end = min(start + rows, reach(log).readable)
            if stop is not None:
                end = min(end, stop)
            if start < log.start or end <= start:  # nothing to be weighed; what the fetch makes of that is its affair
                return end
            while end - start > 1 and (size := size_of(log.view, start, end)) > 2 * room:
                end = start + max((end - start) * room // size, 1)
            return end

    def read_arrow(self, log_id: int, start: int, stop: int | None) -> pa.Table:
        return with_positions(self._fetch_all(log_id, start, stop, self._columns_of))

    def diff(self, log_id: int, start: int | None, max_records: int | None) -> Diff:
        """The records of a fork from its fork point on, or from `start`, each marked as its own or its parent's."""
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            if log.kind == "root":
                raise InvalidArgument(f"log {log.name!r} is a root: only a fork differs from something")
            name, fork_point = log.name, log.fork_point
            low, high = max(log.start, min(max(fork_point, start or 0), reach(log).readable)), reach(log).readable
        stop = high if max_records is None else min(high, low + max_records)
        chunks = self._fetch(log_id, low, stop, lambda piece: [(r, piece.own) for r in self._records_of(piece)])
        entries = [DiffEntry(record, own) for chunk in chunks for record, own in chunk]
        return Diff(log=name, fork_point=fork_point, entries=entries, truncated=stop < high)

    def plan(self, log_id: int, start: int, stop: int | None) -> Plan:
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            low, high = self.clip(log, start, stop)
            pieces = self.pieces(log, low, high)
            name = log.name
        return Plan(log=name, start=low, stop=high, objects=self.folder, parts=parts_of(pieces, self._inline))

    def plan_page(self, log_id: int, start: int, stop: int | None) -> tuple[Plan, int]:
        """The plan of as much of a range as an answer may hold, and where the range ends that could be planned."""
        self._check_readable()
        with self.lock:
            log = self.forest.live(log_id)
            low, high = self.clip(log, start, stop)
            pieces = self.some_pieces(log, low, high, limits.WIRE_PLAN_RUNS_MAX)
            name = log.name
        room = limits.WIRE_PLAN_BYTES_MAX
        for number, piece in enumerate(pieces):
            if piece.payload is not None:
                room -= len(piece.payload) + piece.rows * limits.WIRE_PLAN_RECORD_BYTES
                if room < 0 and number:
                    del pieces[number:]
                    break
        end = pieces[-1].stop if pieces else high
        return Plan(log=name, start=low, stop=end, objects=self.folder, parts=parts_of(pieces, self._inline)), high

    def position_at(self, log_id: int, moment_us: int) -> int:
        """The first readable position whose timestamp is not before the moment; the tail if there is none."""
        self._check_readable()
        with self.lock:
            start = self.forest.live(log_id).start
        while True:
            with self.lock:
                log = self.forest.live(log_id)
                readable = reach(log).readable
                start = max(start, log.start)
                stop = min(readable, start + _SCAN_ROWS)
                pieces = [piece for piece in self.pieces(log, start, stop) if piece.greatest >= moment_us]
            for piece in pieces:
                times = self._fetch(log_id, piece.position, piece.position + piece.rows, self._timestamps_of)
                at = piece.position
                for chunk in times:
                    for timestamp in chunk:
                        if timestamp >= moment_us:
                            return at
                        at += 1
            if stop >= readable:
                return readable
            start = stop

    def near(self, log_id: int) -> bool:
        """All logs are right here."""
        del log_id
        return True

    def approach(self, log_id: int) -> None:
        """The same."""

    def pushed(self, log_id: int, position: int) -> None:
        """Nobody tells: whoever follows a log looks again after each change."""

    def clip(self, log: Log, start: int, stop: int | None) -> tuple[int, int]:
        """The readable part of a range. At the readable tail that is nothing; beyond it, it is an error."""
        at = reach(log)
        if start < log.start:
            raise Trimmed(f"log {log.name!r} starts at {log.start}: {start} was trimmed away", start=log.start)
        if start > at.tail:
            raise OutOfRange(f"log {log.name!r} ends at {at.tail}: there is no position {start}")
        if at.readable <= start < at.tail:
            raise blocked_by(log, at.holder, f"reads from {start} on (readable up to {at.readable})")
        return start, max(start, at.readable if stop is None else min(stop, at.readable))

    def _fetch(self, log_id: int, start: int, stop: int | None, of: Callable[[Piece], T]) -> list[T]:
        """Apply `of` to each piece of a range."""
        return self._fetch_all(log_id, start, stop, lambda pieces: [of(piece) for piece in pieces])

    def _fetch_all(self, log_id: int, start: int, stop: int | None, of: Callable[[list[Piece]], T]) -> T:
        """Apply `of` to the pieces of a range; plan again while objects vanish under it."""
        self._check_readable()
        for _ in range(limits.OBJECT_GONE_RETRIES):
            with self.lock:
                log = self.forest.live(log_id)
                low, high = self.clip(log, start, stop)
                pieces = self.pieces(log, low, high)
                name = log.name
            try:
                self._bring(pieces)
                return of(pieces)
            except FileNotFoundError as error:
                missing = error
            except Corrupt as error:
                raise Corrupt(f"log {name!r}, positions {low} to {high}: {error}") from error
            except RuntimeError:
                self._check_readable()  # closed meanwhile: its readers are gone
                raise
            except OSError as error:
                raise Unavailable(f"log {name!r}, positions {low} to {high} cannot be read now: {error}") from error
            self._object_vanished()
        raise Corrupt(f"log {name!r}, positions {low} to {high}: an object is missing from the store: {missing}")

    def _bring(self, pieces: list[Piece]) -> None:
        """Have several blocks that are far away in the cache, which takes as long as one of them."""
        if self.aside is None or len(pieces) < 2:
            return
        homes = {piece.home: piece for piece in pieces if piece.place is not None and piece.home not in self.cache}
        size = sum(piece.place.length for piece in homes.values() if piece.place is not None)
        if len(homes) > 1 and size <= limits.STORE_READ_ASIDE_BYTES_MAX:
            list(self.aside.map(partial(self._stored, keep=True), homes.values()))

    def _object_vanished(self) -> None:
        """A hook for replicas that follow a writer: catch up before planning again."""

    def pieces(self, log: Log, start: int, stop: int) -> list[Piece]:
        if stop - start == 1:
            block, row = locate(log.view, start)
            own = log.view.index.find(start)[0] >= 0
            return [self._piece(Extent(start, 1, block, row, own, 0, _FAR))]
        return [self._piece(extent) for extent in resolve(log.view, start, stop)]

    def some_pieces(self, log: Log, start: int, stop: int, most: int) -> list[Piece]:
        """The first of the pieces of a range, so many at most: work is in proportion to those, not to the range."""
        found: list[Piece] = []
        rows = _WINDOW_ROWS
        while start < stop and len(found) < most:
            end = min(start + rows, stop)
            window = self.pieces(log, start, end)
            if 4 * len(window) <= rows:
                rows = min(4 * rows, _SCAN_ROWS)
            if found and window and found[-1].goes_on_as(window[0]):
                found[-1] = found[-1]._replace(rows=found[-1].rows + window.pop(0).rows)
            found += window
            start = end
        return found[:most]

    def _piece(self, extent: Extent) -> Piece:
        block = extent.block
        place = self.forest.space.places.get(block)
        if place is not None:
            return Piece(
                extent.position, extent.rows, place.row + extent.row, block, None, place, extent.own, extent.greatest
            )
        payload = self.payloads.get(block)
        if payload is None:
            raise Corrupt(f"block {block} is neither in an object nor inline: run `braid doctor`")
        return Piece(extent.position, extent.rows, extent.row, block, payload, None, extent.own, extent.greatest)

    def _records_of(self, piece: Piece) -> list[Record]:
        if piece.payload is not None:
            found = records_of(self._inline(piece), piece.row, piece.rows, piece.position)
        else:
            found = records(self._stored(piece, keep=True), piece.row, piece.rows, piece.position)
        piece.check_rows(len(found))
        return found

    def _columns_of(self, pieces: list[Piece]) -> list[tuple[int, pa.RecordBatch]]:
        blocks = self._blocks_of(pieces)
        parts: list[tuple[int, pa.RecordBatch]] = []
        for piece in pieces:
            columns = blocks[piece.home].slice(piece.row, piece.rows)
            piece.check_rows(columns.num_rows)
            parts.append((piece.position, columns))
        return parts

    def _blocks_of(self, pieces: list[Piece]) -> dict[tuple[str, int], pa.RecordBatch]:
        """Each block that pieces stand in, fetched once. Large reads fetch and check several side by side."""
        homes = {piece.home: piece for piece in pieces}
        size = sum(piece.place.length for piece in homes.values() if piece.place is not None)
        if len(homes) > 1 and size >= limits.READ_ASIDE_BYTES:
            return dict(zip(homes, self._readers.map(self._block_of, homes.values()), strict=True))
        return {home: self._block_of(piece) for home, piece in homes.items()}

    def _block_of(self, piece: Piece) -> pa.RecordBatch:
        return to_arrow([self._inline(piece)]) if piece.payload is not None else self._stored(piece, keep=False)

    def _timestamps_of(self, piece: Piece) -> Iterable[int]:
        [(_, columns)] = self._columns_of([piece])
        timestamps: list[int] = columns.column("timestamp").cast(pa.int64()).to_pylist()
        return timestamps

    def _inline(self, piece: Piece) -> Batch:
        assert piece.payload is not None
        key = piece.home
        known = self.cache.get(key)
        if isinstance(known, Batch):
            return known
        batch = decode(piece.payload)
        self.cache.put(key, batch, 2 * len(piece.payload))
        return batch

    def _stored(self, piece: Piece, *, keep: bool) -> pa.RecordBatch:
        place = piece.place
        assert place is not None
        key = piece.home
        known = self.cache.get(key)
        if known is not None:
            return known
        data = self.store.get(place.object, place.offset, place.length)
        batch = read_block(place.object, BlockPlace(place.offset, place.length, place.crc), data)
        if keep:
            self.cache.put(key, batch, place.length)
        return batch


def closed() -> Unavailable:
    return Unavailable("this braid is closed: open it again")


def _weight(record: Record) -> int:
    size = len(record.value)
    if record.key is not None:
        size += len(record.key)
    for name, value in record.headers:
        size += len(name) + len(value)
    return size


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _retention(log: Log) -> Retention | None:
    if log.retain_age_us == NONE and log.retain_bytes == NONE:
        return None
    return Retention(
        max_age=log.retain_age_us / 1e6 if log.retain_age_us != NONE else None,
        max_bytes=log.retain_bytes if log.retain_bytes != NONE else None,
    )
