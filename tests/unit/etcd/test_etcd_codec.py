"""etcd's messages by hand: what is written is what protobuf has, and what is read may be anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.metadata.etcd import codec
from braidlog.metadata.etcd.codec import Compare, Delete, Get, KeyValue, Malformed, Put, Txn

NUMBERS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
KVS = st.builds(KeyValue, st.binary(max_size=300), st.binary(max_size=300), NUMBERS, NUMBERS, NUMBERS)
DECODERS = [
    codec.decode_found,
    codec.decode_txn,
    codec.decode_watch,
    codec.decode_lease,
    codec.decode_status,
    codec.decode_token,
    codec.decode_revision,
]


def encode_kv(kv: KeyValue) -> bytes:
    return b"".join(
        (
            codec.text(1, kv.key),
            codec.number(2, kv.create_revision),
            codec.number(3, kv.mod_revision),
            codec.text(5, kv.value),
            codec.number(6, kv.lease),
        )
    )


def header(revision: int) -> bytes:
    return codec.message(1, codec.number(1, 1 << 63) + codec.number(3, revision) + codec.number(4, 7))


def test_requests_are_the_bytes_that_protobuf_makes_of_them() -> None:
    assert codec.encode_get(Get(b"a", b"b", 300, 5, keys_only=True)) == bytes.fromhex("0a0161 120162 18ac02 2005 4001")
    assert codec.encode_put(Put(b"k", b"v", 9)) == bytes.fromhex("0a016b 120176 1809")
    assert codec.encode_delete(Delete(b"k", b"l")) == bytes.fromhex("0a016b 12016c")
    assert codec.encode_txn(Txn((Compare(b"k", 0, created=True),), (Put(b"k", b"v"),), (Get(b"k"),))) == bytes.fromhex(
        "0a07 1001 1a016b 2800 1208 1206 0a016b 120176 1a05 0a03 0a016b"
    )
    assert codec.encode_txn(Txn((Compare(b"k", 5, created=False),), ())) == bytes.fromhex("0a07 1002 1a016b 3005")
    assert codec.encode_watch(b"k", b"l", 3, puts_only=True) == bytes.fromhex("0a0d 0a016b 12016c 1803 2a0101 4001")
    assert bytes.fromhex("1a00") == codec.WATCH_PROGRESS
    assert codec.encode_lease(-1) == bytes.fromhex("08 ffffffffffffffffff01")


@given(st.lists(KVS, max_size=5), NUMBERS, st.booleans())
def test_what_was_found_is_read_back(kvs: list[KeyValue], revision: int, more: bool) -> None:
    data = header(revision) + b"".join(codec.message(2, encode_kv(kv)) for kv in kvs) + codec.number(3, more)
    assert codec.decode_found(data) == codec.Found(tuple(kvs), more, revision)
    assert codec.decode_revision(data) == revision


@given(st.lists(st.lists(KVS, max_size=2), max_size=3), NUMBERS, st.booleans())
def test_the_answer_to_a_transaction_is_read_back(ops: list[list[KeyValue]], revision: int, succeeded: bool) -> None:
    data = header(revision) + codec.number(2, succeeded)
    for kvs in ops:
        found = b"".join(codec.message(2, encode_kv(kv)) for kv in kvs)
        data += codec.message(3, codec.message(1, found))
    data += codec.message(3, codec.message(2, b""))  # of a put
    assert codec.decode_txn(data) == codec.TxnAnswer(succeeded, revision, (*(tuple(kvs) for kvs in ops), ()))


@given(st.lists(st.tuples(st.booleans(), KVS), max_size=5), NUMBERS)
def test_events_are_read_back(events: list[tuple[bool, KeyValue]], compacted: int) -> None:
    data = header(1) + codec.number(5, compacted) + codec.text(6, b"why")
    for deleted, kv in events:
        data += codec.message(11, codec.number(1, deleted) + codec.message(2, encode_kv(kv)))
    answer = codec.decode_watch(data)
    assert [(event.deleted, event.kv) for event in answer.events] == events
    assert (answer.compact_revision, answer.reason, answer.created, answer.canceled) == (compacted, "why", False, False)


@given(KVS, st.integers(min_value=100, max_value=(1 << 29) - 1), st.binary(max_size=20))
def test_fields_of_a_newer_etcd_are_skipped(kv: KeyValue, field: int, content: bytes) -> None:
    strange = codec.message(field, content) + codec.number(field, 5)
    data = header(3) + strange + codec.message(2, strange + encode_kv(kv))
    assert codec.decode_found(data) == codec.Found((kv,), False, 3)


@given(st.binary(max_size=200), st.sampled_from(DECODERS))
def test_any_bytes_are_a_message_or_malformed(data: bytes, decode: object) -> None:
    assert callable(decode)
    try:
        decode(data)
    except Malformed:
        pass


@given(KVS, st.sampled_from(DECODERS), st.data())
def test_a_message_that_was_cut_or_changed_is_one_or_malformed(
    kv: KeyValue, decode: object, data: st.DataObject
) -> None:
    assert callable(decode)
    whole = bytearray(header(9) + codec.message(2, encode_kv(kv)) + codec.message(3, codec.message(1, encode_kv(kv))))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    for message in (bytes(whole), bytes(whole[:at])):
        try:
            decode(message)
        except Malformed:
            pass


@pytest.mark.parametrize(
    "data", [b"\x00\x00", b"\x0f", b"\x0b", b"\x12\x05ab", b"\xff" * 11, b"\x08" + b"\x80" * 12, b"\x08", b"\x09abc"]
)
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(codec.fields(data))


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/log/", b"/log0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0")], ids=["plain", "carried", "all"]
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert codec.after_prefix(prefix) == end
