"""What an agent of the demo works with. Each call is told on the board and entered in the audit log, under the name of
the tool of `braid mcp` that a model would call for it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog.agents import AGENT_LABEL, Access, Audit, Finding, validate
from braidlog.cli.demo.shop import Copy
from braidlog.errors import BraidError

if TYPE_CHECKING:
    from braidlog import Braid, Log
    from braidlog.cli.demo.board import Board, Tone

CHECK: Final = f"{Copy.__module__}:{Copy.__qualname__}"
TTL_S: Final = 86_400.0
HOLD_S: Final = 60.0  # that the demo's policy lets a fork hold production

T = TypeVar("T")


class Hands:
    """Those of one agent, on one log."""

    def __init__(self, agent: str, log: Log, braid: Braid, access: Access, audit: Audit, board: Board) -> None:
        self.agent = agent
        self.log = log
        self.audit = audit
        self.access = access
        self._braid = braid
        self._board = board
        self.fork_us: list[float] = []
        self._made: list[Log] = []

    def say(self, text: str, tone: Tone = "plain") -> None:
        """For people who look on."""
        self._board.say(self.agent, text, tone)

    def fork(self, what: str, *, severed: bool = False, promotable: bool = False) -> Log:
        """Fork the log. If it is held that waits, for as long as a hold may last."""
        name = f"{self.log.name}.{self.agent}.{what}"
        labels = {AGENT_LABEL: self.agent}
        given = {"log": self.log.name, "name": name, "severed": severed, "promotable": promotable}
        with self.audit.call(self.agent, "create_fork", given, changes=True) as call:
            began = time.perf_counter()
            if severed:
                fork = self.log.sfork(name, ttl=TTL_S, labels=labels, wait=HOLD_S)
            else:
                fork = self.log.cfork(name, promotable=promotable, ttl=TTL_S, lease=HOLD_S, labels=labels, wait=HOLD_S)
            self.fork_us.append((time.perf_counter() - began) * 1e6)
            self._made.append(fork)
            call.about(fork)
        kind = "an sFork" if severed else "a promotable cFork" if promotable else "a cFork"
        self.say(f"forks {self.log.name} as {name}, {kind}, in {self.fork_us[-1]:,.0f} µs")
        return fork

    def query(self, log: Log, statement: str, answer: Callable[[Log], T]) -> T:
        """Ask a question of a log, which the statement is in SQL."""
        with self.audit.call(self.agent, "query_sql", {"log": log.name, "sql": statement}, changes=False) as call:
            call.about(log)
            return answer(log)

    def last(self, log: Log) -> bytes:
        """The last value that can be read."""
        with self.audit.call(self.agent, "read_records", {"log": log.name, "last": 1}, changes=False) as call:
            call.about(log)
            return log.read(log.info().readable_tail - 1)[0].value

    def append(self, fork: Log, values: Sequence[bytes]) -> None:
        """Write on a fork."""
        given = {"fork": fork.name, "records": [value.decode() for value in values]}
        with self.audit.call(self.agent, "append_records", given, changes=True) as call:
            call.about(fork)
            fork.append_many(values, wait=HOLD_S)

    def validate(self, fork: Log) -> Finding:
        """Run a copy of the consumer over a fork, in a process of its own."""
        with self.audit.call(self.agent, "run_validator", {"fork": fork.name}, changes=False) as call:
            call.about(fork)
            return validate(self._braid, fork, CHECK, access=self.access)

    def squash(self, fork: Log) -> None:
        """End a fork."""
        with self.audit.call(self.agent, "squash_fork", {"fork": fork.name}, changes=True) as call:
            call.about(fork)
            fork.squash()

    def leave(self) -> None:
        """Squash every fork that is still there: the demo ended before its time."""
        for fork in self._made:
            with contextlib.suppress(BraidError):
                fork.squash()


def median_us(crew: Sequence[Hands]) -> float:
    """How long it took to fork."""
    return statistics.median(took for hands in crew for took in hands.fork_us)
