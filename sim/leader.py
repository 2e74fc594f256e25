"""A metadata process: it contends for the leader's key, and while it has it, it is the metadata.

The one that wins builds its writer from the log, serves, and renews its lease. It answers nothing that is not fenced by
the log once its lease may have run out: it counts from when it asked for it, the keeper of the lease from later. One
that was deposed, or cannot know, lets go of everything without an answer and contends again; who asked asks the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog import limits
from braidlog.broker.metadata import MetadataService
from braidlog.broker.server import Server
from braidlog.broker.service import Caller, Reply
from braidlog.embedded.upkeep import Keeper
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, Unavailable
from braidlog.wire import messages as m
from sim.etcd import Compare, Etcd, EtcdClient, Put, Silence
from sim.home import SimHome
from sim.network import Network
from sim.store import Objects, StoreClient
from sim.threads import Event
from sim.world import Process, World

TTL_S = 0.9
RENEW_S = TTL_S / 3
POLL_S = 0.15
PORT = 1


class Term:
    """One time of leading. `certain` says whether nobody else can lead yet."""

    def __init__(self, process: Process, owner: str, revision: int, lease: int, until: float) -> None:
        self.owner = owner
        self.revision = revision
        self.lease = lease
        self.until = until
        self.over = Event()
        self.let_go: Callable[[], None] = lambda: None  # on the loop
        self._process = process

    def certain(self) -> bool:
        return not self.over.is_set() and self._process.world.now < self.until

    def end(self, why: str) -> None:
        """From any thread. What it had to say, and has not said, it does not say."""
        if not self.over.is_set():
            self._process.world.tell(self._process.host, f"ends term {self.revision}: {why}")
            self.over.set()
            self._process.loop.post(self.let_go)


class LeaderService(MetadataService):
    """The metadata, which says nothing once others may know better."""

    def __init__(self, writer: Writer, term: Term) -> None:
        super().__init__(writer, lease_s=limits.BROKER_LEASE_S)
        self._term = term

    def handle(self, caller: Caller, request: m.Request, body: memoryview, reply: Reply) -> None:
        if self._term.certain():
            super().handle(caller, request, body, reply)
        else:
            self._term.end("its lease may be over")


class Metadata:
    """One of several such processes, that can be killed and started again."""

    def __init__(self, world: World, network: Network, etcd: Etcd, objects: Objects, host: str) -> None:
        self.host = host
        self._world = world
        self._network = network
        self._etcd = etcd
        self._objects = objects
        self._elections = 0
        self.term: Term | None = None
        self.writer: Writer | None = None  # while it leads
        self.on_elected: Callable[[Metadata], None] = lambda _: None
        self.start()

    def start(self) -> None:
        self.process = Process(self._world, self.host)
        self._network.join(self.process)
        self._client = EtcdClient(self._etcd, self._network, self.process)
        self._world.spawn(self.process, self._contend, "contender", self._world.rng.random() * POLL_S)

    def kill(self, *, silently: bool = False) -> None:
        self.term = self.writer = None
        self.process.kill(silently=silently)

    def _contend(self) -> None:
        while True:
            try:
                term = self._elect()
            except Silence:
                term = None
            if term is not None:
                self._world.counts["elections"] += 1
                self._world.tell(self.host, f"leads with term {term.revision}")
                self.on_elected(self)
                self._lead(term)
            self._world.sleep(POLL_S * (0.5 + self._world.rng.random()))

    def _elect(self) -> Term | None:
        etcd, client = self._etcd, self._client
        if "leader" in client.call("leader?", lambda: etcd.txn([], [], ["leader"])).found:
            return None
        asked = self._world.now
        lease = client.call("grant", lambda: etcd.grant(TTL_S))
        self._elections += 1
        owner = f"{self.host}#{self._elections}@{asked:.6f}"
        compares, puts = [Compare("leader", "create_revision", 0)], [Put("leader", (self.host, owner), lease)]
        try:
            answer = client.call("elect", lambda: etcd.txn(compares, puts, ["leader"]))
        except Silence:  # it may have won all the same
            answer = client.call("leader?", lambda: etcd.txn([], [], ["leader"]))
        entry = answer.found.get("leader")
        if entry is None or entry.value != (self.host, owner):
            return None
        return Term(self.process, owner, entry.create_revision, lease, asked + TTL_S)

    def _lead(self, term: Term) -> None:
        world, process = self._world, self.process
        self.term = term
        world.spawn(process, lambda: self._renew(term), "renewer")
        store = StoreClient(self._objects, self._network, process)
        home = SimHome(self._etcd, self._client, store, term.owner, term.revision, term.end)
        try:
            writer = Writer(home, process)
        except (BraidError, OSError) as error:
            term.end(f"cannot begin: {type(error).__name__}")
            return
        keeper: Keeper | None = None
        try:
            keeper = Keeper(writer)
        except BraidError:
            term.end("cannot begin")
        ready = Event()
        server: list[Server] = []

        def serve() -> None:
            if not term.over.is_set():
                server.append(Server(LeaderService(writer, term), self.host))
                term.let_go = lambda: self._let_go(writer, server[0])
                asyncio.get_running_loop().create_task(server[0].listen_tcp(self.host, PORT))
            ready.set()

        process.loop.post(serve)
        ready.wait()
        if term.certain():
            self.writer = writer
        term.over.wait()
        self.writer = self.term = None
        writer.committer.fail(Unavailable("another leader may have taken over"))
        if keeper is not None:
            keeper.stop()
        writer.close()

    def _let_go(self, writer: Writer, server: Server) -> None:
        """On the loop: nobody is answered any more."""
        writer.committer.fail(Unavailable("another leader may have taken over"))
        for connection in list(server.connections):
            connection.abort()
        asyncio.get_running_loop().create_task(server.close(0.0))

    def _renew(self, term: Term) -> None:
        while not term.over.is_set():
            self._world.sleep(RENEW_S)
            asked = self._world.now
            try:
                kept = self._client.call("renew", lambda: self._etcd.keep_alive(term.lease))
            except Silence:
                kept = self._world.now < term.until
            else:
                if kept:
                    term.until = asked + TTL_S
            if not kept or not term.certain():
                term.end("its lease is over")
