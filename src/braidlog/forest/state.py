"""A forest as bytes, and back. Equal forests freeze to equal bytes, so replicas can be compared by a checksum.

Only what cannot be derived is written: tails, holders, tours, orders of children and the heap of deadlines follow from
the rest. Views, ways and segments are shared, so they are numbered in the order in which a walk over the logs by id
first meets them.

Version 1 knew neither consumers nor windows nor admitted uploaders: what it wrote thaws with none of them. New fields
stand last in their structs, with what they meant before there were any as their default. Before version 3 a settled
append was written as a `_Known` that repeated its request.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Iterator
from functools import partial

import msgspec

from braidlog import limits
from braidlog.errors import Corrupt
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.index import Index, Segment
from braidlog.forest.log import FAR, Log, Outcome, View, Way, Writer
from braidlog.forest.machine import End, Forest
from braidlog.forest.space import Object, Place
from braidlog.forest.tails import Tour
from braidlog.forest.tokens import Token
from braidlog.forest.uploads import Living
from braidlog.forest.windows import Window, Windows

VERSION = 3
_COLUMNS = ("start", "total", "sizes", "block", "row", "least", "greatest")


class _Segment(msgspec.Struct, array_like=True):
    base_total: int
    base_size: int
    settled: int
    columns: list[bytes]  # little-endian 64-bit integers
    cuts: list[int] = []


class _View(msgspec.Struct, array_like=True):
    lows: list[int]
    segments: list[int]
    way: int


class _Way(msgspec.Struct, array_like=True):
    log: int  # NONE: frozen, or its log is no more
    view: int


class _Log(msgspec.Struct, array_like=True):
    id: int
    name: str
    kind: str
    parent: int
    view: int
    created: int
    base: int
    fork_point: int
    own: int
    own_size: int
    start: int
    epoch: int
    depth: int
    promotable: bool
    origin: int
    origin_id: int
    origin_name: str
    ttl_us: int
    expires: int
    lease_us: int
    lease_expires: int
    retain_age_us: int
    retain_bytes: int
    owner: str
    labels: dict[str, str]
    discipline: str
    loose_ways: list[int]
    writers: list[tuple[str, int, int]]  # name, sequence, outcome
    withheld: list[int]
    dedicated: bool = False
    consumers: int = NONE  # several logs may share them
    consumers_ceiling: int = FAR


class _Known(msgspec.Struct, array_like=True, gc=False):
    request: bytes
    outcome: int  # or NONE: then there is an answer
    answer: c.Result | None


_Settled = tuple[int, c.Result | None]  # outcome or NONE, else the answer


class _Window(msgspec.Struct, array_like=True):
    client: bytes
    floor: int
    dropped: int
    whole_since: int
    outcomes: list[tuple[int, _Settled]]  # by number, ascending


class _State(msgspec.Struct, array_like=True):
    version: int
    next_id: int
    next_block: int
    epoch: int
    logs: list[_Log]
    views: list[_View]
    ways: list[_Way]
    segments: list[_Segment]
    unsettled: list[tuple[int, int]]  # segment, log (NONE: its log is no more)
    inline: list[tuple[int, int, int]]
    places: list[tuple[int, str, int, int, int, int, int]]
    objects: list[tuple[str, int, int, int, int]]
    ends: list[tuple[int, str, str, int, int]]
    outcomes: msgspec.Raw  # list[Outcome]
    pending: list[int]
    decided: list[int]
    settled: msgspec.Raw  # list[int | _Known]: an append by the number of its outcome, which names its request too
    applied: int = 0
    newest_epoch: int = 0
    admitted: dict[int, int] = {}
    consumers: list[list[tuple[str, int, int]]] = []  # name, position, updated
    windows: list[_Window] = []  # the latest to be heard last
    windows_forgotten_at: int = NONE
    outcomes_forgotten_upto: int = NONE
    tokens: list[tuple[str, bytes, list[str], int, int]] = []  # name, digest, scopes, created, expires
    tokens_ever: int = 0
    outcomes_lost_at: int = NONE
    uploads: list[tuple[int, int, int]] = []  # epoch, log, expires
    upload_roots: list[int] = []  # of each of them


class _Version(msgspec.Struct, array_like=True):
    version: int


_STATES = msgspec.msgpack.Decoder(_State)
_OUTCOMES = msgspec.msgpack.Decoder(list[Outcome])
_SETTLED = msgspec.msgpack.Decoder(list[int | _Known])


def freeze(forest: Forest) -> bytes:
    """All of the forest as bytes."""
    return msgspec.msgpack.encode(_Freezer(forest).state())


class _Freezer:
    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.views: dict[View, int] = {}
        self.ways: dict[Way, int] = {}
        self.segments: dict[int, tuple[int, Segment]] = {}
        self.outcomes: dict[Outcome, int] = {}
        self.consumers: dict[int, tuple[int, dict[str, tuple[int, int]]]] = {}
        self.todo: list[View] = []

    def state(self) -> _State:
        forest, space = self.forest, self.forest.space
        ordered = [forest.logs[log_id] for log_id in sorted(forest.logs)]
        logs = [self._log(log) for log in ordered]
        views: list[_View] = []
        for view in self.todo:  # grows while it is walked
            index = view.index
            views.append(
                _View(
                    index.lows,
                    [self._segment(segment) for segment in index.segments],
                    self._way(view.up) if view.up is not None else NONE,
                )
            )
        # Ways may lead to views that no log holds, which in turn have ways: both lists grow until all is reached.
        unsettled = [
            (self.segments[key][0], log.id if log.id in forest.logs else NONE)
            for key, (_, log) in space.unsettled.items()
            if key in self.segments
        ]
        settled = [
            self._outcome(known)
            if isinstance(known, Outcome) and known.request == request
            else _Known(request, *self._settled(known))
            for request, known in forest.outcomes.items()
        ]
        pending = [self._outcome(outcome) for outcome in forest.pending.values()]
        decided = [self._outcome(outcome) for outcome in forest.decided.values()]
        windows = [self._window(client, window) for client, window in forest.windows.by_client.items()]
        return _State(
            VERSION,
            forest.next_id,
            space.next_block,
            space.epoch,
            logs,
            views,
            [self._frozen_way(way) for way in self.ways],
            [_pack_segment(segment) for _, segment in self.segments.values()],
            sorted(unsettled),
            [(block, log, rows) for block, (log, rows) in space.inline.items()],
            [(block, *place) for block, place in space.places.items()],
            [(name, o.size, o.crc, o.registered, o.condemned) for name, o in space.objects.items()],
            [(log_id, *end) for log_id, end in forest.ends.items()],
            msgspec.Raw(msgspec.msgpack.encode(list(self.outcomes))),
            pending,
            decided,
            msgspec.Raw(msgspec.msgpack.encode(settled)),
            forest.applied,
            space.newest_epoch,
            space.admitted,
            [[(name, *known) for name, known in shared.items()] for _, shared in self.consumers.values()],
            windows,
            forest.windows.windows_forgotten_at,
            forest.windows.outcomes_forgotten_upto,
            [(t.name, t.digest, list(t.scopes), t.created, t.expires) for t in forest.tokens.by_name.values()],
            forest.tokens.ever,
            forest.windows.lost_at,
            [(epoch, living.log, living.expires) for epoch, living in space.uploads.by_epoch.items()],
            [living.root for living in space.uploads.by_epoch.values()],
        )

    def _log(self, log: Log) -> _Log:
        return _Log(
            log.id,
            log.name,
            log.kind,
            log.parent.id if log.parent is not None else NONE,
            self._view(log.view),
            log.created,
            log.base,
            log.fork_point,
            log.own,
            log.own_size,
            log.start,
            log.epoch,
            log.depth,
            log.promotable,
            log.origin.id if log.origin is not None else NONE,
            log.origin_id,
            log.origin_name,
            log.ttl_us,
            log.expires,
            log.lease_us,
            log.lease_expires,
            log.retain_age_us,
            log.retain_bytes,
            log.owner,
            log.labels,
            log.discipline,
            [self._way(way) for way in log.loose_ways],
            [(name, writer.sequence, self._outcome(writer.outcome)) for name, writer in log.writers.items()],
            [self._outcome(outcome) for outcome in log.withheld],
            log.dedicated,
            self._shared_consumers(log.consumers),
            log.consumers_ceiling,
        )

    def _view(self, view: View) -> int:
        if view not in self.views:
            self.views[view] = len(self.views)
            self.todo.append(view)
        return self.views[view]

    def _way(self, way: Way) -> int:
        if way not in self.ways:
            self.ways[way] = len(self.ways)
            if not self._leads_to_living(way):
                self._view(way.target())
        return self.ways[way]

    def _leads_to_living(self, way: Way) -> bool:
        return way.view is None and way.log is not None and way.log.id in self.forest.logs

    def _frozen_way(self, way: Way) -> _Way:
        if self._leads_to_living(way):
            assert way.log is not None
            return _Way(way.log.id, NONE)
        return _Way(NONE, self.views[way.target()])

    def _segment(self, segment: Segment) -> int:
        number, _ = self.segments.setdefault(id(segment), (len(self.segments), segment))
        return number

    def _outcome(self, outcome: Outcome) -> int:
        return self.outcomes.setdefault(outcome, len(self.outcomes))

    def _settled(self, known: Outcome | c.Result) -> _Settled:
        if isinstance(known, Outcome):
            return self._outcome(known), None
        return NONE, known

    def _shared_consumers(self, consumers: dict[str, tuple[int, int]]) -> int:
        if not consumers:
            return NONE
        return self.consumers.setdefault(id(consumers), (len(self.consumers), consumers))[0]

    def _window(self, client: bytes, window: Window) -> _Window:
        outcomes = [(number, self._settled(window.outcomes[number])) for number in sorted(window.outcomes)]
        return _Window(client, window.floor, window.dropped, window.whole_since, outcomes)


def _pack_segment(segment: Segment) -> _Segment:
    columns = []
    for name in _COLUMNS:
        column: array[int] = getattr(segment, name)
        if sys.byteorder == "big":
            column = array("q", column)
            column.byteswap()
        columns.append(column.tobytes())
    return _Segment(segment.base_total, segment.base_size, segment.settled, columns, segment.cuts)


def _unpack_segment(packed: _Segment) -> Segment:
    segment = Segment(packed.base_total, packed.base_size)
    segment.settled = packed.settled
    segment.cuts = packed.cuts
    for name, data in zip(_COLUMNS, packed.columns, strict=True):
        column = array("q")
        column.frombytes(data)
        if sys.byteorder == "big":
            column.byteswap()
        setattr(segment, name, column)
    return segment


def thaw(data: bytes | memoryview) -> Forest:
    """The forest that was frozen."""
    try:
        return _Thawer(_decode(data)).forest()
    except (msgspec.DecodeError, IndexError, KeyError, ValueError) as error:
        raise Corrupt(f"the snapshot does not describe a forest: {error}") from error


def _decode(data: bytes | memoryview) -> _State:
    try:
        state = _STATES.decode(data)
        version = state.version
    except msgspec.DecodeError:
        version = msgspec.msgpack.decode(data, type=_Version).version
        if 1 <= version <= VERSION:
            raise
    if not 1 <= version <= VERSION:
        raise Corrupt(f"the snapshot has format {version} and this braidlog reads {VERSION}: use the newer braidlog")
    return state


def _settled(stored: msgspec.Raw, outcomes: list[Outcome] | msgspec.Raw) -> Iterator[tuple[bytes, Outcome | c.Result]]:
    """The settled requests and what became of them, in the order in which they settled."""
    try:
        if isinstance(outcomes, msgspec.Raw):
            outcomes = _OUTCOMES.decode(outcomes)
        for known in _SETTLED.decode(stored):
            if isinstance(known, int):
                yield outcomes[known].request, outcomes[known]
            else:
                yield known.request, outcomes[known.outcome] if known.answer is None else known.answer
    except (msgspec.DecodeError, IndexError) as error:
        raise Corrupt(f"the snapshot's requests cannot be read: {error}") from error


class _Thawer:
    def __init__(self, state: _State) -> None:
        self.state = state

    def forest(self) -> Forest:
        state = self.state
        forest = Forest()
        forest.next_id, forest.applied = state.next_id, state.applied
        space = forest.space
        space.next_block, space.epoch = state.next_block, state.epoch
        space.newest_epoch, space.admitted = max(state.epoch, state.newest_epoch), state.admitted
        roots = state.upload_roots or [log for _, log, _ in state.uploads]
        for (epoch, upload_log, expires), root in zip(state.uploads, roots, strict=True):
            space.uploads.begin(epoch, Living(upload_log, expires, root))
        space.inline = {block: (log, rows) for block, log, rows in state.inline}
        space.places = {row[0]: Place(*row[1:]) for row in state.places}
        space.objects = {name: Object(*rest) for name, *rest in state.objects}
        forest.ends.update((row[0], End(*row[1:])) for row in state.ends)

        ways = [Way(None) for _ in state.ways]
        segments = [_unpack_segment(packed) for packed in state.segments]
        views: list[View] = []
        for packed in state.views:
            index = Index()
            index.lows, index.segments = packed.lows, [segments[number] for number in packed.segments]
            views.append(View(index, ways[packed.way] if packed.way != NONE else None))
        outcomes = self._needed_outcomes()
        forest.pending = {outcomes[number].request: outcomes[number] for number in state.pending}
        forest.decided.update((outcomes[number].request, outcomes[number]) for number in state.decided)
        forest.remember_when_asked(partial(_settled, state.settled, outcomes or state.outcomes))
        self._windows(forest.windows, outcomes)
        forest.tokens.ever = state.tokens_ever
        for name, digest, scopes, created, expires in state.tokens:
            forest.tokens.add(Token(name, digest, tuple(scopes), created, expires))

        self._logs(forest, views, ways, outcomes)
        for way, stored in zip(ways, state.ways, strict=True):
            if stored.log != NONE:
                way.log = forest.logs[stored.log]
            else:
                way.view = views[stored.view]
        # A segment of a log that is no more has nothing left that could be inserted: any unheld log will do as owner.
        stranger = Log(0, "", "root", None, View(Index(), None), 0)
        for number, log_id in state.unsettled:
            space.watch(segments[number], forest.logs.get(log_id, stranger))
        return forest

    def _needed_outcomes(self) -> list[Outcome]:
        """All of them if anybody but the settled requests refers to one: these have time until they are asked for."""
        state = self.state
        referred = state.pending or state.decided or state.windows
        if referred or any(log.writers or log.withheld for log in state.logs):
            return _OUTCOMES.decode(state.outcomes)
        return []

    def _windows(self, windows: Windows, outcomes: list[Outcome]) -> None:
        windows.windows_forgotten_at = self.state.windows_forgotten_at
        windows.outcomes_forgotten_upto = self.state.outcomes_forgotten_upto
        windows.lost_at = self.state.outcomes_lost_at
        for stored in self.state.windows:
            window = windows.by_client[stored.client] = Window(stored.whole_since)
            window.floor, window.dropped = stored.floor, stored.dropped
            for number, (outcome, answer) in stored.outcomes:
                window.outcomes[number] = answer if answer is not None else outcomes[outcome]
            window.order = list(window.outcomes)  # ascending, and so a heap

    def _logs(self, forest: Forest, views: list[View], ways: list[Way], outcomes: list[Outcome]) -> None:
        stored = {log.id: log for log in self.state.logs}
        consumers = [{name: (position, at) for name, position, at in shared} for shared in self.state.consumers]
        # Parents come before children: ids ascend, except that promotion hands children to an older log, which is fine.
        for row in self.state.logs:
            parent = forest.logs[row.parent] if row.parent != NONE else None
            log = Log(row.id, row.name, row.kind, parent, views[row.view], row.created)
            for field in _PLAIN:
                setattr(log, field, getattr(row, field))
            log.loose_ways = [ways[number] for number in row.loose_ways]
            log.writers = {name: Writer(sequence, outcomes[number]) for name, sequence, number in row.writers}
            log.withheld = [outcomes[number] for number in row.withheld]
            if row.consumers != NONE:
                log.consumers, log.consumers_shared = consumers[row.consumers], True
            forest.logs[log.id] = log
            forest.names[log.name] = log
            deadline = log.deadline()
            if deadline != NONE:
                heapq.heappush(forest.deadlines, (deadline, log.id))
        for log in sorted(forest.logs.values(), key=lambda log: (log.fork_point, log.id)):
            if log.parent is not None:
                log.parent.children[log.id] = log
                if log.promotable:
                    log.parent.promotables[log.id] = log
                    log.tree.holders[log.parent.id] = log.parent
            origin = stored[log.id].origin
            if origin != NONE:
                log.origin = forest.logs[origin]
                log.origin.severed[log.id] = log
        for log in forest.logs.values():
            if log.tree.tour is None and log.depth > limits.TOUR_DEPTH_MIN:
                log.tree.tour = Tour(log.tree.root)


_PLAIN = (
    "base",
    "fork_point",
    "own",
    "own_size",
    "start",
    "epoch",
    "depth",
    "promotable",
    "origin_id",
    "origin_name",
    "ttl_us",
    "expires",
    "lease_us",
    "lease_expires",
    "retain_age_us",
    "retain_bytes",
    "owner",
    "labels",
    "discipline",
    "dedicated",
    "consumers_ceiling",
)
