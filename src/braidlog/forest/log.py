"""What the forest keeps of one log, and how a log's versions hang together.

A log's records are resolved through a *view*: the index of its own records and the way up to the view that the rest is
inherited from. Views are what severed forks pin. A view's content up to the pinned bound never changes:
- a log only ever appends to its view's index, beyond any bound that was pinned;
- a promotion gives the parent a new view, and the old one stays with whoever pinned it;
- through an ordinary edge nobody sees the parent beyond its held point, and below it a promotion changes nothing;
- through a promotable edge the fork does see beyond that point, so on promotion that edge is frozen to the old view.
"""

from __future__ import annotations

from typing import Final

import msgspec

from braidlog.forest.commands import NONE
from braidlog.forest.index import Index
from braidlog.forest.tails import Marker, Tree

FAR: Final = 1 << 62  # beyond any position


class Way:
    """The way up from a view: to whatever a living log shows now, or, once frozen, to one view for ever."""

    __slots__ = ("log", "view")

    def __init__(self, log: Log | None, view: View | None = None) -> None:
        self.log = log
        self.view = view

    def target(self) -> View:
        if self.view is not None:
            return self.view
        assert self.log is not None
        return self.log.view


class View:
    """One version of a log: its own runs, and the way up to what it inherits."""

    __slots__ = ("index", "up")

    def __init__(self, index: Index, up: Way | None) -> None:
        self.index = index
        self.up = up


class Outcome(msgspec.Struct, array_like=True, eq=False, gc=False):
    """What became of an append, as long as somebody may ask. Positions of a withheld one move with promotions."""

    request: bytes
    log: int
    first: int  # NONE: the log ended, and the records with it
    count: int
    withheld: bool


class Writer:
    """The last numbered append of one writer to one log."""

    __slots__ = ("outcome", "sequence")

    def __init__(self, sequence: int, outcome: Outcome) -> None:
        self.sequence = sequence
        self.outcome = outcome


class Log:
    """One living log.

    Invariants: `own` and `own_size` are the totals of `view.index`; a root has `parent` None and `base` the records it
    was severed with (0 for a base log); `children` and `promotables` stand in the order of (fork_point, id), so the
    earliest promotable fork comes first; `start <= readable tail`.
    """

    __slots__ = (
        "base",
        "children",
        "consumers",
        "consumers_ceiling",
        "consumers_shared",
        "created",
        "dedicated",
        "depth",
        "discipline",
        "enter",
        "epoch",
        "expires",
        "fork_point",
        "id",
        "kind",
        "labels",
        "lease_expires",
        "lease_us",
        "leave",
        "loose_ways",
        "name",
        "origin",
        "origin_id",
        "origin_name",
        "own",
        "own_size",
        "owner",
        "parent",
        "promotable",
        "promotables",
        "retain_age_us",
        "retain_bytes",
        "severed",
        "start",
        "tree",
        "ttl_us",
        "view",
        "withheld",
        "writers",
    )

    def __init__(self, id: int, name: str, kind: str, parent: Log | None, view: View, created: int) -> None:
        self.id = id
        self.name = name
        self.kind = kind  # "root", "cfork" or "sfork"
        self.parent = parent
        self.view = view
        self.created = created
        self.tree: Tree = parent.tree if parent is not None else Tree(self)
        self.depth: int = 0  # an upper bound: promotion can shorten a path
        if parent is not None:
            self.depth = parent.depth + 1
        self.base = 0
        self.fork_point = 0
        self.own = 0
        self.own_size = 0
        self.start = 0
        self.epoch = 0
        self.promotable = False
        self.dedicated = False
        self.children: dict[int, Log] = {}
        self.promotables: dict[int, Log] = {}
        self.severed: dict[int, Log] = {}  # severed forks whose way up begins in this log
        self.loose_ways: list[Way] = []  # of squashed promotable forks, while a promotion could still move us
        self.origin: Log | None = None  # of a severed fork: the living log whose `severed` it is in
        self.origin_id = NONE  # of a fork: what it was forked from, living or not
        self.origin_name = ""
        self.ttl_us = NONE
        self.expires = NONE
        self.lease_us = NONE
        self.lease_expires = NONE
        self.retain_age_us = NONE
        self.retain_bytes = NONE
        self.owner = ""
        self.labels: dict[str, str] = {}
        self.discipline = "eager"
        self.writers: dict[str, Writer] = {}
        self.withheld: list[Outcome] = []
        self.consumers: dict[str, tuple[int, int]] = {}  # name -> (position, updated): see `forest.consumers`
        self.consumers_shared = False  # with forks of this log, or with what it was forked from
        self.consumers_ceiling = FAR  # positions above it were inherited, and count as this
        self.enter: Marker | None = None
        self.leave: Marker | None = None

    def earliest_fork_point(self) -> int:
        """Of the live promotable forks; there must be one."""
        for fork in self.promotables.values():
            return fork.fork_point
        raise AssertionError(f"log {self.id} is not held")

    def deadline(self) -> int:
        """When this fork runs out, or NONE."""
        ends = [moment for moment in (self.expires, self.lease_expires) if moment != NONE]
        return min(ends) if ends else NONE
