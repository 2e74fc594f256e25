"""Objects: none is deleted that a log refers to, or before its grace is over; none is left when all is quiet."""

from __future__ import annotations

from braidlog.forest.commands import NONE
from braidlog.forest.uploads import epoch_of
from sim.shadow import Shadow
from sim.store import Objects
from sim.world import Violated, World

SKEW_US = 80_000  # two clocks on walls differ by no more


class ObjectsKept:
    def __init__(self, world: World, shadow: Shadow, objects: Objects, grace_s: float) -> None:
        self._world = world
        self._shadow = shadow
        self._objects = objects
        self._grace_us = int(grace_s * 1e6)

    def deleted(self, name: str) -> None:
        """It is about to be."""
        space = self._shadow.forest.space
        known = space.objects.get(name)
        self._world.counts["objects deleted"] += 1
        if known is None:
            if epoch_of(name) in {space.epoch, *space.admitted, *space.uploads.by_epoch}:
                raise Violated(f"object {name} is deleted, and may yet be registered")
            return
        if known.condemned == NONE:
            raise Violated(f"object {name} is deleted, and logs refer to it")
        if self._world.now_us() - known.condemned < self._grace_us - SKEW_US:
            raise Violated(
                f"object {name} is deleted {self._world.now_us() - known.condemned} us after it was condemned"
            )

    @property
    def quiet(self) -> bool:
        """Whether everything there is is referred to, and the other way round."""
        known = self._shadow.forest.space.objects
        return (
            set(self._objects.objects) == {name for name, one in known.items() if one.condemned == NONE} == set(known)
        )

    def finish(self) -> None:
        known = self._shadow.forest.space.objects
        missing = sorted(
            name for name, one in known.items() if one.condemned == NONE and name not in self._objects.objects
        )
        if missing:
            raise Violated(f"objects that logs refer to are gone: {missing}")
        if not self.quiet:
            leaked = sorted(set(self._objects.objects) - set(known))
            raise Violated(f"objects are left that nobody refers to: {leaked}, or not forgotten: {sorted(known)}")
