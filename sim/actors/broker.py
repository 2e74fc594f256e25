"""A broker process. It holds nothing that matters: killed, it comes back as another one under the same name."""

from __future__ import annotations

import asyncio

from braidlog.broker.remote import BrokerService
from braidlog.broker.server import Server
from sim.network import Network
from sim.store import Objects, StoreClient
from sim.world import Process, World

METADATA = [("m1", 1), ("m2", 1), ("m3", 1)]
PORT = 1


class Broker:
    def __init__(self, world: World, network: Network, objects: Objects, host: str) -> None:
        self.host = host
        self._world = world
        self._network = network
        self._objects = objects
        self.service: BrokerService | None = None
        self.start()

    def start(self) -> None:
        self.process = Process(self._world, self.host)
        self._network.join(self.process)
        self.process.loop.post(self._begin)

    def kill(self, *, silently: bool = False) -> None:
        if self.service is not None:
            self._world.counts["planned aside"] += self.service.planned_aside
        self.service = None
        self.process.kill(silently=silently)

    def _begin(self) -> None:
        store = StoreClient(self._objects, self._network, self.process)
        self.service = BrokerService(METADATA, self.host, f"{self.host}:{PORT}", clock=self.process, store=store)
        server = Server(self.service, self.host)
        asyncio.get_running_loop().create_task(server.listen_tcp(self.host, PORT))
