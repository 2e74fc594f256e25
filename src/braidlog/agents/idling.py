"""Which forks of agents nobody uses any more.

A fork is used when it has another number of own records than before, when somebody says so (an agent looked at it), and
when a fork of it is used. What is not known is counted from when it was first seen: whoever asks has to go on asking.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator

from braidlog import Braid, Log
from braidlog.agents.names import AGENT_LABEL, PROPOSAL_LABEL
from braidlog.agents.policy import Policy
from braidlog.embedded.clock import Clock
from braidlog.errors import Gone
from braidlog.facts import Ancestor, Info


class Idle:
    """Safe to use from several threads."""

    def __init__(self, braid: Braid, clock: Clock) -> None:
        self._braid = braid
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[int, tuple[int, int]] = {}  # by number: its own records, and when it was used last

    def used(self, fork: Log) -> None:
        """Somebody looked at it."""
        with self._lock:
            known = self._used.get(fork.id)
            if known is not None:
                self._used[fork.id] = known[0], self._clock.now_us()

    def forks(self, policy: Policy, busy: Collection[int]) -> Iterator[Info]:
        """Those that were not used for as long as the policy allows. Those with the numbers `busy` are being used."""
        if all(rule.fork_idle is None for rule in (*policy.rules, policy.otherwise)):
            return
        found = list(self._of_agents())
        now = self._clock.now_us()
        last: dict[int, int] = {}
        with self._lock:
            before, self._used = self._used, {}
            for info, lineage in found:
                own, since = before.get(info.id, (info.own, now))
                if own != info.own or info.id in busy:
                    since = now
                self._used[info.id] = info.own, since
                for step in lineage:
                    last[step.id] = max(last.get(step.id, 0), since)
        for info, lineage in found:
            most = policy.rule(lineage[-1].name).fork_idle
            if most is not None and now - last[info.id] > round(most * 1e6):
                yield info

    def _of_agents(self) -> Iterator[tuple[Info, list[Ancestor]]]:
        for log in self._braid.logs():
            with contextlib.suppress(Gone):
                info = log.info()
                if AGENT_LABEL in info.labels and PROPOSAL_LABEL not in info.labels:
                    yield info, log.lineage()
