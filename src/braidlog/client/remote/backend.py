"""A braid that others serve: the same seam as the embedded log, with a wire in between."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from braidlog import limits
from braidlog.client.remote.accumulator import Accumulator, joined
from braidlog.client.remote.credentials import Credentials
from braidlog.client.remote.feed import RemoteCursor
from braidlog.client.remote.link import Address, Link
from braidlog.client.remote.records import entries_of, records_of, table_of
from braidlog.client.remote.routes import Routes
from braidlog.client.waiting import Deadline
from braidlog.embedded.committer import Pending
from braidlog.errors import BraidError, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.facts import Ancestor, Consumer, Diff, DiffEntry, Info, Outcome, Plan
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.log import Outcome as Kept
from braidlog.forest.machine import End
from braidlog.objects.batch import Batch, encode, to_arrow
from braidlog.record import Record
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Calls

T = TypeVar("T")

_FOREVER_S: Final = 1e9


class RemoteBackend:
    """A client of a service. Thread-safe; every call has a deadline."""

    instant: Final = False  # looking takes a round trip

    def __init__(
        self,
        addresses: Sequence[Address],
        client: bytes,
        *,
        timeout: float = limits.CALL_TIMEOUT_S,
        linger: float = 0.0,
        connect_timeout: float = limits.CONNECT_TIMEOUT_S,
        shown: Credentials | None = None,
    ) -> None:
        self.timeout = timeout
        self.client = client
        name = f"{os.path.basename(sys.argv[0] if sys.argv else '') or 'python'} {os.getpid()}"
        self._closed = False
        self._name = name[:256]
        self._addresses = list(addresses)
        self._shown = shown or Credentials()
        self._calls: list[Calls] = []  # over all links
        self.link = Link(addresses, client, self._name, self._shown.token, self._calls)
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []
        self._local = 0
        self._accumulator = Accumulator(self._send_gathered, linger)
        self.link.on_connected = self.announce
        try:
            self.welcome = self.link.wait_connected(connect_timeout)
        except BaseException:
            self.link.close()
            raise
        # A broker knows others; a server that is everything itself does not.
        self._routes = Routes(self.link, self._route, self._open_link) if self.welcome.role == "broker" else None

    def link_for(self, log_id: int, timeout: float | None = None) -> Link:
        """The connection that a log is asked for over. To find out takes half of the time at most."""
        if self._routes is None:
            return self.link
        left = self.timeout if timeout is None else timeout
        return self._routes.link(log_id, min(left / 2, limits.ROUTE_ANSWER_S))

    def link_at_hand(self, log_id: int) -> Link:
        """The same as far as it is known, without a wait."""
        return self.link if self._routes is None else self._routes.at_hand(log_id)

    def near(self, log_id: int) -> bool:
        """Whether it is known who serves the log; `approach` finds out."""
        return self._routes is None or self._routes.knows(log_id)

    def approach(self, log_id: int) -> None:
        self.link_for(log_id)

    def _route(self, log_id: int, patience_s: float) -> str:
        waiting = _Waiting()
        call = self.link.begin(m.Route(log_id), b"", patience_s, waiting.done)
        try:
            answer, _ = waiting.wait(patience_s, grace_s=0.0)
        finally:
            self.link.forget(call)
        if isinstance(answer, Unavailable):
            raise answer
        return answer.value if isinstance(answer, m.Text) else ""

    def _open_link(self, named: str) -> Link:
        """To the server that another one named; as safely as to that one."""
        from braidlog.client.remote.opening import addresses_of

        [address] = addresses_of(f"braid://{named}", self._shown.context)
        # When that one is gone, any other will do, and is sent what it owed.
        others = [other for other in self._addresses if str(other) != str(address)]
        link = Link([address, *others], self.client, self._name, self._shown.token, self._calls)
        link.on_connected = self.announce
        return link

    # --- asking --------------------------------------------------------------------------------------------------

    def ask(
        self, request: m.Request, kind: type[T], body: bytes | memoryview = b"", *, timeout: float | None = None
    ) -> T:
        """Send a request and wait for its answer, so many seconds instead of what is usual."""
        return self.ask_for(request, kind, body, timeout=timeout)[0]

    def ask_for(
        self, request: m.Request, kind: type[T], body: bytes | memoryview = b"", *, timeout: float | None = None
    ) -> tuple[T, memoryview]:
        waiting = _Waiting()
        deadline = Deadline(self.timeout if timeout is None else timeout)
        log: int | None = getattr(request, "log", None)
        link = self.link if log is None else self.link_for(log, deadline.left)
        left = deadline.left or 0.0
        call = link.begin(request, body, left, waiting.done)
        if timeout is None:
            answer, answer_body = waiting.wait(left)
        else:
            try:
                answer, answer_body = waiting.wait(left, grace_s=0.0)
            finally:
                link.forget(call)
        if isinstance(answer, BraidError):
            raise answer
        if not isinstance(answer, kind):
            raise Unavailable(f"the server answered a {type(request).__name__} with a {type(answer).__name__}")
        return answer, answer_body

    # --- changing ------------------------------------------------------------------------------------------------

    def execute(self, command: c.Command) -> c.Result:
        waiting = _Waiting()
        deadline = Deadline(self.timeout)
        log: int | None = getattr(command, "log", None)
        link = self.link if log is None else self.link_for(log, deadline.left)
        left = deadline.left or 0.0
        link.begin(m.Execute(command), b"", left, waiting.done)
        answer, _ = waiting.wait(left, command)
        if isinstance(answer, BraidError):
            raise answer
        assert isinstance(answer, m.Result)
        return answer.result

    def append(self, command: c.Append, batch: Batch) -> c.Appended:
        self._check_open()
        pending = Pending(command)
        deadline = Deadline(self.timeout)
        link = self.link_for(command.log, deadline.left)
        self._accumulator.flush(command.log)  # what was submitted before stands before it
        self._send_append(link, command, [batch], [pending], deadline.left or 0.0)
        if not pending.wait(self.append_timeout_s):
            raise OutcomeUnknown("the service did not answer: it may still happen", request_id=command.request.hex())
        answer = pending.result()
        assert isinstance(answer, c.Appended)
        return answer

    def submit(self, command: c.Append, batch: Batch, then: Callable[[Pending], None]) -> Pending:
        self._check_open()
        pending = Pending(command)
        pending.then(then)
        self._accumulator.add(command, batch, pending)
        return pending

    @property
    def append_timeout_s(self) -> float:
        """A little longer than the call itself may take: that one knows better what to say of it."""
        return self.timeout + limits.CONNECT_TIMEOUT_S

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("this braid is closed: open it again")

    def crowded(self, command: c.Append) -> Unavailable | None:
        """How much may be under way is bounded by the session, and by the server for all."""
        del command
        return None

    def wait_for_room(self, command: c.Append, timeout: float | None = None) -> None:
        """The same."""

    def _send_gathered(self, command: c.Append, batches: list[Batch], members: list[Pending]) -> None:
        link = self.link_at_hand(command.log)  # others wait behind this, and so it does not wait for anybody
        answered = partial(self._accumulator.answered, command.log)
        self._send_append(link, command, batches, members, self.timeout, answered, soon=True)

    def _send_append(
        self,
        link: Link,
        command: c.Append,
        batches: list[Batch],
        members: list[Pending],
        timeout: float,
        answered: Callable[[], None] = lambda: None,
        *,
        soon: bool = False,
    ) -> None:
        def done(_: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
            answered()
            finish(members, answer)

        try:  # whatever keeps it from leaving, it is no longer under way, and those who wait are told
            block, body = _packed(command, batches)
            link.begin(m.Append(command, block), body, timeout, done, soon=soon)
        except BraidError as error:
            answered()
            finish(members, error)

    # --- what there is -------------------------------------------------------------------------------------------

    def find(self, name: str) -> int:
        return self.ask(m.Find(name), m.Number).value

    def ids(self) -> list[int]:
        return [log for log, _ in self.listing()]

    def listing(self) -> list[tuple[int, str]]:
        return self.ask(m.ListLogs(), m.Listing).logs

    def name_of(self, log_id: int) -> str:
        return self.ask(m.NameOf(log_id), m.Text).value

    def end_of(self, log_id: int) -> tuple[End, str] | None:
        found = self.ask(m.EndOf(log_id), m.Ending)
        return (End(found.kind, found.name, found.into, found.position), found.into_name) if found.kind else None

    def tail(self, log_id: int, timeout: float | None = None) -> int:
        return self.ask(m.Tail(log_id), m.Number, timeout=timeout).value

    def describe(self, log_id: int) -> Info:
        return self.ask(m.Describe(log_id), m.Described).info

    def lineage(self, log_id: int) -> list[Ancestor]:
        return self.ask(m.Lineage(log_id), m.Ancestors).steps

    def consumers(self, log_id: int) -> list[Consumer]:
        return self.ask(m.Consumers(log_id), m.ConsumerList).consumers

    def objects_of(self, log_id: int) -> str | None:
        return (self.link_for(log_id).welcome or self.welcome).objects

    def status(self) -> m.StatusReport:
        """How the server fares that answers now."""
        return self.ask(m.Status(), m.StatusReport)

    def outcome(self, request: bytes, request_id: str, kept: Kept | None = None) -> Outcome:
        del kept
        return self.ask(m.Recall(request, request_id), m.Recalled).outcome()

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, log_id: int, start: int, stop: int | None, max_records: int | None, max_bytes: int | None
    ) -> list[Record]:
        found: list[Record] = []
        room = max_bytes
        if max_records is not None:
            stop = start + max_records if stop is None else min(stop, start + max_records)
        while True:
            try:
                parts, body = self.ask_for(m.Read(log_id, start, stop, room or 0), m.Parts)
            except BraidError:
                if found:  # the log ended, or was trimmed, between two answers: what was read is true
                    return found
                raise
            for record in records_of(parts, body):
                if room is not None:
                    room -= record.size
                    if room < 0 and found:
                        return found
                found.append(record)
                if room is not None and room <= 0:
                    return found
            end = parts.readable if stop is None else min(stop, parts.readable)
            if not parts.parts or parts.next >= end:
                return found
            start = parts.next

    def read_arrow(self, log_id: int, start: int, stop: int | None) -> pa.Table:
        chunks: list[tuple[m.Parts, memoryview]] = []
        while True:
            parts, body = self.ask_for(m.Read(log_id, start, stop, 0, arrow=True), m.Parts)
            if stop is None:
                stop = parts.readable  # what is appended meanwhile is not part of it
            chunks.append((parts, body))
            start = parts.next
            if not parts.parts or start >= min(stop, parts.readable):
                return table_of(chunks)

    def diff(self, log_id: int, start: int | None, max_records: int | None) -> Diff:
        info = self.describe(log_id)
        if info.fork_point is None:
            raise InvalidArgument(f"log {info.name!r} is a root: only a fork differs from something")
        low = max(info.start, min(max(info.fork_point, start or 0), info.readable_tail))
        stop = info.readable_tail if max_records is None else min(info.readable_tail, low + max_records)
        entries: list[DiffEntry] = []
        at = low
        while at < stop:
            parts, body = self.ask_for(m.Read(log_id, at, stop), m.Parts)
            if not parts.parts:
                raise Unavailable(f"log {info.name!r} changed while it was read: try again")
            entries += entries_of(parts, body)
            at = parts.next
        return Diff(log=info.name, fork_point=info.fork_point, entries=entries, truncated=stop < info.readable_tail)

    def plan(self, log_id: int, start: int, stop: int | None) -> Plan:
        """In as many answers as it takes."""
        found = self.ask(m.PlanRange(log_id, start, stop), m.Planned)
        plan, at = found.plan, found.plan.stop
        parts = list(plan.parts)
        while at < found.end:
            more = self.ask(m.PlanRange(log_id, at, found.end), m.Planned).plan
            if more.stop <= at:
                raise Unavailable(f"log {plan.log!r} changed while it was planned: try again")
            parts += more.parts
            at = more.stop
        return Plan(log=plan.log, start=plan.start, stop=at, objects=plan.objects, parts=parts)

    def position_at(self, log_id: int, moment_us: int) -> int:
        return self.ask(m.PositionAt(log_id, moment_us), m.Number).value

    def pushed(self, log_id: int, position: int) -> RemoteCursor:
        """For following a log: the server pushes."""
        return RemoteCursor(self, log_id, position)

    # --- waiting -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.link.seen

    @property
    def arrivals(self) -> int:
        """A count of what the server told without being asked anew."""
        return self._local

    def wait_for_arrival(self, mark: int, timeout: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._local != mark or self.closed, timeout)

    def wait_for_change(self, seen: int, timeout: float | None, log_id: int | None = None) -> int:
        """Return when something about the log may have changed since `seen`, or when the timeout passed."""
        with self._changed:
            mark = self._local
        deadline = Deadline(timeout)
        disarm = self._arm(log_id, seen, None if self.link.connected else timeout)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._local != mark or self.closed, deadline.left)
        finally:
            disarm()
        return self.version

    def watch(self, watcher: Callable[[], None], log_id: int | None = None, seen: int = 0) -> Callable[[], None]:
        """Call `watcher` whenever something about the log may have changed; returns how to stop that."""
        with self._changed:
            self._watchers.append(watcher)
        disarm = self._arm(log_id, seen)

        def stop() -> None:
            disarm()
            with self._changed:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return stop

    def _arm(self, log_id: int | None, seen: int, timeout: float | None = None) -> Callable[[], None]:
        """Have the server tell of the next change of a log. Nobody has to be told to look again at none."""
        if log_id is None or self.closed:
            return lambda: None
        link = self.link_for(log_id, timeout)
        call = link.begin(m.Watch(log_id, seen), b"", _FOREVER_S, lambda *_: self.announce())

        def disarm() -> None:
            link.note(call, m.Cancel())
            link.forget(call)

        return disarm

    def announce(self) -> None:
        """Something came: whoever waits looks again."""
        with self._changed:
            self._local += 1
            self._changed.notify_all()
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        if self.link.disowned:
            return
        self._accumulator.close()
        if self._routes is not None:
            self._routes.close()
        self.link.close()
        self.announce()


def _packed(command: c.Append, batches: list[Batch]) -> tuple[bool, bytes | memoryview]:
    """Whether the records travel as a block, and their bytes."""
    block = command.size > limits.WIRE_BLOCK_BYTES_MIN
    body: bytes | memoryview = b"" if block else encode(joined(batches))
    if block or len(body) > limits.WIRE_BATCH_BYTES_MAX:
        block, body = True, memoryview(to_arrow(batches).serialize()).cast("B")
    if len(body) > limits.WIRE_BODY_BYTES_MAX:  # a server would have to take it for something else
        raise InvalidArgument(
            f"a batch of {command.count:,} records takes {len(body):,} bytes on its way, and at most "
            f"{limits.WIRE_BODY_BYTES_MAX:,} may: append fewer at once"
        )
    return block, body


class _Waiting:
    """A caller that waits for one answer."""

    __slots__ = ("_answer", "_gate")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._answer: tuple[m.Answer | BraidError, memoryview] | None = None

    def done(self, _: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
        self._answer = (answer, body)
        self._gate.release()

    def wait(
        self, timeout: float, change: c.Command | None = None, *, grace_s: float = limits.CONNECT_TIMEOUT_S
    ) -> tuple[m.Answer | BraidError, memoryview]:
        # A little longer than the call itself may take: that one knows better what to say of it.
        if not self._gate.acquire(timeout=max(timeout + grace_s, 0.0)) or self._answer is None:
            why = f"the service did not answer within {timeout:g} s"
            if change is not None:
                request: bytes = getattr(change, "request", b"")
                raise OutcomeUnknown(f"{why}: it may still happen", request_id=request.hex())
            raise Unavailable(why)
        return self._answer


def finish(members: list[Pending], answer: m.Answer | BraidError) -> None:
    """Tell those whose records went together where theirs stand."""
    if isinstance(answer, BraidError):
        for member in members:
            member.finish(answer)
        return
    assert isinstance(answer, m.Result)
    result = answer.result
    if not isinstance(result, c.Appended) or len(members) == 1:
        members[0].finish(result)
        return
    at = result.first
    for member in members:
        assert isinstance(member.command, c.Append)
        count = member.command.count
        member.finish(c.Appended(result.log, at, count, result.block, result.withheld))
        at += count if at != NONE else 0
