"""Who called what: each call of an agent, and each decision on a proposal, is a record of the log `braidlog.audit`.

An entry of a call that changes something is durable before the call is answered; one of a call that only reads is
written along with others and a moment later, and is lost if the process is killed in between. Arguments are cut, and
what looks like a secret is hidden (`discretion`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from braidlog import Braid, Log, Subscription, Ticket, limits
from braidlog.agents.discretion import told, told_of
from braidlog.agents.journal import system_log
from braidlog.agents.names import AUDIT
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.errors import BraidError, NotFound
from braidlog.record import to_micros


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call, or one decision."""

    time: datetime
    agent: str  # who called
    tool: str  # what was called
    outcome: str  # "ok", or the name of the error
    message: str = ""  # what went wrong
    result: str = ""  # what came of it, in a word or two, if there is such a word
    arguments: dict[str, Any] = {}
    log: str | None = None  # the log or fork that it was about
    lineage: list[str] = []  # that log, what it was forked from, and so on
    seconds: float = 0.0

    def concerns(self, log: str) -> bool:
        """Whether it is about that log, or a fork of it."""
        return log == self.log or log in self.lineage


class Call:
    """A call that goes on, entered when it ends: how long it took and, if it raised, with what."""

    def __init__(self, audit: Audit, entry: Entry, arguments: Mapping[str, Any], *, changes: bool) -> None:
        self._audit = audit
        self._entry = entry
        self._arguments = arguments  # looked through when it is entered: that takes a while if there are many
        self._changes = changes
        self._began = time.monotonic()
        self.log = entry.log
        self.lineage: list[str] = []
        self.result = ""

    def about(self, log: Log) -> None:
        """The log or fork that the call is about, with all that it was forked from."""
        self.log = log.name
        with contextlib.suppress(BraidError):  # it is gone already, or may not be seen
            self.lineage = [step.name for step in log.lineage()]

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        done = structs.replace(
            self._entry,
            outcome="ok" if kind is None else kind.__name__,
            arguments=told_of(self._arguments),
            message="" if error is None else told(str(error)),
            result=told(self.result),
            log=self.log,
            lineage=self.lineage,
            seconds=round(time.monotonic() - self._began, 6),
        )
        try:
            self._audit.write(done, wait=self._changes)
        finally:
            self._audit.entered()


class Audit:
    """Writes entries, and reads them. Safe to use from several threads."""

    def __init__(self, braid: Braid, *, clock: Clock | None = None) -> None:
        self._braid = braid
        self._clock = clock or SystemClock()
        self._log: Log | None = None
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, Ticket]] = deque()
        self._under_way = 0  # calls that were begun and are not entered
        self._all_entered = threading.Condition()

    def call(
        self, agent: str, tool: str, arguments: Mapping[str, Any], *, changes: bool, log: str | None = None
    ) -> Call:
        """A context manager around a call of `tool` by `agent`. `changes` says that the entry has to be durable before
        it is left."""
        entry = Entry(
            time=datetime.fromtimestamp(self._clock.now_us() / 1e6, UTC),
            agent=told(agent),
            tool=told(tool),
            outcome="",
            log=log,
        )
        with self._all_entered:
            self._under_way += 1
        return Call(self, entry, arguments, changes=changes)

    def entered(self) -> None:
        """A call is over."""
        with self._all_entered:
            self._under_way -= 1
            self._all_entered.notify_all()

    def write(self, entry: Entry, *, wait: bool = True) -> None:
        """Append an entry. With `wait` it is durable on return."""
        data = msgspec.json.encode(entry)
        with self._lock:  # entries stand in the order in which calls ended
            if self._log is None:
                self._log = system_log(self._braid, AUDIT)
            log = self._log
            ticket = log.submit(data, key=entry.agent.encode("utf-8", "replace"))
            if not wait:
                self._waiting.append((data, ticket))
                self._settle(all=len(self._waiting) > limits.AUDIT_WAITING_RECORDS_MAX)
        if wait:
            _confirm(log, data, ticket)

    def flush(self) -> None:
        """Return when everything that was written is durable."""
        with self._lock:
            self._settle(all=True)

    def _settle(self, *, all: bool) -> None:
        while self._log is not None and self._waiting and (all or self._waiting[0][1].done):
            _confirm(self._log, *self._waiting[0])
            self._waiting.popleft()

    def close(self) -> None:
        """Let nothing be lost: calls that were broken off may still be about to be entered."""
        with self._all_entered:
            self._all_entered.wait_for(lambda: self._under_way <= 0, limits.MCP_SHUTDOWN_S)
        self.flush()

    def read(
        self,
        *,
        agent: str | None = None,
        log: str | None = None,
        since: datetime | None = None,
        follow: bool = False,
    ) -> Iterator[Entry]:
        """The entries there are, in their order; with `follow` those that come, too. `log` is a log with its forks."""
        self.flush()
        try:
            found = self._braid.log(AUDIT)
        except NotFound:
            if follow:
                raise NotFound(f"nothing was entered yet: {AUDIT} begins with the first call") from None
            return
        start = 0 if since is None else found.position_at(to_micros(since))
        with found.subscribe(start, follow=follow) as entries:
            yield from _wanted(entries, agent, log)


def _confirm(log: Log, data: bytes, ticket: Ticket) -> None:
    """Twice is better than not at all; and if neither can be had, the call that is entered fails."""
    try:
        ticket.durable()
    except BraidError:
        log.append(data)


def _wanted(entries: Subscription, agent: str | None, log: str | None) -> Iterator[Entry]:
    for record in entries:
        try:
            entry = msgspec.json.decode(record.value, type=Entry)
        except msgspec.MsgspecError:  # somebody else's record
            continue
        if agent in (None, entry.agent) and (log is None or entry.concerns(log)):
            yield entry
