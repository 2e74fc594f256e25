"""The command log in etcd: one slot for each frame, appended to by whoever holds the term.

Promises what `CommandLog` does. An append is one fenced transaction, after those that carry what does not fit into it;
exactly one is under way. When its answer is lost the same transaction is sent again, to other members, until etcd says
what became of it. What cannot be found out is OutcomeUnknown, and ends this log as the loss of the term does.

`drop_through` may be called by another thread than `append`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import NamedTuple

from braidlog import limits
from braidlog.errors import InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.metadata import frames
from braidlog.metadata.etcd.client import EtcdClient, Refused
from braidlog.metadata.etcd.codec import Delete, Get, KeyValue, Op, after_prefix
from braidlog.metadata.etcd.core import Committed, Decree, Done, Ended, Head, Leading, NotWritten, Register
from braidlog.metadata.etcd.driving import drive
from braidlog.metadata.etcd.keys import ID_BYTES, Keys, cut_frame, join_frame, parse_slot
from braidlog.metadata.etcd.leadership import Term
from braidlog.metadata.frames import Kind
from braidlog.metadata.home import Deposed


class EtcdLog:
    """The one writer of the command log below a prefix, for a term."""

    def __init__(self, client: EtcdClient, keys: Keys, term: Term, head: Head, bytes_behind: int) -> None:
        self._client = client
        self._keys = keys
        self._term = term
        self._leading = Leading(keys, term.fence, head)
        self._bytes_since_roll = bytes_behind
        self._refusal = ""  # why nothing can be appended any more
        self._dropped_revision = 0  # of the last drop

    @property
    def last_sequence(self) -> int:
        return self._leading.head.sequence

    @property
    def bytes_since_roll(self) -> int:
        return self._bytes_since_roll

    def append(self, payload: frames.Payload) -> int:
        """Store one frame; returns its sequence.

        Raises Deposed if this term is over and the frame is not in the log, Unavailable if it is not and the next one
        may find etcd in a better state, and OutcomeUnknown if it may be there: then nothing is appended any more.
        """
        length = frames.payload_bytes(payload)
        if length > limits.FRAME_BYTES_MAX:
            raise InvalidArgument(f"a commit of {length:,} bytes: at most {limits.FRAME_BYTES_MAX:,} are allowed")
        return self._commit(Kind.DATA, payload)

    def append_end(self) -> int:
        """The mark of a clean end; it takes a sequence too."""
        return self._commit(Kind.END, b"")

    def roll(self) -> int:
        self._require_usable()
        self._bytes_since_roll = 0
        return self.last_sequence + 1

    def drop_through(self, sequence: int) -> None:
        """Delete the slots up to this one, and let etcd forget what was deleted the time before.

        So followers have the time between two snapshots to read what they are behind. It needs no fence: whoever leads
        meanwhile has a snapshot that covers as much, for they never go back.
        """
        if sequence <= 0:
            return
        keys = self._keys
        self._client.delete(keys.slot(0), keys.slot(sequence + 1))
        done = self._client.delete(keys.parts_from(0), keys.parts_from(sequence + 1))
        before, self._dropped_revision = self._dropped_revision, done
        if before:
            with contextlib.suppress(Unavailable):  # the next drop does it, or etcd by itself if it is told to
                self._client.compact(before)

    def close(self) -> None:
        """Append nothing more. The term is not this log's to end. Safe to call again."""
        self._refusal = self._refusal or "the command log is closed"

    def _commit(self, kind: Kind, payload: frames.Payload) -> int:
        self._require_usable()
        id = secrets.token_bytes(ID_BYTES)
        sequence = self.last_sequence + 1
        cut = cut_frame(id, kind, sequence, payload)
        size = len(cut.slot) + sum(map(len, cut.parts))
        timeout_s = limits.ETCD_APPEND_TIMEOUT_S + size / limits.ETCD_BYTES_PER_S
        try:
            effects = drive(self._client, self._leading.append(id, cut), self._leading.step, timeout_s)
        except BaseException as error:  # an interrupt: nobody knows what became of it
            self._refusal = f"frame {sequence} may or may not be in the log: {error!r}"
            raise
        for effect in effects:
            if isinstance(effect, NotWritten):
                raise Unavailable(f"cannot append to the command log: {effect.message}")
            if isinstance(effect, Ended):
                self._refusal = effect.message
                self._term.lose(effect.message)
                if self.last_sequence >= sequence:
                    break  # it was stored while there was time
                if effect.unknown:
                    raise OutcomeUnknown(effect.message)
                raise self._term.deposed()
        assert isinstance(effects[0], Committed)
        self._bytes_since_roll += size
        return sequence

    def _require_usable(self) -> None:
        if self._term.lost.is_set():
            raise self._term.deposed()
        if self._refusal:
            raise Unavailable(f"{self._refusal}; nothing can be appended until the log is opened again")


def decree(client: EtcdClient, keys: Keys, term: Term, doing: str, *ops: Op, register: Register | None = None) -> int:
    """Change something besides the log as its writer; answers the revision. Unavailable if it may not have happened."""
    change = Decree(keys, term.fence, ops, register)
    [ended] = drive(client, change.begin(), change.step, limits.ETCD_READ_TIMEOUT_S)
    if isinstance(ended, Done):
        return ended.revision
    if isinstance(ended, Ended):
        term.lose(ended.message)
        raise term.deposed()
    assert isinstance(ended, NotWritten)
    raise Unavailable(f"cannot {doing}: {ended.message}")


def sweep_unnamed(client: EtcdClient, keys: Keys, term: Term, head: int) -> None:
    """Remove parts of frames that never got their slot. Those of earlier terms can put no more there."""
    found = client.range(Get(keys.parts_from(head + 1), after_prefix(keys.parts), limit=1, keys_only=True))
    if found.kvs:
        unnamed = Delete(keys.parts_from(head + 1), after_prefix(keys.parts))
        try:
            decree(client, keys, term, "remove unfinished frames", unnamed)
        except Deposed:
            raise
        except (
            Unavailable
        ):  # they are in nobody's way, and the next opening removes them: an etcd that is full does not
            pass


class Stored(NamedTuple):
    """A frame as it was read."""

    sequence: int
    kind: Kind
    payload: memoryview
    bytes: int


class Missing(Exception):
    """A frame that should be there is not, or not whole: the log was cut behind the reader, or is damaged."""


def read_frames(client: EtcdClient, keys: Keys, after: int, upto: int, revision: int = 0) -> Iterator[Stored]:
    """The frames behind `after` up to `upto`, as they were at a revision. Raises Missing, Compacted, Corrupt."""
    sequence, limit = after + 1, limits.ETCD_READ_SLOTS_MIN
    while sequence <= upto:
        get = Get(keys.slot(sequence), keys.slot(upto + 1), limit, revision)
        try:
            found = client.range(get, large=True, timeout_s=limits.ETCD_READ_TIMEOUT_S if limit == 1 else 0)
        except Refused:
            raise
        except Unavailable:  # or is it that so many do not arrive in time?
            if limit == 1:
                raise
            limit = max(limit // 8, 1)
            continue
        size = 0
        for kv in found.kvs:
            if keys.sequence_of(kv.key) != sequence:
                break
            stored = whole_frame(client, keys, sequence, kv, revision)
            yield stored
            size += len(kv.value)
            sequence += 1
        if not found.kvs or keys.sequence_of(found.kvs[-1].key) != sequence - 1:
            raise Missing(f"frame {sequence} of the log is not there, and the log ends at {upto}")
        average = size // len(found.kvs) + 1
        limit = min(max(limits.ETCD_READ_BYTES // average, limits.ETCD_READ_SLOTS_MIN), limits.ETCD_READ_SLOTS_MAX)


def whole_frame(client: EtcdClient, keys: Keys, sequence: int, kv: KeyValue, revision: int) -> Stored:
    """The frame that a slot holds, with its parts as they were at a revision. Raises Missing, Compacted, Corrupt."""
    slot = parse_slot(kv.value, kv.key)
    parts: list[bytes] = []
    pieces = max(limits.ETCD_READ_BYTES // limits.ETCD_PIECE_BYTES_MAX, 1)
    while len(parts) < slot.parts:
        first, last = keys.part(sequence, slot.id, len(parts)), keys.part(sequence, slot.id, slot.parts)
        found = client.range(Get(first, last, pieces, revision), large=True)
        if not found.kvs:
            raise Missing(f"part {len(parts)} of frame {sequence} is not there")
        for part in found.kvs:
            if part.key != keys.part(sequence, slot.id, len(parts)):
                raise Missing(f"part {len(parts)} of frame {sequence} is not there")
            parts.append(part.value)
    frame = join_frame(sequence, kv.key, slot, parts)
    return Stored(sequence, frame.kind, frame.payload, len(kv.value) + sum(map(len, parts)))
