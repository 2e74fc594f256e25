"""What a server says of itself while it runs: one line for each event, on stderr, as key=value or as JSON.

Whoever has something to tell logs an `Event`: a name and fields. It goes through Python's own logging, as "braidlog",
so that a program which embeds a server decides itself what becomes of it; `braid` calls `configure_logging`. Whatever
stands in a field, a line stays one line, and nothing in it can move a terminal's cursor.

Values, keys and headers of records never stand in an event.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Final, TextIO, TypeAlias

from braidlog import limits
from braidlog.errors import InvalidArgument

Value: TypeAlias = str | int | float | bool | None

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
LEVEL_VARIABLE: Final = "BRAIDLOG_LOG_LEVEL"
FORMAT_VARIABLE: Final = "BRAIDLOG_LOG_FORMAT"

AUDIT: Final = "braidlog.audit"  # the logger of who decided what
_ROOT: Final = "braidlog"
_NEEDS_NO_QUOTES: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:;/@+*#%()[]<>!?&|~^$"
)


class Event:
    """Something that happened. Log it in place of a message: `_log.info(Event("promote", log=7))`.

    Fields that are None or an empty text are left out.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: Value) -> None:
        self.name = name
        self.fields = {key: _bounded(value) for key, value in fields.items() if value is not None and value != ""}

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={_quoted(value)}" for key, value in self.fields.items())])


class _Lines(logging.Formatter):
    """Log records as fields, for the two forms to write."""

    def fields(self, record: logging.LogRecord) -> dict[str, Value]:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Value] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, Event):
            found["event"] = record.msg.name
            found |= {key: value for key, value in record.msg.fields.items() if key not in found}
        else:
            found["event"] = "message"
            found["message"] = _bounded(record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            found["trace"] = self.formatException(record.exc_info)
        return found


class TextLines(_Lines):
    """`key=value`, quoted as in JSON where that is needed."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


class JsonLines(_Lines):
    """One JSON object, of nothing but ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))


def configure_logging(format: str | None = None, level: str | None = None, stream: TextIO | None = None) -> None:
    """Write what braidlog logs to stderr. For a process of braidlog's own, once; called again, it replaces what it did.

    `format` is "text" or "json", `level` "debug", "info", "warning" or "error"; what is not given comes from
    BRAIDLOG_LOG_FORMAT and BRAIDLOG_LOG_LEVEL, or is text and info. InvalidArgument for anything else.
    """
    form = _chosen("log format", format, FORMAT_VARIABLE, FORMATS, "text")
    threshold = _chosen("log level", level, LEVEL_VARIABLE, LEVELS, "info")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logger = logging.getLogger(_ROOT)
    for old in [one for one in logger.handlers if isinstance(one.formatter, _Lines)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(threshold.upper())
    logger.propagate = False


def audit_to(path: str) -> None:
    """Append what "braidlog.audit" tells to a file, as JSON, for this user alone; it then goes nowhere else."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        handler = logging.FileHandler(path, mode="a", encoding="ascii")
    except OSError as error:
        raise InvalidArgument(f"audit_file cannot be written: {error}") from None
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(AUDIT)
    for old in [one for one in logger.handlers if isinstance(one.formatter, _Lines)]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def request_text(request: bytes, connection: int, number: int) -> str:
    """How logs name a request: by its id, or, if it has none, by its connection and its number there."""
    return request.hex() if request else f"{connection}-{number}"


def _chosen(what: str, given: str | None, variable: str, among: tuple[str, ...], default: str) -> str:
    chosen = (given or os.environ.get(variable) or default).lower()
    if chosen not in among:
        raise InvalidArgument(f"{what} {chosen!r} is unknown: there are {', '.join(among)}")
    return chosen


def _bounded(value: Value) -> Value:
    if isinstance(value, str) and len(value) > limits.LOG_VALUE_CHARS_MAX:
        return value[: limits.LOG_VALUE_CHARS_MAX] + "..."
    return value


def _quoted(value: Value) -> str:
    if isinstance(value, str):
        return value if value and _NEEDS_NO_QUOTES.issuperset(value) else json.dumps(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value)
