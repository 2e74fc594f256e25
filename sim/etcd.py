"""The command log's keeper: keys with revisions and a past, leases that expire, transactions and watches, as etcd has
them.

It is one and never wrong. What lies between it and its clients is not: see `sim.etcd_client`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from braidlog.metadata.etcd.client import Compacted, Refused
from braidlog.metadata.etcd.codec import (
    Compare,
    Delete,
    Event,
    Found,
    Get,
    KeyValue,
    Lease,
    Op,
    Put,
    Txn,
    TxnAnswer,
)
from braidlog.metadata.etcd.keys import Keys, parse_leader

if TYPE_CHECKING:
    from sim.world import World

HOST = "etcd"
KEYS = Keys("sim")


class Watcher(Protocol):
    """Who is told of changes. `tell` says whether it still listens."""

    key: bytes
    end: bytes

    def tell(self, events: tuple[Event, ...]) -> bool: ...


class Leading(NamedTuple):
    """Who holds the leader's key, and the lease that it is bound to."""

    host: str
    lease: int


class Etcd:
    """The server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.revision = 1
        self.compacted = 0
        self.watchers: list[Watcher] = []
        self.on_txn: Callable[[Txn], None] = lambda _: None  # told of each one whose comparisons held, after it
        self._names: list[bytes] = []  # of all keys that are or were, in order
        self._versions: dict[bytes, list[KeyValue]] = {}  # oldest first; one without a creation is a deletion
        self._past: list[Event] = []  # what is not compacted, in order
        self._leases: dict[int, tuple[float, int]] = {}  # until when, and for how long at a time
        self._granted = 0
        self.drop_chance = 0.004  # of a request, an answer, or what a watch tells

    # --- keys ----------------------------------------------------------------------------------------------------

    def txn(self, txn: Txn) -> TxnAnswer:
        self._expire()
        succeeded = all(self._holds(compare) for compare in txn.compares)
        ops = txn.then if succeeded else txn.otherwise
        if any(isinstance(op, Put) and op.lease and op.lease not in self._leases for op in ops):
            raise Refused("etcdserver: requested lease not found")
        changed = self._change([op for op in ops if not isinstance(op, Get)])
        found = tuple(self.range(op).kvs if isinstance(op, Get) else () for op in ops)
        if succeeded:
            self.on_txn(txn)
        self._tell(changed)
        return TxnAnswer(succeeded, self.revision, found)

    def range(self, get: Get) -> Found:
        self._expire()
        if get.revision and get.revision < self.compacted:
            raise Compacted("etcdserver: mvcc: required revision has been compacted")
        found: list[KeyValue] = []
        for name in self._within(get.key, get.end):
            kv = self._at(name, get.revision)
            if kv is not None:
                found.append(kv)
                if get.limit and len(found) > get.limit:
                    break
        kept = found[: get.limit] if get.limit else found
        return Found(tuple(kept), len(found) > len(kept), self.revision)

    def delete(self, key: bytes, end: bytes) -> int:
        self._expire()
        self._tell(self._change([Delete(key, end)]))
        return self.revision

    def compact(self, revision: int) -> int:
        if revision <= self.compacted:
            raise Compacted("etcdserver: mvcc: required revision has been compacted")
        self.compacted = revision
        self._past = self._past[self._since(revision) :]
        for name in list(self._names):
            versions = self._versions[name]
            while len(versions) > 1 and versions[1].mod_revision <= revision:
                del versions[0]
            if not versions[0].create_revision and versions[0].mod_revision <= revision:
                del versions[0]
            if not versions:
                del self._versions[name]
                self._names.remove(name)
        return self.revision

    def since(self, watcher: Watcher, revision: int) -> tuple[Event, ...]:
        """What a watcher missed from a revision on. Compacted if that is forgotten."""
        self._expire()
        if revision < self.compacted:
            raise Compacted("etcdserver: mvcc: required revision has been compacted")
        return _of(watcher, self._past[self._since(revision) :])

    def _since(self, revision: int) -> int:
        return bisect_left(self._past, revision, key=lambda event: event.kv.mod_revision)

    def _holds(self, compare: Compare) -> bool:
        kv = self._at(compare.key, 0)
        if kv is None:
            return compare.revision == 0
        return (kv.create_revision if compare.created else kv.mod_revision) == compare.revision

    def _within(self, key: bytes, end: bytes) -> Iterator[bytes]:
        if not end:
            return iter((key,))
        return iter(self._names[bisect_left(self._names, key) : bisect_left(self._names, end)])

    def _at(self, name: bytes, revision: int) -> KeyValue | None:
        for kv in reversed(self._versions.get(name, ())):
            if not revision or kv.mod_revision <= revision:
                return kv if kv.create_revision else None
        return None

    def _change(self, ops: list[Op]) -> list[Event]:
        """All of it at one revision."""
        revision = self.revision + 1
        changed: list[Event] = []
        for op in ops:
            if isinstance(op, Put):
                before = self._at(op.key, 0)
                created = revision if before is None else before.create_revision
                changed.append(self._record(False, KeyValue(op.key, op.value, created, revision, op.lease)))
            elif isinstance(op, Delete):
                for name in list(self._within(op.key, op.end)):
                    if self._at(name, 0) is not None:
                        changed.append(self._record(True, KeyValue(name, b"", 0, revision)))
        if changed:
            self.revision = revision
            self._past += changed
        return changed

    def _record(self, deleted: bool, kv: KeyValue) -> Event:
        if kv.key not in self._versions:
            insort(self._names, kv.key)
            self._versions[kv.key] = []
        self._versions[kv.key].append(kv)
        return Event(deleted, kv)

    def _tell(self, changed: list[Event]) -> None:
        if changed:
            self.watchers = [watcher for watcher in self.watchers if watcher.tell(_of(watcher, changed))]

    # --- leases --------------------------------------------------------------------------------------------------

    def grant(self, ttl_s: int) -> Lease:
        self._granted += 1
        lease = self._granted
        self._leases[lease] = (self.world.now + ttl_s, ttl_s)
        self._look_at(lease)
        return Lease(lease, ttl_s)

    def keep_alive(self, lease: int) -> Lease:
        self._expire()
        if lease not in self._leases:
            return Lease(lease, 0)
        _, ttl_s = self._leases[lease]
        self._leases[lease] = (self.world.now + ttl_s, ttl_s)
        return Lease(lease, ttl_s)

    def revoke(self, lease: int) -> int:
        if lease in self._leases:
            self._leases[lease] = (self.world.now, 0)
            self._expire()
        return self.revision

    def _look_at(self, lease: int) -> None:
        """When its time is over, so that watchers hear of it then."""

        def look() -> None:
            if lease in self._leases and not self.world.closing:
                self._expire()
                self._look_at(lease)

        if lease in self._leases:
            self.world.at(self._leases[lease][0], look)

    def _expire(self) -> None:
        ended = [lease for lease, (until, _) in self._leases.items() if until <= self.world.now]
        for lease in ended:
            del self._leases[lease]
        if ended:
            bound = [name for name in self._names if (kv := self._at(name, 0)) is not None and kv.lease in ended]
            self._tell(self._change([Delete(name) for name in bound]))

    @property
    def leader(self) -> Leading | None:
        self._expire()
        kv = self._at(KEYS.leader, 0)
        return None if kv is None else Leading(parse_leader(kv.value).description, kv.lease)


def _of(watcher: Watcher, events: list[Event]) -> tuple[Event, ...]:
    end = watcher.end or watcher.key + b"\0"
    return tuple(event for event in events if watcher.key <= event.kv.key < end)
