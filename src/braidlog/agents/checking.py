"""Which validators stand before a log, and what they say of a fork of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from braidlog import Braid, Log
from braidlog.agents.registry import Registration, Registry
from braidlog.agents.running import Access, Bounds, Job, Runner, Stop, run
from braidlog.agents.verdict import Finding, failed
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.errors import NotFound


class Checks:
    """Runs the validators that a log requires, one after the other, each in a process of its own."""

    def __init__(
        self, braid: Braid, *, access: Access | None = None, runner: Runner = run, clock: Clock | None = None
    ) -> None:
        self._braid = braid
        self._access = access
        self._run = runner
        self._clock = clock or SystemClock()
        self.registry = Registry(braid)

    def required(self, log: str, named: Iterable[str] = ()) -> list[Registration | str]:
        """Those that the registry puts before a log, and those that are named besides; a name that the registry does
        not know stands for itself."""
        found: dict[str, Registration | str] = {one.name: one for one in self.registry.list(log)}
        for name in named:
            if name not in found:
                try:
                    found[name] = self.registry.get(name)
                except NotFound:
                    found[name] = name
        return [found[name] for name in sorted(found)]

    def seconds(self, log: str, named: Iterable[str] = ()) -> float:
        """How long they may take together."""
        return sum(one.bounds.timeout_s for one in self.required(log, named) if isinstance(one, Registration))

    def findings(
        self,
        fork: Log,
        log: str,
        named: Iterable[str] = (),
        *,
        until_us: int | None = None,
        stop: Stop | None = None,
    ) -> list[Finding]:
        """What they say of a fork of the log. `until_us` is when they have to be done; Stopped if `stop` was used."""
        stop = stop or Stop()
        return [self._finding(fork, one, until_us, stop) for one in self.required(log, named)]

    def _finding(self, fork: Log, one: Registration | str, until_us: int | None, stop: Stop) -> Finding:
        if isinstance(one, str):
            why = f"the policy asks for it, and there is no such validator: `braid validators add {one}`"
            return Finding(validator=one, verdict=failed(why))
        bounds = one.bounds
        if until_us is not None:
            left = (until_us - self._clock.now_us()) / 1e6
            if left <= 0:
                return Finding(validator=one.name, verdict=failed("the time that a hold may last was over"))
            bounds = Bounds(timeout_s=min(left, bounds.timeout_s), memory_bytes=bounds.memory_bytes)
        job = Job(
            access=self.access,
            fork=fork.name,
            fork_id=fork.id,
            validator=one.validator,
            parameters=one.parameters,
            start=one.start,
            bounds=bounds,
        )
        return structs.replace(self._run(job, one.name, stop), validator=one.name)

    @property
    def access(self) -> Access:
        """How other processes get at the logs."""
        return self._access or Access.to(self._braid)
