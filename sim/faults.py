"""What goes wrong, and how much of it: every run has a budget, drawn from its seed and told in its trace.

After the last fault everything is mended, so that what the run left behind can be looked at in peace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim import etcd, store

if TYPE_CHECKING:
    from sim.actors.broker import Broker
    from sim.actors.metadata import Metadata
    from sim.cluster import Cluster

GAP_S = (0.01, 0.25)  # between two
OPENING_S = 0.03  # about what a leader takes to open


class Faults:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        draw = self._rng.randrange
        self.budget: dict[str, int] = {
            "cut": draw(12, 30),
            "part": draw(2, 6),
            "kill leader": draw(1, 3),
            "pause leader": draw(0, 3),
            "deafen leader": draw(0, 3),
            "pause opener": draw(0, 4),
            "revoke lease": draw(0, 2),
            "kill broker": draw(1, 4),
            "pause broker": draw(0, 3),
            "store outage": draw(1, 3),
            "slow store": draw(0, 2),
            "log outage": draw(0, 2),
        }
        self._strikes: dict[str, Callable[[], None]] = {
            "cut": self._cut,
            "part": self._part,
            "kill leader": self._kill_leader,
            "pause leader": self._pause_leader,
            "deafen leader": self._deafen_leader,
            "revoke lease": self._revoke,
            "kill broker": self._kill_broker,
            "pause broker": self._pause_broker,
            "store outage": self._store_outage,
            "slow store": self._slow_store,
            "log outage": self._log_outage,
        }
        for member in cluster.metadata:
            member.on_elected = self._elected
        self._world.tell("faults", ", ".join(f"{name} {count}" for name, count in self.budget.items()))
        self._plan()

    def _plan(self) -> None:
        low, high = GAP_S
        self._world.after(low + self._rng.random() * (high - low), self._strike)

    def _strike(self) -> None:
        left = [name for name, count in self.budget.items() for _ in range(count) if name in self._strikes]
        if self._cluster.winding_down or not left:
            return
        name = self._rng.choice(left)
        self.budget[name] -= 1
        self._strikes[name]()
        self._world.tell("faults", name)
        self._world.counts[name] += 1
        self._plan()

    def mend(self) -> None:
        cluster = self._cluster
        cluster.network.reunite()
        cluster.objects.fail_chance = 0.0
        cluster.objects.delay_s = (0.001, 0.003)
        cluster.etcd.drop_chance = 0.0
        for member in cluster.metadata:
            _revive(member)
        for broker in cluster.brokers:
            _revive(broker)

    def _for_a_while(self, seconds: tuple[float, float], undo: Callable[[], None]) -> None:
        low, high = seconds
        self._world.after(low + self._rng.random() * (high - low), undo)

    def _cut(self) -> None:
        """One that is at work, if there is one, and best before an answer arrives."""
        connections = self._cluster.network.connections
        answering = [one for one in connections if one.ends[0].expects]
        working = [one for one in connections if one.ends[1].expects]
        for choice in (answering, working, connections):
            if choice and (choice is connections or self._rng.random() < 0.7):
                self._cluster.network.cut(self._rng.choice(choice))
                return

    def _part(self) -> None:
        """Some hosts from all others; the leader, or a single one from what it needs most, more often than others."""
        cluster = self._cluster
        everybody = {*cluster.hosts, etcd.HOST, store.HOST}
        some = {self._rng.choice(sorted(cluster.hosts)) for _ in range(self._rng.choice([1, 1, 2]))}
        leader = cluster.etcd.leader
        if leader is not None and self._rng.random() < 0.4:
            some = {leader.host}
        others = everybody - some
        if self._rng.random() < 0.3:
            others = {self._rng.choice([etcd.HOST, store.HOST])}
        pairs = cluster.network.part(some, others)
        self._world.counts["partitions"] += 1
        self._for_a_while((0.2, 2.5), lambda: cluster.network.reunite(pairs))

    def _kill_leader(self) -> None:
        leader = self._cluster.leader
        if leader is not None:
            leader.kill(silently=self._rng.random() < 0.3)
            self._for_a_while((0.1, 1.0), lambda: _revive(leader))

    def _pause_leader(self) -> None:
        leader = self._cluster.leader
        if leader is not None:
            leader.process.pause(0.1 + self._rng.random() * 2.0)

    def _deafen_leader(self) -> None:
        """It hears nothing of its successor, and neither do some of the brokers that ask it."""
        cluster = self._cluster
        leader = cluster.leader
        if leader is not None:
            others = {etcd.HOST, self._rng.choice(cluster.broker_hosts), self._rng.choice(cluster.broker_hosts)}
            pairs = cluster.network.part({leader.host}, others)
            self._for_a_while((1.0, 3.0), lambda: cluster.network.reunite(pairs))

    def _elected(self, member: Metadata) -> None:
        """A leader that stops while it opens, and does not know that others did not."""
        if self.budget["pause opener"] and not self._cluster.winding_down and self._rng.random() < 0.7:
            self.budget["pause opener"] -= 1
            self._world.counts["pause opener"] += 1
            pause_s = 0.8 + self._rng.random() * 1.5
            self._world.after(self._rng.random() * OPENING_S, lambda: member.process.pause(pause_s))

    def _revoke(self) -> None:
        entry = self._cluster.etcd.leader
        if entry is not None:
            self._cluster.etcd.revoke(entry.lease)

    def _kill_broker(self) -> None:
        broker = self._rng.choice(self._cluster.brokers)
        if broker.process.alive:
            broker.kill(silently=self._rng.random() < 0.3)
            self._for_a_while((0.05, 2.0), lambda: _revive(broker))

    def _pause_broker(self) -> None:
        self._rng.choice(self._cluster.brokers).process.pause(0.1 + self._rng.random() * 2.0)

    def _store_outage(self) -> None:
        objects = self._cluster.objects
        objects.fail_chance = 0.6

        def over() -> None:
            objects.fail_chance = min(objects.fail_chance, 0.01)

        self._for_a_while((0.1, 0.8), over)

    def _slow_store(self) -> None:
        objects = self._cluster.objects
        objects.delay_s = (0.02, 0.3)

        def over() -> None:
            objects.delay_s = (0.001, 0.006)

        self._for_a_while((0.2, 1.0), over)

    def _log_outage(self) -> None:
        server = self._cluster.etcd
        server.drop_chance = 0.35

        def over() -> None:
            server.drop_chance = min(server.drop_chance, 0.004)

        self._for_a_while((0.1, 1.0), over)


def _revive(member: Metadata | Broker) -> None:
    if not member.process.alive:
        member.start()
