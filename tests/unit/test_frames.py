"""A frame comes back as it went in, or not at all."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import BraidError, Corrupt, InvalidArgument
from braidlog.metadata import frames
from braidlog.metadata.frames import HEADER_BYTES, Header, Kind, NoFrame


def decode(data: bytes) -> tuple[Header, bytes] | None:
    header = frames.parse_header(data)
    if not isinstance(header, Header):
        return None
    payload = frames.checked_payload(header, data[HEADER_BYTES : header.frame_bytes])
    return None if payload is None else (header, payload)


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_a_frame_comes_back_as_it_went_in(kind: Kind, sequence: int, payload: bytes) -> None:
    data = frames.encode(kind, sequence, payload)
    assert len(data) % frames.ALIGNMENT_BYTES == 0
    found = decode(data)
    assert found is not None
    header, stored = found
    assert (header.kind, header.sequence, header.length, stored) == (kind, sequence, len(payload), payload)
    assert header.frame_bytes == frames.frame_bytes(len(payload)) == len(data)


def test_parts_of_any_buffer_type_make_the_same_frame_as_their_join() -> None:
    parts = [b"ab", bytearray(b"cde"), memoryview(b"fghij")[1:], memoryview(struct.pack("<2I", 1, 2)).cast("I")]
    whole = b"abcdeghij" + struct.pack("<2I", 1, 2)
    assert frames.payload_bytes(parts) == len(whole)
    assert frames.encode(Kind.DATA, 7, parts) == frames.encode(Kind.DATA, 7, whole)
    assert frames.encode(Kind.DATA, 7, []) == frames.encode(Kind.DATA, 7, b"")


@pytest.mark.parametrize("payload", [b"", b"hello", b"x" * 32, bytes(20)])
def test_no_single_flipped_bit_goes_unseen(payload: bytes) -> None:
    data = bytearray(frames.encode(Kind.DATA, 3, payload))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(data)) is None, f"bit {bit}"
        data[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(data)) is not None


def test_no_truncation_goes_unseen() -> None:
    data = frames.encode(Kind.DATA, 3, b"hello")
    assert all(decode(data[:length]) is None for length in range(len(data)))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 100])
def test_zeros_are_blank_and_not_bad(length: int) -> None:
    assert frames.parse_header(bytes(length)) is NoFrame.BLANK


def test_zeros_with_a_bit_among_them_are_bad_and_not_blank() -> None:
    assert frames.parse_header(bytes(31) + b"\x01") is NoFrame.BAD
    assert frames.parse_header(b"\x01") is NoFrame.BAD


def sealed(version: int, kind: int) -> bytes:
    guarded = struct.pack("<4sHHQII", frames.MAGIC, version, kind, 1, 0, 0)
    return guarded + struct.pack("<II", crc32c(guarded), 0)


def test_a_newer_format_is_named_and_never_taken_for_damage() -> None:
    with pytest.raises(Corrupt, match=r"format 2: a newer braidlog.*upgrade"):
        frames.parse_header(sealed(version=2, kind=1))
    with pytest.raises(Corrupt, match=r"unknown kind 9: a newer braidlog.*upgrade"):
        frames.parse_header(sealed(version=1, kind=9))
    damaged = bytearray(sealed(version=1, kind=1))
    damaged[4] ^= 2
    assert frames.parse_header(bytes(damaged)) is NoFrame.BAD


def test_a_payload_that_the_length_field_cannot_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PAYLOAD_BYTES_MAX", 4)
    with pytest.raises(InvalidArgument, match="5 bytes does not fit"):
        frames.encode(Kind.SNAPSHOT, 1, b"12345")


@given(st.binary(max_size=200), st.binary(max_size=40), st.integers(0, 100))
def test_garbage_is_no_frame(garbage: bytes, payload: bytes, cut: int) -> None:
    for data in (garbage, frames.encode(Kind.DATA, 1, payload)[:cut] + garbage):
        try:
            found = decode(data)
        except BraidError:
            continue
        assert found is None or data.startswith(frames.encode(found[0].kind, found[0].sequence, found[1]))
