"""Batches from outside: what is no batch of records is refused with a reason, and what is taken can be read back."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog import limits
from braidlog.broker import admission
from braidlog.errors import InvalidArgument
from braidlog.facts import UploadedBlock, UploadedObject
from braidlog.forest import commands as c
from braidlog.objects.batch import SCHEMA, Batch, encode, records, to_arrow
from braidlog.objects.format import ObjectWriter, check_object, read_block
from braidlog.objects.messages import Message
from braidlog.wire.frames import Body

CLIENT = b"8 bytes."
ID = CLIENT + bytes(8)
COMMAND = c.Append(1, 0, 0, 0, 0, request=ID)
GOOD = Batch([b"a", b"", b"ccc"], [b"k", None, b""], [[("n", b"v")], [], [("ü", b""), ("", b"x")]], [1, -2, 3])


def message(columns: pa.RecordBatch, compression: str | None = None) -> memoryview:
    if compression is None:
        return memoryview(columns.serialize()).cast("B")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(columns)
    return _message_of(sink.getvalue(), "record batch")


def _message_of(stream: pa.Buffer, kind: str) -> memoryview:
    for said in pa.ipc.MessageReader.open_stream(stream):
        if said.type == kind:
            return memoryview(said.serialize()).cast("B")
    raise AssertionError(f"there is no {kind}")


def block(body: memoryview) -> tuple[c.Append, pa.RecordBatch]:
    return admission.block(COMMAND, body, CLIENT)


def batch(body: bytes) -> c.Append:
    return admission.batch(COMMAND, memoryview(body), CLIENT)


def columns_with(**changed: pa.Array) -> pa.RecordBatch:
    """Records of which some columns are other than they may be."""
    good = to_arrow([GOOD])
    columns = [changed.get(field.name, good.column(field.name)) for field in SCHEMA]
    fields = [pa.field(f.name, column.type) for f, column in zip(SCHEMA, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def test_a_block_is_taken_for_what_it_is() -> None:
    command, columns = block(message(to_arrow([GOOD])))
    assert (command.count, command.size, command.least, command.greatest) == (3, GOOD.size, -2, 3)
    assert columns.equals(to_arrow([GOOD]))


def test_a_block_is_stored_as_it_came() -> None:
    body = message(to_arrow([GOOD]))
    stored = admission.as_stored(block(body)[1], Body(body, 7))
    assert isinstance(stored, Message)
    assert stored.data is body
    assert stored.crc == 7


def test_a_block_with_bytes_that_are_of_no_record_is_stored_without_them() -> None:
    columns = to_arrow([GOOD])
    body = bytearray(message(columns))
    length = len(body) - 8 - int.from_bytes(body[4:8], "little")
    said = struct.pack("<q", length)
    assert body.count(said, 0, len(body) - length) == 1
    at = body.index(said)
    body[at : at + 8] = struct.pack("<q", length + 4096)
    body += bytes(4096)
    taken = block(memoryview(body))[1]
    assert taken.equals(columns)
    assert admission.as_stored(taken, Body(memoryview(body), 7)) is taken


@pytest.mark.parametrize("seed", range(20))
def test_what_was_taken_makes_an_object_that_is_whole(seed: int) -> None:
    """However a message was tampered with: it is refused, or what is stored of it is what was checked."""
    chance = random.Random(seed)
    good = bytes(message(to_arrow([GOOD])))
    taken = 0
    for _ in range(300):
        body = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 4, 8, 255, chance.randrange(256)))
        try:
            command, columns = block(memoryview(body))
        except InvalidArgument:
            continue
        writer = ObjectWriter()
        writer.add(admission.as_stored(columns, Body(memoryview(body), crc32c(body))))
        object = writer.finish()
        whole = b"".join(object.parts)
        check_object("tampered", whole, object.crc, object.blocks)
        [place] = object.blocks
        found = read_block("tampered", place, whole[place.offset : place.offset + place.length])
        assert found.equals(columns)
        assert found.num_rows == command.count
        taken += 1
    assert taken


@pytest.mark.parametrize("count", [1, 1000, 5000])
def test_the_span_of_a_block_is_that_of_its_records(count: int) -> None:
    moments = [(number * 7919) % 10_007 - 5000 for number in range(count)]
    command, _ = block(message(to_arrow([Batch([b""] * count, timestamps=moments)])))
    assert (command.least, command.greatest) == (min(moments), max(moments))


def test_a_batch_is_taken_for_what_it_is_whatever_its_sender_says() -> None:
    lying = msgspec.structs.replace(COMMAND, count=99, size=1, least=7, greatest=7, crc=5)
    command = admission.batch(lying, memoryview(encode(GOOD)), CLIENT)
    assert (command.count, command.size, command.least, command.greatest) == (3, GOOD.size, -2, 3)
    assert command.payload == encode(GOOD)


def test_a_slice_of_a_larger_block_is_a_block() -> None:
    many = to_arrow([Batch([b"%d" % n for n in range(50)], None, [[("n", b"%d" % n)] * (n % 3) for n in range(50)], 4)])
    part = many.slice(7, 20)
    command, columns = block(message(part))
    assert command.count == 20
    assert records(columns, 0, 20, 0) == records(many, 7, 20, 0)


def headers(rows: list[list[tuple[str, bytes]] | None]) -> pa.Array:
    return pa.array(rows, SCHEMA.field("headers").type)


BAD_BLOCKS: dict[str, Callable[[], memoryview]] = {
    "nothing": lambda: memoryview(b""),
    "a few bytes": lambda: memoryview(b"\xff\xff\xff\xff\x10\x00"),
    "zeros": lambda: memoryview(bytes(1000)),
    "no records": lambda: message(to_arrow([GOOD]).slice(0, 0)),
    "a schema": lambda: memoryview(SCHEMA.serialize()).cast("B"),
    "a batch as msgpack": lambda: memoryview(encode(GOOD)),
    "another schema": lambda: message(pa.record_batch({"value": pa.array([b"x"])})),
    "more columns": lambda: message(pa.record_batch({str(n): pa.array([1]) for n in range(9)})),
    "timestamps missing": lambda: message(
        columns_with(timestamp=pa.array([1, None, 3], SCHEMA.field("timestamp").type))
    ),
    "values missing": lambda: message(columns_with(value=pa.array([b"a", None, b"c"], pa.binary()))),
    "headers missing": lambda: message(columns_with(headers=headers([[], None, []]))),
    "a header missing": lambda: message(columns_with(headers=headers([[None], [], []]))),  # type: ignore[list-item]
    "a header's name missing": lambda: message(
        columns_with(headers=headers([[(None, b"v")], [], []]))  # type: ignore[list-item]
    ),
    "a header's value missing": lambda: message(
        columns_with(headers=headers([[("n", None)], [], []]))  # type: ignore[list-item]
    ),
    "too many headers": lambda: message(to_arrow([Batch([b""], None, [[("n", b"")] * 257])])),
    "a long name": lambda: message(to_arrow([Batch([b""], None, [[("n" * 1025, b"")]])])),
    "a long record": lambda: message(to_arrow([Batch([b"", bytes(limits.RECORD_BYTES_MAX + 1)])])),
    "a long key": lambda: message(to_arrow([Batch([b"", b""], [None, bytes(limits.RECORD_BYTES_MAX + 1)])])),
    "long headers": lambda: message(
        to_arrow([Batch([b"", b""], None, [[], [("n", bytes(limits.RECORD_BYTES_MAX // 2 + 1))] * 2])])
    ),
    "the first moment of all": lambda: message(
        columns_with(timestamp=pa.array([1, 2, -(2**63)], SCHEMA.field("timestamp").type))
    ),
    "lz4": lambda: message(to_arrow([GOOD]), compression="lz4"),
    "zstd": lambda: message(to_arrow([Batch([bytes(10_000)] * 1000)]), compression="zstd"),
    "a dictionary": lambda: _dictionary_message(),
}


def _dictionary_message() -> memoryview:
    column = pa.array([b"a", b"b", b"a"], pa.binary()).dictionary_encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["value"]))
    return _message_of(sink.getvalue(), "dictionary")


@pytest.mark.parametrize("name", BAD_BLOCKS)
def test_a_block_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        block(BAD_BLOCKS[name]())


def test_offsets_that_lead_out_of_the_block_are_refused() -> None:
    """Each offset of each column in turn, whatever the checksum of the frame says."""
    data = bytearray(message(to_arrow([GOOD])))
    wrong = 0
    for at in range(len(data) // 2, len(data) - 3, 4):
        kept = data[at : at + 4]
        for bad in (-1, 1 << 30, 77, -(1 << 31)):
            struct.pack_into("<i", data, at, bad)
            wrong += _is_refused_or_can_be_read(bytes(data))
        data[at : at + 4] = kept
    assert wrong > 20


def _is_refused_or_can_be_read(data: bytes) -> bool:
    try:
        command, columns = block(memoryview(data))
    except InvalidArgument:
        return True
    found = records(columns, 0, command.count, 0)
    assert len(found) == command.count
    assert sum(record.size for record in found) == command.size
    again, _ = block(message(columns))
    assert (again.count, again.size) == (command.count, command.size)
    return False


def test_damaged_blocks_are_refused_or_can_be_read() -> None:
    good = bytes(message(to_arrow([GOOD])))
    for length in range(0, len(good), 3):
        _is_refused_or_can_be_read(good[:length])
    rng = random.Random(5)
    for _ in range(4000):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        _is_refused_or_can_be_read(bytes(data))


@given(st.binary(max_size=300))
def test_random_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        block(memoryview(data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        b"\x90",
        msgspec.msgpack.encode([[]]),
        msgspec.msgpack.encode([[b"a"], [b"k", b"l"]]),
        msgspec.msgpack.encode([[b"a"], None, [[], []]]),
        msgspec.msgpack.encode([[b"a"], None, None, [1, 2]]),
        msgspec.msgpack.encode([[b"a", b"b"], None, None, [1, 2**63]]),
        msgspec.msgpack.encode([[b"a"], None, None, -(2**63)]),
        msgspec.msgpack.encode([[b"a"], None, None, 2**64 - 1]),
        msgspec.msgpack.encode([[b"a"], None, None, 1.5]),
        msgspec.msgpack.encode([[b"a"], None, None, None]),
        msgspec.msgpack.encode([["text"], None, None, 1]),
        msgspec.msgpack.encode([[b"a"], None, [[("n",)]], 1]),
        msgspec.msgpack.encode([[b"a"], None, [[("n", b"v")] * 257], 1]),
        msgspec.msgpack.encode([[b"a"], None, [[("n" * 1025, b"v")]], 1]),
        msgspec.msgpack.encode([[b"a"], None, [[(None, b"v")]], 1]),
        b"\x94\x91\xc4\x01a\xc0\x91\x91\x92\xa2\xff\xfe\xc4\x01v\x01",  # a name that is no UTF-8
        b"\x91\xdd\xff\xff\xff\xff\xc4\x00",
        b"\x92\x91\xc4\x00\xdd\xff\xff\xff\xff\xc0",
        b"\x91\x91\xc6\xff\xff\xff\xff",
        encode(Batch([b""] * (limits.BATCH_RECORDS_MAX + 1))),
        encode(Batch([b"", bytes(limits.RECORD_BYTES_MAX + 1)])),
        encode(Batch([b"", b""], [None, bytes(limits.RECORD_BYTES_MAX + 1)])),
        encode(Batch([bytes(limits.RECORD_BYTES_MAX)] * 5)),
    ],
    ids=range(25),
)
def test_a_batch_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        batch(body)


@given(st.binary(max_size=60))
def test_random_bytes_are_no_batch_or_can_be_read(data: bytes) -> None:
    try:
        command = batch(data)
    except InvalidArgument:
        return
    assert len(records(to_arrow([admission.decode(data)]), 0, command.count, 0)) == command.count


@pytest.mark.parametrize(
    "command",
    [
        c.Append(1, 0, 0, 0, 0, request=b""),
        c.Append(1, 0, 0, 0, 0, request=b"7 bytes" + bytes(9)),
        c.Append(1, 0, 0, 0, 0, request=ID + b"."),
        c.Append(1, 0, 0, 0, 0, b"payload", request=ID),
        c.Append(1, 0, 0, 0, 0, object="o", request=ID),
        c.Append(1, 0, 0, 0, 0, offset=1, request=ID),
        c.Append(1, 0, 0, 0, 0, row=1, request=ID),
        c.Append(2**63, 0, 0, 0, 0, request=ID),
        c.Append(-2, 0, 0, 0, 0, request=ID),
        c.Append(1, 0, 0, 0, 0, expected_tail=2**64 - 1, request=ID),
        c.Append(1, 0, 0, 0, 0, writer="w", request=ID),
        c.Append(1, 0, 0, 0, 0, writer="w" * 257, sequence=1, request=ID),
    ],
)
def test_where_its_bytes_are_and_who_it_is_of_is_not_for_a_client_to_make_up(command: c.Append) -> None:
    for admit, body in ((admission.batch, encode(GOOD)), (admission.block, message(to_arrow([GOOD])))):
        with pytest.raises(InvalidArgument):
            admit(command, memoryview(body), CLIENT)


FAR_US = 2**62


@pytest.mark.parametrize(
    "command",
    [
        c.Opened(9, 0),
        c.Expire(1, 0),
        c.Retain(1, 0),
        c.Settle(CLIENT, 9),
        c.Admit(0, ID),
        c.Retire(1, ID),
        c.Register("o", 1, 1, 1, 1),
        c.Pack("o", []),
        c.Relocate("o", []),
        c.Collect(0),
        c.Forget(["o"]),
        c.Append(1, 1, 1, 0, 0, b"x", request=ID),
        c.Again(c.Squash(1, request=ID), 1),
        c.Create("x", 0),
        c.Create("no name!", 0, request=ID),
        c.Create("", 0, request=ID),
        c.Create("x", 0, retain_age_us=FAR_US, request=ID),
        c.Create("x", 0, retain_bytes=-2, request=ID),
        c.Create("x", 0, owner="o" * 257, request=ID),
        c.Create("x", 0, labels={"": "x"}, request=ID),
        c.Create("x", 0, labels={"x": "y" * 1025}, request=ID),
        c.Create("x", 0, labels={str(n): "" for n in range(65)}, request=ID),
        c.CFork(1, "x", 0, ttl_us=FAR_US, request=ID),
        c.CFork(1, "x", 0, True, lease_us=FAR_US, request=ID),
        c.SFork(1, "x", 0, ttl_us=FAR_US, request=ID),
        c.SFork(1, "x", 0, at=-5, request=ID),
        c.Trim(1, 2**64 - 1, ID),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_change_that_no_client_may_ask_for_is_refused(command: c.Command) -> None:
    with pytest.raises(InvalidArgument):
        admission.change(command, CLIENT, 5)


def test_the_time_is_the_servers() -> None:
    made = admission.change(c.Create("x", 10**15, request=ID), CLIENT, 5)
    assert made == c.Create("x", 5, request=ID)


# --- publications --------------------------------------------------------------------------------------------------

BLOCK = UploadedBlock(100, 200, 3, 4, 50, -6, 7)
OBJECT = UploadedObject("00000002-0000000a.arrow", 300, 8, [BLOCK])
PUBLISH = c.Publish(1, [OBJECT], [2], 0, request=ID)


def published(**changed: object) -> c.Publish:
    return msgspec.structs.replace(PUBLISH, **changed)


def of_block(**changed: object) -> c.Publish:
    return published(objects=[msgspec.structs.replace(OBJECT, blocks=[msgspec.structs.replace(BLOCK, **changed)])])


def test_a_publication_is_taken_as_of_now() -> None:
    assert admission.change(PUBLISH, CLIENT, 99) == published(now=99)
    assert admission.change(c.Upload(1, 3, 5, ID), CLIENT, 99) == c.Upload(1, 99, 5, ID)
    assert admission.change(c.Discard(1, 3, ID), CLIENT, 99) == c.Discard(1, 3, ID)


@pytest.mark.parametrize(
    "command",
    [
        published(epochs=[]),
        published(epochs=[0]),
        published(epochs=[2**32]),
        published(epochs=[2] * (limits.PUBLISH_UPLOADS_MAX + 1)),
        published(objects=[OBJECT] * (limits.PUBLISH_OBJECTS_MAX + 1)),
        published(objects=[msgspec.structs.replace(OBJECT, blocks=[BLOCK] * (limits.PUBLISH_BLOCKS_MAX + 1))]),
        published(objects=[msgspec.structs.replace(OBJECT, object="../00000002-0000000a.arrow")]),
        published(objects=[msgspec.structs.replace(OBJECT, object="")]),
        published(objects=[msgspec.structs.replace(OBJECT, size=-1)]),
        published(objects=[msgspec.structs.replace(OBJECT, crc=2**32)]),
        published(writer="w", sequence=-1),
        published(writer="w" * 10_000, sequence=1),
        published(expected_tail=-2),
        published(request=b"another's id 1234"),
        of_block(offset=-1),
        of_block(length=0),
        of_block(length=2**40),
        of_block(crc=-1),
        of_block(count=0),
        of_block(count=2**62),
        of_block(size=-1),
        of_block(size=10**6),
        of_block(least=8),
        of_block(greatest=2**63),
        of_block(least=-(2**63)),
        c.Upload(1, 0, 0, ID),
        c.Upload(1, 0, -5, ID),
        c.Upload(1, 0, round(limits.UPLOAD_TTL_MAX_S * 1e6) + 1, ID),
        c.Upload(1, 0, 5, b""),
        c.Discard(-2, 1, ID),
    ],
)
def test_what_no_publication_says_is_refused(command: c.Command) -> None:
    with pytest.raises(InvalidArgument):
        admission.change(command, CLIENT, 99)
