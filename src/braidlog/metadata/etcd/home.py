"""A writer's home whose command log is in etcd and whose snapshots are blobs. See `metadata.home` for what it promises.

A home belongs to one term: it is made after the term was won, and everything that it changes is fenced by it. As
nothing of an earlier term takes effect after that, what is read here is all there is.
"""

from __future__ import annotations

from braidlog.errors import Corrupt
from braidlog.metadata.etcd import snapshots
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.metadata.etcd.codec import KeyValue
from braidlog.metadata.etcd.core import Head, Register, deposed
from braidlog.metadata.etcd.keys import Keys, parse_sequence
from braidlog.metadata.etcd.leadership import Term
from braidlog.metadata.etcd.log import EtcdLog, Missing, decree, read_frames, sweep_unnamed
from braidlog.metadata.frames import Kind, Payload
from braidlog.metadata.home import Found, Take
from braidlog.objects.blobs import Blobs
from braidlog.objects.store import Store


class EtcdHome:
    """For the writer of one term."""

    def __init__(self, client: EtcdClient, term: Term, blobs: Blobs, store: Store, prefix: str) -> None:
        self._client = client
        self._term = term
        self._blobs = blobs
        self._keys = Keys(prefix)
        self.store: Store = store
        self.folder: str | None = None

    def latest(self) -> tuple[int, memoryview] | None:
        """The newest snapshot and the sequence that it covers."""
        gone: bytes | None = None
        while True:
            snap, _ = self._read()
            if snap is None:
                return None
            try:
                return snapshots.read(self._blobs, snap.value.decode("utf-8", "replace"))
            except FileNotFoundError as error:  # deposed while looking? Then the next look says so
                if snap.value == gone:
                    raise Corrupt(
                        f"the snapshot that etcd names is not in the object store: {error}; "
                        "is this the object store that belongs to this etcd?"
                    ) from error
                gone = snap.value

    def open_log(self, after: int, take: Take) -> Found:
        """The log, for writing; each frame behind `after` is handed to `take` on the way."""
        _, head = self._read()
        if head.sequence < after:
            raise Corrupt(
                f"the log in etcd below {self._keys.prefix!r} ends at {head.sequence}, and the snapshot covers "
                f"{after}: was etcd restored to an earlier state?"
            )
        size, clean = 0, False
        try:
            for stored in read_frames(self._client, self._keys, after, head.sequence):
                size += stored.bytes
                clean = stored.kind is Kind.END
                if stored.kind is Kind.DATA:
                    take(stored.sequence, stored.payload)
        except Missing as error:
            self._read()  # whoever leads by now may have dropped it
            raise Corrupt(f"{error} (etcd, below {self._keys.prefix!r})") from error
        sweep_unnamed(self._client, self._keys, self._term, head.sequence)
        return Found(EtcdLog(self._client, self._keys, self._term, head, size), clean, None)

    def save(self, sequence: int, payload: Payload) -> None:
        """Keep a snapshot: the blob first, then its name."""
        key = snapshots.write(self._blobs, sequence, payload)
        # Looked at each time: after a failure nobody knows which one it names, and it takes no time next to the blob.
        snap, _ = self._read()
        register = Register(self._keys.snap, 0 if snap is None else snap.mod_revision, key.encode())
        decree(self._client, self._keys, self._term, "name the snapshot", register=register)

    def drop_before(self, sequence: int) -> None:
        """Delete older snapshots, but for the last few."""
        snapshots.drop_before(self._blobs, sequence)

    def _read(self) -> tuple[KeyValue | None, Head]:
        """(what names the snapshot, where the log ends), as the leader; Deposed if that is another one."""
        keys = self._keys
        leader, snap, head = self._client.read(keys.leader, keys.snap, keys.head).kvs
        if leader is None or leader.create_revision != self._term.fence.revision:
            self._term.lose(deposed(leader))
            raise self._term.deposed()
        return snap, Head(0, 0) if head is None else Head(parse_sequence(head.value, head.key), head.mod_revision)
