"""A metadata process as production runs it: it follows the log, and leads while it has won the leadership.

Everything above etcd's network is production's: the rivalry, the election, the log and its followers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from braidlog.broker.node import MetadataNode, Term
from braidlog.broker.rivals import EtcdRivalry, Objects
from braidlog.broker.server import Server
from braidlog.metadata.home import Home
from sim.etcd import KEYS, Etcd
from sim.etcd_client import SimEtcdClient
from sim.network import Network
from sim.store import Objects as SimObjects
from sim.store import StoreClient
from sim.world import Process, World

LEASE_S = 1.0
PORT = 1


class Metadata:
    """One of several such processes, that can be killed and started again."""

    def __init__(self, world: World, network: Network, etcd: Etcd, objects: SimObjects, host: str) -> None:
        self.host = host
        self._world = world
        self._network = network
        self._etcd = etcd
        self._objects = objects
        self.node: MetadataNode | None = None
        self.on_elected: Callable[[Metadata], None] = lambda _: None
        self.start()

    @property
    def leads(self) -> bool:
        return self.process.alive and self.node is not None and self.node.role == "metadata"

    def start(self) -> None:
        self.process = Process(self._world, self.host)
        self._network.join(self.process)
        self._world.spawn(self.process, self._begin, "begin", self._world.rng.random() * LEASE_S / 10)

    def kill(self, *, silently: bool = False) -> None:
        self.node = None
        self.process.kill(silently=silently)

    def _begin(self) -> None:
        rivalry = _Rivalry(self, self._etcd, self._network, self._objects)
        self.process.loop.post(lambda: self._serve(rivalry))

    def _serve(self, rivalry: EtcdRivalry) -> None:
        self.node = MetadataNode(rivalry, clock=self.process)
        server = Server(self.node, self.host)
        asyncio.get_running_loop().create_task(server.listen_tcp(self.host, PORT))

    def elected(self, term: Term) -> None:
        self._world.counts["elections"] += 1
        self._world.tell(self.host, f"won, surely for {term.left_s():.3f} s")
        self.on_elected(self)


class _Rivalry(EtcdRivalry):
    """Production's, which tells whenever it wins."""

    def __init__(self, member: Metadata, etcd: Etcd, network: Network, objects: SimObjects) -> None:
        store = StoreClient(objects, network, member.process)
        client = SimEtcdClient(etcd, network, member.process)
        super().__init__(client, KEYS.prefix, Objects("", store, store.snapshots), member.host, LEASE_S)
        self._member = member
        self.source.folder = None  # brokers have their own way to the store

    def home(self, term: Term) -> Home:
        home = super().home(term)
        home.folder = None
        return home

    def win(self, stop: threading.Event) -> Term | None:
        term = super().win(stop)
        if term is not None:
            self._member.elected(term)
        return term
