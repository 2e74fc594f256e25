"""A forest on etcd, for tests: its objects and snapshots in a folder, and writers that win it one after the other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from braidlog.client.braid import Braid
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.metadata.etcd.home import EtcdHome
from braidlog.metadata.etcd.leadership import Candidacy, Term
from braidlog.metadata.etcd.log import EtcdLog
from braidlog.objects.files import OsFiles
from braidlog.objects.local_blobs import FileBlobs
from braidlog.objects.store import FileStore
from braidlog.testing.etcd import EtcdCluster

PREFIX = "/braid/test"
LEASE_S = 60.0  # too long for a busy machine to let it end, where that is not the point
DEADLINE_S = 20.0  # nothing here takes so long: a test that waits longer has found a hang


def wait_until(holds: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    never = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "it does not come true"
        never.wait(0.01)


class Place:
    """Where writers live: one etcd, one folder."""

    def __init__(self, etcd: EtcdCluster, folder: Path, prefix: str = PREFIX) -> None:
        self.etcd = etcd
        self.prefix = prefix
        self.files = OsFiles(folder)
        self.files.make_dir("")
        self.blobs = FileBlobs(self.files)

    def home(self, client: EtcdClient, term: Term) -> EtcdHome:
        return EtcdHome(client, term, self.blobs, FileStore(self.files), self.prefix)

    def win(self, client: EtcdClient, name: str = "writer:1", ttl_s: float = LEASE_S) -> Term:
        return Candidacy(client, self.prefix, name, ttl_s).win(DEADLINE_S)

    def open_log(self, client: EtcdClient, term: Term, after: int = 0) -> tuple[EtcdLog, list[tuple[int, bytes]], bool]:
        """The log, what was in it, and whether it ended cleanly."""
        read: list[tuple[int, bytes]] = []
        found = self.home(client, term).open_log(
            after, lambda sequence, payload: read.append((sequence, bytes(payload)))
        )
        assert isinstance(found.log, EtcdLog)
        return found.log, read, found.clean

    @contextlib.contextmanager
    def writing(self, name: str = "writer:1", ttl_s: float = LEASE_S) -> Iterator[Leader]:
        """A process's worth of it: it resigns at the end."""
        client = self.etcd.client()
        term = None
        try:
            term = self.win(client, name, ttl_s)
            leader = Leader(self, client, term)
            yield leader
            leader.close()
        finally:
            if term is not None:
                term.resign()
            client.close()


class Leader:
    """A writer on etcd, as its users see it."""

    def __init__(self, place: Place, client: EtcdClient, term: Term) -> None:
        self.term = term
        self.client = client
        self.writer = Writer(place.home(client, term), SystemClock())
        self.braid = Braid(self.writer, "etcd", read_only=False)
        self.upkeep = Upkeep(self.writer)

    def vanish(self) -> None:
        """End as if killed: nobody is told, and the lease is left to itself."""
        self.client.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.braid.close()
