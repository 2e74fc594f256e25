"""What the conformance suite, `test_api_*.py`, needs of a place that logs live in.

Every claim of the suite is made about every `Site` in SITES. A new way to serve logs becomes one more class here,
and has to bear the same claims. Time at a site stands still until a test says otherwise, and what happens behind the
users' backs happens when a test says `tend`, so nothing in the suite sleeps.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
import tempfile
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest

import braidlog
from braidlog.broker.local import LocalService
from braidlog.broker.metadata import MetadataService
from braidlog.broker.remote import BrokerService
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import open_files, write_directory
from braidlog.client.remote.link import TcpAddress
from braidlog.client.remote.opening import connect
from braidlog.embedded.upkeep import Keeper, Upkeep
from braidlog.embedded.writer import Writer
from braidlog.metadata.etcd.home import EtcdHome
from braidlog.metadata.etcd.leadership import Candidacy
from braidlog.objects.local_blobs import MemoryBlobs
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.store import FileStore
from braidlog.testing import VirtualClock
from braidlog.testing.cluster import Cluster
from braidlog.testing.etcd import EtcdCluster

T = TypeVar("T")

PATIENCE_S: Final = 20.0  # how long a test waits for what must come; never reached when all is well


class Site(ABC):
    """A place to open again and again: what was acknowledged is still there."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._opened: list[braidlog.Braid] = []
        self._threads = ThreadPoolExecutor(8)

    def open(self) -> braidlog.Braid:
        """Open it for writing. It is closed at the end of the test, at the latest."""
        braid = self._open()
        self._opened.append(braid)
        return braid

    def reopen(self, braid: braidlog.Braid) -> braidlog.Braid:
        """Close it, and open it again."""
        braid.close()
        return self.open()

    def close(self) -> None:
        for braid in self._opened:
            braid.close()
        self._threads.shutdown()

    @abstractmethod
    def _open(self) -> braidlog.Braid: ...

    def writer(self, braid: braidlog.Braid) -> Writer:
        """Who writes what the braid shows."""
        return writer_of(braid)

    @abstractmethod
    def fetch(self, plan: braidlog.Plan, part: braidlog.PlanPart) -> bytes:
        """The bytes that a plan points at, without braidlog. FileNotFoundError when their object is gone."""

    # --- time and what happens behind the scenes -----------------------------------------------------------------

    def pass_time(self, braid: braidlog.Braid, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        self.clock.advance(seconds)
        self.tend(braid)

    def tend(self, braid: braidlog.Braid) -> None:
        """See to everything that is due by now."""
        upkeep = Upkeep(self.writer(braid))
        upkeep.expire()
        upkeep.retain()
        upkeep.collect()

    def pack(self, braid: braidlog.Braid) -> bool:
        """Put what rides inline into an object."""
        return Upkeep(self.writer(braid)).pack()

    def compact(self, braid: braidlog.Braid) -> bool:
        """Merge small objects; the old ones are deleted when their grace period is over."""
        return Upkeep(self.writer(braid)).compact()

    def stalled(self, braid: braidlog.Braid) -> AbstractContextManager[None]:
        """While this lasts, nothing becomes durable."""
        return self.writer(braid).committer.alone()

    # --- waiting -------------------------------------------------------------------------------------------------

    def meanwhile(self, braid: braidlog.Braid, call: Callable[[], T]) -> Future[T]:
        """Start a call in another thread and return once it waits for a change, or has ended without."""
        backend: Any = braid._session.backend
        waits = threading.Event()

        def watched(wait: Callable[..., Any]) -> Callable[..., Any]:
            def watch(*args: Any) -> Any:
                waits.set()
                return wait(*args)

            return watch

        ways = [name for name in ("wait_for_change", "wait_for_arrival") if hasattr(backend, name)]
        for name in ways:
            setattr(backend, name, watched(getattr(backend, name)))
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: waits.set())
        assert waits.wait(PATIENCE_S)
        for name in ways:
            delattr(backend, name)
        return future


def writer_of(braid: braidlog.Braid) -> Writer:
    backend = braid._session.backend
    assert isinstance(backend, Writer)
    return backend


class MemorySite(Site):
    """Logs in memory. Only this class can open them again: it keeps the memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        del folder
        self._files = MemoryFiles()

    def _open(self) -> braidlog.Braid:
        return open_files(self._files, "memory://", folder=None, clock=self.clock)

    def fetch(self, plan: braidlog.Plan, part: braidlog.PlanPart) -> bytes:
        assert plan.objects is None  # there is no folder that others could read
        file = self._files.open_read(f"objects/{part.object}")
        return file.read(part.offset, part.length)


class DirectorySite(Site):
    """Logs in a directory."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder / "site.braid"

    def _open(self) -> braidlog.Braid:
        return write_directory(self._folder, clock=self.clock)

    def fetch(self, plan: braidlog.Plan, part: braidlog.PlanPart) -> bytes:
        assert plan.objects is not None
        assert part.object is not None
        data = Path(plan.objects, part.object).read_bytes()
        return data[part.offset : part.offset + part.length]


class EtcdSite(MemorySite):
    """Logs whose commands are in a real etcd, which is started once; each site has a place of its own in it."""

    _etcd: ClassVar[EtcdCluster | None] = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._blobs = MemoryBlobs()
        self._prefix = f"/site/{uuid.uuid4().hex}"
        self._client = self._cluster().client()

    @classmethod
    def _cluster(cls) -> EtcdCluster:
        if cls._etcd is None:
            cls._etcd = EtcdCluster()
            atexit.register(cls._etcd.close)
        return cls._etcd

    def _open(self) -> braidlog.Braid:
        term = Candidacy(self._client, self._prefix, "site", ttl_s=60).win(PATIENCE_S)
        home = EtcdHome(self._client, term, self._blobs, FileStore(self._files), self._prefix)
        writer = Writer(home, self.clock, release=term.resign)
        return braidlog.Braid(writer, "etcd", read_only=False, clock=self.clock, stop=Keeper(writer).stop)

    def close(self) -> None:
        super().close()
        self._client.close()


class ServedSite(Site):
    """Logs in a directory, served over TCP by a process's own thread. To open it again is to serve it again."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder / "site.braid"
        self._served: braidlog.Braid | None = None
        self._server: ServerThread | None = None
        self._port = 0

    def _open(self) -> braidlog.Braid:
        if all(braid._session.backend.closed for braid in self._opened):
            self._stop()
        if self._server is None:
            served = self._served = write_directory(self._folder, clock=self.clock)
            self._server = ServerThread(lambda: LocalService(writer_of(served)), "site")
            _, self._port = self._server.listen_tcp("127.0.0.1", self._port)
        return connect([TcpAddress("127.0.0.1", self._port)], f"braid://127.0.0.1:{self._port}", clock=self.clock)

    def _stop(self) -> None:
        if self._server is not None and self._served is not None:
            self._server.close()
            self._served.close()
            self._server = None

    def reopen(self, braid: braidlog.Braid) -> braidlog.Braid:
        braid.close()
        self._stop()
        return self.open()

    def close(self) -> None:
        super().close()
        self._stop()

    def writer(self, braid: braidlog.Braid) -> Writer:
        del braid
        assert self._served is not None
        return writer_of(self._served)

    def fetch(self, plan: braidlog.Plan, part: braidlog.PlanPart) -> bytes:
        assert plan.objects is not None
        assert part.object is not None
        data = Path(plan.objects, part.object).read_bytes()
        return data[part.offset : part.offset + part.length]


class BrokeredSite(ServedSite):
    """The same with the roles apart: a metadata service, and brokers that clients talk to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._brokers: list[ServerThread] = []
        self._addresses: list[TcpAddress] = []

    def _open(self) -> braidlog.Braid:
        if all(braid._session.backend.closed for braid in self._opened):
            self._stop()
        if self._server is None:
            served = self._served = write_directory(self._folder, clock=self.clock)
            self._server = ServerThread(lambda: MetadataService(writer_of(served)), "metadata")
            where = self._server.listen_tcp("127.0.0.1", 0)
            self._addresses = []
            for number in range(3):
                self._add_broker(where, f"broker-{number}")
        url = "braid://" + ",".join(map(str, self._addresses))
        return connect(self._addresses, url, clock=self.clock)

    def _add_broker(self, metadata: tuple[str, int], name: str) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        joined = threading.Event()

        def make() -> BrokerService:
            broker = BrokerService([metadata], name, f"127.0.0.1:{port}", clock=self.clock)
            broker.on_ready = joined.set
            return broker

        thread = ServerThread(make, name)
        thread.listen_on(listening)
        assert joined.wait(PATIENCE_S)
        self._brokers.append(thread)
        self._addresses.append(TcpAddress("127.0.0.1", port))

    def _stop(self) -> None:
        for broker in self._brokers:
            broker.close()
        self._brokers = []
        super()._stop()


class ClusterSite(Site):
    """Real processes, a metadata process and three brokers, started once and emptied after each test.

    What a test would do behind the scenes cannot be done here: such tests are for the other sites.
    """

    _running: ClassVar[Cluster | None] = None

    def __init__(self, folder: Path) -> None:
        super().__init__()
        del folder, self.clock

    def __getattr__(self, name: str) -> Any:
        if name != "clock":
            raise AttributeError(name)
        pytest.skip("the clocks of other processes cannot be set")

    @classmethod
    def _cluster(cls) -> Cluster:
        if cls._running is None:
            folder = tempfile.TemporaryDirectory(prefix="braidlog-cluster-")
            cls._running = Cluster.start(folder.name, brokers=3)
            atexit.register(folder.cleanup)
            atexit.register(cls._running.close)
        return cls._running

    def _open(self) -> braidlog.Braid:
        return braidlog.open(self._cluster().url)

    def reopen(self, braid: braidlog.Braid) -> braidlog.Braid:
        braid.close()
        self._cluster().restart("metadata")
        return self.open()

    def close(self) -> None:
        with braidlog.open(self._cluster().url) as braid:
            for log in list(braid.logs()):
                with contextlib.suppress(braidlog.errors.NotFound, braidlog.errors.InvalidArgument):
                    braid.drop(log.name, cascade=True)  # a fork goes with its root
            for log in list(braid.logs()):  # severed ones whose root was gone before
                with contextlib.suppress(braidlog.errors.Gone):
                    log.squash(cascade_severed=True)
        super().close()

    def writer(self, braid: braidlog.Braid) -> Writer:
        del braid
        pytest.skip("nobody can look behind the scenes of other processes")

    def fetch(self, plan: braidlog.Plan, part: braidlog.PlanPart) -> bytes:
        assert plan.objects is not None
        assert part.object is not None
        data = Path(plan.objects, part.object).read_bytes()
        return data[part.offset : part.offset + part.length]


SITES: Final[dict[str, Callable[[Path], Site]]] = {
    "memory": MemorySite,
    "directory": DirectorySite,
    "etcd": EtcdSite,
    "served": ServedSite,
    "brokered": BrokeredSite,
    "cluster": ClusterSite,
}


def values(records: Iterable[braidlog.Record]) -> list[bytes]:
    return [record.value for record in records]


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that tell where they were meant to stand."""
    return [b"%d" % number for number in range(first, first + count)]
