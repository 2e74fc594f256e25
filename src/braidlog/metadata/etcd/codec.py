"""etcd's messages as bytes, as far as they are used here: protobuf's wire format, written by hand. Pure.

Requests are built by functions and by `Txn`; answers are read into tuples. Fields that are not known are skipped, as
the format asks. Anything that is not well-formed raises `Malformed`, and nothing else: what comes in was not written by
us. Numbers are 64 bits: negative ones take ten bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_MASK: Final = (1 << 64) - 1

Value: TypeAlias = int | memoryview


class Malformed(Exception):
    """These bytes are not the message that they should be."""


# --- the format ------------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    number &= _MASK
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field that is a number or a flag. Zero is left out, as it is what a missing field means."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def text(field: int, value: bytes) -> bytes:
    """A field that is bytes, a text, or a message that may be left out when it is empty."""
    return message(field, value) if value else b""


def message(field: int, value: bytes) -> bytes:
    """A field that is a message: there even if it is empty."""
    return b"".join((_varint(field << 3 | _BYTES), _varint(len(value)), value))


def fields(data: bytes | memoryview) -> Iterator[tuple[int, Value]]:
    """Each field of a message with its number, in order."""
    view = memoryview(data)
    at, end = 0, len(view)
    while at < end:
        tag, at = _read_varint(view, at)
        field, kind = tag >> 3, tag & 7
        if not 0 < field < 1 << 29:
            raise Malformed(f"field number {field}")
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield field, value
            continue
        if kind == _BYTES:
            length, at = _read_varint(view, at)
        elif kind == _FIXED64:
            length = 8
        elif kind == _FIXED32:
            length = 4
        else:
            raise Malformed(f"wire type {kind}")
        if length > end - at:
            raise Malformed(f"field {field} of {length} bytes, and {end - at} are left")
        yield field, view[at : at + length]
        at += length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(view))):
        byte = view[place]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK, place + 1
        shift += 7
    raise Malformed("a number without an end")


def _number(value: Value) -> int:
    """As etcd means it: signed."""
    if not isinstance(value, int):
        raise Malformed("bytes where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def _view(value: Value) -> memoryview:
    if isinstance(value, int):
        raise Malformed("a number where bytes belong")
    return value


def _bytes(value: Value) -> bytes:
    return bytes(_view(value))


def _text(value: Value) -> str:
    return _bytes(value).decode("utf-8", "replace")


# --- keys and transactions -------------------------------------------------------------------------------------------


class KeyValue(NamedTuple):
    key: bytes
    value: bytes
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class Compare(NamedTuple):
    """That a key was created, or changed last, at a revision; 0 means that it is not there."""

    key: bytes
    revision: int
    created: bool  # whether it is the revision of its creation or of its last change


class Get(NamedTuple):
    """A key, or the keys from it up to `end`."""

    key: bytes
    end: bytes = b""
    limit: int = 0
    revision: int = 0  # as it was then; 0 for now
    keys_only: bool = False


class Put(NamedTuple):
    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    key: bytes
    end: bytes = b""


Op: TypeAlias = Get | Put | Delete


class Txn(NamedTuple):
    """If all comparisons hold then one list of operations, else the other, at once."""

    compares: tuple[Compare, ...]
    then: tuple[Op, ...]
    otherwise: tuple[Op, ...] = ()

    @property
    def payload_bytes(self) -> int:
        """About what it weighs."""
        return sum(len(op.value) for op in self.then if isinstance(op, Put))


class Found(NamedTuple):
    """What a `Get` answers."""

    kvs: tuple[KeyValue, ...]
    more: bool
    revision: int  # of the store


class TxnAnswer(NamedTuple):
    succeeded: bool
    revision: int  # of the store after it: of what it put, if it put something
    found: tuple[tuple[KeyValue, ...], ...]  # of each operation; empty of those that are no `Get`


def encode_get(get: Get) -> bytes:
    return b"".join(
        (
            text(1, get.key),
            text(2, get.end),
            number(3, get.limit),
            number(4, get.revision),
            number(8, get.keys_only),
        )
    )


def encode_put(put: Put) -> bytes:
    return text(1, put.key) + text(2, put.value) + number(3, put.lease)


def encode_delete(delete: Delete) -> bytes:
    return text(1, delete.key) + text(2, delete.end)


def encode_txn(txn: Txn) -> bytes:
    parts = [message(1, _encode_compare(compare)) for compare in txn.compares]
    parts += [message(2, _encode_op(op)) for op in txn.then]
    parts += [message(3, _encode_op(op)) for op in txn.otherwise]
    return b"".join(parts)


def _encode_compare(compare: Compare) -> bytes:
    target, field = (1, 5) if compare.created else (2, 6)
    revision = _varint(field << 3 | _VARINT) + _varint(compare.revision)  # one of several: there even if it is 0
    return number(2, target) + text(3, compare.key) + revision


def _encode_op(op: Op) -> bytes:
    if isinstance(op, Get):
        return message(1, encode_get(op))
    if isinstance(op, Put):
        return message(2, encode_put(op))
    return message(3, encode_delete(op))


def decode_found(data: bytes | memoryview) -> Found:
    kvs: list[KeyValue] = []
    more, revision = False, 0
    for field, value in fields(data):
        if field == 1:
            revision = _revision(value)
        elif field == 2:
            kvs.append(_decode_kv(value))
        elif field == 3:
            more = bool(_number(value))
    return Found(tuple(kvs), more, revision)


def decode_txn(data: bytes) -> TxnAnswer:
    succeeded, revision = False, 0
    found: list[tuple[KeyValue, ...]] = []
    for field, value in fields(data):
        if field == 1:
            revision = _revision(value)
        elif field == 2:
            succeeded = bool(_number(value))
        elif field == 3:
            kvs: tuple[KeyValue, ...] = ()
            for kind, answer in fields(_view(value)):
                if kind == 1:
                    kvs = decode_found(_view(answer)).kvs
            found.append(kvs)
    return TxnAnswer(succeeded, revision, tuple(found))


def _decode_kv(data: Value) -> KeyValue:
    key = value = b""
    created = changed = lease = 0
    for field, content in fields(_view(data)):
        if field == 1:
            key = _bytes(content)
        elif field == 2:
            created = _number(content)
        elif field == 3:
            changed = _number(content)
        elif field == 5:
            value = _bytes(content)
        elif field == 6:
            lease = _number(content)
    return KeyValue(key, value, created, changed, lease)


def _revision(header: Value) -> int:
    revision = 0
    for field, value in fields(_view(header)):
        if field == 3:
            revision = _number(value)
    return revision


def decode_revision(data: bytes) -> int:
    """Of the store, from any answer: its header is its first field."""
    revision = 0
    for field, value in fields(data):
        if field == 1:
            revision = _revision(value)
    return revision


def encode_compact(revision: int) -> bytes:
    return number(1, revision)


# --- watches ---------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """A change of a key; of a deleted one only its key and the revision of the deletion are there."""

    deleted: bool
    kv: KeyValue


class WatchAnswer(NamedTuple):
    created: bool
    canceled: bool
    compact_revision: int  # what was before it is no more; 0 unless that is why the watch was cancelled
    reason: str
    events: tuple[Event, ...]


WATCH_PROGRESS: Final = message(3, b"")  # asks for a sign of life


def encode_watch(key: bytes, end: bytes, start_revision: int, *, puts_only: bool) -> bytes:
    """Answers of many bytes may come in pieces, each of which is an answer."""
    without = message(5, b"\1") if puts_only else b""
    return message(1, b"".join((text(1, key), text(2, end), number(3, start_revision), without, number(8, True))))


def decode_watch(data: bytes) -> WatchAnswer:
    created = canceled = False
    compact, reason = 0, ""
    events: list[Event] = []
    for field, value in fields(data):
        if field == 3:
            created = bool(_number(value))
        elif field == 4:
            canceled = bool(_number(value))
        elif field == 5:
            compact = _number(value)
        elif field == 6:
            reason = _text(value)
        elif field == 11:
            events.append(_decode_event(value))
    return WatchAnswer(created, canceled, compact, reason, tuple(events))


def _decode_event(data: Value) -> Event:
    deleted, kv = False, KeyValue(b"", b"")
    for field, value in fields(_view(data)):
        if field == 1:
            deleted = _number(value) == 1
        elif field == 2:
            kv = _decode_kv(value)
    return Event(deleted, kv)


# --- leases ----------------------------------------------------------------------------------------------------------


class Lease(NamedTuple):
    id: int
    ttl_s: int  # as granted or renewed; not above 0 if there is no such lease
    error: str = ""


def encode_grant(ttl_s: int) -> bytes:
    return number(1, ttl_s)


def encode_lease(lease: int) -> bytes:
    """To keep one alive, or to revoke it."""
    return number(1, lease)


def decode_lease(data: bytes) -> Lease:
    lease = ttl = 0
    error = ""
    for field, value in fields(data):
        if field == 2:
            lease = _number(value)
        elif field == 3:
            ttl = _number(value)
        elif field == 4:
            error = _text(value)
    return Lease(lease, ttl, error)


# --- the cluster itself ----------------------------------------------------------------------------------------------


class MemberStatus(NamedTuple):
    member: int
    leader: int  # the member that leads; 0 if none is known
    version: str
    db_bytes: int


def decode_status(data: bytes) -> MemberStatus:
    member = leader = size = 0
    version = ""
    for field, value in fields(data):
        if field == 1:
            for inner, content in fields(_view(value)):
                if inner == 2:
                    member = _number(content)
        elif field == 2:
            version = _text(value)
        elif field == 3:
            size = _number(value)
        elif field == 4:
            leader = _number(value)
    return MemberStatus(member, leader, version, size)


def encode_authenticate(user: str, password: str) -> bytes:
    return text(1, user.encode()) + text(2, password.encode())


def decode_token(data: bytes) -> str:
    token = ""
    for field, value in fields(data):
        if field == 2:
            token = _text(value)
    return token


def after_prefix(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin so."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else b"\0"
