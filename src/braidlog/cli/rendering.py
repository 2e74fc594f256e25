"""Records on stdout: for people one per line, for programs as JSON lines, or the bare bytes of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from braidlog.cli.formats.record_json import to_json
from braidlog.cli.output import write
from braidlog.record import Record

Render = Callable[[Record], bytes]


def text_line(record: Record) -> bytes:
    """Position, key and value between tabs, always on one line: what cannot be printed is escaped."""
    key = "" if record.key is None else printable(record.key)
    return f"{record.position}\t{key}\t{printable(record.value)}\n".encode()


def json_line(record: Record) -> bytes:
    """All of the record."""
    return msgspec.json.encode(to_json(record)) + b"\n"


def raw_line(record: Record) -> bytes:
    """The value as it is, and a newline."""
    return record.value + b"\n"


def renderer(*, json: bool, raw: bool) -> Render:
    if raw:
        return raw_line
    return json_line if json else text_line


def write_records(records: Iterable[Record], render: Render) -> None:
    write(b"".join(map(render, records)))


def printable(data: bytes) -> str:
    """Text that a terminal shows and never obeys."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
