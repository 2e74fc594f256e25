"""braidlog itself as a service, driven by its own client over braid://: `braid serve`, and the roles apart.

`braid serve` is one process on one directory; how it is started stands in `COMMAND` and `serving` alone, and its
address is read from what it prints. With the roles apart there are a metadata process, a broker for roots and one for
forks (`serving_apart`). What serves roots has the servers' cores. The broker for forks has those of the clients: it is
there to take what is done on forks away from the others, and so it must not have their cores.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import braidlog
from bench.peers import servers
from bench.peers.driver import Driver, Seen, Workload, filler, stamped
from bench.peers.servers import Placement, Unavailable, kept_to
from braidlog.broker.threaded import new_loop
from braidlog.testing.cluster import Cluster

NAME: Final = "braidlog"
APART: Final = "braidlog, roles apart"
ON_A_FORK: Final = "fork"
BROKERS: Final = 2  # one for roots and one for forks
FORK_BROKER: Final = "broker-2"
COMMAND: Final = (sys.executable, "-m", "braidlog", "serve")
_ADDRESS: Final = re.compile(r"(?:braid://)?(127\.0\.0\.1:[1-9]\d*)")
_START_S: Final = 30.0


def install() -> str:
    """Nothing is installed: it is here, or this version cannot serve yet."""
    try:
        servers.run([*COMMAND, "--help"], "braid serve", 60.0)
    except Unavailable:
        raise Unavailable("this version has no `braid serve`") from None
    return f"braidlog {braidlog.__version__}, {loop()}"


def loop() -> str:
    """What its servers run on."""
    made = new_loop()
    made.close()
    return f"on the loop of {type(made).__module__.partition('.')[0]}"


@contextlib.contextmanager
def serving(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A server with its data in the folder, at the address that comes back."""
    command = [*COMMAND, "--at", str(folder / "data"), "--listen", "127.0.0.1:0"]
    with servers.running(NAME, command, cores, folder) as server:

        def address() -> str:
            found = _ADDRESS.search(server.messages.read_text(errors="replace"))
            return found.group(1) if found else ""

        server.wait_until(lambda: bool(address()), _START_S)
        yield f"braid://{address()}"


@contextlib.contextmanager
def serving_apart(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A metadata process and two brokers, at the address that comes back; see above for their cores."""
    with cluster(folder, Placement(cores, Placement.chosen().client)) as started:
        yield started.url


@contextlib.contextmanager
def cluster(folder: Path, placement: Placement, brokers: int = BROKERS) -> Iterator[Cluster]:
    """The same, for whoever wants to know its processes. One broker serves roots and forks, on the servers' cores."""
    with kept_to(placement.server):
        started = Cluster.start(folder / "data", brokers=brokers)
    with started:
        if brokers == BROKERS:
            move(started.processes[FORK_BROKER].pid, placement.client)
        yield started


def move(pid: int, cores: frozenset[int]) -> None:
    """A process to other cores, with all the threads that it has; those that it starts later follow."""
    if hasattr(os, "sched_setaffinity"):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


class BraidService(Driver):
    """A log is a log. A path instead of a braid:// address drives the embedded log, whose readers only look."""

    durability = "one server, one directory: a batch is synced before it is acknowledged; batches under way share syncs"

    @property
    def label(self) -> str:
        return NAME

    def __init__(self, address: str, variant: str = "") -> None:
        super().__init__(address, variant)
        self._opened: braidlog.Braid | None = None

    @property
    def _braid(self) -> braidlog.Braid:
        if self._opened is None:
            self._opened = braidlog.open(self.address)
        return self._opened

    def create(self, log: str) -> None:
        self._braid.create(log)

    def delete(self, log: str) -> None:
        self._braid.drop(log)

    def length(self, log: str) -> int:
        return self._braid.log(log).tail()

    def append_all(self, log: str, work: Workload) -> float:
        target = self._braid.log(log)
        under_way: deque[braidlog.Ticket] = deque()
        begun = time.perf_counter()
        for batch in work.batches():
            if len(under_way) >= work.batches_in_flight:
                under_way.popleft().durable()
            under_way.append(target.submit(batch))
        for ticket in under_way:
            ticket.durable()
        return time.perf_counter() - begun

    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        target = self._braid.log(log)
        rest = filler(record_bytes)
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            target.append(stamped(rest))
            taken.append(time.perf_counter() - begun)
            if pause_s:
                time.sleep(pause_s)
        return taken

    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        """One by one to have each at once, or in chunks as they were fetched."""
        embedded = not self.address.startswith("braid://")
        with braidlog.open(self.address, read_only=embedded) as braid, braid.log(log).subscribe() as records:
            if chunk == 1:
                for record in records:
                    if not seen([record.value]):
                        return
            while True:
                if not seen([record.value for record in records.poll(None)]):
                    return

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class BraidApart(BraidService):
    """The same with the roles apart. In the variant ON_A_FORK bulk readers have a fork, which another broker serves."""

    durability = (
        "brokers and one metadata process, one directory: a batch is synced before it is acknowledged; batches under "
        "way share syncs"
    )

    @property
    def label(self) -> str:
        return f"{APART}, bulk reader on a fork" if self.variant == ON_A_FORK else APART

    def fill_for_bulk_read(self, size: int) -> None:
        super().fill_for_bulk_read(size)
        if self.variant == ON_A_FORK:
            self._bulk = self._braid.log(self._bulk).sfork(f"{self._bulk}-fork").name
