"""A whole cluster in one world: who takes part, what they share, and the run from its first to its last event.

A run has three parts. While it is rough, clients call and faults strike. Then everything is mended, and calls under way
come to their end. At last all undecided forks are squashed, one more leader takes over, every living log is read, and
the store is left to be collected; then the checkers have the last word.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any, NamedTuple

from braidlog import limits
from braidlog.errors import BraidError, Gone
from braidlog.forest import commands as c
from braidlog.metadata.etcd.codec import Txn
from braidlog.testing.linearizability import Recorder
from braidlog.wire import messages as m
from sim.actors.broker import METADATA, Broker
from sim.actors.client import Client
from sim.actors.metadata import Metadata
from sim.checkers.consumers import Consumers
from sim.checkers.durability import Durability
from sim.checkers.isolation import Isolation
from sim.checkers.leadership import Leadership, frame_of
from sim.checkers.linearity import Linearity
from sim.checkers.objects import ObjectsKept
from sim.checkers.order import Order
from sim.etcd import Etcd
from sim.faults import Faults
from sim.installed import installed
from sim.network import Network
from sim.scale import GRACE_S, scaled
from sim.shadow import Shadow
from sim.store import Objects
from sim.world import Violated, World

PATIENCE_S = 120.0  # of virtual time, for what must come to an end when nothing goes wrong any more
EVENTS = 2_000


class Result(NamedTuple):
    """What came of a run that holds all claims."""

    seed: int
    events: int
    seconds: float
    counts: Counter[str]
    digest: str


def play(
    seed: int,
    events: int = EVENTS,
    trace: IO[str] | None = None,
    plant: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Result:
    """One run. `plant` makes a mistake for as long as it lasts. Raises what does not hold."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with installed(), scaled(), plant():
            world = World(seed, trace)
            World.current = world
            try:
                return Cluster(world).play(seed, events)
            finally:
                world.close()
                World.current = None
    finally:
        logging.disable(disabled)


class Cluster:
    LOGS_MAX = 9

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts = world.counts
        self.network = Network(world)
        self.etcd = Etcd(world)
        self.etcd.on_txn = self._checked(self._bound)
        self.objects = Objects(world)
        self.objects.on_delete = self._checked(lambda name: self.objects_kept.deleted(name))
        self.shadow = Shadow(world.counts)
        self.leadership = Leadership()
        self.durability = Durability(self.shadow)
        self.isolation = Isolation(self.shadow)
        self.order = Order()
        self.consumers = Consumers()
        self.linearity = Linearity()
        self.objects_kept = ObjectsKept(world, self.shadow, self.objects, GRACE_S)
        self._moment = 0
        self.recorder = Recorder(clock=self._clock)
        self.logs: list[tuple[str, int]] = []  # that clients know of
        self._forks: dict[str, tuple[int, bool]] = {}
        self._trimmed: set[str] = set()
        self.winding_down = False
        self.metadata = [Metadata(world, self.network, self.etcd, self.objects, host) for host, _ in METADATA]
        self.broker_hosts = [f"b{number}" for number in range(1, 4)]
        self.brokers = [Broker(world, self.network, self.objects, host) for host in self.broker_hosts]
        self.hosts = [member.host for member in self.metadata] + self.broker_hosts + ["c1", "c2"]

    @property
    def leader(self) -> Metadata | None:
        return next((member for member in self.metadata if member.leads), None)

    def _clock(self) -> int:
        self._moment = max(self._moment + 1, self.world.nanoseconds())
        return self._moment

    def _bound(self, txn: Txn) -> None:
        frame = frame_of(txn, self.etcd)
        if frame is not None:
            self.counts["frames in parts"] += frame.parts > 0
            self.leadership.bound(frame, self.shadow.take(frame))

    def _checked(self, check: Callable[..., None]) -> Callable[..., None]:
        """Whatever a checker finds ends the run, and not only the process that it was found in."""

        def checked(*arguments: Any) -> None:
            try:
                check(*arguments)
            except Violated as error:
                self.world.fail(error)

        return checked

    # --- what clients tell ---------------------------------------------------------------------------------------

    def written(self, log: str, values: list[str]) -> None:
        self.isolation.written(log, values)

    def told(self, log: str, shown: list[tuple[int, str]]) -> None:
        self._checked(self.durability.told)(log, shown)

    def seen(self, log: str, shown: list[tuple[int, str]]) -> None:
        self._checked(self.durability.told)(log, shown)
        self._checked(self.isolation.seen)(log, shown)

    def pushed(self, who: str, log: str, position: int, shown: list[tuple[int, str]], following: int) -> None:
        self.counts["pushes"] += 1
        self._checked(self.durability.pushed)(who, log, position, shown, following)
        self._checked(self.isolation.seen)(log, shown)

    def sent(self, who: str, log: str, positions: list[int | None]) -> None:
        self._checked(self.order.sent)(who, log, positions)

    def born(self, name: str, log: int, *, promotable: bool) -> None:
        self.logs.append((name, log))
        self._forks[name] = (log, promotable)

    def ended(self, name: str) -> None:
        self._forks.pop(name, None)
        self.logs = [log for log in self.logs if log[0] != name]

    def trimming(self, name: str) -> None:
        self._trimmed.add(name)

    def may_expire(self, name: str) -> None:
        """It may end by itself at any time."""
        with self.recorder.call("the clock", "squash", name) as call:
            call.unknown()

    def some_promotable(self, rng: random.Random) -> tuple[str, int] | None:
        return _some(rng, [(name, log) for name, (log, promotable) in self._forks.items() if promotable])

    def some_fork(self, rng: random.Random) -> tuple[str, int] | None:
        return _some(rng, [(name, log) for name, (log, _) in self._forks.items()])

    # --- a run ---------------------------------------------------------------------------------------------------

    def play(self, seed: int, events: int) -> Result:
        world = self.world
        self._begin()
        faults = Faults(self)
        clients = [Client(self, number, 3) for number in (1, 2)]
        world.run(lambda: world.events >= events)
        self.winding_down = True
        faults.mend()
        world.tell("faults", "mended")
        self._until(lambda: not any(client.busy for client in clients), "calls do not come to an end")
        self._end(clients[0])
        self.linearity.finish(self.recorder)
        world.counts["undecided"] += self.linearity.undecided
        world.counts["failovers"] = self.leadership.terms - 1
        world.counts["ordered pairs"] = self.order.pairs
        return Result(seed, world.events, world.now, world.counts, world.digest)

    def _begin(self) -> None:
        """Two logs, before anything goes wrong."""
        drop, self.etcd.drop_chance = self.etcd.drop_chance, 0.0
        fail, self.objects.fail_chance = self.objects.fail_chance, 0.0
        maker = Client(self, 9, 0)
        made: list[int] = []

        async def make() -> None:
            for number, name in enumerate(("r1", "r2")):
                with self.recorder.call("maker", "create", name) as call:
                    assert maker._home is not None
                    command = c.Create(name, 0, request=maker._request())
                    answer, _ = await maker._home.ask(m.Execute(command), 100.0)
                    call.answer(name)
                self.logs.append((name, answer.result.log))
                made.append(number)

        maker.process.loop.post(lambda: maker.process.loop.create_task(make()))
        self._until(lambda: len(made) == 2, "the cluster does not begin")
        maker.process.kill()
        self.etcd.drop_chance, self.objects.fail_chance = drop, fail

    def _until(self, done: Callable[[], bool], complaint: str) -> None:
        if not self.world.run(done, self.world.now + PATIENCE_S):
            raise Violated(f"{complaint} within {PATIENCE_S:g} s after everything was mended")

    def _end(self, client: Client) -> None:
        world = self.world
        self._replace(self.leader)
        for broker in self.brokers:  # so that their epochs end, and with them what they stored and never bound
            self._replace(broker)
        contents: dict[str, dict[int, str]] = {}
        starts: dict[str, int] = {}
        consumers: dict[str, dict[str, int]] = {}
        finished: list[bool] = []

        async def look() -> None:
            home = client._home
            assert home is not None
            listing, _ = await home.ask(m.ListLogs(), PATIENCE_S)
            for log_id, name in listing.logs:
                await self._decide(client, name, log_id)
            listing, _ = await home.ask(m.ListLogs(), PATIENCE_S)
            for log_id, name in listing.logs:
                try:
                    described, _ = await home.ask(m.Describe(log_id), PATIENCE_S)
                except Gone:  # its lease has ended since
                    continue
                start = starts[name] = described.info.start
                known, _ = await home.ask(m.Consumers(log_id), PATIENCE_S)
                consumers[name] = {consumer.name: consumer.position for consumer in known.consumers}
                contents[name] = {}
                while start < described.info.readable_tail:
                    shown = await client.read("reader", name, log_id, start, None)
                    contents[name] |= dict(shown)
                    start = max(contents[name]) + 1
            finished.append(True)

        client.process.loop.post(lambda: client.process.loop.create_task(look()))
        self._until(lambda: bool(finished), "the last look does not come to an end")
        self.durability.finish(contents, starts)
        self.consumers.finish(consumers)
        world.run(lambda: False, world.now + 2 * limits.BROKER_LEASE_S)
        self._replace(self.leader)  # one more to take over, who sweeps what arrived late
        world.run(lambda: self.objects_kept.quiet, world.now + 10 * (GRACE_S + limits.BROKER_LEASE_S))
        self.objects_kept.finish()

    @staticmethod
    def _replace(member: Metadata | Broker | None) -> None:
        if member is not None:
            member.kill()
            member.start()

    async def _decide(self, client: Client, name: str, log_id: int) -> None:
        """No fork stays undecided, so that all can be read."""
        with contextlib.suppress(BraidError):
            described, _ = await client.ask(log_id, m.Describe(log_id))
            if described.info.promotable:
                with self.recorder.call("decider", "squash", name) as call:
                    await client.execute(log_id, c.Squash(log_id, request=client._request()))
                    call.answer()


def _some(rng: random.Random, choices: list[tuple[str, int]]) -> tuple[str, int] | None:
    return rng.choice(choices) if choices else None
