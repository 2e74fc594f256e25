"""The command log's keeper: keys with revisions, leases that expire, and transactions, as etcd has them.

The server is one and never wrong. What lies between it and its clients is: a request may not arrive, or late, even
after its sender is gone, or its answer may not. So a client that waits in vain does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from greenlet import GreenletExit

if TYPE_CHECKING:
    from sim.network import Network
    from sim.world import Process, World

T = TypeVar("T")

HOST = "etcd"
RPC_TIMEOUT_S = 0.3
LATE_S = 1.2  # a request that is late arrives within this, or never


class Silence(Exception):
    """No answer came in time: it may have happened, or may yet happen."""


class Entry(NamedTuple):
    value: Any
    create_revision: int
    mod_revision: int
    lease: int


class Compare(NamedTuple):
    """A condition on a key: `field` is create_revision or mod_revision, 0 while there is no such key."""

    key: str
    field: str
    value: int


class Put(NamedTuple):
    key: str
    value: Any
    lease: int = 0


class Answer(NamedTuple):
    succeeded: bool
    revision: int
    found: dict[str, Entry]


class Etcd:
    """The server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.revision = 1
        self.keys: dict[str, Entry] = {}
        self._leases: dict[int, float] = {}  # until when
        self._lasts: dict[int, float] = {}  # for how long
        self.on_put: Callable[[str, Any], None] = lambda _, __: None  # told of each put, when it happens
        self.drop_chance = 0.004  # of a request or an answer

    def txn(self, compares: list[Compare], puts: list[Put], reads: list[str]) -> Answer:
        """If all hold, put all; in any case read."""
        self._expire()
        succeeded = all(self._holds(compare) for compare in compares)
        if succeeded and any(put.lease and put.lease not in self._leases for put in puts):
            succeeded = False
        if succeeded and puts:
            self.revision += 1
            for put in puts:
                old = self.keys.get(put.key)
                created = old.create_revision if old is not None else self.revision
                self.keys[put.key] = Entry(put.value, created, self.revision, put.lease)
                self.on_put(put.key, put.value)
        return Answer(succeeded, self.revision, {key: self.keys[key] for key in reads if key in self.keys})

    def _holds(self, compare: Compare) -> bool:
        entry = self.keys.get(compare.key)
        return (0 if entry is None else getattr(entry, compare.field)) == compare.value

    def range(self, prefix: str, after: str = "") -> list[tuple[str, Entry]]:
        self._expire()
        return sorted((key, entry) for key, entry in self.keys.items() if key.startswith(prefix) and key > after)

    def delete_through(self, compares: list[Compare], prefix: str, last: str) -> bool:
        self._expire()
        if not all(self._holds(compare) for compare in compares):
            return False
        self.revision += 1
        for key in [key for key in self.keys if key.startswith(prefix) and key <= last]:
            del self.keys[key]
        return True

    def grant(self, ttl_s: float) -> int:
        self.revision += 1
        self._leases[self.revision] = self.world.now + ttl_s
        self._lasts[self.revision] = ttl_s
        return self.revision

    def keep_alive(self, lease: int) -> bool:
        self._expire()
        if lease not in self._leases:
            return False
        self._leases[lease] = self.world.now + self._lasts[lease]
        return True

    def revoke(self, lease: int) -> None:
        if lease in self._leases:
            self._leases[lease] = self.world.now
            self._expire()

    def _expire(self) -> None:
        ended = {lease for lease, until in self._leases.items() if until <= self.world.now}
        for lease in ended:
            del self._leases[lease]
        if ended:
            self.revision += 1
            for key in [key for key, entry in self.keys.items() if entry.lease in ended]:
                del self.keys[key]

    @property
    def leader(self) -> Entry | None:
        self._expire()
        return self.keys.get("leader")


class EtcdClient:
    """A process's way to it. Calls block their fiber."""

    def __init__(self, etcd: Etcd, network: Network, process: Process) -> None:
        self._etcd = etcd
        self._network = network
        self._process = process
        self._world = etcd.world

    def call(self, what: str, work: Callable[[], T]) -> T:
        """Have the server do something. Raises Silence if it does not answer in time."""
        world, rng = self._world, self._world.rng
        if world.closing:
            raise GreenletExit
        fiber = world.me()
        wait = fiber.waiting
        answers: list[T] = []
        world.wake(fiber, wait, RPC_TIMEOUT_S)

        def reachable() -> bool:
            return not self._network.parted(self._process.host, HOST)

        def arrive() -> None:
            if world.closing or not reachable():
                return
            answer = work()
            world.tell(HOST, f"did {what} for {self._process.host}")
            if rng.random() >= self._etcd.drop_chance:
                world.after(self._network.delay(), lambda: back(answer))
            else:
                world.counts["log answers lost"] += 1

        def back(answer: T) -> None:
            if reachable():
                answers.append(answer)
                world.wake(fiber, wait)

        if rng.random() >= self._etcd.drop_chance:
            world.after(self._network.delay(), arrive)
        elif rng.random() < 0.5:
            world.counts["log requests late"] += 1
            world.after(rng.random() * LATE_S, arrive)
        world.wait()
        if not answers:
            raise Silence(what)
        return answers[0]
