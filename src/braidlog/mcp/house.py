"""What the calls of all agents share, and who calls.

The house has credentials of its own: with them it keeps the audit log, runs validators, and decides by the policy. What
an agent asks for is done on a braid that was opened with the *agent's* token, if agents have tokens, so the service's
scopes hold for each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from braidlog import Braid, Info, Log
from braidlog.agents.audit import Audit
from braidlog.agents.desk import Desk
from braidlog.agents.names import AGENT_LABEL, PROPOSAL_LABEL, is_system
from braidlog.agents.policy import Policy, Rule
from braidlog.agents.running import Access
from braidlog.agents.sql_spark import Spark
from braidlog.errors import InvalidArgument, NotPermitted, Timeout
from braidlog.mcp.budgets import Budgets
from braidlog.mcp.holding import Holding


@dataclass(frozen=True)
class Caller:
    """An agent. `principal` is the name of its token, empty if it came without one; `access` is how another process
    gets at the logs with the agent's own rights, if it can."""

    name: str
    braid: Braid
    principal: str = ""
    access: Access | None = None


class Callers(Protocol):
    """Who calls."""

    def current(self) -> Caller:
        """The one whose call this is. NotPermitted if nobody may call any more."""

    def doubt(self, caller: Caller) -> None:
        """The service refused this one: its token may not be good any more."""

    def listening(self, caller: Caller) -> AbstractContextManager[None]:
        """While it listens, though it does not call, this one is there."""


class OnlyCaller:
    """Of a server that one agent has for itself."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def current(self) -> Caller:
        """Always the same."""
        return self._caller

    def doubt(self, caller: Caller) -> None:
        """There is nobody else to be."""

    def listening(self, caller: Caller) -> AbstractContextManager[None]:
        """It is always there."""
        del caller
        return nullcontext()


@dataclass
class House:
    """Opened once for a server."""

    braid: Braid
    policy: Policy
    audit: Audit
    desk: Desk
    access: Access | None
    callers: Callers
    budgets: Budgets = field(default_factory=Budgets)
    holding: Holding = field(default_factory=Holding)
    spark: Spark | None = None  # for queries over large ranges, where the operator allowed it

    @classmethod
    def of(cls, braid: Braid, callers: Callers, policy: Policy | None = None, access: Access | None = None) -> House:
        """A house that does its own work on this braid."""
        policy = policy or Policy.default()
        audit = Audit(braid)
        return cls(braid, policy, audit, Desk(braid, policy, access=access, audit=audit), access, callers)


@dataclass
class Work:
    """One call: who made it, what it turned out to be about, and how to end it before its time."""

    house: House
    caller: Caller
    about: Callable[[Log], None]
    became: Callable[[str], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: list[Callable[[], None]] = field(default_factory=list)
    _over: bool = False

    def ended_by(self, end: Callable[[], None]) -> None:
        """Have `end` called when nobody waits for the call any more, which may be now."""
        with self._lock:
            self._ending.append(end)
            over = self._over
        if over:
            end()

    def end(self) -> None:
        """Nobody waits for it any more: it was answered, or cancelled, or took too long."""
        with self._lock:
            self._over = True
            ending = list(self._ending)
        for end in ending:
            end()

    def check(self) -> None:
        """Timeout if nobody waits any more: who was told that it took too long is not to find it done later."""
        if self._over:
            raise Timeout("nobody waits for it any more")

    def log(self, name: str) -> Log:
        """The log or fork of that name."""
        if is_system(name):
            raise NotPermitted(f"{name!r} is a system log, and not for agents: `list_logs` shows what is")
        found = self.caller.braid.log(name)
        self.about(found)
        self.house.desk.used(found, self.caller.name)
        return found

    def own_fork(self, name: str, to: str) -> tuple[Log, Info]:
        """A fork that this very agent made."""
        found = self.log(name)
        info = found.info()
        if info.kind == "root":
            raise NotPermitted(f"{name!r} is a root, and agents do not {to} roots: `create_fork` of it, and use that")
        if PROPOSAL_LABEL in info.labels:
            raise NotPermitted(f"{name!r} carries a proposal and is nobody's to {to}: `create_fork` one of your own")
        if info.labels.get(AGENT_LABEL) != self.caller.name or self.caller.principal not in ("", info.owner):
            maker = info.labels.get(AGENT_LABEL) or info.owner or "somebody else"
            raise NotPermitted(
                f"{name!r} was made by {maker!r}, and you are {self.caller.name!r}: agents {to} forks of their own "
                "only, so `create_fork` one"
            )
        return found, info

    def limits_for(self, log: Log) -> tuple[str, Rule]:
        """The root that a log goes back to, and what holds for agents' forks of that: forks of forks count with it, or
        there would be no end of them."""
        root = log.lineage()[-1].name
        return root, self.house.policy.rule(root)

    def parent_of(self, info: Info) -> str:
        """What a fork was made of, whose rules hold for it."""
        if info.parent is None:
            raise InvalidArgument(f"{info.name!r} has no parent any more: squash it, and fork what you need anew")
        return info.parent
