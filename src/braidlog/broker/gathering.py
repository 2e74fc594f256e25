"""What a broker does with appends: gathers those of many clients and logs, has them stored and bound, in order. PURE.

A *flush* takes everything that waits. While few are under way one leaves as soon as there is anything; while the store
or the metadata is busy, what arrives gathers for the next. A small flush rides inline in the command log; a large one
becomes an object, with one block for each log and the blocks that clients built themselves.

Flushes are stored side by side and bound strictly one after the other, in the order in which they were made: whoever
sent two appends over one connection has them in that order, whatever the store does. What cannot be stored is refused,
and nothing of it is bound; the other flushes go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.format import Columns
from braidlog.wire.faults import named

Done = Callable[[c.Result | BraidError], None]


class Item:
    """One command on its way: an append with its bytes inline or as columns, or any other change."""

    __slots__ = ("columns", "command", "done", "since", "size")

    def __init__(
        self, command: c.Command, size: int, done: Done, columns: Columns | None = None, since: int = NONE
    ) -> None:
        self.command = command
        self.size = size
        self.done = done
        self.columns = columns
        self.since = since


class Place(NamedTuple):
    """Where an append's rows went, in the object of its flush."""

    offset: int
    length: int
    crc: int
    row: int


class Flush:
    """Items that are bound together. `places` has one entry for each append in it, once they are stored."""

    __slots__ = ("bound", "items", "number", "places", "ready", "refusal", "registration", "size")

    def __init__(self, number: int, items: list[Item]) -> None:
        self.number = number
        self.items = items
        self.size = sum(item.size for item in items)
        self.ready = False
        self.bound = False  # it was sent to be
        self.refusal: BraidError | None = None
        self.registration: c.Register | None = None
        self.places: list[Place | None] = []

    @property
    def inline(self) -> bool:
        """Whether it needs no object. Only appends have bytes for one, however large a publication is."""
        appended = sum(item.size for item in self.items if isinstance(item.command, c.Append))
        return appended <= limits.INLINE_BYTES_MAX and all(item.columns is None for item in self.items)

    def commands(self) -> list[c.Command]:
        """What is to be bound."""
        found: list[c.Command] = [] if self.registration is None else [self.registration]
        for number, item in enumerate(self.items):
            command = item.command
            place = self.places[number] if self.places else None
            if place is not None:
                assert self.registration is not None
                assert isinstance(command, c.Append)
                command = msgspec.structs.replace(
                    command,
                    payload=b"",
                    object=self.registration.object,
                    offset=place.offset,
                    length=place.length,
                    crc=place.crc,
                    row=place.row,
                )
            found.append(command if item.since == NONE else c.Again(command, item.since))
        return found


class Store(NamedTuple):
    """Make an object of the flush and tell `stored`."""

    flush: Flush


class Bind(NamedTuple):
    """Have its commands bound and tell `answered`. Never two at once."""

    flush: Flush


Effect = Store | Bind


class Gathering:
    """Whoever drives it carries out the effects, and tells of what came of them."""

    def __init__(self, *, under_way_max: int = limits.FLUSHES_UNDER_WAY) -> None:
        self._under_way_max = under_way_max
        self._waiting: list[Item] = []
        self._waiting_bytes = 0
        self._flushes: deque[Flush] = deque()  # made and not answered, in order
        self._made = 0

    @property
    def bytes(self) -> int:
        """Of everything that is not answered."""
        return self._waiting_bytes + sum(flush.size for flush in self._flushes)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._flushes

    def add(self, item: Item) -> None:
        """It leaves with the next flush."""
        self._waiting.append(item)
        self._waiting_bytes += item.size

    def go(self) -> Iterator[Effect]:
        """Make flushes while some may leave. To be called when a turn's items are all here."""
        while self._waiting and len(self._flushes) < self._under_way_max:
            self._made += 1
            flush = Flush(self._made, self._take())
            self._flushes.append(flush)
            if flush.inline:
                flush.ready = True
                yield from self._bind_next()
            else:
                yield Store(flush)

    def stored(
        self, flush: Flush, registration: c.Register | None, places: list[Place | None], refusal: BraidError | None
    ) -> Iterator[Effect]:
        """The object of a flush is durable, or will never be."""
        flush.registration = registration
        flush.places = places
        flush.refusal = refusal
        flush.ready = True
        yield from self._bind_next()
        yield from self.go()

    def answered(self, flush: Flush, results: list[c.Result | BraidError] | BraidError) -> Iterator[Effect]:
        """The flush was bound, or the metadata gave no answer."""
        self._flushes.remove(flush)
        skip = 0 if flush.registration is None else 1
        if isinstance(results, BraidError):
            self._answer(flush, [results] * len(flush.items))
        elif len(results) != len(flush.items) + skip:
            self._answer(flush, [Unavailable("the metadata gave an answer that makes no sense")] * len(flush.items))
        elif skip and isinstance(results[0], BraidError):
            self._answer(flush, [_unregistered(result, results[0]) for result in results[1:]])
        else:
            self._answer(flush, results[skip:])
        yield from self._bind_next()
        yield from self.go()

    def _take(self) -> list[Item]:
        """Everything, but no more than fits into an object."""
        taken: list[Item] = []
        size = 0
        for item in self._waiting:
            if taken and size + item.size > limits.FLUSH_BYTES_MAX:
                break
            taken.append(item)
            size += item.size
        del self._waiting[: len(taken)]
        self._waiting_bytes -= size
        return taken

    def _bind_next(self) -> Iterator[Effect]:
        """The oldest flush, if it is ready; what was refused gets out of the way of those behind it."""
        while self._flushes and self._flushes[0].ready and not self._flushes[0].bound:
            flush = self._flushes[0]
            if flush.refusal is None:
                flush.bound = True
                yield Bind(flush)
                return
            self._flushes.popleft()
            for item in flush.items:  # changes too, lest they be overtaken by what stands behind them
                item.done(flush.refusal)

    @staticmethod
    def _answer(flush: Flush, results: list[c.Result | BraidError]) -> None:
        for item, result in zip(flush.items, results, strict=True):
            item.done(
                named(result, getattr(item.command, "request", b"")) if isinstance(result, BraidError) else result
            )


def _unregistered(result: c.Result | BraidError, refusal: BraidError) -> c.Result | BraidError:
    """What an append came to whose object was not taken. One that was there before is still answered so; of the others
    the forest can only say that they refer to nothing, which is no mistake of who sent them."""
    if not isinstance(result, InvalidArgument):
        return result
    return Unavailable(f"nothing was appended, since the broker was away for too long: {refusal}; send it again")
