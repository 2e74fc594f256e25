"""Which validators stand before which logs: durable, and the same for every process, in the log `braidlog.registry`."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec import Struct

from braidlog import Braid, limits
from braidlog.agents.journal import Journal
from braidlog.agents.names import REGISTRY
from braidlog.agents.running import Bounds
from braidlog.agents.validators import absolute
from braidlog.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable

_log = logging.getLogger("braidlog.agents")

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,300}")


class Registration(Struct, frozen=True, kw_only=True):
    """A validator under the name that it is known by. `logs` is a pattern over the names of the logs that it guards:
    what is to be promoted into such a log has to pass it."""

    name: str
    validator: str
    logs: str
    parameters: dict[str, Any] = {}
    start: int | None = None  # where it begins to read; None is at the beginning
    bounds: Bounds = Bounds()

    def guards(self, log: str) -> bool:
        """Whether it stands before that log."""
        return fnmatchcase(log, self.logs)


class _Event(Struct, frozen=True, kw_only=True):
    nonce: str
    added: Registration | None = None
    removed: str | None = None


class Registry:
    """The validators there are. Safe to use from several threads, and beside other processes."""

    def __init__(self, braid: Braid) -> None:
        self._journal = Journal(braid, REGISTRY)
        self._known: dict[str, Registration] = {}
        self._lock = threading.Lock()

    def list(self, log: str | None = None) -> list[Registration]:
        """All of them, or those that stand before a log, by name."""
        with self._lock:
            self._catch_up()
            found = [one for one in self._known.values() if log is None or one.guards(log)]
        return sorted(found, key=lambda one: one.name)

    def get(self, name: str) -> Registration:
        """The validator of that name; NotFound if there is none."""
        with self._lock:
            self._catch_up()
            return self._found(name)

    def add(
        self,
        name: str,
        validator: str,
        *,
        logs: str,
        parameters: dict[str, Any] | None = None,
        start: int | None = None,
        bounds: Bounds | None = None,
    ) -> Registration:
        """Put a validator before all logs of such names, from now on. AlreadyExists if the name is taken."""
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"{name[:100]!r} is no name for a validator: use 1 to 100 of A-Z a-z 0-9 . _ -")
        if not _PATTERN.fullmatch(logs):
            raise InvalidArgument(f"{logs[:100]!r}: a pattern is a name of a log with *, ? or [...] in it")
        if bounds is not None:
            bounds.check()  # now, and not when somebody's proposal waits for it
        added = Registration(
            name=name,
            validator=absolute(validator),
            logs=logs,
            parameters=parameters or {},
            start=start,
            bounds=bounds or Bounds(),
        )

        def event() -> _Event:
            if name in self._known:
                raise AlreadyExists(f"there is a validator named {name!r}: remove it first, or choose another name")
            return _Event(nonce=uuid.uuid4().hex, added=added)

        self._write(event)
        return added

    def remove(self, name: str) -> None:
        """Take a validator away; NotFound if there is none of that name."""

        def event() -> _Event:
            self._found(name)
            return _Event(nonce=uuid.uuid4().hex, removed=name)

        self._write(event)

    def _found(self, name: str) -> Registration:
        if name not in self._known:
            raise NotFound(f"there is no validator named {name!r}: `braid validators list` shows those there are")
        return self._known[name]

    def _write(self, event: Any) -> None:
        with self._lock:
            for _ in range(limits.JOURNAL_ATTEMPTS):
                self._catch_up()
                if self._journal.write(msgspec.json.encode(event())):
                    self._catch_up()
                    return
        raise Unavailable(f"others keep changing {REGISTRY}: try again")

    def _catch_up(self) -> None:
        for record in self._journal.news():
            try:
                event = msgspec.json.decode(record.value, type=_Event)
            except msgspec.MsgspecError as error:
                _log.warning("a record of %s is no event and is passed over: %s", REGISTRY, error)
                continue
            if event.added is not None:
                self._known[event.added.name] = event.added
            if event.removed is not None:
                self._known.pop(event.removed, None)
