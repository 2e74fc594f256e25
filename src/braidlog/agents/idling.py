"""Which forks of agents nobody uses any more.

A fork is used when it has another number of own records than before, when somebody says so (an agent looked at it), and
when a fork of it is used. What is not known is counted from when it was first seen: whoever asks has to go on asking.
Only forks of agents that were met here are told of: another process may know that the others are in use.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

from braidlog import Braid, Log
from braidlog.agents.names import AGENT_LABEL, PROPOSAL_LABEL
from braidlog.agents.policy import Policy
from braidlog.client.endings import handle_of
from braidlog.embedded.clock import Clock
from braidlog.errors import Gone
from braidlog.facts import Ancestor, Info


class Idle:
    """Safe to use from several threads."""

    def __init__(self, braid: Braid, clock: Clock) -> None:
        self._braid = braid
        self._clock = clock
        self._lock = threading.Lock()
        self._met: set[str] = set()
        self._used: dict[int, tuple[int, int]] = {}  # by number: its own records, and when it was used last

    def met(self, agent: str) -> None:
        """That agent works here."""
        with self._lock:
            self._met.add(agent)

    def used(self, fork: Log) -> None:
        """Somebody looked at it."""
        with self._lock:
            known = self._used.get(fork.id)
            if known is not None:
                self._used[fork.id] = known[0], self._clock.now_us()

    def forks(self, policy: Policy, busy: Callable[[], set[int]]) -> Iterator[Info]:
        """Those that were not used for as long as the policy allows. Those with the numbers `busy` are being used.

        Each is looked at again right before it is told of: to look at all takes a while.
        """
        if all(rule.fork_idle is None for rule in (*policy.rules, policy.otherwise)):
            return
        found = list(self._of_agents())
        now = self._clock.now_us()
        used = busy()
        last: dict[int, int] = {}
        below: dict[int, list[Info]] = defaultdict(list)  # with itself
        with self._lock:
            before, self._used = self._used, {}
            for info, lineage in found:
                own, since = before.get(info.id, (info.own, now))
                if own != info.own or info.id in used:
                    since = now
                self._used[info.id] = info.own, since
                for step in lineage:
                    last[step.id] = max(last.get(step.id, 0), since)
                    below[step.id].append(info)
        for info, lineage in found:
            most = policy.rule(lineage[-1].name).fork_idle
            if most is None or now - last[info.id] <= round(most * 1e6) or info.labels[AGENT_LABEL] not in self._met:
                continue
            forks = below[info.id]
            if busy().isdisjoint(one.id for one in forks) and all(self._untouched(one, now) for one in forks):
                yield info

    def _untouched(self, info: Info, since: int) -> bool:
        """Whether nobody has used a fork since."""
        with self._lock:
            known = self._used.get(info.id)
        if known is None or known[1] >= since:
            return False
        try:
            return handle_of(self._braid, info.id, info.name).info().own == info.own
        except Gone:
            return True

    def _of_agents(self) -> Iterator[tuple[Info, list[Ancestor]]]:
        for log in self._braid.logs():
            with contextlib.suppress(Gone):
                info = log.info()
                if AGENT_LABEL in info.labels and PROPOSAL_LABEL not in info.labels:
                    yield info, log.lineage()
