"""What the tests of proposals share: validators that run in this process, and desks that die at any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import braidlog
from braidlog.agents import Access, Desk, Finding, Policy, Verdict
from braidlog.agents.running import Job, Runner
from braidlog.client.backend import Backend
from braidlog.embedded.clock import Clock

CHECK = "tests.e2e.agents_stage:nothing_bad"  # what the registry knows it by; here it is run without a process
CHANGES = ("execute", "append", "submit")
NOWHERE = Access(url="file:///nowhere")  # those validators look at what is open here


class Killed(BaseException):
    """The desk's process is no more. Nothing that a program does about errors happens then."""


class Dying:
    """A backend whose process is killed at its n-th change: before it takes effect, or after, unanswered."""

    def __init__(self, backend: Backend, changes: int, *, after: bool) -> None:
        self._backend = backend
        self._left = changes
        self._after = after
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        if self.dead:
            raise Killed
        found = getattr(self._backend, name)
        return self._counted(found) if name in CHANGES else found

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self._left -= 1
            if self._left > 0:
                return change(*args)
            if self._after:
                change(*args)
            self.dead = True
            raise Killed

        return counted


class Paused(Dying):
    """A backend whose process does nothing for a while before its n-th change, and then goes on as if nothing was."""

    def __init__(self, backend: Backend, changes: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(backend, changes, after=False)
        self._meanwhile = meanwhile

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
            return change(*args)

        return counted

    @property
    def reached(self) -> bool:
        return self._left <= 0


def paused(
    braid: braidlog.Braid, clock: Clock, changes: int, meanwhile: Callable[[], None]
) -> tuple[braidlog.Braid, Paused]:
    """The same logs, for a process that stands still once."""
    backend = Paused(braid._session.backend, changes, meanwhile)
    return braidlog.Braid(cast(Backend, backend), braid.url, read_only=False, clock=clock), backend


class Meanwhile:
    """A backend at which something happens right before the first call of one kind."""

    def __init__(self, backend: Backend, before: str, happens: Callable[[], object]) -> None:
        self._backend = backend
        self._before: str | None = before
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        if name == self._before:
            self._before = None
            self._happens()
        return getattr(self._backend, name)


def interrupted(braid: braidlog.Braid, clock: Clock, before: str, happens: Callable[[], object]) -> braidlog.Braid:
    """The same logs, for a process that is overtaken by others there."""
    backend = Meanwhile(braid._session.backend, before, happens)
    return braidlog.Braid(cast(Backend, backend), braid.url, read_only=False, clock=clock)


def dying(braid: braidlog.Braid, clock: Clock, changes: int, *, after: bool) -> tuple[braidlog.Braid, Dying]:
    """The same logs, for a process that does not live long."""
    backend = Dying(braid._session.backend, changes, after=after)
    return braidlog.Braid(cast(Backend, backend), braid.url, read_only=False, clock=clock), backend


def nothing_bad(braid: braidlog.Braid) -> Runner:
    """A validator that is against every fork with a bad record of its own."""

    def run(job: Job, name: str, _: object) -> Finding:
        own = braid.log(job.fork).diff().own
        bad = [record.position for record in own if record.value.startswith(b"bad")]
        return Finding(validator=name, verdict=Verdict(not bad, ["a bad record"] if bad else [], bad))

    return run


def desk_on(braid: braidlog.Braid, clock: Clock, policy: str = "", runner: Runner | None = None) -> Desk:
    return Desk(braid, Policy.parse(policy), clock=clock, runner=runner or nothing_bad(braid), access=NOWHERE)
