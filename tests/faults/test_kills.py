"""A process that is killed, wherever it is, loses nothing that it had acknowledged.

A forked process opens a directory, finds all that must be there, works on it with its background threads as busy as can
be, and tells its parent each step before it is tried and each answer after it was given. Then it is killed: by itself
at a sync, or by its parent at any moment. The next process takes over on the same directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

import braidlog
from braidlog import limits
from braidlog.client.opening import open_files
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.writer import Writer
from braidlog.errors import Locked
from braidlog.metadata.directory import WriterLock
from braidlog.objects.files import OsFiles
from braidlog.testing import FaultyFiles
from tests.faults.ledger import Ledger, Step
from tests.faults.processes import DEADLINE_S, KILLED, Child
from tests.faults.verifier import replica_of, verify
from tests.faults.workload import CALLS, Place, Workload, take

FRANTIC = {
    "KEEPER_PERIOD_S": 0.002,
    "PACK_AGE_S": 0.01,
    "COMPACT_IDLE_S": 0.0,
    "COMPACT_OBJECTS_MIN": 2,
    "GRACE_S": 0.0,
    "CHECKPOINT_COMMANDS": 15,
}


class Lively(Place):
    """A directory with everything running that runs for a user."""

    def __init__(self, where: Path, files: FaultyFiles) -> None:
        self._where = where
        self._files = files
        self._open()

    def _open(self) -> None:
        lock = WriterLock.acquire(self._where)
        self.braid = open_files(self._files, self._where.as_uri(), folder=str(self._where / "objects"), lock=lock)

    def now_us(self) -> int:
        return SystemClock().now_us()

    def do(self, step: Step) -> None:
        assert step.verb == "reopen"
        self.braid.close()
        self._open()


class Lineage:
    """One directory, and the processes that worked on it one after the other."""

    def __init__(self, where: Path, seed: int) -> None:
        self.where = where
        self.rng = Random(seed)
        self.possible = [Ledger()]

    def kill_one(self) -> None:
        """Let a process take over, and be killed."""
        at_sync = self.rng.randint(1, 60) if self.rng.random() < 0.5 else 0
        events_left = self.rng.randint(0, 60)
        with Child(lambda parent: self._work(parent, at_sync)) as child:
            told = 0
            while True:
                if not at_sync and told == events_left:
                    child.kill()
                try:
                    event = child.hear()
                except EOFError:
                    break
                told += 1
                self._take(event)
            assert child.wait() == KILLED
        self.possible = [twin for ledger in self.possible for twin in ledger.possible()]

    def end_well(self) -> None:
        """Let a last process take over that closes properly, and another one that finds that it did."""
        for look in (self._find_and_close, self._find_closed):
            with Child(look) as child:
                self._take(child.hear())
                assert child.wait() == 0

    def _take(self, event: object) -> None:
        if isinstance(event, Found):
            self.possible = [self.possible[event.index]]
        else:
            take(self.possible[0], event)

    def _work(self, parent: Connection, kill_at_sync: int) -> None:
        for name, value in FRANTIC.items():
            setattr(limits, name, value)
        files = FaultyFiles(OsFiles(self.where))
        if kill_at_sync:
            files.kill_at_sync(kill_at_sync, after=self.rng.random() < 0.5)
        place = Lively(self.where, files)
        ledger = self._find(place.braid, parent)
        Workload(self.rng, ledger, parent.send, CALLS | {"reopen": 2}).run(place, 10_000)

    def _find_and_close(self, parent: Connection) -> None:
        with braidlog.open(self.where) as braid:
            self._find(braid, parent)

    def _find_closed(self, parent: Connection) -> None:
        with braidlog.open(self.where) as braid:
            writer = replica_of(braid)
            assert isinstance(writer, Writer)
            assert writer.clean
            assert writer.cut is None
            self._find(braid, parent)

    def _find(self, braid: braidlog.Braid, parent: Connection) -> Ledger:
        found = verify(braid, self.possible)
        parent.send(Found(self.possible.index(found)))
        return found


class Found:
    """Which of the possible ledgers is true."""

    def __init__(self, index: int) -> None:
        self.index = index


@pytest.mark.parametrize("seed", range(10))
def test_twenty_kills_in_a_row_lose_nothing(seed: int, tmp_path: Path) -> None:
    lineage = Lineage(tmp_path, seed)
    for _ in range(20):
        lineage.kill_one()
    lineage.end_well()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 250))
def test_thousands_of_kills_lose_nothing(seed: int, tmp_path: Path) -> None:
    lineage = Lineage(tmp_path, seed)
    for _ in range(25):
        lineage.kill_one()
    lineage.end_well()


def hold_open(where: Path, parent: Connection) -> None:
    """Open for writing, append one record, and stay until killed."""
    with braidlog.open(where, serve=False) as braid:
        log = braid.log("log") if "log" in braid else braid.create("log")
        log.append(b"held")
        parent.send("open")
        parent.recv()


def follow(where: Path, parent: Connection) -> None:
    """Open read-only, and answer with the number of records whenever asked."""
    with braidlog.open(where, read_only=True) as braid:
        while True:
            parent.recv()
            parent.send(len(braid.log("log").read(0)))


def test_a_second_writer_is_told_who_holds_the_directory_and_gets_it_after_the_kill(tmp_path: Path) -> None:
    with Child(lambda parent: hold_open(tmp_path, parent)) as holder:
        assert holder.hear() == "open"
        with pytest.raises(Locked, match=f"process {holder.pid}") as refusal:
            braidlog.open(tmp_path)
        assert refusal.value.pid == holder.pid
        holder.kill()
        assert holder.wait() == KILLED
    with braidlog.open(tmp_path) as braid:
        assert [record.value for record in braid.log("log").read(0)] == [b"held"]


def test_a_writer_that_was_refused_and_killed_leaves_the_holder_its_lock(tmp_path: Path) -> None:
    def try_and_stay(parent: Connection) -> None:
        with pytest.raises(Locked):
            braidlog.open(tmp_path)
        parent.send("refused")
        parent.recv()

    with braidlog.open(tmp_path, serve=False) as braid:
        log = braid.create("log")
        with Child(try_and_stay) as second:
            assert second.hear() == "refused"
            second.kill()
            assert second.wait() == KILLED
        log.append(b"still mine")
        with Child(try_and_stay) as third:
            assert third.hear() == "refused"


def test_a_fork_of_the_holder_does_not_hold_the_directory(tmp_path: Path) -> None:
    """A child that a writer happened to fork must not keep others out once the writer is gone."""

    def linger(parent: Connection) -> None:
        parent.recv()

    with braidlog.open(tmp_path) as braid:
        braid.create("log").append(b"one")
        bystander = Child(linger)
    with bystander, Child(lambda parent: hold_open(tmp_path, parent)) as holder:
        assert holder.hear() == "open"


def test_killed_followers_leave_the_writer_and_each_other_alone(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        log = braid.create("log")
        log.append(b"first")
        with (
            Child(lambda parent: follow(tmp_path, parent)) as killed,
            Child(lambda parent: follow(tmp_path, parent)) as other,
        ):
            assert killed.ask("count") == 1
            killed.kill()
            assert killed.wait() == KILLED
            log.append(b"second")
            assert until(2, lambda: other.ask("count"))
        assert [record.value for record in log.read(0)] == [b"first", b"second"]


def until(wanted: object, ask: Callable[[], object]) -> bool:
    """Ask again and again until the answer is as wanted, or the time is up."""
    deadline = time.monotonic() + DEADLINE_S
    while ask() != wanted:
        assert time.monotonic() < deadline, f"{wanted} was never answered"
    return True
