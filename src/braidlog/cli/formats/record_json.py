"""A record as a JSON object, and back without loss.

    {"position": 7, "timestamp": "2026-01-31T12:00:00.000000Z", "key": "k", "value": "v", "headers": [["name", "text"]]}

Bytes that are not UTF-8 stand as base64: in `value_base64` and `key_base64`, and in a header as {"base64": "..."}.
A timestamp outside the years 1 to 9999 is a number of microseconds since 1970. What has no key has no `key`.
Coming in, a value that is not a string stands for its own JSON, headers may be an object, and `position` is ignored.
"""

from __future__ import annotations

import base64
import binascii
import time
from datetime import datetime
from typing import Final

import msgspec

from braidlog.cli.output import Json
from braidlog.cli.parameters import moment_of
from braidlog.record import Record

_FIELDS: Final = frozenset(("position", "timestamp", "key", "key_base64", "value", "value_base64", "headers"))


def time_text(timestamp: int) -> str | int:
    """Microseconds since 1970 as ISO 8601 in UTC, or as they are where that cannot say it."""
    try:
        return Record(b"", timestamp=timestamp).time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return timestamp


def to_json(record: Record) -> dict[str, Json]:
    """The object that stands for a record."""
    document: dict[str, Json] = {"position": record.position, "timestamp": time_text(record.timestamp)}
    if record.key is not None:
        _put(document, "key", record.key)
    _put(document, "value", record.value)
    document["headers"] = [[name, _header_value(value)] for name, value in record.headers]
    return document


def from_json(document: object) -> Record:
    """The record that an object stands for; ValueError says what is wrong with it."""
    if not isinstance(document, dict):
        raise ValueError("a record is a JSON object with a value")
    if strange := document.keys() - _FIELDS:
        raise ValueError(f"unknown field {min(strange)!r}: a record has {', '.join(sorted(_FIELDS))}")
    value = _take(document, "value")
    if value is None:
        raise ValueError("the record has no value")
    return Record(value, _take(document, "key"), _headers(document.get("headers")), _timestamp(document))


def cell_bytes(cell: object) -> bytes:
    """Anything as bytes: bytes and text as they are, all else as JSON."""
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode()
    return row_json(cell)


def row_json(row: object) -> bytes:
    """JSON of whatever a file can hold."""
    return msgspec.json.encode(row, enc_hook=str)


def cell_timestamp(cell: object, unit_us: int = 1) -> int:
    """Microseconds since 1970 from a time, ISO 8601 or a number of units since then; ValueError for anything else."""
    if isinstance(cell, datetime):
        return moment_of(cell.isoformat())
    if isinstance(cell, str) or (isinstance(cell, int) and not isinstance(cell, bool)):
        return moment_of(str(cell), unit_us)
    raise ValueError(f"{cell!r:.80} is not a time: give ISO 8601, or microseconds since 1970")


def now() -> int:
    """The time of a record that brings none."""
    return time.time_ns() // 1000


def _put(document: dict[str, Json], name: str, data: bytes) -> None:
    try:
        document[name] = data.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(data).decode()


def _header_value(data: bytes) -> Json:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _take(document: dict[str, object], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        if document.get(name) is not None:
            raise ValueError(f"the record has both {name} and {name}_base64: give one")
        return _from_base64(encoded)
    plain = document.get(name)
    return None if plain is None else cell_bytes(plain)


def _from_base64(encoded: object) -> bytes:
    if not isinstance(encoded, str):
        raise ValueError(f"{encoded!r:.80} is not base64")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{encoded!r:.80} is not base64: {error}") from error


def _headers(headers: object) -> tuple[tuple[str, bytes], ...]:
    if headers is None:
        return ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list):
        raise ValueError(f"headers are an object, or a list of pairs, not {headers!r:.80}")
    taken: list[tuple[str, bytes]] = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"a header is a pair of a name and a text, not {pair!r:.80}")
        name, value = pair
        if isinstance(value, dict) and value.keys() == {"base64"}:
            taken.append((name, _from_base64(value["base64"])))
        elif isinstance(value, str):
            taken.append((name, value.encode()))
        else:
            raise ValueError(f"header {name!r} is a text or {{'base64': ...}}, not {value!r:.80}")
    return tuple(taken)


def _timestamp(document: dict[str, object]) -> int:
    given = document.get("timestamp")
    return now() if given is None else cell_timestamp(given)
