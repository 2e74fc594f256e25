"""A latency-critical workload on a root of a service with the roles apart, and what may go on beside it.

The workload appends records at a fixed, modest rate, one at a time, and a subscriber in another process reads each.
What is taken is the time from the append call to its acknowledgement, and to the moment when the subscriber has the
record. An append begins at its time, or when the last one is acknowledged if that is later; its own time counts from
the call.

There are a metadata process, a broker for roots and one for forks. Whoever works beside the workload is a process of
its own with a connection of its own, which is there all the time and does nothing until it is told to: starting it is
never measured.

Where there are few cores some are shared, see `Cores`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import braidlog
from bench import harness
from bench.harness import MIB, Options
from bench.peers import braid as service
from bench.peers.driver import DEADLINE_S, STAMP, TailRead, filler, stamped
from bench.peers.servers import Placement, kept_to
from braidlog import Record
from braidlog.testing.cluster import Cluster

RECORD_BYTES: Final = 4096
RATE: Final = 100.0  # appends per second
BULK_RECORDS: Final = 1_024  # that a bulk reader asks for at once
FILL_RECORDS: Final = 256  # 1 MiB
ROOT: Final = "root"
WARM_S: Final = 2.0
_AHEAD_S: Final = 0.3  # that something beside is at work before the workload begins


@dataclass(frozen=True, slots=True)
class Cores:
    """What serves roots, the clients of roots, and whatever works beside them (the broker for forks and its clients).

    With four cores or more each has cores of its own. With fewer, something has to share. `production_together`: the
    service of roots and its clients share a core, and what works beside has the other one, as it would have a machine
    of its own. Otherwise all clients share one, which lets the service do more.
    """

    roots: frozenset[int]
    clients: frozenset[int]
    beside: frozenset[int]

    @classmethod
    def chosen(cls, *, production_together: bool) -> Cores:
        placement = Placement.chosen()
        spare = frozenset(sorted(placement.client)[1:])
        if spare:
            return cls(placement.server, placement.client - spare, spare)
        if production_together:
            return cls(placement.server, placement.server, placement.client)
        return cls(placement.server, placement.client, placement.client)

    def describe(self) -> str:
        if not hasattr(os, "sched_setaffinity"):
            return "nothing is kept to any cores: this system cannot do that"
        roots, clients, beside = (",".join(map(str, sorted(of))) for of in (self.roots, self.clients, self.beside))
        return (
            f"the metadata process and the broker of the root are kept to the cores {roots}, producer and subscriber "
            f"to {clients}, the broker for forks and the process that works beside to {beside} (sched_setaffinity)"
        )


# --- processes beside -------------------------------------------------------------------------------------------------

Work = Callable[[braidlog.Braid, Connection, Any], object]


class Companion:
    """A process with a connection of its own. `work(braid, pipe, told)` is done for whatever it is told."""

    def __init__(self, work: Work, url: str, cores: frozenset[int]) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would share connections and threads
        self._name = work.__name__
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_attend, args=(work, url, theirs), daemon=True)
        with kept_to(cores):
            self._process.start()
        theirs.close()
        self.answer()  # it is connected

    def tell(self, message: Any) -> None:
        self._pipe.send(message)

    @property
    def answered(self) -> bool:
        return self._pipe.poll()

    def answer(self) -> Any:
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError(f"{self._name} said nothing for {DEADLINE_S:g} s")
        try:
            said = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"{self._name} ended without a word") from None
        if isinstance(said, Exception):
            raise RuntimeError(f"{self._name} failed") from said
        return said

    def __enter__(self) -> Companion:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # it ends when it finds that
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @contextlib.contextmanager
    def at_work(self, message: Any) -> Iterator[list[float]]:
        """It works for the length of the context. What it managed, in units per second, stands in the list then."""
        result: list[float] = []
        self.tell(message)
        time.sleep(_AHEAD_S)
        yield result
        self.tell(None)
        result.append(self.answer())


def _attend(work: Work, url: str, pipe: Connection) -> None:
    try:
        with braidlog.open(url) as braid:
            pipe.send(None)
            while True:
                pipe.send(work(braid, pipe, pipe.recv()))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def read_tail(braid: braidlog.Braid, pipe: Connection, told: tuple[str, int]) -> list[float]:
    """Seconds on the way of each of so many records, from the tail on. The stamp is a header, or begins the value."""
    log, count = told
    taken = []
    with braid.log(log).subscribe("tail") as records:
        records.poll(0.0)  # it is there
        pipe.send(None)
        for _ in range(count):
            record = next(records)
            stamp = record.headers[0][1] if record.headers else record.value
            taken.append((time.monotonic_ns() - STAMP.unpack_from(stamp)[0]) / 1e9)
    return taken


def read_in_bulk(braid: braidlog.Braid, pipe: Connection, told: tuple[str, int]) -> float:
    """Go through the first so many records of a log, as Arrow, again and again, until told. Bytes per second."""
    log, count = told
    handle = braid.log(log)
    begun, total, at = time.monotonic(), 0, 0
    while not pipe.poll():
        total += handle.read_arrow(at, min(at + BULK_RECORDS, count)).num_rows * RECORD_BYTES
        at = at + BULK_RECORDS if at + BULK_RECORDS < count else 0
    pipe.recv()
    return total / (time.monotonic() - begun)


def write(braid: braidlog.Braid, pipe: Connection, told: tuple[str, float]) -> float:
    """Append to a log at a rate until told. Appends per second."""
    log, rate = told
    handle = braid.log(log)
    begun, done = time.monotonic(), 0
    value = os.urandom(RECORD_BYTES)
    while not pipe.poll():
        time.sleep(max(0.0, begun + done / rate - time.monotonic()))
        handle.append(value)
        done += 1
    pipe.recv()
    return done / (time.monotonic() - begun)


# --- the workload -----------------------------------------------------------------------------------------------------


Make = Callable[[], Record]


class Critical:
    """The workload: its producer is this process."""

    def __init__(
        self, cluster: Cluster, braid: braidlog.Braid, subscriber: Companion, cores: Cores, make: Make
    ) -> None:
        self.cluster = cluster
        self.cores = cores
        self.late = 0  # appends that began later than they should, of `begun`
        self.begun = 0
        self._subscriber = subscriber
        self._braid = braid
        self._make = make
        self.root = braid.create(ROOT)

    def fill(self, size: int) -> int:
        """Old records of so many bytes. Answers how many there are."""
        values = [os.urandom(RECORD_BYTES) for _ in range(FILL_RECORDS)]
        tickets = [self.root.submit(values) for _ in range(max(1, size // MIB))]
        for ticket in tickets:
            ticket.durable()
        return self.root.tail()

    def another(self, name: str) -> None:
        """Another root, which the same broker serves."""
        self._braid.create(name)

    def companion(self, work: Work) -> Companion:
        """Somebody who works beside it."""
        return Companion(work, self.cluster.url, self.cores.beside)

    def warm(self) -> None:
        self.run(WARM_S)
        self.late = self.begun = 0

    def run(self, seconds: float) -> TailRead:
        """See TailRead."""
        count = max(2, round(seconds * RATE))
        self._subscriber.tell((ROOT, count))
        self._subscriber.answer()
        appended = []
        begun = time.perf_counter()
        for number in range(count):
            ahead = begun + number / RATE - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            self.begun += 1
            self.late += ahead < 0
            called = time.perf_counter()
            made = self._make()
            self.root.append(made.value, headers=made.headers)
            appended.append(time.perf_counter() - called)
        return TailRead(appended, self._subscriber.answer())


def _filled(rest: bytes) -> Record:
    return Record(stamped(rest))


@contextlib.contextmanager
def critical(options: Options, *, make: Make | None = None, brokers: int = service.BROKERS) -> Iterator[Critical]:
    """The service, with an empty root, a connected producer and a connected subscriber.

    `make` makes a record with the stamp of that moment. With one broker forks are served where the root is.
    """
    make = make or partial(_filled, filler(RECORD_BYTES))
    cores = Cores.chosen(production_together=True)
    with (
        harness.folder(options) as folder,
        service.cluster(folder, Placement(cores.roots, cores.beside), brokers) as cluster,
        kept_to(cores.clients),
        braidlog.open(cluster.url) as braid,
        Companion(read_tail, cluster.url, cores.clients) as subscriber,
    ):
        yield Critical(cluster, braid, subscriber, cores, make)


def described(seconds: float, rounds: int) -> str:
    return (
        f"{RATE:g} appends of {RECORD_BYTES:,} bytes per second for {seconds:g} s, {rounds} times alone and {rounds} "
        "times beside each, in turn; ratios are between neighbours"
    )


def chosen_seconds(options: Options) -> float:
    return 1.5 if options.quick else 5.0
