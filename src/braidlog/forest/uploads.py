"""Uploads: epochs of clients that store objects themselves, each for one log and for a while.

They stand beside the writer's epoch and those of brokers, and outlive every process: only a publication, a discard, or
the command that says that their time is over ends one. An epoch ends with the one publication that binds its objects,
so no name is ever registered twice, and whatever else of it is in the store then is nobody's.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from braidlog import limits
from braidlog.errors import ConditionFailed, InvalidArgument, Unavailable
from braidlog.forest.commands import Publish


class Living(NamedTuple):
    """An upload that may yet be published, when its time is over, and the root of the tree that it was begun in."""

    log: int
    expires: int
    root: int


class Uploads:
    """The living ones, by epoch.

    Invariant: `of_root` says how many there are of each root that has any.
    """

    def __init__(self) -> None:
        self.by_epoch: dict[int, Living] = {}
        self.of_root: dict[int, int] = {}

    def begin(self, epoch: int, living: Living) -> None:
        self.by_epoch[epoch] = living
        self.of_root[living.root] = self.of_root.get(living.root, 0) + 1

    def check_room(self, root: int) -> None:
        """There is room for trees that have few: once half of it is taken, none may have more than is left. A tree has
        one share, however many forks; whoever may make many trees has as many shares."""
        left = limits.UPLOADS_MAX - len(self.by_epoch)
        if left <= 0:
            raise Unavailable(
                f"{len(self.by_epoch):,} uploads live, which is as many as there may be: publish or discard some"
            )
        if left <= limits.UPLOADS_MAX // 2:
            own = self.of_root.get(root, 0)
            if own >= left:
                raise Unavailable(
                    f"{own:,} uploads of this log and its forks live, and {left:,} more may in all: publish or discard "
                    "some first"
                )

    def end(self, log: int, epoch: int) -> None:
        living = self.by_epoch.get(epoch)
        if living is None:
            return
        if living.log != log:
            raise InvalidArgument(f"upload {epoch} is one of another log: discard it there")
        del self.by_epoch[epoch]
        self.of_root[living.root] -= 1
        if not self.of_root[living.root]:
            del self.of_root[living.root]

    def overdue(self, now: int, logs: Container[int]) -> list[tuple[int, int]]:
        """(log, epoch) of uploads whose time is over by `now`, or whose log is."""
        return [
            (living.log, epoch)
            for epoch, living in self.by_epoch.items()
            if living.expires <= now or living.log not in logs
        ]

    def check(self, command: Publish, registered: Container[str]) -> None:
        """Raise unless all of it can be published."""
        for epoch in command.epochs:
            living = self.by_epoch.get(epoch)
            if living is None:
                raise ConditionFailed(
                    f"upload {epoch} is over: it was published or discarded, or its time ran out; begin another one, "
                    "store the objects again, and publish those"
                )
            if living.log != command.log:
                raise InvalidArgument(f"upload {epoch} is one of another log: publish it there")
        if not command.objects:
            raise InvalidArgument("a publication needs at least one object")
        epochs = set(command.epochs)
        names: set[str] = set()
        blocks = 0
        for uploaded in command.objects:
            name = uploaded.object
            if epoch_of(name) not in epochs:
                raise InvalidArgument(f"object {name!r} is of none of the uploads that are published with it")
            if name in registered or name in names:
                raise ConditionFailed(f"object {name!r} was published before: publish every object once")
            names.add(name)
            blocks += len(uploaded.blocks)
            end = 0
            for block in uploaded.blocks:
                if block.offset < end or block.length <= 0 or block.offset + block.length > uploaded.size:
                    raise InvalidArgument(
                        f"object {name!r}: the block at {block.offset} of {block.length} bytes does not stand behind "
                        f"the one before it and within the {uploaded.size} bytes of the object"
                    )
                if block.count <= 0 or block.size < 0 or block.least > block.greatest:
                    raise InvalidArgument(f"object {name!r}: the block at {block.offset} says what cannot be of itself")
                end = block.offset + block.length
            if not uploaded.blocks:
                raise InvalidArgument(f"object {name!r} has no blocks: leave it out")
        if len(names) > limits.PUBLISH_OBJECTS_MAX or blocks > limits.PUBLISH_BLOCKS_MAX:
            raise InvalidArgument(
                f"{len(names):,} objects with {blocks:,} blocks are too much for one publication: at most "
                f"{limits.PUBLISH_OBJECTS_MAX:,} and {limits.PUBLISH_BLOCKS_MAX:,}; write larger ones"
            )


def epoch_of(name: str) -> int:
    """The epoch that an object was stored in, which its name begins with."""
    try:
        return int(name.partition("-")[0], 16)
    except ValueError:
        raise InvalidArgument(f"object name {name!r} does not say an epoch") from None
