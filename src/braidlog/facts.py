"""What the API tells about logs, forks, requests and where bytes are. Plain values: they hold nothing open."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from braidlog.record import Record


class Retention(Struct, frozen=True, kw_only=True):
    """What a log may forget: records older than `max_age` seconds, and the oldest above `max_bytes`."""

    max_age: float | None = None
    max_bytes: int | None = None


class Info(Struct, frozen=True, kw_only=True):
    """A log as it is at one moment."""

    name: str
    id: int
    kind: str  # "root", "cfork" or "sfork"
    parent: str | None  # what it was forked from
    fork_point: int | None  # it shares the positions below this with its parent
    promotable: bool
    dedicated: bool  # a service should give it a broker of its own
    discipline: str
    start: int  # the first position not trimmed
    tail: int  # the true next position
    readable_tail: int  # the first position that cannot be read now
    limited_by: str | None  # the log whose hold sets readable_tail
    own: int  # records appended to this log itself
    own_bytes: int
    shared_bytes: int  # bytes it reads but shares with what it was forked from
    epoch: int  # how many forks were promoted into it
    created: datetime
    expires: datetime | None
    lease_expires: datetime | None
    owner: str
    labels: dict[str, str]
    retention: Retention | None


class Consumer(Struct, frozen=True, kw_only=True):
    """How far a consumer of a log got."""

    name: str
    position: int  # of the first record that it has not dealt with
    lag: int  # records between that and the first position that cannot be read now
    updated: datetime  # when it was committed last, here or where it was inherited from


class Ancestor(Struct, frozen=True, kw_only=True):
    """One step of a lineage, nearest first. `living` is false once that log is gone."""

    name: str
    id: int
    kind: str | None  # None: it is gone and nobody remembers
    fork_point: int | None  # where the step below left it
    living: bool


class DiffEntry(Struct, frozen=True):
    """A record of a fork from its fork point on: the fork's own, or one that its parent got meanwhile."""

    record: Record
    own: bool


class Diff(Struct, frozen=True, kw_only=True):
    """What distinguishes a fork from what it was forked from, in the fork's order."""

    log: str
    fork_point: int
    entries: list[DiffEntry]
    truncated: bool = False  # there is more than was asked for

    @property
    def own(self) -> list[Record]:
        """The fork's own records."""
        return [entry.record for entry in self.entries if entry.own]

    @property
    def inherited(self) -> list[Record]:
        """The parent's records since the fork point, at their positions in the fork."""
        return [entry.record for entry in self.entries if not entry.own]

    def __iter__(self) -> Iterator[DiffEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a request.

    `what` is "append", "create" (a log or fork came to life), "promote", "end" (by a squash or a drop) or "change" (a
    trim, a renewal or a consumer's commit).
    """

    request_id: str
    what: str
    log: str | None = None  # where an append's records are now, or what was created; None if that log is gone
    positions: range | None = None  # of an append; None while a hold withholds them
    withheld: bool = False
    promoted: bool | None = None


class EndOfLog(Struct, frozen=True):
    """Why a subscription ended.

    `reason` is "squashed", "expired", "lost", "dropped", "promoted", "trimmed", "caught up", "held", "closed" or
    "failed". After "promoted", continue on `into` at `position`: everything below it is the same there.
    """

    reason: str
    position: int
    into: str | None = None
    error: BaseException | None = None


class PlanPart(Struct, frozen=True, kw_only=True):
    """Where positions `start` to `stop` stand: rows from `row` on of one Arrow record batch.

    That is the message at `offset`, `length` bytes long with CRC-32C `crc`, of the Arrow file `object`; or, when that
    is None, of what was not packed yet: the message itself is in `data`.
    """

    start: int
    stop: int
    row: int
    object: str | None
    offset: int
    length: int
    crc: int
    data: bytes | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """How to fetch a range without asking anybody. When an object is gone (compacted), plan again by position."""

    log: str
    start: int
    stop: int
    objects: str | None  # the folder of the objects, or the URL of their store; None when they are in memory
    parts: list[PlanPart]


class Upload(Struct, frozen=True, kw_only=True):
    """Leave to write objects for one log to the store. It says all that a writer needs, in whatever process."""

    log: str
    log_id: int
    epoch: int  # the names of its objects begin with it
    objects: str  # the folder of the objects, or the URL of their store
    expires: datetime  # what is not published by then never will be


class UploadedBlock(Struct, array_like=True, frozen=True):
    """Records of an uploaded object: the record batch at `offset`, and what is true of it."""

    offset: int
    length: int
    crc: int  # CRC-32C of its bytes
    count: int  # records
    size: int  # bytes of keys, values and headers
    least: int  # timestamps
    greatest: int


class UploadedObject(Struct, array_like=True, frozen=True):
    """An object that a client stored, and its blocks in the order in which they are to be published."""

    object: str
    size: int
    crc: int
    blocks: list[UploadedBlock]
