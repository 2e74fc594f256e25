"""Checksums of pieces, put together, are those of the whole."""

from __future__ import annotations

import random

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog.objects.checksums import behind, joined

LENGTHS = (0, 1, 7, 4096, 256 * 1024 - 1, 256 * 1024, 1_054_248)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_runs_have_the_checksum_of_the_whole(first: bytes, second: bytes) -> None:
    whole = crc32c(first + second)
    assert joined(crc32c(first), crc32c(second), len(second)) == whole
    assert behind(whole, crc32c(first), len(second)) == crc32c(second)


def test_however_long_they_are() -> None:
    drawn = random.Random(7)
    data = drawn.randbytes(max(LENGTHS))
    for length in LENGTHS:
        before, after = drawn.randbytes(99), data[:length]
        whole = crc32c(before + after)
        assert joined(crc32c(before), crc32c(after), length) == whole
        assert behind(whole, crc32c(before), length) == crc32c(after)
