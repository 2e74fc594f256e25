"""Records in files: which formats there are, and how a file's name tells its own.

Reading yields chunks in the file's order; a bad line or row raises BadInput with its file and number, after everything
before it was yielded. Writing takes tables. Neither holds more than a chunk in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, TypeAlias

import click

from braidlog.cli.failures import Refused
from braidlog.cli.output import shown_path
from braidlog.record import Record

FORMATS: Final = ("jsonl", "lines", "csv", "parquet", "arrow")
STDIN: Final = "-"

_BY_EXTENSION: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "lines",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


class Columns(NamedTuple):
    """Which columns of a table hold what. Without a value column the value is the whole row as a JSON object.

    `unit_us` is how many microseconds a time that is a number counts in."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    unit_us: int = 1

    @property
    def named(self) -> list[str]:
        """All columns that have to be there."""
        return [column for column in (self.value, self.key, self.timestamp) if column is not None]


Items: TypeAlias = Sequence[bytes | Record]  # all of one kind


class Chunk(NamedTuple):
    """Records to be appended together: plain values that get the time of appending, or records with a time of theirs.

    `consumed` is how much of the file, in bytes, has been read by then; for columnar files in proportion to the rows.
    """

    items: Items
    consumed: int


Chunks: TypeAlias = Iterator[Chunk]


class BadInput(Refused):
    """A line or row that cannot be a record."""

    def __init__(self, name: str, what: str, number: int, problem: str) -> None:
        place = f"{what} {number:,}" if number else what
        super().__init__(f"{name}, {place}: {problem}")


def format_of(path: str, given: str | None, default: str) -> str:
    """The format of a file: as given, else by its name; `default` for stdin and stdout."""
    if given is not None:
        return given
    if path == STDIN:
        return default
    extension = PurePath(path).suffix.lower()
    if extension not in _BY_EXTENSION:
        known = " ".join(_BY_EXTENSION)
        raise click.UsageError(
            f"the name {shown_path(path)!r} does not tell its format: give --format, or one of {known}"
        )
    return _BY_EXTENSION[extension]
