"""What was submitted and not sent yet: records of many submits to one log travel, and are bound, as one batch.

A batch goes when it is large enough, when its first record has lingered long enough, or, without a linger, as soon as
few batches of its log are under way: so a lone submit goes at once, and a flood gathers by itself. Appends with a
condition or a writer's sequence go alone, in their turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from braidlog import limits
from braidlog.embedded.committer import Pending
from braidlog.errors import BraidError, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.batch import Batch

Send = Callable[[c.Append, list[Batch], list[Pending]], None]  # of one command for the records of all the batches


class _Gathered:
    """One log's batch in the making, and how many are under way."""

    __slots__ = ("batches", "command", "count", "due", "members", "size", "under_way")

    def __init__(self) -> None:
        self.command: c.Append | None = None
        self.batches: list[Batch] = []
        self.members: list[Pending] = []
        self.size = 0
        self.count = 0
        self.due = 0.0
        self.under_way = 0


class Accumulator:
    def __init__(self, send: Send, linger: float) -> None:
        self._send = send
        self._linger = linger
        self._lock = threading.Lock()
        self._order = threading.RLock()  # held while batches are sent, so that they leave in their order
        self._logs: dict[int, _Gathered] = {}
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, command: c.Append, batch: Batch, pending: Pending) -> None:
        """Send it soon, with others."""
        alone = (
            bool(command.writer)
            or command.expected_tail != NONE
            or command.size > limits.LINGER_BYTES_MAX
            or command.count > limits.LINGER_RECORDS_MAX
        )
        with self._lock:
            if self._closed:
                raise Unavailable("this braid is closed: open it again")
            gathered = self._logs.get(command.log)
            if gathered is None:
                gathered = self._logs[command.log] = _Gathered()
            if not alone:
                self._gather(gathered, command, batch, pending)
                due = (
                    gathered.size >= limits.LINGER_BYTES_MAX
                    or gathered.count >= limits.LINGER_RECORDS_MAX
                    or (not self._linger and gathered.under_way < limits.LINGER_BATCHES_UNDER_WAY)
                )
                if not due and gathered.members[0] is pending:  # its id is read now, and others may yet join it
                    pending.alias = f"{command.request.hex()}.0.{batch.count}"
        if alone:
            with self._order:
                self.flush(command.log)
                with self._lock:
                    gathered.under_way += 1
                self._send(command, [batch], [pending])
        elif due:
            self.flush(command.log)
        elif self._linger:
            self._start()

    def _gather(self, gathered: _Gathered, command: c.Append, batch: Batch, pending: Pending) -> None:
        if gathered.command is None:
            gathered.command = command
            gathered.due = time.monotonic() + self._linger
        else:
            # Its records are known under the id of the batch that they went with.
            assert gathered.command is not None
            pending.alias = f"{gathered.command.request.hex()}.{gathered.count}.{batch.count}"
        gathered.batches.append(batch)
        gathered.members.append(pending)
        gathered.size += command.size
        gathered.count += batch.count

    def flush(self, log: int | None = None) -> None:
        """Send what was gathered, of one log or of all."""
        with self._order:
            for number in [log] if log is not None else list(self._logs):
                with self._lock:
                    gathered = self._logs.get(number)
                    if gathered is None or gathered.command is None:
                        continue
                    command, batches, members = gathered.command, gathered.batches, gathered.members
                    gathered.command, gathered.batches, gathered.members = None, [], []
                    size, count, gathered.size, gathered.count = gathered.size, gathered.count, 0, 0
                    gathered.under_way += 1
                if len(members) > 1:
                    first = members[0]
                    first.alias = f"{command.request.hex()}.0.{batches[0].count}"
                    command = msgspec.structs.replace(
                        command,
                        count=count,
                        size=size,
                        least=min(batch.least_timestamp for batch in batches),
                        greatest=max(batch.greatest_timestamp for batch in batches),
                    )
                self._send(command, batches, members)

    def answered(self, log: int) -> None:
        """A batch of the log is no longer under way."""
        with self._lock:
            gathered = self._logs.get(log)
            if gathered is None:
                return
            gathered.under_way = max(gathered.under_way - 1, 0)
            more = gathered.command is not None and not self._linger
            if not gathered.under_way and gathered.command is None:
                del self._logs[log]
        if more:  # not from here: this is the thread that receives, and must not wait for those who send
            self._start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._wake.set()
        try:
            self.flush()
        except BraidError:
            pass  # those who wait were told

    def _start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="braidlog-linger", daemon=True)
                    self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            now = time.monotonic()
            with self._lock:
                waiting = [(log, g.due) for log, g in self._logs.items() if g.command is not None]
            for log, due in waiting:
                if due <= now:
                    self.flush(log)
            later = [due for _, due in waiting if due > now]
            self._wake.wait(min(later) - now if later else None)
            self._wake.clear()


def joined(batches: list[Batch]) -> Batch:
    """One batch with the records of all."""
    if len(batches) == 1:
        return batches[0]
    plain = all(batch.keys is None and batch.headers is None for batch in batches)
    values = [value for batch in batches for value in batch.values]
    timestamps: list[int] = []
    for batch in batches:
        timestamps += [batch.timestamps] * batch.count if isinstance(batch.timestamps, int) else batch.timestamps
    if plain:
        return Batch(values, None, None, timestamps)
    keys: list[bytes | None] = []
    headers: list[list[tuple[str, bytes]]] = []
    for batch in batches:
        keys += [None] * batch.count if batch.keys is None else batch.keys
        headers += [[]] * batch.count if batch.headers is None else batch.headers
    return Batch(
        values,
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        timestamps,
    )
