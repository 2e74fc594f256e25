"""Who writes: a candidate wins a term, and keeps it as long as it renews its lease.

At most one term has a valid fence at any moment, and what is bound is bound by the fence. `Term.lost` is what the
process itself believes: it is set before anybody else can have won by this process's clock, if the process runs by
then, and else as soon as it runs again. Once set it stays so.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument, Timeout, Unavailable
from braidlog.metadata.etcd.client import Ambiguous, EtcdClient, Refused
from braidlog.metadata.etcd.codec import Event
from braidlog.metadata.etcd.core import Beaten, Campaign, Fence, Tenure, Won, deposed
from braidlog.metadata.etcd.driving import drive
from braidlog.metadata.etcd.keys import ID_BYTES, Keys, Leader, parse_leader
from braidlog.metadata.etcd.watching import Watch
from braidlog.metadata.home import Deposed

_LOOK_S = 0.1  # how often one who waits looks whether he is to stop


class Term:
    """The right to write, from winning it to losing it. Its lease is renewed by a thread of its own."""

    def __init__(self, client: EtcdClient, fence: Fence, leader: Leader, lease: int, tenure: Tenure) -> None:
        self.fence = fence
        self.description = leader.description
        self.lost = threading.Event()
        self.reason = ""  # why it was lost
        self._client = client
        self._lease = lease
        self._tenure = tenure
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="braidlog-etcd-lease", daemon=True)
        self._thread.start()

    @property
    def number(self) -> int:
        """Greater than that of every term before."""
        return self.fence.revision

    def left_s(self) -> float:
        """For how long nobody else leads, if clocks run alike and the members of etcd agree who leads them.

        Not above 0 once that is over. Who has to be sure asks `confirm`.
        """
        return 0.0 if self.lost.is_set() else self._tenure.left_s(time.monotonic())

    def confirm(self, timeout_s: float = limits.ETCD_READ_TIMEOUT_S) -> None:
        """Ask etcd whether it is still so; Deposed if not.

        If it is, nobody else had written anything when this was asked: what this process has applied was all there was.
        """
        [leader] = self._client.read(self.fence.key, timeout_s=timeout_s).kvs
        if leader is None or leader.create_revision != self.fence.revision:
            self.lose(deposed(leader))
        if self.lost.is_set():
            raise self.deposed()

    def on_lost(self, callback: Callable[[], object]) -> None:
        """Call, from some thread, when the term is lost or resigned; at once if it was."""
        with self._lock:
            if not self.lost.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def deposed(self) -> Deposed:
        """What to tell those who still want something written."""
        return Deposed(f"this process writes no more: {self.reason}")

    def lose(self, reason: str) -> None:
        """It is over, as somebody found out. Safe to call again."""
        with self._lock:
            if self.lost.is_set():
                return
            self.reason = reason
            self.lost.set()
            callbacks = self._callbacks
            self._callbacks = []
        self._ending.set()
        for callback in callbacks:
            callback()

    def resign(self) -> None:
        """Let the next one win at once. To be called when nothing is written any more. Safe to call again."""
        self.lose("it resigned")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _keep(self) -> None:
        wait = self._tenure.renewal_in(time.monotonic())
        while not self._ending.wait(wait):
            asked = time.monotonic()
            if self._tenure.left_s(asked) <= 0:
                self.lose("its lease could not be renewed in time")
                break
            try:
                lease = self._client.keep_alive(self._lease)
            except (Unavailable, Ambiguous):
                wait = min(limits.ETCD_RETRY_S, max(0.0, self._tenure.left_s(time.monotonic())))
                continue
            if lease.ttl_s <= 0:
                self.lose("its lease has ended")
                break
            self._tenure.renewed(asked, lease.ttl_s)
            wait = self._tenure.renewal_in(time.monotonic())
        with contextlib.suppress(Unavailable):  # else it ends by itself
            self._client.revoke(self._lease, limits.ETCD_REVOKE_TIMEOUT_S)


class Candidacy:
    """Wants to write. `owner` says how to reach it, once it does: an address, or whatever others can use."""

    def __init__(self, client: EtcdClient, prefix: str, owner: str | bytes, ttl_s: float = limits.ETCD_LEASE_S) -> None:
        if not 0 < ttl_s <= limits.ETCD_LEASE_MAX_S:
            raise InvalidArgument(f"ttl_s={ttl_s}: more than 0 and at most {limits.ETCD_LEASE_MAX_S:g} s")
        self._client = client
        self._keys = Keys(prefix)
        self._description = owner if isinstance(owner, str) else owner.decode("utf-8", "replace")
        self._ttl_s = math.ceil(ttl_s)
        self._never = threading.Event()

    def win(self, timeout: float | None = None, stop: threading.Event | None = None) -> Term:
        """Wait until nobody else leads, and win. Timeout is raised when the time is over, or `stop` is set.

        An etcd that cannot be reached is waited for. Refused is raised if it does not let this process in.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        told = ""

        def over() -> bool:
            return self._client.closed or (
                (stop is not None and stop.is_set()) or (deadline is not None and time.monotonic() >= deadline)
            )

        while True:
            try:
                term = self._campaign(over) if self._vacant(over) else None
                if term is not None:
                    return term
            except _NotLetIn as refusal:
                raise Refused(str(refusal)) from refusal
            except Unavailable as failure:
                told = f": {failure}"
                (stop or self._never).wait(limits.ETCD_RETRY_S)
            if over():
                raise Timeout(f"did not become the writer below {self._keys.prefix!r} in time{told}")

    def _vacant(self, over: Callable[[], bool]) -> bool:
        """Wait a while for the leader's key to go; says whether it is worth to try."""
        try:
            read = self._client.read(self._keys.leader, timeout_s=limits.ETCD_TIMEOUT_S)
        except Refused as refusal:  # to read takes no room: it is us whom it does not want
            raise _NotLetIn(str(refusal)) from refusal
        if read.kvs[0] is None:
            return True
        gone = threading.Event()

        def look(events: tuple[Event, ...]) -> None:
            if any(event.deleted for event in events):
                gone.set()

        watch = Watch(self._client, self._keys.leader, b"", read.revision + 1, look, lambda: gone.set())
        try:
            until = time.monotonic() + max(self._ttl_s, 1)  # then look again, should the watch have missed it
            while not gone.wait(_LOOK_S) and not over() and time.monotonic() < until:
                pass
        finally:
            watch.close()
        return gone.is_set() and not over()

    def _campaign(self, over: Callable[[], bool]) -> Term | None:
        asked = time.monotonic()
        lease = self._client.grant(self._ttl_s)
        leader = Leader(secrets.token_hex(ID_BYTES).encode(), self._description)
        tenure = Tenure(lease.ttl_s, asked)
        campaign = Campaign(self._keys, leader, lease.id)
        try:
            left = tenure.left_s(time.monotonic())
            [ended] = drive(self._client, campaign.begin(), campaign.step, left, over)
            if isinstance(ended, Won) and tenure.left_s(time.monotonic()) > 0:
                return Term(self._client, ended.fence, leader, lease.id, tenure)
        except BaseException:
            self._revoke(lease.id)
            raise
        self._revoke(lease.id)
        if not isinstance(ended, Won | Beaten):
            raise Unavailable(getattr(ended, "message", "the election was not settled"))
        return None

    def _revoke(self, lease: int) -> None:
        with contextlib.suppress(BraidError):  # else it ends by itself
            self._client.revoke(lease, limits.ETCD_REVOKE_TIMEOUT_S)


class _NotLetIn(Exception):
    pass


def leader(client: EtcdClient, prefix: str, timeout_s: float = limits.ETCD_READ_TIMEOUT_S) -> str | None:
    """How to reach the process that writes; None if there is none now."""
    [found] = client.read(Keys(prefix).leader, timeout_s=timeout_s).kvs
    return None if found is None else parse_leader(found.value).description


class LeaderWatch:
    """Who writes, and each change of it: `on_change` is told at once, and then from a thread of its own."""

    def __init__(self, client: EtcdClient, prefix: str, on_change: Callable[[str | None], object]) -> None:
        self._client = client
        self._key = Keys(prefix).leader
        self._on_change = on_change
        self.current: str | None = None
        start = self._look()
        self._watch = Watch(client, self._key, b"", start, self._take, self._look)

    def close(self) -> None:
        """Tell nothing more. Safe to call again."""
        self._watch.close()

    def _look(self) -> int:
        read = self._client.read(self._key)
        [found] = read.kvs
        self._tell(None if found is None else parse_leader(found.value).description)
        return read.revision + 1

    def _take(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._tell(None if event.deleted else parse_leader(event.kv.value).description)

    def _tell(self, description: str | None) -> None:
        self.current = description
        self._on_change(description)
