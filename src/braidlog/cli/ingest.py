"""Appending what a file or a pipe brings: in batches, several on their way at once, counted as they become durable.

Whatever stops it, everything submitted before is waited for, and the count says how much was appended.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.cli.formats import Items
from braidlog.cli.output import Json
from braidlog.errors import BraidError, Timeout
from braidlog.record import Record

if TYPE_CHECKING:
    from braidlog import Log, Ticket


@dataclass
class Appended:
    """What has become durable."""

    records: int = 0
    first: int | None = None  # None as long as a hold withholds it
    last: int | None = None

    def text(self) -> str:
        if not self.records:
            return "nothing was appended"
        count = f"{self.records:,} record{'s' if self.records > 1 else ''}"
        if self.first is None or self.last is None:
            return f"{count} appended; a hold withholds the positions until it is decided"
        return f"{count} appended, at {self.first} to {self.last}"

    def json(self) -> dict[str, Json]:
        return {"records": self.records, "first": self.first, "last": self.last}


class Ingest:
    """Appends to one log. Leaving the context waits for what is on its way."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._tickets: deque[tuple[Ticket, int]] = deque()
        self.done = Appended()

    def __enter__(self) -> Ingest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._tickets:
            if error is None:
                self._take()
            else:
                with contextlib.suppress(BraidError):  # what stopped us came first, and is what will be told
                    self._take()

    def add(self, items: Items) -> None:
        """Append a batch, soon."""
        # A Record's timestamp 0 means "that of the batch": records bring their own, 1970 included.
        stamp = 0 if items and isinstance(items[0], Record) else None
        self._tickets.append((self._log.submit(items, timestamp=stamp), len(items)))
        while self._tickets and self._tickets[0][0].done:
            self._take()

    def _take(self) -> None:
        ticket, count = self._tickets.popleft()
        ticket.durable(limits.COMMIT_TIMEOUT_S)
        self.done.records += count
        try:
            positions = ticket.position(0.0)
        except Timeout:
            self.done.first = self.done.last = None
            return
        assert isinstance(positions, range)
        if self.done.records == count:
            self.done.first = positions.start
        self.done.last = positions.stop - 1 if self.done.first is not None else None


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, if that is a terminal. Tell it (bytes so far, records so far)."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _bytes, _records: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[records]:,} records"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, records=0)
        yield lambda size, records: bar.update(task, completed=size, records=records)
