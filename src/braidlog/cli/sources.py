"""The files, or the pipe, that `append` and `import` read, and how they go into a log."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from typing import TYPE_CHECKING, NamedTuple, cast

from braidlog.cli.failures import Refused
from braidlog.cli.formats import STDIN, Chunks, Columns, format_of
from braidlog.cli.formats.reading import read_chunks
from braidlog.cli.ingest import Appended, Ingest, progress
from braidlog.cli.output import say, shown_path
from braidlog.record import Record

if TYPE_CHECKING:
    from braidlog import Log

Change = Callable[[bytes | Record], bytes | Record]


class Source(NamedTuple):
    """One file to read, or stdin."""

    path: str
    form: str

    @property
    def name(self) -> str:
        return "stdin" if self.path == STDIN else shown_path(self.path)


def sources(paths: tuple[str, ...], form: str | None, default: str) -> list[Source]:
    """What to read: stdin if no file is named."""
    return [Source(path, format_of(path, form, default)) for path in paths or (STDIN,)]


class Reader(NamedTuple):
    """How the sources are to be understood; `change` is applied to every record."""

    records: bool = False
    columns: Columns = Columns()
    change: Change | None = None

    @contextlib.contextmanager
    def open(self, source: Source) -> Iterator[Chunks]:
        """The chunks of one source."""
        with _opened(source) as file:
            chunks = read_chunks(file, source.name, source.form, records=self.records, columns=self.columns)
            yield chunks if self.change is None else self._changed(chunks, self.change)

    @staticmethod
    def _changed(chunks: Chunks, change: Change) -> Chunks:
        for chunk in chunks:
            yield chunk._replace(items=[change(item) for item in chunk.items])


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[BufferedIOBase]:
    if source.path == STDIN:
        if sys.stdin.isatty():
            say("reading from the terminal: end with ctrl-D on a line of its own")
        yield cast(BufferedIOBase, sys.stdin.buffer)
        return
    try:
        file = open(source.path, "rb")  # noqa: SIM115  closed below, on every way out
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {source.name}: {error}") from error
    with file:
        yield file


def check_readable(source: Source) -> None:
    """Refused if a file cannot be opened. A pipe is left alone: who opens it twice loses what is in it."""
    if source.path == STDIN:
        return
    try:
        passing = not stat.S_ISREG(os.stat(source.path).st_mode)
    except (OSError, ValueError):
        passing = False  # opening it says what is the matter
    if not passing:
        with _opened(source):
            pass


def total_bytes(found: list[Source]) -> int | None:
    """How much there is to read, if all of it is in files."""
    total = 0
    for source in found:
        try:
            status = os.stat(source.path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def append_all(log: Log, found: list[Source], reader: Reader) -> Appended:
    """Append everything. What stops it is raised, with a note of how much was appended by then."""
    ingest = Ingest(log)
    try:
        with progress(f"into {log.name}", total_bytes(found)) as show, ingest:
            before = 0
            for source in found:
                consumed = 0
                with reader.open(source) as chunks:
                    for chunk in chunks:
                        ingest.add(chunk.items)
                        consumed = chunk.consumed
                        show(before + consumed, ingest.done.records)
                before += consumed
    except KeyboardInterrupt:
        say(f"before that: {ingest.done.text()}")
        raise
    except Exception as error:
        error.add_note(f"before that: {ingest.done.text()}")
        raise
    return ingest.done


def gather_all(found: list[Source], reader: Reader) -> list[bytes | Record]:
    """Everything at once, for an append that takes all or nothing."""
    items: list[bytes | Record] = []
    for source in found:
        with reader.open(source) as chunks:
            for chunk in chunks:
                items += chunk.items
    return items
