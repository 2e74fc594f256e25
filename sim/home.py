"""Where a leader's forest lives here: the command log and the snapshots' names in etcd, all else in the store.

Every change of a key is fenced: it happens only while the leader's key is the one that this leader made, and appends
also only right behind the frame that this leader believes to be the last. A request that was not answered is sent again
as it is; whether it happened the first time is told by whose frame stands in the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from braidlog.errors import OutcomeUnknown, Unavailable
from braidlog.metadata.frames import Payload
from braidlog.metadata.home import Found, Home, Take
from sim.etcd import Compare, Etcd, EtcdClient, Put, Silence
from sim.store import StoreClient

T = TypeVar("T")

RETRIES = 4
FENCE = "create_revision"


class Frame(NamedTuple):
    """What stands in a slot of the log. `term` is the create_revision of its leader's key."""

    sequence: int
    term: int
    batch: str
    payload: bytes


def slot(sequence: int) -> str:
    return f"log/{sequence:016x}"


class SimLog:
    """The command log of one leader."""

    def __init__(self, etcd: Etcd, client: EtcdClient, owner: str, term: int, on_lost: Callable[[str], None]) -> None:
        self._etcd = etcd
        self._client = client
        self._owner = owner
        self._term = term
        self._on_lost = on_lost
        self._head_revision = 0
        self._written = 0
        self.last_sequence = 0
        self.bytes_since_roll = 0

    def load(self, after: int, take: Take) -> None:
        found = _patiently(self._client, "range", lambda: (self._etcd.range("log/", slot(after)), _head(self._etcd)))
        frames, (sequence, self._head_revision) = found
        for _, entry in frames:
            take(entry.value.sequence, memoryview(entry.value.payload))
            self.bytes_since_roll += len(entry.value.payload)
        self.last_sequence = max(after, sequence)

    def append(self, payload: Payload) -> int:
        sequence = self.last_sequence + 1
        self._written += 1
        frame = Frame(sequence, self._term, f"{self._owner}/{self._written}", _whole(payload))
        compares = [Compare("leader", FENCE, self._term), Compare("head", "mod_revision", self._head_revision)]
        puts = [Put("head", sequence), Put(slot(sequence), frame)]
        for _ in range(RETRIES):
            try:
                answer = self._client.call(
                    f"append {sequence}", lambda: self._etcd.txn(compares, puts, ["head", slot(sequence)])
                )
            except Silence:
                continue
            there = answer.found.get(slot(sequence))
            if there is not None and there.value.batch == frame.batch:
                self._head_revision = there.mod_revision
                self.last_sequence = sequence
                self.bytes_since_roll += len(frame.payload)
                return sequence
            self._on_lost("fenced")
            raise OutcomeUnknown("another leader has taken over", request_id="")
        self._on_lost("no answer to an append")
        raise OutcomeUnknown("the log does not answer: this may have been written", request_id="")

    def append_end(self) -> int:
        return self.last_sequence

    def roll(self) -> int:
        self.bytes_since_roll = 0
        return self.last_sequence + 1

    def drop_through(self, sequence: int) -> None:
        fence = [Compare("leader", FENCE, self._term)]
        _patiently(self._client, "drop", lambda: self._etcd.delete_through(fence, "log/", slot(sequence)))

    def close(self) -> None:
        """Nothing is held open."""


class SimHome(Home):
    folder = None

    def __init__(
        self,
        etcd: Etcd,
        client: EtcdClient,
        store: StoreClient,
        owner: str,
        term: int,
        on_lost: Callable[[str], None],
    ) -> None:
        self._etcd = etcd
        self._client = client
        self._objects = store
        self.store = store
        self._term = term
        self._owner = owner
        self._on_lost = on_lost

    def latest(self) -> tuple[int, memoryview] | None:
        found = _patiently(self._client, "snapshot?", lambda: self._etcd.txn([], [], ["snapshot"])).found
        if "snapshot" not in found:
            return None
        sequence, name = found["snapshot"].value
        return sequence, memoryview(self._objects.snapshot(name))

    def open_log(self, after: int, take: Take) -> Found:
        log = SimLog(self._etcd, self._client, self._owner, self._term, self._on_lost)
        log.load(after, take)
        return Found(log, False, None)

    def save(self, sequence: int, payload: Payload) -> None:
        name = f"{self._term}-{sequence}"
        try:
            self._objects.save_snapshot(name, _whole(payload))
        except OSError as error:
            raise Unavailable(f"the snapshot cannot be stored: {error}") from error
        compares, puts = [Compare("leader", FENCE, self._term)], [Put("snapshot", (sequence, name))]
        answer = _patiently(self._client, f"snapshot {sequence}", lambda: self._etcd.txn(compares, puts, ["snapshot"]))
        there = answer.found.get("snapshot")
        if there is None or there.value != (sequence, name):
            self._on_lost("fenced at a snapshot")
            raise Unavailable("another leader has taken over")

    def drop_before(self, sequence: int) -> None:
        """Each takes the place of the one before."""


def _whole(payload: Payload) -> bytes:
    return bytes(payload) if isinstance(payload, bytes | bytearray | memoryview) else b"".join(payload)


def _head(etcd: Etcd) -> tuple[int, int]:
    entry = etcd.keys.get("head")
    return (0, 0) if entry is None else (entry.value, entry.mod_revision)


def _patiently(client: EtcdClient, what: str, work: Callable[[], T]) -> T:
    """For what may be repeated: looking, and changes that happen once however often they are asked for."""
    for _ in range(RETRIES):
        try:
            return client.call(what, work)
        except Silence:
            continue
    raise Unavailable(f"the log does not answer: {what}")
