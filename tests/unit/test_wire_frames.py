"""The stream of frames: however it is cut, it is the same; whatever is not one is refused, and costs nothing."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog import limits
from braidlog.wire import frames
from braidlog.wire.frames import HEADER_BYTES, PREFACE, Frame, Kind, Malformed, Parser, check_preface

MEMORY = pa.system_memory_pool()  # where there is room for frames

Plain = tuple[Kind, int, int, bytes, bytes]

some_frames = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.integers(0, 2**32 - 1),
        st.integers(0, frames.SEEN_MAX),
        st.binary(max_size=80),
        st.binary(max_size=200),
    ),
    max_size=8,
)


def plain(frame: Frame) -> Plain:
    return frame.kind, frame.number, frame.seen, bytes(frame.head), bytes(frame.body.data)


def stream_of(several: list[Plain]) -> bytes:
    return b"".join(piece for frame in several for piece in frames.encode(*frame))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[start:stop] for start, stop in pairwise(places)]


@given(some_frames, st.lists(st.integers(0, 10_000), max_size=40))
def test_any_cutting_of_a_stream_gives_the_same_frames(several: list[Plain], at: list[int]) -> None:
    parser = Parser()
    found = [plain(frame) for piece in cut(stream_of(several), at) for frame in parser.feed(piece)]
    assert found == several
    assert parser.held == 0


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_a_body_in_pieces_is_the_same_frame(pieces: list[bytes]) -> None:
    whole = frames.encode(Kind.ANSWER, 3, 4, b"head", b"".join(pieces))
    assert b"".join(frames.encode(Kind.ANSWER, 3, 4, b"head", *pieces)) == b"".join(whole)


@given(some_frames)
def test_byte_by_byte_too(several: list[Plain]) -> None:
    parser = Parser()
    data = stream_of(several)
    assert [plain(frame) for at in range(len(data)) for frame in parser.feed(data[at : at + 1])] == several


def test_no_flipped_bit_makes_a_frame() -> None:
    first: Plain = (Kind.REQUEST, 7, 12, b"head", b"a body")
    second: Plain = (Kind.NOTE, 8, 13, b"other", b"")
    data = bytearray(stream_of([first, second]))
    length = len(stream_of([first]))
    for bit in range(length * 8):
        data[bit // 8] ^= 1 << bit % 8
        parser = Parser()
        found: list[Plain] = []
        try:
            found = [plain(frame) for frame in parser.feed(bytes(data))]
        except Malformed:
            pass
        assert found == [], f"bit {bit}"  # it is refused, or waits for what a length promises
        data[bit // 8] ^= 1 << bit % 8
    assert [plain(frame) for frame in Parser().feed(bytes(data))] == [first, second]


@given(some_frames, st.integers(0, 10_000))
def test_a_stream_that_ends_early_gives_what_was_whole_and_waits(several: list[Plain], at: int) -> None:
    data = stream_of(several)
    end = at % (len(data) + 1)
    parser = Parser()
    found = [plain(frame) for frame in parser.feed(data[:end])]
    assert found == several[: len(found)]
    assert parser.held == end - len(stream_of(found))


@given(st.binary(max_size=400), st.lists(st.integers(0, 10_000), max_size=8))
def test_random_bytes_are_no_frame(data: bytes, at: list[int]) -> None:
    parser = Parser()
    try:
        found = [frame for piece in cut(data, at) for frame in parser.feed(piece)]
    except Malformed:
        return
    assert found == []
    assert parser.held == len(data)


@pytest.mark.parametrize("length", [limits.WIRE_FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_length_above_the_bound_is_refused_before_a_byte_of_it_is_there(length: int) -> None:
    header = struct.pack("<IIIBBHIQ", length, 0, 0, 1, 0, 0, 1, 0)
    with pytest.raises(Malformed, match="at most"):
        list(Parser().feed(header))


def test_the_bound_can_be_raised_between_two_frames() -> None:
    parser = Parser(frame_bytes_max=10)
    data = stream_of([(Kind.REQUEST, 1, 0, b"small", b""), (Kind.REQUEST, 2, 0, b"", bytes(1000))])
    numbers = []
    for frame in parser.feed(data):
        numbers.append(frame.number)
        parser.frame_bytes_max = 10_000
    assert numbers == [1, 2]


def test_a_head_is_no_longer_than_its_frame() -> None:
    header = struct.pack("<IIIBBHIQ", 10, 11, 0, 1, 0, 0, 1, 0)
    with pytest.raises(Malformed, match="head"):
        list(Parser().feed(header))


@pytest.mark.parametrize(("kind", "flags", "nothing"), [(0, 0, 0), (7, 0, 0), (255, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_what_version_1_does_not_know_is_refused_though_its_checksum_is_right(
    kind: int, flags: int, nothing: int
) -> None:
    crc = frames.crc32c(struct.pack("<IIBBHIQ", 0, 0, kind, flags, nothing, 1, 0))
    with pytest.raises(Malformed, match="version 1"):
        list(Parser().feed(struct.pack("<IIIBBHIQ", 0, 0, crc, kind, flags, nothing, 1, 0)))


def test_a_large_frame_in_tiny_pieces_takes_its_own_size_and_no_more() -> None:
    size = 100_000
    data = stream_of([(Kind.REQUEST, 1, 0, b"head", random.Random(1).randbytes(size))])
    parser = Parser()
    before = MEMORY.bytes_allocated()
    peak = 0
    for at in range(0, len(data) - 3, 3):
        assert list(parser.feed(data[at : at + 3])) == []
        peak = max(peak, MEMORY.bytes_allocated() - before)
    assert size < peak < 3 * size
    assert parser.held > size


def test_a_preface_says_what_is_spoken() -> None:
    check_preface(PREFACE)
    assert len(PREFACE) == 8
    with pytest.raises(Malformed, match="not the braid protocol"):
        check_preface(b"GET / HT")
    with pytest.raises(Malformed, match="version 9"):
        check_preface(b"braid" + bytes([9, 0, 0]))


def test_a_header_has_the_size_that_is_documented() -> None:
    assert HEADER_BYTES == 28


@pytest.mark.parametrize("size", [70_000, 1_000_000, 9_000_000])
@pytest.mark.parametrize("step", [1_000, 80_000, 3_000_000])
def test_the_rest_of_a_large_frame_goes_where_there_is_room_for_it(size: int, step: int) -> None:
    large = random.Random(size).randbytes(size)
    sent = b"".join(
        b"".join(frames.encode(Kind.REQUEST, n, 0, b"head", body)) for n, body in enumerate([b"x", large, b"y"])
    )
    parser = Parser()
    found: list[Frame] = []
    direct = at = 0
    while at < len(sent):
        room = parser.room()
        piece = sent[at : at + (step if room is None else min(step, len(room)))]
        if room is None:
            found += parser.feed(piece)
        else:
            room[: len(piece)] = piece
            direct += len(piece)
            found += parser.filled(len(piece))
        at += len(piece)
        assert parser.held <= size + 100
    assert [bytes(frame.body.data) for frame in found] == [b"x", large, b"y"]
    assert direct or step > size


def test_large_frames_take_one_call_each_to_receive() -> None:
    several: list[Plain] = [(Kind.REQUEST, n, 0, b"head", bytes([n]) * 1_000_000) for n in range(8)]
    sent = memoryview(stream_of(several))
    parser = Parser()
    found: list[Plain] = []
    calls = 0
    while sent:
        calls += 1
        room = parser.room()
        if room is None:
            piece = sent[:10_000]
            found += map(plain, parser.feed(piece))
        else:
            piece = sent[: len(room)]
            room[: len(piece)] = piece
            found += map(plain, parser.filled(len(piece)))
        sent = sent[len(piece) :]
    assert found == several
    assert calls == len(several) + 1


def test_what_came_behind_a_large_frame_does_not_keep_it_in_memory() -> None:
    sent = stream_of([(Kind.REQUEST, 1, 0, b"head", bytes(1_000_000)), (Kind.REQUEST, 2, 0, b"head", b"small")])
    before = MEMORY.bytes_allocated()
    parser = Parser()
    assert not list(parser.feed(sent[:1000]))
    room = parser.room()
    assert room is not None
    room[: len(sent) - 1000] = sent[1000:]
    large, small = parser.filled(len(sent) - 1000)
    assert MEMORY.bytes_allocated() - before > len(large.body.data)
    del room, large
    assert MEMORY.bytes_allocated() - before < 1000
    assert bytes(small.body.data) == b"small"


@pytest.mark.parametrize("size", [0, 1_000, 256 * 1024 - 1, 256 * 1024, 1_000_003])
def test_the_checksum_of_a_large_body_is_told_and_any_change_is_noticed(size: int) -> None:
    chance = random.Random(size)
    sent = b"".join(frames.encode(Kind.REQUEST, 1, 2, b"head", body := chance.randbytes(size)))
    [frame] = Parser().feed(sent)
    assert frame.body.crc == (crc32c(body) if size >= 256 * 1024 else None)
    for at in (*range(8, HEADER_BYTES + 4), *(chance.randrange(HEADER_BYTES, len(sent)) for _ in range(20))):
        damaged = bytearray(sent)
        damaged[at] ^= 1 << chance.randrange(8)
        with pytest.raises(Malformed):
            list(Parser().feed(damaged))
