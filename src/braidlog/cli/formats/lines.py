"""Plain lines and JSON lines.

A plain line is a value, without its newline and otherwise byte for byte; an empty one is an empty value. A JSON line
is checked and kept as it stands; with `records` it is a record (see `record_json`). Blank JSON lines mean nothing.

What is there is yielded without waiting for more, so that a slow pipe is appended as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Final

import msgspec

from braidlog import limits
from braidlog.cli.formats import BadInput, Chunk, Chunks
from braidlog.cli.formats.record_json import from_json
from braidlog.record import Record

_READ_BYTES: Final = 1 * limits.MIB
_CHUNK_LINES: Final = 50_000
_BOM: Final = b"\xef\xbb\xbf"


def line_groups(file: BufferedIOBase, name: str) -> Iterator[tuple[int, list[bytes], int]]:
    """(number of the first, lines without newlines, bytes consumed) of as many lines as were there at once."""
    rest = b""
    number = 1
    consumed = 0
    while data := file.read1(_READ_BYTES):
        consumed += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for first in range(0, len(lines), _CHUNK_LINES):
            group = lines[first : first + _CHUNK_LINES]
            yield number, group, consumed
            number += len(group)
        if len(rest) > limits.RECORD_BYTES_MAX:
            raise BadInput(name, "line", number, f"it has more than {limits.RECORD_BYTES_MAX:,} bytes")
    if rest:
        yield number, [rest], consumed


def read_lines(file: BufferedIOBase, name: str) -> Chunks:
    """Each line is a value."""
    for _, lines, consumed in line_groups(file, name):
        yield Chunk(lines, consumed)


def read_json_lines(file: BufferedIOBase, name: str, *, records: bool) -> Chunks:
    """Each line is a JSON value, or a record."""
    parse = _record if records else _value
    for number, lines, consumed in line_groups(file, name):
        if number == 1:
            lines[0] = lines[0].removeprefix(_BOM)
        found: list[bytes | Record] = []
        bad: BadInput | None = None
        for at, line in enumerate(lines, number):
            text = line.strip()
            if not text:
                continue
            try:
                found.append(parse(text))
            except (ValueError, RecursionError, OverflowError) as error:
                bad = BadInput(name, "line", at, str(error))
                break
        if found:
            yield Chunk(found, consumed)
        if bad is not None:
            raise bad


def _value(text: bytes) -> bytes:
    msgspec.json.decode(text)
    return text


def _record(text: bytes) -> Record:
    return from_json(msgspec.json.decode(text))
