"""The command log in etcd as a standby or any other reader follows it while its writer is at work.

Promises: every payload once, in order, and only after it is in the log for good. `latest` is the beginning: the newest
snapshot, behind which `poll` tells what comes. Members may come and go meanwhile. When etcd has forgotten what comes
next, Superseded is raised until `latest` is asked again. Changes nothing. A thread listens; all else is for one thread
at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

from braidlog import limits
from braidlog.errors import Corrupt, Unavailable
from braidlog.metadata.etcd import snapshots
from braidlog.metadata.etcd.client import Compacted, EtcdClient
from braidlog.metadata.etcd.codec import Event, KeyValue, after_prefix
from braidlog.metadata.etcd.keys import Keys, parse_sequence
from braidlog.metadata.etcd.log import Missing, Stored, read_frames, whole_frame
from braidlog.metadata.etcd.watching import Watch
from braidlog.metadata.frames import Kind
from braidlog.metadata.log_follower import Superseded
from braidlog.objects.blobs import Blobs


class EtcdFollower:
    """Reads the log below a prefix. Begin with `latest`, then `wait` and `poll`."""

    def __init__(self, client: EtcdClient, prefix: str, blobs: Blobs) -> None:
        self._client = client
        self._keys = Keys(prefix)
        self._blobs = blobs
        self._changed = threading.Condition()
        self._arrived: deque[KeyValue] = deque()  # slots that the watch told of
        self._arrived_bytes = 0
        self._superseded = ""
        self._watch: Watch | None = None
        self._listening = False
        self._closed = False
        self._behind = (0, 0)  # what was there before the watch began: frames up to the one, at the other's revision
        self._next = 1

    @property
    def last_sequence(self) -> int:
        """Of the last frame that `poll` told of, or that the snapshot covers."""
        return self._next - 1

    @property
    def failing(self) -> str:
        """Why what comes next cannot be heard of now; empty while all is well."""
        return self._watch.failing if self._watch is not None else "nothing is followed yet"

    def silent_s(self) -> float:
        """For how long no member has answered what is watched."""
        with self._changed:
            watch = self._watch
        return 0.0 if watch is None else time.monotonic() - watch.heard_s

    def latest(self) -> tuple[int, memoryview] | None:
        """The newest snapshot and the sequence that it covers, or None: the state before the first frame.

        What `poll` tells from now on is behind it.
        """
        self._stop_watching()
        for _ in range(limits.OBJECT_GONE_RETRIES):
            snap, head, revision = self._look()
            found = None
            if snap is not None:
                try:
                    found = snapshots.read(self._blobs, snap)
                except FileNotFoundError as error:  # a newer one was named meanwhile
                    missing = error
                    continue
            self._next = 1 if found is None else found[0] + 1
            self._behind = (head, revision)
            self._superseded = ""
            self._arrived.clear()
            self._arrived_bytes = 0
            self._listening = True
            slots = self._keys.slots
            self._watch = Watch(
                self._client, slots, after_prefix(slots), revision + 1, self._take, self._lose_track, puts_only=True
            )
            return found
        raise Corrupt(f"the snapshot that etcd names is not in the object store: {missing}")

    def head(self) -> int:
        """The sequence of the last frame that is in the log now: nothing beyond it was acknowledged before."""
        return self._look()[1]

    def poll(self) -> list[tuple[int, memoryview]]:
        """The payloads that are new since the last poll, with their sequences, in order. It does not wait for any.

        Raises Superseded if the next one is no longer there, Corrupt if it is damaged, Unavailable if it cannot be read
        now: the next poll tries again.
        """
        found: list[tuple[int, memoryview]] = []
        try:
            for stored in self._read_behind():
                self._tell(stored, found)
            while (slot := self._peek()) is not None:
                sequence = self._keys.sequence_of(slot.key)
                if sequence > self._next:
                    raise Superseded(f"frame {self._next} of the log was not heard of, and frame {sequence} was")
                if sequence == self._next:
                    self._tell(whole_frame(self._client, self._keys, sequence, slot, slot.mod_revision), found)
                self._drop_first()
            if self._superseded and not found:
                raise Superseded(self._superseded)
        except (Missing, Compacted) as error:
            if not found:  # else the caller first gets what is good: the next poll meets the same obstacle
                raise Superseded(str(error)) from error
        except (Corrupt, Superseded, Unavailable):
            if not found:
                raise
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Return once `poll` has something to tell or to raise; False if it has not in time, or after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_something() or self._closed, timeout)
            return self._has_something() and not self._closed

    def catch_up(self, timeout: float) -> list[tuple[int, memoryview]]:
        """Poll until all is told that was in the log when this was called; Unavailable if that takes too long."""
        target = self.head()
        deadline = time.monotonic() + timeout
        found: list[tuple[int, memoryview]] = []
        while True:
            found += self.poll()
            if self.last_sequence >= target:
                return found
            if not self.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                raise Unavailable(
                    f"the log in etcd is at {target} and this process heard of {self.last_sequence}: "
                    f"{self.failing or 'it is tried again by itself'}"
                )

    def close(self) -> None:
        """Let go of it. Safe to call again, from any thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stop_watching()

    def _look(self) -> tuple[str | None, int, int]:
        """(what names the snapshot, where the log ends, the revision of this look)."""
        read = self._client.read(self._keys.snap, self._keys.head)
        snap, head = read.kvs
        name = None if snap is None else snap.value.decode("utf-8", "replace")
        return name, 0 if head is None else parse_sequence(head.value, head.key), read.revision

    def _has_something(self) -> bool:
        return bool(self._arrived or self._superseded) or self._next <= self._behind[0]

    def _read_behind(self) -> Iterator[Stored]:
        head, revision = self._behind
        return read_frames(self._client, self._keys, self._next - 1, head, revision)

    def _tell(self, stored: Stored, found: list[tuple[int, memoryview]]) -> None:
        if stored.kind is Kind.DATA:
            found.append((stored.sequence, stored.payload))
        self._next = stored.sequence + 1

    def _peek(self) -> KeyValue | None:
        with self._changed:
            return self._arrived[0] if self._arrived else None

    def _drop_first(self) -> None:
        with self._changed:
            self._arrived_bytes -= len(self._arrived.popleft().value)
            self._changed.notify_all()

    # --- by the watch's thread -----------------------------------------------------------------------------------

    def _take(self, events: tuple[Event, ...]) -> None:
        with self._changed:
            # What is not taken in yet is not listened to further: etcd keeps it.
            self._changed.wait_for(lambda: self._arrived_bytes < limits.ETCD_WATCHED_BYTES_MAX or not self._listening)
            for event in events:
                if self._listening and not event.deleted:
                    self._arrived.append(event.kv)
                    self._arrived_bytes += len(event.kv.value)
            self._changed.notify_all()

    def _lose_track(self) -> None:
        with self._changed:
            self._superseded = f"etcd no longer has what comes after frame {self.last_sequence}"
            self._changed.notify_all()

    def _stop_watching(self) -> None:
        with self._changed:
            watch, self._watch = self._watch, None
            self._listening = False
            self._changed.notify_all()
        if watch is not None:
            watch.close()
