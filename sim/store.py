"""The object store: puts that fail, or seem to, or take long; names that are used once.

Like the keeper of the log it never lies by itself, but its answers may get lost, and a put that is on its way when its
process dies may still arrive.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, TypeVar

from greenlet import GreenletExit

from braidlog.objects.store import Bytes, Store

if TYPE_CHECKING:
    from sim.network import Network
    from sim.world import Process, World

T = TypeVar("T")

HOST = "store"
TIMEOUT_S = 1.0


class Objects:
    """The server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[str, bytes] = {}
        self.snapshots: dict[str, bytes] = {}
        self.on_delete: Callable[[str], None] = lambda _: None
        self.fail_chance = 0.01  # of any request: it is refused, or done and said to have failed
        self.delay_s = (0.001, 0.006)

    def put(self, name: str, data: bytes) -> None:
        if name in self.objects:
            raise FileExistsError(errno.EEXIST, "an object of that name is in the store", name)
        self.objects[name] = data

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return self.objects[name]

    def delete(self, name: str) -> None:
        if name in self.objects:
            self.on_delete(name)
            del self.objects[name]


class StoreClient(Store):
    """A process's way to it. Calls block their fiber."""

    def __init__(self, objects: Objects, network: Network, process: Process) -> None:
        self._objects = objects
        self._network = network
        self._process = process
        self._world = objects.world

    def put(self, name: str, data: Bytes | Iterable[Bytes]) -> None:
        whole = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(map(bytes, data))
        self._call(f"put {name}", lambda: self._objects.put(name, whole))

    def get(self, name: str, offset: int, length: int) -> memoryview:
        whole = self._call(f"get {name}", lambda: self._objects.get(name))
        return memoryview(whole)[offset : offset + length]

    def size(self, name: str) -> int:
        return len(self._call(f"size {name}", lambda: self._objects.get(name)))

    def delete(self, name: str) -> None:
        self._call(f"delete {name}", lambda: self._objects.delete(name))

    def list(self, besides: Container[str] = ()) -> list[str]:
        names = self._call("list", lambda: sorted(self._objects.objects))
        return [name for name in names if name not in besides]

    def sweep_unfinished(self, over: Callable[[str], bool]) -> None:
        """A put is there as a whole or not at all."""

    def close(self) -> None:
        """Nothing is held open."""

    def save_snapshot(self, name: str, data: bytes) -> None:
        self._call(f"save {name}", lambda: self._objects.snapshots.__setitem__(name, data))

    def snapshot(self, name: str) -> bytes:
        return self._call(f"load {name}", lambda: self._objects.snapshots[name])

    def _call(self, what: str, work: Callable[[], T]) -> T:
        world, rng, objects = self._world, self._world.rng, self._objects
        if world.closing:
            raise GreenletExit
        fiber = world.me()
        wait = fiber.waiting
        answers: list[T] = []
        errors: list[OSError] = []
        world.wake(fiber, wait, TIMEOUT_S)

        def delay() -> float:
            low, high = objects.delay_s
            return low + rng.random() * (high - low)

        def arrive() -> None:
            if world.closing or self._network.parted(self._process.host, HOST):
                return
            chance = rng.random()
            if chance < objects.fail_chance:
                world.counts["store failures"] += 1
                errors.append(OSError(errno.EIO, "the store failed"))
            if chance >= objects.fail_chance / 2:  # else it failed before it did anything
                try:
                    answers.append(work())
                except OSError as error:
                    errors.append(error)
            world.tell(HOST, f"{'refused' if errors else 'did'} {what} for {self._process.host}")
            world.after(delay(), lambda: world.wake(fiber, wait))

        world.after(delay(), arrive)
        world.wait()
        if errors:
            raise errors[0]
        if not answers:
            raise OSError(errno.ETIMEDOUT, "the store does not answer")
        return answers[0]
