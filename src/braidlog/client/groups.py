"""Several metadata groups as one backend: each keeps whole trees, and nothing is ever asked of two at once.

A root log lives in the group that its name falls to, and all that is forked from it lives there too; so a group needs
to know of no other. Outside, the number of a log says which group it is of. A fork may be named as its maker likes: a
name is looked for in the group that it falls to, then in the others, and one that two others have is ambiguous.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from braidlog import limits
from braidlog.client.backend import Backend, Following
from braidlog.embedded.committer import Pending
from braidlog.errors import AlreadyExists, BraidError, ConditionFailed, InvalidArgument, NotFound, Unavailable
from braidlog.facts import Ancestor, Consumer, Diff, Info, Outcome, Plan
from braidlog.forest import commands as c
from braidlog.forest.log import Outcome as Kept
from braidlog.forest.machine import End
from braidlog.objects.batch import Batch
from braidlog.record import Record

_BITS: Final = 48  # of a log's number, within its group

T = TypeVar("T")


def group_of(name: str, groups: int) -> int:
    """The group that a name falls to. When there is one group more, only the names that fall to it move."""
    return max(range(groups), key=lambda group: blake2b(f"{group}/{name}".encode(), digest_size=8).digest())


class GroupedBackend(Backend):
    """`groups` in an order that every client keeps to: logs are found by it."""

    def __init__(self, groups: Sequence[Backend]) -> None:
        self._groups = list(groups)
        self._versions: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._version = 0
        self._lock = threading.Lock()

    @property
    def instant(self) -> bool:
        return False

    @property
    def first(self) -> Backend:
        """One of them, for what is the same in all."""
        return self._groups[0]

    # --- which one -----------------------------------------------------------------------------------------------

    def _split(self, log_id: int) -> tuple[int, Backend, int]:
        group = log_id >> _BITS
        if not 0 <= group < len(self._groups):
            raise InvalidArgument(f"there is no metadata group {group}: the service has {len(self._groups)}")
        return group, self._groups[group], log_id & ((1 << _BITS) - 1)

    def _at(self, log_id: int) -> tuple[Backend, int]:
        _, backend, local = self._split(log_id)
        return backend, local

    def _local(self, command: c.Command) -> tuple[int, c.Command]:
        if isinstance(command, c.Create):
            group = group_of(command.name, len(self._groups))
            for other, backend in enumerate(self._groups):  # a fork may have it; the group itself answers for roots
                if other != group and _found(backend, command.name) is not None:
                    raise AlreadyExists(f"there is a fork called {command.name!r} already: choose another name")
            return group, command
        group, _, local = self._split(getattr(command, "log"))  # noqa: B009
        if isinstance(command, c.Promote) and command.into != c.NONE:
            other, _, into = self._split(command.into)
            if other != group:
                raise ConditionFailed("a fork is promoted into its parent, which the log that was given is not")
            command = msgspec.structs.replace(command, into=into)
        return group, msgspec.structs.replace(command, log=local)

    # --- changing ------------------------------------------------------------------------------------------------

    def execute(self, command: c.Command) -> c.Result:
        group, local = self._local(command)
        return _outside(group, self._groups[group].execute(local))

    def append(self, command: c.Append, batch: Batch) -> c.Appended:
        group, local = self._local(command)
        assert isinstance(local, c.Append)
        answer = _outside(group, self._groups[group].append(local, batch))
        assert isinstance(answer, c.Appended)
        return answer

    def submit(self, command: c.Append, batch: Batch, then: Callable[[Pending], None]) -> Pending:
        group, local = self._local(command)
        assert isinstance(local, c.Append)
        pending = Pending(command)
        pending.then(then)

        def done(inside: Pending) -> None:
            answer = inside.answer
            pending.alias = inside.alias
            if answer is None or isinstance(answer, BraidError):
                pending.finish(answer or Unavailable("there is no answer"))
            else:
                pending.finish(_outside(group, answer))

        inside = self._groups[group].submit(local, batch, done)
        if not pending.done:
            pending.alias = inside.alias
        return pending

    def crowded(self, command: c.Append) -> Unavailable | None:
        group, local = self._local(command)
        assert isinstance(local, c.Append)
        return self._groups[group].crowded(local)

    def wait_for_room(self, command: c.Append, timeout: float | None = None) -> None:
        group, local = self._local(command)
        assert isinstance(local, c.Append)
        self._groups[group].wait_for_room(local, timeout)

    @property
    def append_timeout_s(self) -> float:
        return max(backend.append_timeout_s for backend in self._groups)

    def near(self, log_id: int) -> bool:
        backend, local = self._at(log_id)
        return backend.near(local)

    def approach(self, log_id: int) -> None:
        backend, local = self._at(log_id)
        backend.approach(local)

    # --- what there is -------------------------------------------------------------------------------------------

    def find(self, name: str) -> int:
        own = group_of(name, len(self._groups))
        found = _found(self._groups[own], name)
        if found is not None:
            return _number(own, found)
        others: list[int] = []
        into = end = ""
        for group, backend in enumerate(self._groups):
            try:
                others.append(_number(group, backend.find(name)))
            except NotFound as error:
                into, end = into or error.into, end or error.end
        if len(others) > 1:
            raise InvalidArgument(f"there are {len(others)} forks called {name!r}, of logs of different groups")
        if not others:
            raise NotFound(
                f"there is no log {name!r}" + (f": it was promoted into {into!r}" if into else ""), into=into, end=end
            )
        return others[0]

    def listing(self) -> list[tuple[int, str]]:
        return [
            (_number(group, log), name) for group, backend in enumerate(self._groups) for log, name in backend.listing()
        ]

    def name_of(self, log_id: int) -> str:
        backend, local = self._at(log_id)
        return backend.name_of(local)

    def end_of(self, log_id: int) -> tuple[End, str] | None:
        group, backend, local = self._split(log_id)
        found = backend.end_of(local)
        if found is None:
            return None
        end, into = found
        return (end._replace(into=_number(group, end.into)) if end.into >= 0 else end), into

    def tail(self, log_id: int) -> int:
        backend, local = self._at(log_id)
        return backend.tail(local)

    def describe(self, log_id: int) -> Info:
        backend, local = self._at(log_id)
        return msgspec.structs.replace(backend.describe(local), id=log_id)

    def lineage(self, log_id: int) -> list[Ancestor]:
        group, backend, local = self._split(log_id)
        return [msgspec.structs.replace(step, id=_number(group, step.id)) for step in backend.lineage(local)]

    def consumers(self, log_id: int) -> list[Consumer]:
        backend, local = self._at(log_id)
        return backend.consumers(local)

    def objects_of(self, log_id: int) -> str | None:
        backend, local = self._at(log_id)
        return backend.objects_of(local)

    def outcome(self, request: bytes, request_id: str, kept: Kept | None = None) -> Outcome:
        missing: NotFound | None = None
        for backend in self._groups:
            try:
                return backend.outcome(request, request_id, kept)
            except NotFound as error:
                missing = error
        assert missing is not None
        raise missing

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, log_id: int, start: int, stop: int | None, max_records: int | None, max_bytes: int | None
    ) -> list[Record]:
        backend, local = self._at(log_id)
        return backend.read(local, start, stop, max_records, max_bytes)

    def read_arrow(self, log_id: int, start: int, stop: int | None) -> pa.Table:
        backend, local = self._at(log_id)
        return backend.read_arrow(local, start, stop)

    def diff(self, log_id: int, start: int | None, max_records: int | None) -> Diff:
        backend, local = self._at(log_id)
        return backend.diff(local, start, max_records)

    def plan(self, log_id: int, start: int, stop: int | None) -> Plan:
        backend, local = self._at(log_id)
        return backend.plan(local, start, stop)

    def position_at(self, log_id: int, moment_us: int) -> int:
        backend, local = self._at(log_id)
        return backend.position_at(local, moment_us)

    def pushed(self, log_id: int, position: int) -> Following | None:
        backend, local = self._at(log_id)
        return backend.pushed(local, position)

    # --- waiting -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """A number for the versions of all groups, which is remembered for a while: one that is not wakes too soon."""
        versions = tuple(backend.version for backend in self._groups)
        with self._lock:
            if self._version and self._versions[self._version] == versions:
                return self._version
            self._version += 1
            self._versions[self._version] = versions
            if len(self._versions) > limits.GROUP_VERSIONS_KEPT:
                self._versions.popitem(last=False)
            return self._version

    def _seen(self, seen: int, group: int) -> int:
        with self._lock:
            versions = self._versions.get(seen)
        return 0 if versions is None else versions[group]

    def wait_for_change(self, seen: int, timeout: float | None, log_id: int | None = None) -> int:
        if log_id is None:
            raise InvalidArgument("with several metadata groups only a log can be waited for")
        group, backend, local = self._split(log_id)
        backend.wait_for_change(self._seen(seen, group), timeout, local)
        return self.version

    def watch(self, watcher: Callable[[], None], log_id: int | None = None, seen: int = 0) -> Callable[[], None]:
        if log_id is None:
            stops = [backend.watch(watcher) for backend in self._groups]

            def stop_all() -> None:
                for stop in stops:
                    stop()

            return stop_all
        group, backend, local = self._split(log_id)
        return backend.watch(watcher, local, self._seen(seen, group))

    @property
    def closed(self) -> bool:
        return all(backend.closed for backend in self._groups)

    def close(self) -> None:
        for backend in self._groups:
            backend.close()


def _number(group: int, log: int) -> int:
    return group << _BITS | log


def _found(backend: Backend, name: str) -> int | None:
    try:
        return backend.find(name)
    except NotFound:
        return None


def _outside(group: int, result: c.Result) -> c.Result:
    """The same with numbers that say which group they are of."""
    if isinstance(result, c.Appended | c.Opening):
        return msgspec.structs.replace(result, log=_number(group, result.log))
    return result
