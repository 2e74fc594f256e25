"""A process's way to etcd: production's client above, and below it, instead of gRPC, what may go wrong on the way.

A request may not arrive, or late, even after its sender is gone, or its answer may not: so whoever waits in vain does
not know. A watch that loses something says nothing any more, until its listener takes its silence for what it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from greenlet import GreenletExit

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.metadata.etcd import codec
from braidlog.metadata.etcd.client import Ambiguous, Compacted, EtcdClient, Refused, WatchStream
from braidlog.metadata.etcd.codec import Event, Found, Get, Lease, Txn, TxnAnswer, WatchAnswer
from sim import threads
from sim.etcd import HOST, Etcd

if TYPE_CHECKING:
    from sim.network import Network
    from sim.world import Process

T = TypeVar("T")

LATE_S = 1.2  # a request that is late arrives within this, or never
READ_S = 1.5  # for what is asked again and again


class SimEtcdClient(EtcdClient):
    """Calls block their fiber."""

    def __init__(self, etcd: Etcd, network: Network, process: Process) -> None:
        self._etcd = etcd
        self._network = network
        self._process = process
        self._world = etcd.world

    @property
    def endpoints(self) -> list[str]:
        return [HOST]

    @property
    def closed(self) -> bool:
        return False

    def close(self) -> None:
        """Processes here end by being killed."""

    def txn(self, txn: Txn) -> TxnAnswer:
        last = txn.then[-1]
        what = b"txn" if isinstance(last, Get) else last.key.partition(b"/")[2]
        return self._once(f"txn {what.decode()[:24]}", lambda: self._etcd.txn(txn))

    def range(self, get: Get, timeout_s: float = READ_S, *, large: bool = False) -> Found:
        del large
        what = get.key.partition(b"/")[2].decode()
        return self._patiently(f"range {what}", lambda: self._etcd.range(get), timeout_s)

    def delete(self, key: bytes, end: bytes) -> int:
        return self._patiently("delete", lambda: self._etcd.delete(key, end))

    def compact(self, revision: int) -> None:
        try:
            self._patiently("compact", lambda: self._etcd.compact(revision))
        except Compacted:
            pass

    def grant(self, ttl_s: int) -> Lease:
        return self._patiently("grant", lambda: self._etcd.grant(ttl_s))

    def keep_alive(self, lease: int) -> Lease:
        return self._once("renew", lambda: self._etcd.keep_alive(lease))

    def revoke(self, lease: int, timeout_s: float = READ_S) -> None:
        self._patiently("revoke", lambda: self._etcd.revoke(lease), timeout_s)

    def pace(self, tries: int) -> None:
        del tries
        self._world.sleep(limits.ETCD_RETRY_S)

    def open_watch(self, which: int, request: bytes) -> WatchStream:
        del which
        return Stream(self._etcd, self._network, self._process, request)

    def any_member(self) -> int:
        return 0

    def forget_token(self, reason: str) -> bool:
        del reason
        return False

    def _patiently(self, what: str, work: Callable[[], T], timeout_s: float = READ_S) -> T:
        deadline = self._world.now + min(timeout_s, READ_S)
        while True:
            try:
                return self._once(what, work)
            except Ambiguous as failure:
                if self._world.now >= deadline:
                    raise Unavailable(f"etcd did not answer: {failure}") from failure
                self.pace(1)

    def _once(self, what: str, work: Callable[[], T]) -> T:
        """Have the server do something. Ambiguous if it does not answer in time."""
        world, rng = self._world, self._world.rng
        if world.closing:
            raise GreenletExit
        fiber = world.me()
        wait = fiber.waiting
        answers: list[T | Refused] = []
        world.wake(fiber, wait, limits.ETCD_TIMEOUT_S)

        def reachable() -> bool:
            return not self._network.parted(self._process.host, HOST)

        def arrive() -> None:
            if world.closing or not reachable():
                return
            answer: T | Refused
            try:
                answer = work()
            except Refused as refusal:
                answer = refusal
            world.tell(HOST, f"did {what} for {self._process.host}")
            if rng.random() >= self._etcd.drop_chance:
                world.after(self._network.delay(), lambda: back(answer))
            else:
                world.counts["log answers lost"] += 1

        def back(answer: T | Refused) -> None:
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
            raise Ambiguous(f"no answer to {what}")
        if isinstance(answers[0], Refused):
            raise answers[0]
        return answers[0]


class Stream(WatchStream):
    """A watch. What it is told of arrives in order, until something does not."""

    def __init__(self, etcd: Etcd, network: Network, process: Process, request: bytes) -> None:
        self.key = self.end = b""
        start = 0
        [(_, create)] = codec.fields(request)
        assert isinstance(create, memoryview)
        for field, value in codec.fields(create):
            if field == 1 and isinstance(value, memoryview):
                self.key = bytes(value)
            elif field == 2 and isinstance(value, memoryview):
                self.end = bytes(value)
            elif field == 3 and isinstance(value, int):
                start = value
        self._etcd = etcd
        self._network = network
        self._process = process
        self._world = etcd.world
        self._answers: deque[WatchAnswer] = deque()
        self._heard = threads.Event()
        self._last_at = 0.0
        self._broken = False
        self._cancelled = False
        self._world.after(network.delay(), lambda: self._begin(start))

    def __iter__(self) -> Iterator[WatchAnswer]:
        silent_s = 0.0
        try:
            while not self._cancelled and silent_s <= limits.ETCD_WATCH_SILENCE_S:
                if self._answers:
                    silent_s = 0.0
                    yield self._answers.popleft()
                    continue
                self._heard.clear()
                if not self._heard.wait(limits.ETCD_WATCH_PING_S):
                    if self._broken or self._unreachable():
                        silent_s += limits.ETCD_WATCH_PING_S
                    else:
                        yield WatchAnswer(False, False, 0, "", ())  # a sign of life, as it was asked for
        finally:
            self.cancel()
        raise Ambiguous("the watch has ended")

    def cancel(self) -> None:
        self._cancelled = True
        if not self._world.closing:
            self._heard.set()

    def tell(self, events: tuple[Event, ...]) -> bool:
        if events:
            self._send(WatchAnswer(False, False, 0, "", events))
        return not (self._cancelled or self._broken) and self._process.alive

    def _begin(self, start: int) -> None:
        if self._cancelled or not self._process.alive or self._world.closing:
            return
        if self._unreachable():
            self._broken = True
            return
        try:
            missed = self._etcd.since(self, start)
        except Compacted:
            self._world.counts["watches behind"] += 1
            self._send(WatchAnswer(False, True, self._etcd.compacted, "compacted", ()))
            return
        self._send(WatchAnswer(True, False, 0, "", ()))
        if self.tell(missed):
            self._etcd.watchers.append(self)

    def _send(self, answer: WatchAnswer) -> None:
        if self._world.rng.random() < self._etcd.drop_chance:
            self._broken = True
        if not self._broken:
            self._last_at = max(self._last_at, self._world.now + self._network.delay())
            self._world.at(self._last_at, lambda: self._arrive(answer))

    def _arrive(self, answer: WatchAnswer) -> None:
        if self._cancelled or self._world.closing or not self._process.alive:
            return
        if self._broken or self._unreachable():
            self._broken = True
            return
        self._answers.append(answer)
        self._heard.set()

    def _unreachable(self) -> bool:
        return self._network.parted(self._process.host, HOST)
