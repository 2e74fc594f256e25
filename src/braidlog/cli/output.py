"""Where words go: data to stdout, everything else to stderr.

JSON and records are written as UTF-8 bytes whatever the locale, so that a pipe carries what is in the log. Tables and
trees go through rich, which leaves colours out when stdout is no terminal or NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeAlias

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def write(data: bytes) -> None:
    """Bytes of data to stdout."""
    sys.stdout.buffer.write(data)


def flush() -> None:
    """What was written is on its way."""
    sys.stdout.flush()


def write_line(text: str) -> None:
    """One line of data to stdout."""
    write(text.encode("utf-8", "backslashreplace") + b"\n")


def write_json(document: Json) -> None:
    """One JSON document to stdout, on one line."""
    write(msgspec.json.encode(document) + b"\n")


def say(text: str) -> None:
    """One line to stderr, for the person who looks on."""
    click.echo(text, err=True)


def console() -> Console:
    """Tables and trees on stdout. Without a terminal there is no width to fit: nothing is cut or wrapped."""
    from rich.console import Console

    made = Console(highlight=False, soft_wrap=True)
    return made if made.is_terminal else Console(highlight=False, soft_wrap=True, width=160)


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as text, also if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
