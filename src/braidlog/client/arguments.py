"""What callers pass, checked and brought into the form that the rest works with.

A wrong argument is refused with its name, its value and what is allowed. The common case, a list of bytes, is checked
without a Python statement per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.facts import Retention
from braidlog.forest.commands import NONE
from braidlog.forest.names import check_consumer, check_name
from braidlog.objects.batch import Batch
from braidlog.record import Record, to_micros

Value = bytes | bytearray | memoryview
Headers = Mapping[str, bytes] | Sequence[tuple[str, bytes]]
Moment = datetime | int

_INT64_MAX = 2**63 - 1


def one_record(value: Value, key: Value | None, headers: Headers | None, timestamp: Moment) -> Batch:
    """A batch of a single record."""
    pairs = _headers(headers)
    return Batch(
        [_bytes("value", value)],
        [_bytes("key", key)] if key is not None else None,
        [pairs] if pairs else None,
        moment(timestamp),
    )


def many_records(values: Iterable[Value | Record], timestamp: Moment) -> Batch:
    """A batch of values, records, or both. A record's own timestamp counts, unless it is 0."""
    if isinstance(values, bytes | bytearray | memoryview | str | Record):
        raise InvalidArgument(f"append_many takes several records, not one {type(values).__name__}: use append")
    if not isinstance(values, Iterable):
        raise InvalidArgument(f"append_many takes an iterable of bytes or Record, not {type(values).__name__}")
    items: list[Any] = list(values)
    now = moment(timestamp)
    if set(map(type, items)) <= {bytes}:
        return Batch(items, None, None, now)
    return _mixed(items, now)


def _mixed(items: list[Any], now: int) -> Batch:
    values: list[bytes] = []
    keys: list[bytes | None] = []
    headers: list[list[tuple[str, bytes]]] = []
    timestamps: list[int] = []
    for item in items:
        record = item if isinstance(item, Record) else Record(_bytes("value", item))
        values.append(_bytes("value", record.value))
        keys.append(_bytes("key", record.key) if record.key is not None else None)
        headers.append(_headers(record.headers))
        timestamps.append(moment(record.timestamp) if record.timestamp else now)
    return Batch(
        values,
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        timestamps,
    )


def checked_size(batch: Batch) -> int:
    """The bytes of a batch that is within the limits. They are counted once: in a large batch that is felt."""
    if batch.count > limits.BATCH_RECORDS_MAX:
        raise InvalidArgument(
            f"a batch of {batch.count:,} records is too long: append at most {limits.BATCH_RECORDS_MAX:,} at once"
        )
    size = batch.size
    if size > limits.RECORD_BYTES_MAX:
        if size > limits.BATCH_BYTES_MAX and batch.count > 1:
            raise InvalidArgument(
                f"a batch of {size:,} bytes is too large: append at most {limits.BATCH_BYTES_MAX:,} at once"
            )
        _check_record_sizes(batch)
    return size


def _check_record_sizes(batch: Batch) -> None:
    keys = batch.keys or [None] * batch.count
    headers = batch.headers or [[]] * batch.count
    for number, (value, key, pairs) in enumerate(zip(batch.values, keys, headers, strict=True)):
        size = len(value) + len(key or b"") + sum(len(name.encode()) + len(data) for name, data in pairs)
        if size > limits.RECORD_BYTES_MAX:
            raise InvalidArgument(
                f"record {number} has {size:,} bytes: a record has at most {limits.RECORD_BYTES_MAX:,}, key and "
                "headers included"
            )


def _bytes(what: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):  # subclasses too, such as numpy.bytes_, cannot be encoded
        return bytes(value)
    hint = ": encode it, for example with .encode()" if isinstance(value, str) else ""
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}{hint}")


def _headers(headers: object) -> list[tuple[str, bytes]]:
    if not headers:
        return []
    if not isinstance(headers, Iterable):
        raise InvalidArgument(f"headers are a mapping or pairs of a str and bytes, not {type(headers).__name__}")
    pairs: list[Any] = list(headers.items() if isinstance(headers, Mapping) else headers)
    if len(pairs) > limits.RECORD_HEADERS_MAX:
        raise InvalidArgument(f"{len(pairs)} headers are too many: a record has at most {limits.RECORD_HEADERS_MAX}")
    checked: list[tuple[str, bytes]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidArgument(f"a header is a pair of a str and bytes, not {pair!r:.80}")
        if len(pair[0]) > limits.HEADER_NAME_CHARS_MAX:
            raise InvalidArgument(
                f"header name {pair[0][:40]!r}... has {len(pair[0])} characters: at most {limits.HEADER_NAME_CHARS_MAX}"
            )
        name = _encodable("header name", pair[0])
        checked.append((name, _bytes(f"header {name!r}", pair[1])))
    return checked


def _encodable(what: str, text: str) -> str:
    """The text as a plain str, whatever subclass it came as.

    Refuses what could not be written: met later, it would take the command log down.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} {text[:80]!r} cannot be encoded as UTF-8: {error}") from error
    return str.__str__(text)


def moment(timestamp: Moment) -> int:
    """Microseconds since 1970 UTC."""
    if isinstance(timestamp, datetime):
        try:
            return to_micros(timestamp)
        except (ValueError, OverflowError) as error:  # the ends of the calendar, in a time zone
            raise InvalidArgument(f"timestamp {timestamp} cannot be brought to UTC: {error}") from error
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise InvalidArgument(
            f"timestamp must be a datetime or an int of microseconds since 1970 UTC, not {type(timestamp).__name__}"
        )
    if not -_INT64_MAX <= timestamp <= _INT64_MAX:
        raise InvalidArgument(f"timestamp {timestamp} does not fit into 64 bits")
    return int(timestamp)


def position(what: str, value: object) -> int:
    """A position, or a count: not negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{what} must be an int, not {type(value).__name__}")
    if not 0 <= value <= _INT64_MAX:
        raise InvalidArgument(f"{what} must be between 0 and 2**63 - 1, not {value}")
    return int(value)  # a plain one: no subclass can be encoded


def span(start: object, stop: object) -> None:
    """A range of positions, without an end if `stop` is None."""
    position("start", start)
    if stop is not None:
        position("stop", stop)


def bound(what: str, value: object) -> None:
    """How much to return at most: at least 1, or None."""
    if value is not None and position(what, value) == 0:
        raise InvalidArgument(f"{what} must be at least 1, not 0")


def read(start: object, stop: object, max_records: object, max_bytes: object) -> None:
    """What a read is bounded by."""
    span(start, stop)
    bound("max_records", max_records)
    bound("max_bytes", max_bytes)


def optional(what: str, value: object) -> int:
    """The same, with NONE for None."""
    return NONE if value is None else position(what, value)


def seconds(what: str, value: float | timedelta | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{what} must be a number of seconds, not {type(value).__name__}")
    if not 0 <= value < 1e11:
        raise InvalidArgument(f"{what} must be a number of seconds from 0 up, not {value}")
    return float(value)


def micros(what: str, value: float | timedelta | None) -> int:
    checked = seconds(what, value)
    return NONE if checked is None else int(checked * 1_000_000)


def labels(value: Mapping[str, str] | None) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"labels must be a mapping of str to str, not {type(value).__name__}")
    if len(value) > limits.LABELS_MAX:
        raise InvalidArgument(f"{len(value)} labels are too many: at most {limits.LABELS_MAX}")
    checked: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str) or not name:
            raise InvalidArgument(f"labels must be a mapping of str to str, not {name!r:.40}: {text!r:.40}")
        if max(len(name), len(text)) > limits.LABEL_CHARS_MAX:
            raise InvalidArgument(f"label {name[:40]!r} is too long: at most {limits.LABEL_CHARS_MAX} characters")
        what = f"label {name[:40]!r}"
        checked[_encodable(what, name)] = _encodable(what, text)
    return checked


def retention(value: Retention | None) -> tuple[int, int]:
    """(age in microseconds, bytes), NONE for what is not limited."""
    if value is None:
        return NONE, NONE
    if not isinstance(value, Retention):
        raise InvalidArgument(f"retention must be a Retention, not {type(value).__name__}")
    return micros("retention.max_age", value.max_age), optional("retention.max_bytes", value.max_bytes)


def writer_and_sequence(writer: str | None, sequence: int | None) -> tuple[str, int]:
    if (writer is None) != (sequence is None):
        raise InvalidArgument("writer and sequence go together: give both or neither")
    if writer is None:
        return "", NONE
    if not isinstance(writer, str) or not 0 < len(writer) <= limits.WRITER_CHARS_MAX:
        raise InvalidArgument(f"writer must be a str of 1 to {limits.WRITER_CHARS_MAX} characters, not {writer!r:.40}")
    return _encodable("writer", writer), position("sequence", sequence)


def acknowledgement(ack: str) -> None:
    if ack not in ("ordered", "durable"):
        raise InvalidArgument(f"ack must be 'ordered' or 'durable', not {ack!r}")


def name(value: str) -> str:
    check_name(value)
    return _encodable("name", value)


def consumer(value: str) -> str:
    check_consumer(value)
    return _encodable("consumer", value)


def discipline(value: str) -> str:
    """Any text: which ones there are, the forest knows."""
    if not isinstance(value, str):
        raise InvalidArgument(f"discipline must be a str, not {type(value).__name__}: 'eager' is the one there is")
    return _encodable("discipline", value)
