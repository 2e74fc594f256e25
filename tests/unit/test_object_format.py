"""An object is an Arrow file whose blocks can be read alone, and in which no changed byte goes unnoticed."""

from __future__ import annotations

import weakref
from array import array

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import Corrupt, Unavailable
from braidlog.objects.batch import SCHEMA, Batch, to_arrow
from braidlog.objects.format import BlockPlace, Columns, Object, ObjectWriter, check_object, read_block
from braidlog.objects.messages import Message, as_message

NAME = "00000001-00000002.arrow"


def block(*values: bytes) -> pa.RecordBatch:
    return to_arrow([Batch(list(values), timestamps=5)])


def message(batch: pa.RecordBatch) -> Message:
    made = as_message(memoryview(batch.serialize()).cast("B"))
    assert made is not None
    return made


def write(*blocks: Columns) -> Object:
    writer = ObjectWriter()
    for batch in blocks:
        writer.add(batch)
    return writer.finish()


def whole(object: Object) -> bytes:
    return b"".join(object.parts)


def bytes_at(object: Object, place: BlockPlace) -> bytes:
    return bytes(whole(object)[place.offset : place.offset + place.length])


def as_file(schema: pa.Schema, *batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        for batch in batches:
            file.write_batch(batch)
    return sink.getvalue().to_pybytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=4))
def test_each_block_is_read_alone_as_it_was_added(blocks: list[list[bytes]]) -> None:
    added = [block(*values) for values in blocks]
    object = write(*added)
    assert len(object.blocks) == len(added)
    for place, batch in zip(object.blocks, added, strict=True):
        assert read_block(NAME, place, bytes_at(object, place)).equals(batch)
    check_object(NAME, whole(object), object.crc, object.blocks)


@pytest.mark.parametrize("sizes", [[100_000], [70_000, 900_000, 70_000], [200_000, 10, 200_000], [0, 300_000]])
def test_large_blocks_are_not_copied_and_look_the_same(sizes: list[int]) -> None:
    added = [block(bytes([number]) * size, b"end") for number, size in enumerate(sizes)]
    object = write(*added)
    assert len(object.parts) > 1
    assert whole(object) == as_file(SCHEMA, *added)
    assert object.size == len(whole(object))
    check_object(NAME, whole(object), object.crc, object.blocks)
    for place, batch in zip(object.blocks, added, strict=True):
        assert read_block(NAME, place, bytes_at(object, place)).equals(batch)
    addresses = {pa.py_buffer(part).address for part in object.parts}
    for batch in added:
        values = batch.column("value").buffers()[2]
        assert values.address in addresses or values.size < 65_536


@pytest.mark.parametrize("sizes", [[300_000], [1], [0, 70_000, 1_000_000, 3], [5] * 100])
def test_messages_are_written_as_they_are_and_the_file_is_the_one_that_arrow_writes(sizes: list[int]) -> None:
    added = [block(bytes([number]) * size, b"end") for number, size in enumerate(sizes)]
    messages = [message(batch) for batch in added]
    object = write(*messages)
    assert whole(object) == as_file(SCHEMA, *added)
    check_object(NAME, whole(object), object.crc, object.blocks)
    for place, batch in zip(object.blocks, added, strict=True):
        assert read_block(NAME, place, bytes_at(object, place)).equals(batch)
    addresses = {pa.py_buffer(part).address for part in object.parts}
    assert {pa.py_buffer(made.data).address for made in messages} <= addresses


def test_a_checksum_that_came_with_a_message_is_taken_for_its_own() -> None:
    plain = [message(block(bytes([number]) * size)) for number, size in enumerate([300_000, 10, 1_000_000])]
    told = [Message(made.data, made.head, crc32c(made.data)) for made in plain]
    assert (write(*told).crc, write(*told).blocks) == (write(*plain).crc, write(*plain).blocks)
    wrong = [Message(made.data, made.head, 7) for made in plain]
    assert [place.crc for place in write(*wrong).blocks] == [7, 7, 7]


def test_messages_share_an_object_with_what_is_none_yet() -> None:
    added = [block(b"a" * 100_000), block(b"b"), block(b"c" * 100_000)]
    object = write(added[0], message(added[1]), lambda: added[2])
    assert whole(object) == as_file(SCHEMA, *added)
    check_object(NAME, whole(object), object.crc, object.blocks)


def test_bytes_that_no_file_may_hold_are_no_message() -> None:
    good = block(b"x" * 1000).serialize().to_pybytes()
    head = 8 + int.from_bytes(good[4:8], "little")
    assert as_message(memoryview(good)) is not None
    assert as_message(memoryview(good + bytes(8))) is None  # more than it says
    assert as_message(memoryview(good[:-8])) is None
    assert as_message(memoryview(good + bytes(1))) is None  # the next one would begin askew
    assert as_message(memoryview(good[4:] + bytes(4))) is None  # as it was written before there was a marker
    body = len(good) - head
    described = good[8:head].replace(body.to_bytes(8, "little"), (body + 4).to_bytes(8, "little"))
    askew = good[:4] + (head - 4).to_bytes(4, "little") + described + bytes(4) + good[head:] + bytes(4)
    assert pa.ipc.read_record_batch(pa.py_buffer(askew), SCHEMA).num_rows == 1
    assert as_message(memoryview(askew)) is None


def test_columns_are_made_when_their_turn_comes_and_let_go_when_their_bytes_were_taken() -> None:
    alive: list[weakref.ref[pa.RecordBatch]] = []
    writer = ObjectWriter()

    def make() -> pa.RecordBatch:
        assert not any(batch() is not None for batch in alive)
        batch = block(b"x" * 100_000)
        alive.append(weakref.ref(batch))
        return batch

    for _ in range(3):
        writer.add(make)
    assert not alive
    written = b""
    for part in writer.parts():
        written += part
    assert len(alive) == 3
    assert written == as_file(SCHEMA, *[block(b"x" * 100_000)] * 3)
    check_object(NAME, written, writer.crc, writer.blocks)
    assert writer.size == len(written)


def test_any_arrow_reader_opens_an_object() -> None:
    added = [block(b"a", b"b"), block(b"c")]
    file = pa.ipc.open_file(pa.py_buffer(whole(write(*added))))
    assert file.schema.equals(SCHEMA, check_metadata=True)
    assert [file.get_batch(i) for i in range(file.num_record_batches)] == added


def test_blocks_are_numbered_as_they_are_added_and_do_not_overlap() -> None:
    writer = ObjectWriter()
    assert [writer.add(block(b"x" * size)) for size in (1, 100, 1000)] == [0, 1, 2]
    object = writer.finish()
    ends = [place.offset + place.length for place in object.blocks]
    assert [place.offset for place in object.blocks[1:]] == ends[:-1]
    assert ends[-1] < len(whole(object))


def test_a_slice_stores_only_its_own_rows() -> None:
    whole = block(*(b"%03d" % i * 100 for i in range(100)))
    object = write(whole.slice(40, 2))
    [place] = object.blocks
    assert place.length < 2000
    assert read_block(NAME, place, bytes_at(object, place)).equals(whole.slice(40, 2))


def test_a_block_read_from_a_view_is_not_copied() -> None:
    object = write(block(b"x" * 1000))
    [place] = object.blocks
    data = bytes_at(object, place)
    values = read_block(NAME, place, data).column("value").buffers()[2]
    start = pa.py_buffer(data).address
    assert start <= values.address < start + len(data)


def test_a_change_of_any_byte_of_a_block_is_noticed() -> None:
    object = write(block(b"hello", b"world"))
    [place] = object.blocks
    sound = bytes_at(object, place)
    for index in range(len(sound)):
        broken = bytearray(sound)
        broken[index] ^= 1 << index % 8
        with pytest.raises(Corrupt, match="CRC-32C"):
            read_block(NAME, place, broken)


def test_a_change_of_any_byte_of_an_object_is_noticed() -> None:
    object = write(block(b"hello", b"world"))
    for index in range(len(whole(object))):
        broken = bytearray(whole(object))
        broken[index] ^= 0x10
        with pytest.raises(Corrupt, match="CRC-32C"):
            check_object(NAME, broken, object.crc, object.blocks)


def test_a_damaged_block_is_named_with_its_place_and_both_checksums() -> None:
    object = write(block(b"hello"))
    [place] = object.blocks
    broken = bytearray(bytes_at(object, place))
    broken[-1] ^= 1
    with pytest.raises(Corrupt) as caught:
        read_block(NAME, place, broken)
    message = str(caught.value)
    for part in (NAME, f"offset {place.offset}", f"{place.length} bytes", f"{place.crc:08x}", f"{crc32c(broken):08x}"):
        assert part in message


def test_a_block_that_was_cut_short_says_how_much_is_there() -> None:
    object = write(block(b"hello"))
    [place] = object.blocks
    with pytest.raises(Corrupt, match="cut short: 10 bytes are there"):
        read_block(NAME, place, bytes_at(object, place)[:10])


def test_bytes_with_the_right_checksum_that_are_no_record_batch_are_corrupt() -> None:
    for data in (b"", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"x" * 64, SCHEMA.serialize().to_pybytes()):
        with pytest.raises(Corrupt, match="not a record batch"):
            read_block(NAME, BlockPlace(8, len(data), crc32c(data)), data)


def test_a_message_with_any_byte_changed_but_a_right_checksum_raises_nothing_but_corrupt() -> None:
    object = write(block(b"hello", b"world"))
    [place] = object.blocks
    sound = bytes_at(object, place)
    refused = 0
    for index in range(len(sound)):
        broken = bytearray(sound)
        broken[index] ^= 0xFF
        try:
            read_block(NAME, BlockPlace(place.offset, len(broken), crc32c(broken)), broken)
        except Corrupt:
            refused += 1
    assert refused > 0


def test_a_file_that_is_no_arrow_file_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="not an Arrow file"):
        check_object(NAME, b"garbage", crc32c(b"garbage"), [])


def test_an_object_of_a_newer_format_is_not_called_corrupt_but_names_its_version() -> None:
    data = as_file(SCHEMA.with_metadata({b"braidlog.format": b"2"}))
    with pytest.raises(Unavailable, match="has format 2, and this braidlog knows only 1: a newer braidlog wrote it"):
        check_object(NAME, data, crc32c(data), [])


def test_an_arrow_file_of_someone_else_is_corrupt() -> None:
    data = as_file(SCHEMA.remove_metadata())
    with pytest.raises(Corrupt, match="braidlog did not write"):
        check_object(NAME, data, crc32c(data), [])


def test_other_columns_under_a_known_format_are_corrupt() -> None:
    data = as_file(SCHEMA.remove(0))
    with pytest.raises(Corrupt, match="other columns than format 1"):
        check_object(NAME, data, crc32c(data), [])


def test_a_record_batch_whose_offsets_lie_is_found_by_the_full_check() -> None:
    sound = block(b"hel", b"lo")
    offsets = pa.py_buffer(array("i", [0, 9, 5]))  # the second value would begin beyond the data
    lying = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"hello")])
    batch = pa.RecordBatch.from_arrays([sound["timestamp"], sound["key"], lying, sound["headers"]], schema=SCHEMA)
    data = as_file(SCHEMA, batch)
    with pytest.raises(Corrupt, match="record batch 0 is not valid"):
        check_object(NAME, data, crc32c(data), [])


def test_a_place_that_points_elsewhere_is_found_by_the_full_check() -> None:
    object = write(block(b"hello"))
    [place] = object.blocks
    for wrong in (
        BlockPlace(place.offset + 8, place.length, place.crc),
        BlockPlace(len(whole(object)), place.length, place.crc),
    ):
        with pytest.raises(Corrupt, match=f"offset {wrong.offset}"):
            check_object(NAME, whole(object), object.crc, [wrong])
