"""The CRC-32C of a run of bytes from those of its pieces, so that no byte has to be looked at twice.

A checksum is a remainder of polynomials. To put bytes behind others multiplies the others' remainder by a power of x
that depends on the number of bytes alone; the rest is a sum, which is an exclusive or.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's; the highest power stands in the lowest bit, in all that follows
_ONE: Final = 1 << 31

JOINED_BYTES_MIN: Final = 256 * 1024  # behind others: fewer are looked at again in less time than this takes


def joined(first: int, second: int, length: int) -> int:
    """The checksum of two runs of bytes, one behind the other, from theirs; the second has so many bytes."""
    return _product(first, _power(length)) ^ second


def behind(whole: int, first: int, length: int) -> int:
    """The checksum of the second of two runs from those of both and of the first; the second has so many bytes."""
    return joined(first, whole, length)


@lru_cache(maxsize=1024)  # blocks of one writer are often of one size
def _power(length: int) -> int:
    """x to the power of so many bytes."""
    result = _ONE
    place = 0
    while length:
        if length & 255:
            result = _product(result, _power_of_digit(length & 255, place))
        length >>= 8
        place += 1
    return result


@lru_cache(maxsize=2048)
def _power_of_digit(digit: int, place: int) -> int:
    """x to the power of digit * 256 ** place bytes."""
    if digit > 1:
        return _product(_power_of_digit(digit // 2, place), _power_of_digit(digit - digit // 2, place))
    return _product(*(_power_of_digit(128, place - 1),) * 2) if place else _ONE >> 8


def _product(a: int, b: int) -> int:
    """Of two remainders, b being one that comes again: four powers of x at a time, the highest first."""
    multiples = _multiples(b)
    result = 0
    for shift in range(0, 32, 4):
        result = (result >> 4) ^ _OVERFLOWS[result & 15] ^ multiples[a >> shift & 15]
    return result


@lru_cache(maxsize=1024)  # of the power of a length, which comes again
def _multiples(b: int) -> list[int]:
    """Those of b by each polynomial of four bits."""
    found = [0]
    for factor in (_shifted(b, 3), _shifted(b, 2), _shifted(b, 1), b):
        found += [factor ^ other for other in found]
    return found


def _shifted(a: int, power: int) -> int:
    """a times x to that power."""
    for _ in range(power):
        a = (a >> 1) ^ (_POLYNOMIAL if a & 1 else 0)
    return a


_OVERFLOWS: Final = [_shifted(four_bits, 4) for four_bits in range(16)]  # what becomes of those that are shifted out
