"""A place that logs live in, as its user holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from braidlog.client import arguments
from braidlog.client.backend import Backend
from braidlog.client.log import Log
from braidlog.client.session import Session
from braidlog.client.ticket import recall
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.errors import NotFound
from braidlog.facts import Outcome, Retention
from braidlog.forest import commands as c


class Braid:
    """All logs and forks of one directory, or of one memory. Use it as a context manager, or close it.

    Safe to use from several threads.
    """

    def __init__(
        self,
        backend: Backend,
        url: str,
        *,
        read_only: bool,
        clock: Clock | None = None,
        stop: Callable[[], None] = lambda: None,
        client: bytes | None = None,
    ) -> None:
        self._session = Session(backend, clock or SystemClock(), client)
        self._stop = stop
        self._closing = threading.Lock()
        self.url = url
        self.read_only = read_only

    def __repr__(self) -> str:
        return f"<braidlog.Braid {self.url!r}{' read-only' if self.read_only else ''}>"

    def create(
        self,
        name: str,
        *,
        discipline: str = "eager",
        retention: Retention | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Log:
        """Create a log. AlreadyExists if the name is taken."""
        age_us, size = arguments.retention(retention)
        result = self._session.backend.execute(
            c.Create(
                arguments.name(name),
                self._session.now_us(),
                arguments.discipline(discipline),
                age_us,
                size,
                arguments.labels(labels),
                self._session.owner,
                self._session.next_request(),
            )
        )
        assert isinstance(result, c.Opening)
        return Log(self._session, result.log, result.name)

    def log(self, name: str) -> Log:
        """The log, or the fork, of that name. NotFound if there is none."""
        return Log(self._session, self._session.backend.find(arguments.name(name)), name)

    def logs(self) -> Iterator[Log]:
        """All logs and forks, oldest first."""
        for log_id, name in self._session.backend.listing():
            yield Log(self._session, log_id, name)

    def drop(self, name: str, *, cascade: bool = False) -> None:
        """Delete a root log. Refused while it has living forks, unless `cascade` deletes those too, severed or not."""
        log_id = self._session.backend.find(arguments.name(name))
        self._session.backend.execute(c.Drop(log_id, bool(cascade), self._session.next_request()))

    def resolve(self, request_id: str) -> Outcome:
        """What became of a request, by the id that a ticket or an OutcomeUnknown carries. NotFound if it never was."""
        return recall(self._session.backend, request_id)

    def close(self) -> None:
        """Let go of everything. What was acknowledged is durable already. Safe to call again."""
        with self._closing:
            if not self._session.backend.closed:
                self._stop()
                self._session.backend.close()

    def __enter__(self) -> Braid:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, name: object) -> bool:
        try:
            self._session.backend.find(str(name))
        except NotFound:
            return False
        return True
