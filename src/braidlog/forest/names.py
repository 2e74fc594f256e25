"""What a log may be called: flat and unique, and a legal Kafka topic name. And what a consumer of it may be called."""

from __future__ import annotations

import re

from braidlog import limits
from braidlog.errors import InvalidArgument

SYSTEM_PREFIX = "braidlog."  # of logs that braidlog itself keeps: who reviewed what, who called what

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN_CHARS = 20  # of a name that is too long


def is_system(name: str) -> bool:
    """Whether a log of that name is one of braidlog's own."""
    return name.startswith(SYSTEM_PREFIX)


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(f"a log's name is a str, not {type(name).__name__}")
    _check_length("name", name, limits.NAME_CHARS_MAX)
    if not name or not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidArgument(
            f"name {name[:80]!r} is not allowed: use 1 to {limits.NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -, not '.' or '..'"
        )


def check_consumer(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(f"a consumer's name is a str, not {type(name).__name__}")
    _check_length("consumer", name, limits.CONSUMER_CHARS_MAX)
    if not name or not name.isprintable():
        raise InvalidArgument(
            f"consumer {name[:80]!r} is not allowed: use 1 to {limits.CONSUMER_CHARS_MAX} printable characters"
        )


def _check_length(what: str, name: str, most: int) -> None:
    if len(name) > most:
        raise InvalidArgument(f"{what} {name[:_SHOWN_CHARS] + '...'!r} has {len(name):,} characters: at most {most}")
