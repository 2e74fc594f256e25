"""The same work for every system: what a driver can do, and the processes that read beside it.

A system's module says how records are appended and followed; what is measured, and with which records, is decided
here, once for all. The producer is this process, with one connection. Readers (`tail_read_latency`, `bulk_read`) are
processes of their own with connections of their own, so that they share neither an interpreter nor a lock with the
producer. A record carries the moment of its append call in its first 8 bytes, on the monotonic clock that all processes
of a machine share; the reader takes the time when its client library has handed the record over.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

STAMP: Final = struct.Struct("<q")
DEADLINE_S: Final = 60.0  # for whatever a server or a reader is waited for
BULK_RECORD_BYTES: Final = 1_000
BULK_CHUNK_RECORDS: Final = 500
_WARM_RECORDS: Final = 50

Seen = Callable[[Sequence[bytes]], bool]


@dataclass(frozen=True, slots=True)
class Workload:
    """Records of one size, in batches, with so much not yet acknowledged at any time."""

    records: int
    record_bytes: int
    batch_records: int
    in_flight_bytes: int
    linger_ms: float  # only where the client collects batches itself; the others are always given whole ones

    @property
    def batches_in_flight(self) -> int:
        return max(1, self.in_flight_bytes // (self.batch_records * self.record_bytes))

    def batches(self) -> Iterator[list[bytes]]:
        """All records, batch by batch. The bytes are random, but the same in every batch: making them is not timed."""
        values = [os.urandom(self.record_bytes) for _ in range(self.batch_records)]
        whole, rest = divmod(self.records, self.batch_records)
        for _ in range(whole):
            yield values
        if rest:
            yield values[:rest]


@dataclass(frozen=True, slots=True)
class TailRead:
    """Seconds from each append call to its acknowledgement, and to the moment when the reader had the record."""

    appended: list[float]
    read: list[float]


class Driver(abc.ABC):
    """One system as its users would drive it. A copy in another process has a connection of its own."""

    def __init__(self, address: str, variant: str = "") -> None:
        self.address = address
        self.variant = variant
        self._logs = 0
        self._bulk = ""
        self._bulk_records = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.address, self.variant)

    # --- what a system's module says ---------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """How figures name it."""

    @property
    @abc.abstractmethod
    def durability(self) -> str:
        """What an acknowledgement promises, and what makes it so."""

    @abc.abstractmethod
    def create(self, log: str) -> None:
        """Make an empty log, with whatever the durability needs."""

    @abc.abstractmethod
    def delete(self, log: str) -> None:
        """Free the disk that it takes."""

    @abc.abstractmethod
    def length(self, log: str) -> int:
        """How many records it has, as the server says."""

    @abc.abstractmethod
    def append_all(self, log: str, work: Workload) -> float:
        """Seconds until all are acknowledged. The connection is open, and has been used, before the clock starts."""

    @abc.abstractmethod
    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        """Seconds of each of so many appends of one `stamped` record, the next one begun after the last and a pause."""

    @abc.abstractmethod
    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        """Hand over the records from the first on, up to `chunk` at a time, as they come, until `seen` is false.

        On a connection of its own, which is closed at the end.
        """

    def fill(self, log: str, work: Workload) -> None:
        """Append all, in the fastest way there is; nothing is measured."""
        self.append_all(log, work)

    def close(self) -> None:  # noqa: B027 - nothing to let go of is fine
        """Let go of the producer's connection."""

    # --- what is measured --------------------------------------------------------------------------------------------

    def append_throughput(
        self, records: int, record_bytes: int, batch_records: int, in_flight_bytes: int, linger_ms: float
    ) -> float:
        """Seconds until so many records are acknowledged, durable by this system's standard."""
        with self._new_log() as log:
            took = self.append_all(log, Workload(records, record_bytes, batch_records, in_flight_bytes, linger_ms))
            found = self.length(log)
            assert found == records, f"{self.label}: {found} of {records} records are there"
            return took

    def append_latency(self, n: int, record_bytes: int) -> list[float]:
        """Seconds of each append, one at a time."""
        with self._new_log() as log:
            self.append_each(log, _WARM_RECORDS, record_bytes, 0.0)
            return self.append_each(log, n, record_bytes, 0.0)

    def tail_read_latency(self, n: int, record_bytes: int = 100, pause_s: float = 0.001) -> TailRead:
        """From each append call until a reader in another process has the record; see TailRead."""
        with self._new_log() as log, _Reader(_read_tail, self, log, _WARM_RECORDS + n) as reader:
            self.append_each(log, 1, record_bytes, 0.0)  # when the reader has seen this one, it follows
            reader.receive()
            self.append_each(log, _WARM_RECORDS, record_bytes, pause_s)
            appended = self.append_each(log, n, record_bytes, pause_s)
            read: list[float] = reader.receive()
            return TailRead(appended, read[_WARM_RECORDS:])

    def fill_for_bulk_read(self, size: int) -> None:
        """Make the log that `bulk_read` goes through, of about so many bytes. Once is enough."""
        chunks = max(1, size // (BULK_CHUNK_RECORDS * BULK_RECORD_BYTES))
        self._bulk_records = chunks * BULK_CHUNK_RECORDS
        self._bulk = self._name()
        self.create(self._bulk)
        self.fill(self._bulk, Workload(self._bulk_records, BULK_RECORD_BYTES, 100, 1 << 20, 5.0))
        assert self.length(self._bulk) == self._bulk_records, f"{self.label}: the log for bulk reads is not whole"

    @contextlib.contextmanager
    def bulk_read(self, seconds: float) -> Iterator[BulkRead]:
        """A reader in another process that goes through the filled log again and again, as fast as it can.

        The context begins when it has its first records, and ends it if `seconds` are not over before.
        """
        assert self._bulk, "call fill_for_bulk_read first"
        with _Reader(_read_in_bulk, self, self._bulk, self._bulk_records, seconds) as reader:
            reader.receive()
            result = BulkRead()
            yield result
            reader.send(None)
            result.bytes_per_s = reader.receive()

    @contextlib.contextmanager
    def _new_log(self) -> Iterator[str]:
        log = self._name()
        self.create(log)
        try:
            yield log
        finally:
            self.delete(log)

    def _name(self) -> str:
        self._logs += 1
        return f"log-{os.getpid()}-{self.variant or 'plain'}-{self._logs}"


@dataclass(slots=True)
class BulkRead:
    """What a bulk reader managed; known when its context is over."""

    bytes_per_s: float = 0.0


def stamped(filler: bytes) -> bytes:
    """A record of this moment."""
    return STAMP.pack(time.monotonic_ns()) + filler


def filler(record_bytes: int) -> bytes:
    """The rest of a record, after its stamp."""
    return os.urandom(max(0, record_bytes - STAMP.size))


# --- in the reader's process ------------------------------------------------------------------------------------------


def _read_tail(driver: Driver, pipe: Connection, log: str, wanted: int) -> None:
    taken: list[float] = []
    following = False

    def seen(values: Sequence[bytes]) -> bool:
        nonlocal following
        now = time.monotonic_ns()
        taken.extend((now - STAMP.unpack_from(value)[0]) / 1e9 for value in values)
        if taken and not following:
            following = True
            pipe.send(None)
        return len(taken) <= wanted  # one more than wanted: the first only says that it follows

    driver.follow(log, seen, 1)
    pipe.send(taken[1:])


def _read_in_bulk(driver: Driver, pipe: Connection, log: str, records: int, seconds: float) -> None:
    total, here, begun = 0, 0, 0.0

    def stopped() -> bool:
        return pipe.poll() or time.monotonic() - begun > seconds

    def seen(values: Sequence[bytes]) -> bool:
        nonlocal total, here, begun
        if not begun:
            begun = time.monotonic()
            pipe.send(None)
        else:
            total += sum(map(len, values))
        here += len(values)
        return here < records and not stopped()

    while not begun or not stopped():
        here = 0
        driver.follow(log, seen, BULK_CHUNK_RECORDS)
    pipe.send(total / (time.monotonic() - begun))


def _run(work: Callable[..., None], driver: Driver, pipe: Connection, *arguments: Any) -> None:
    try:
        work(driver, pipe, *arguments)
    except Exception as error:
        pipe.send(error if isinstance(error, AssertionError) else RuntimeError(f"{type(error).__name__}: {error}"))


class _Reader:
    """A process that reads, and what it says."""

    def __init__(self, work: Callable[..., None], driver: Driver, *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would share the producer's connections and threads
        self._label = driver.label
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_run, args=(work, driver, theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        self._pipe.send(message)

    def receive(self) -> Any:
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError(f"the reader of {self._label} said nothing for {DEADLINE_S:g} s")
        try:
            said = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"the reader of {self._label} ended without a word") from None
        if isinstance(said, Exception):
            raise RuntimeError(f"the reader of {self._label} failed") from said
        return said

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._process.join(DEADLINE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
