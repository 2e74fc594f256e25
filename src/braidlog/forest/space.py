"""Blocks and objects: where bytes are, and which of them nobody can read any more.

A *block* is what a run points at: a batch that rides inline in the command log, or rows of a block of an object.
Indexes hold block numbers only, so moving bytes changes one entry here and every fork follows.

An object passes through: registered, then condemned once nothing reaches it, then (after a grace period, when it was
deleted from the store) forgotten. Reachability is computed over all living logs and everything they pin, never counted
along the way: there is no counter that could drift.
"""

from __future__ import annotations

from typing import NamedTuple

from braidlog.errors import ConditionFailed, InvalidArgument
from braidlog.forest.commands import NONE, Pack, Publish, Register, Relocate, Upload
from braidlog.forest.index import Segment
from braidlog.forest.log import Log, View
from braidlog.forest.uploads import Living, Uploads

_FAR = 1 << 62


class Place(NamedTuple):
    """Rows of an object's block, from `row` on. `log` is whom they were appended to: neighbours are packed together."""

    object: str
    offset: int
    length: int
    crc: int
    row: int
    log: int


class Object:
    """What is known of one object in the store."""

    __slots__ = ("condemned", "crc", "registered", "size")

    def __init__(self, size: int, crc: int, registered: int, condemned: int = NONE) -> None:
        self.size = size
        self.crc = crc
        self.registered = registered
        self.condemned = condemned


class Space:
    """The tables of blocks and objects."""

    def __init__(self) -> None:
        self.epoch = 0  # the writer's
        self.newest_epoch = 0  # ever given, to a writer or to an uploader
        self.admitted: dict[int, int] = {}  # epochs of uploaders beside the writer, and when they were admitted
        self.uploads = Uploads()
        self.next_block = 1
        self.inline: dict[int, tuple[int, int]] = {}  # block -> (log, rows), in order of appending
        self.places: dict[int, Place] = {}
        self.objects: dict[str, Object] = {}
        self.unsettled: dict[int, tuple[Segment, Log]] = {}  # segments with runs that stand inline, by id()

    def open(self, epoch: int) -> None:
        if epoch <= self.newest_epoch:
            raise ConditionFailed(f"epoch {epoch} is not after {self.newest_epoch}, the newest that was given")
        self.epoch = self.newest_epoch = epoch

    def admit(self, now: int) -> int:
        """An epoch for one more uploader."""
        self.newest_epoch += 1
        self.admitted[self.newest_epoch] = now
        return self.newest_epoch

    def retire(self, epoch: int) -> None:
        """Take nothing more from an uploader. One that was retired before is fine."""
        if epoch == self.epoch or not 0 < epoch <= self.newest_epoch:
            raise InvalidArgument(f"epoch {epoch} was not given to an uploader: retire what admit answered")
        self.admitted.pop(epoch, None)

    def upload(self, command: Upload, root: int) -> int:
        """An epoch for one upload to a log of this root's tree."""
        self.uploads.check_room(root)
        self.newest_epoch += 1
        self.uploads.begin(self.newest_epoch, Living(command.log, command.now + command.ttl_us, root))
        return self.newest_epoch

    def publish(self, command: Publish) -> list[int]:
        """Register the objects and end their uploads; answers the blocks. What was checked before cannot fail."""
        blocks: list[int] = []
        for uploaded in command.objects:
            self.objects[uploaded.object] = Object(uploaded.size, uploaded.crc, command.now)
            blocks += [
                self.add_placed(Place(uploaded.object, block.offset, block.length, block.crc, 0, command.log))
                for block in uploaded.blocks
            ]
        for epoch in command.epochs:
            self.uploads.end(command.log, epoch)
        return blocks

    @property
    def current_epochs(self) -> set[int]:
        """Whose objects may yet be registered."""
        return {self.epoch, *self.admitted, *self.uploads.by_epoch}

    def register(self, command: Register) -> None:
        if command.epoch != self.epoch and command.epoch not in self.admitted:
            raise ConditionFailed(
                f"object {command.object!r} belongs to epoch {command.epoch}, which is neither the writer's "
                f"({self.epoch}) nor that of an admitted uploader: another writer took over, or the uploader was "
                "retired; reopen, or be admitted anew, and append again"
            )
        known = self.objects.get(command.object)
        if known is None:
            self.objects[command.object] = Object(command.size, command.crc, command.now)

    def require(self, name: str) -> None:
        known = self.objects.get(name)
        if known is None or known.condemned != NONE:
            raise InvalidArgument(f"object {name!r} is not registered: register it before referring to it")

    def add_inline(self, log: Log, rows: int) -> int:
        block = self.next_block
        self.next_block += 1
        self.inline[block] = (log.id, rows)
        return block

    def add_placed(self, place: Place) -> int:
        block = self.next_block
        self.next_block += 1
        self.places[block] = place
        return block

    def watch(self, segment: Segment, log: Log) -> None:
        """The segment got a run that stands inline; packing must find it."""
        self.unsettled[id(segment)] = (segment, log)

    def pack(self, command: Pack) -> list[int]:
        """Inline blocks moved into an object. Answers those whose inline bytes are needed no more."""
        self.require(command.object)
        moved: dict[int, tuple[int, int]] = {}
        for packed in command.blocks:
            live = [source for source in packed.sources if source in self.inline]
            if not live:
                continue
            block = self.add_placed(Place(command.object, packed.offset, packed.length, packed.crc, 0, packed.log))
            row = 0
            for source, count in zip(packed.sources, packed.counts, strict=True):
                if source in self.inline:
                    moved[source] = (block, row)
                row += count
        for source in moved:
            del self.inline[source]
        for key, (segment, log) in list(self.unsettled.items()):
            barrier = log.earliest_fork_point() if log.promotables else _FAR
            if not segment.rename(moved, self.inline, barrier):
                del self.unsettled[key]
        return list(moved)

    def relocate(self, command: Relocate) -> None:
        self.require(command.object)
        for move in command.moves:
            place = self.places.get(move.block)
            if place is not None:  # else it was collected while its copy was being written
                self.places[move.block] = Place(command.object, move.offset, move.length, move.crc, move.row, place.log)

    def collect(self, logs: list[Log], now: int) -> tuple[list[int], list[str]]:
        """Drop unreachable runs and blocks; condemn unreachable objects. Answers (inline blocks, objects)."""
        reached: set[int] = set()
        for view, ranges in needed(logs).items():
            view.index.forget_below(ranges[0][0] if ranges else 0)
            for low, high in ranges:
                view.index.blocks(low, high, reached)
        dead_inline = [block for block in self.inline if block not in reached]
        for block in dead_inline:
            del self.inline[block]
        for block in [block for block in self.places if block not in reached]:
            del self.places[block]
        used = {place.object for place in self.places.values()}
        condemned = [name for name, known in self.objects.items() if known.condemned == NONE and name not in used]
        for name in condemned:
            self.objects[name].condemned = now
        return dead_inline, condemned

    def forget(self, names: list[str]) -> None:
        for name in names:
            known = self.objects.get(name)
            if known is not None and known.condemned != NONE:
                del self.objects[name]


def needed(logs: list[Log]) -> dict[View, list[tuple[int, int]]]:
    """For every view that some living log resolves through: the ranges of its positions that can still be asked for.

    A log needs its own view from its start on, without end. What it inherits it needs in the view above, in that view's
    positions: without end again if that is a living log's present view, else up to where the pinned part ends. Ranges
    stay apart, so what lies between a pinned prefix and a trimmed log's start is needed by nobody.
    """
    ranges: dict[View, list[tuple[int, int]]] = {}
    children: dict[View, int] = {}
    ceilings: dict[View, int] = {}
    stack: list[View] = []
    for log in logs:
        # A promotable fork's trim is its own affair until it is decided: promotion must find all its records.
        low = min(log.start, log.fork_point) if log.promotable else log.start
        ranges[log.view] = [(low, _FAR)]
        # A severed fork's view sees the view above only below its base; its own records begin there.
        if log.kind == "sfork":
            ceilings[log.view] = log.base
        stack.append(log.view)
    while stack:  # count who depends on whom, so that each view is settled after all that look up to it
        view = stack.pop()
        if view in children:
            continue
        children[view] = 0
        ranges.setdefault(view, [])
        if view.up is not None:
            stack.append(view.up.target())
    for view in children:
        if view.up is not None:
            children[view.up.target()] += 1
    ready = [view for view, count in children.items() if not count]
    while ready:
        view = ready.pop()
        ranges[view] = _joined(ranges[view])
        if view.up is None:
            continue
        above = view.up.target()
        ceiling = ceilings.get(view, _FAR)
        for low, high in ranges[view]:
            top = min(high, ceiling)
            up_low = low - view.index.own_before(low)[0]
            up_high = top - view.index.own_before(top)[0] if top < _FAR else _FAR
            if up_low < up_high:
                ranges[above].append((up_low, up_high))
        children[above] -= 1
        if not children[above]:
            ready.append(above)
    return ranges


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same positions as disjoint ranges in ascending order."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined
