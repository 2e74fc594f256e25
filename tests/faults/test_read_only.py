"""Readers in other processes see what the writer has synced, all of it and nothing beyond, whatever the writer does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

import braidlog
from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.client.opening import open_files
from braidlog.embedded.follower import DirectorySource, Follower
from braidlog.errors import InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from braidlog.metadata.directory import WriterLock
from braidlog.objects.files import OsFiles
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import FaultyFiles, VirtualClock
from tests.faults.hooked import HookedFiles
from tests.faults.ledger import Ledger, Step
from tests.faults.processes import DEADLINE_S, Child
from tests.faults.verifier import difference, verify
from tests.faults.workload import Quiet, Workload, open_quietly


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers look only when they are told to."""
    monkeypatch.setattr(limits, "READ_ONLY_POLL_S", 3600.0)


class Reader:
    """A follower of a disk, and the braid a user would hold."""

    def __init__(self, files: MemoryFiles | OsFiles) -> None:
        self.follower = Follower(DirectorySource(files, None))
        self.braid = Braid(self.follower, "", read_only=True)

    def catch_up(self) -> None:
        """See everything there is. One look may end where the writer dropped what came next."""
        catch_up(self.follower)

    def values(self, name: str = "log") -> list[bytes]:
        return [record.value for record in self.braid.log(name).read(0)]


def catch_up(follower: Follower) -> None:
    while follower.poll():
        pass


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def place(disk: MemoryFiles) -> Iterator[Quiet]:
    opened = Quiet(disk, VirtualClock())
    opened.braid.create("log").append(b"first")
    yield opened
    opened.braid.close()


@pytest.mark.usefixtures("small_bounds", "unhurried")
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_shows_what_is_synced_and_nothing_beyond_at_every_sync(seed: int) -> None:
    disk = MemoryFiles()
    ledger = Ledger()
    readers: list[Reader] = []
    looks = 0

    def look(_: str) -> None:
        """The writer is about to sync: of the step that is under way, nothing may be seen that needs this sync."""
        nonlocal looks
        for reader in readers:
            reader.catch_up()
            possible = ledger.possible()
            verify(reader.braid, possible[:-1] or possible)
            looks += 1

    place = Quiet(HookedFiles(disk, look), VirtualClock())  # type: ignore[arg-type]
    readers.append(Reader(disk))
    workload = Workload(Random(seed), ledger, lambda _: None)
    for _ in range(40):
        workload.run(place, 1)
        readers[0].catch_up()
        assert not difference(readers[0].braid, ledger)
    place.braid.close()
    readers[0].braid.close()
    assert looks > 20


@pytest.mark.usefixtures("small_bounds", "unhurried")
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_that_looks_rarely_catches_up_over_rolls_and_checkpoints(seed: int) -> None:
    disk = MemoryFiles()
    place = Quiet(disk, VirtualClock())
    reader = Reader(disk)
    workload = Workload(Random(seed), Ledger(), lambda _: None)
    for _ in range(6):
        workload.run(place, 25)
        reader.catch_up()
        verify(reader.braid, [workload.ledger])
    place.braid.close()
    reader.braid.close()


@pytest.mark.usefixtures("unhurried")
def test_a_follower_behind_a_checkpoint_starts_again_from_the_snapshot(disk: MemoryFiles, place: Quiet) -> None:
    reader = Reader(disk)
    log = place.braid.log("log")
    for number in range(3):
        log.append(b"%d" % number)
        place.writer.checkpoint()
    assert reader.values() == [b"first"]
    reader.catch_up()
    assert reader.values() == [b"first", b"0", b"1", b"2"]
    reader.braid.close()


@pytest.mark.usefixtures("small_bounds", "unhurried")
def test_a_read_whose_objects_were_compacted_and_deleted_meanwhile_finds_them_again(
    disk: MemoryFiles, place: Quiet
) -> None:
    log = place.braid.log("log")
    place.do(Step(verb="pack"))
    log.append(b"second")
    place.do(Step(verb="pack"))
    reader = Reader(disk)
    before = disk.list("objects")
    place.do(Step(verb="compact"))
    place.do(Step(verb="collect"))  # condemns
    place.do(Step(verb="collect"))  # deletes
    assert not set(before) & set(disk.list("objects"))
    assert reader.values() == [b"first", b"second"]
    reader.braid.close()


@pytest.mark.usefixtures("unhurried")
def test_a_follower_goes_on_after_a_commit_that_failed_and_a_writer_that_took_over() -> None:
    """What the failed writer left is cut or adopted by the next one; the follower sees only what came of it."""
    for kept_bytes in (None, 0, 40, 1_000_000):
        memory = MemoryFiles()
        disk = FaultyFiles(memory)
        _, braid = open_quietly(disk, VirtualClock())
        log = braid.create("log")
        log.append(b"first")
        reader = Reader(memory)
        if kept_bytes is None:
            disk.fail("sync", disk.calls["sync"] + 1, OSError("the disk failed"))
        else:
            disk.short_write(disk.calls["write"] + 1, kept_bytes)
        with pytest.raises(OutcomeUnknown):
            log.append(b"doubtful")
        reader.catch_up()
        assert reader.values() == [b"first"]
        braid.close()
        _, braid = open_quietly(memory, VirtualClock())
        braid.log("log").append(b"after")
        shown = [record.value for record in braid.log("log").read(0)]
        reader.catch_up()
        assert reader.values() == shown
        assert shown in ([b"first", b"after"], [b"first", b"doubtful", b"after"])
        braid.close()
        reader.catch_up()
        assert reader.values() == shown
        reader.braid.close()


def test_a_follower_sees_a_promotion_and_the_end_of_a_hold(disk: MemoryFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    fork = log.cfork("fork", promotable=True)
    fork.append(b"of the fork")
    log.append(b"withheld")
    reader = Reader(disk)
    held = reader.braid.log("log")
    assert held.tail() == 1
    assert held.info().limited_by == "log"
    fork.promote()
    reader.catch_up()
    assert reader.values() == [b"first", b"of the fork", b"withheld"]
    reader.braid.close()


def test_a_subscription_to_a_follower_gets_each_record_once(disk: MemoryFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    reader = Reader(disk)
    got: list[bytes] = []
    done = threading.Event()

    def collect() -> None:
        for record in reader.braid.log("log").subscribe():
            got.append(record.value)
            if len(got) == 41:
                done.set()
                return

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    for number in range(40):
        log.append(b"%d" % number)
        if number % 10 == 5:
            place.do(Step(verb="pack"))
            place.writer.checkpoint()
    assert done.wait(DEADLINE_S)
    thread.join(DEADLINE_S)
    assert got == [b"first", *(b"%d" % number for number in range(40))]
    reader.braid.close()


def test_following_changes_nothing_on_the_disk_and_takes_no_changes(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        braid.create("log").append(b"first")
    before = image(tmp_path)
    with braidlog.open(tmp_path, read_only=True) as reader:
        log = reader.log("log")
        assert log[0].value == b"first"
        for attempt in (lambda: log.append(b"x"), lambda: reader.create("y"), log.cfork, lambda: log.submit(b"x")):
            with pytest.raises(InvalidArgument, match="read-only"):
                attempt()
    assert image(tmp_path) == before


def image(where: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(where.rglob("*")) if path.is_file()
    }


def test_there_is_nothing_to_follow_where_nobody_wrote(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFound):
            braidlog.open(where, read_only=True)
    assert list(tmp_path.iterdir()) == []


# In other processes


def compare(where: Path, parent: Connection) -> None:
    """Follow a directory; each time it gets a ledger, answer in what it differs from what can be seen."""
    with braidlog.open(where, read_only=True) as braid:
        follower = braid._session.backend
        assert isinstance(follower, Follower)
        while (ledger := parent.recv()) is not None:
            catch_up(follower)
            parent.send(difference(braid, ledger))


def count(where: Path, parent: Connection) -> None:
    """Follow a directory; answer with the number of records whenever asked."""
    with braidlog.open(where, read_only=True) as braid:
        follower = braid._session.backend
        assert isinstance(follower, Follower)
        while parent.recv():
            catch_up(follower)
            parent.send(len(braid.log("log").read(0)))


def test_while_the_writer_is_inside_a_sync_nobody_else_sees_the_record(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()
    blocking = False

    def before_sync(_: str) -> None:
        if blocking:
            inside.set()
            assert go_on.wait(DEADLINE_S)

    files = HookedFiles(OsFiles(tmp_path), before_sync)
    with open_files(files, "", folder=None, lock=WriterLock.acquire(tmp_path)) as braid:  # type: ignore[arg-type]
        log = braid.create("log")
        log.append(b"first")
        with Child(lambda parent: count(tmp_path, parent)) as reader:
            assert reader.ask(True) == 1
            for number in range(2, 6):
                inside.clear()
                go_on.clear()
                blocking = True
                ticket = log.submit(b"another")
                assert inside.wait(DEADLINE_S)
                assert reader.ask(True) == number - 1
                assert not ticket.done
                blocking = False
                go_on.set()
                ticket.durable(DEADLINE_S)
                assert reader.ask(True) == number


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(2))
def test_a_reader_in_another_process_follows_everything_a_writer_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GRACE_S", 0.0)
    place = Quiet(OsFiles(tmp_path), VirtualClock())
    workload = Workload(Random(seed), Ledger(), lambda _: None)
    with Child(lambda parent: compare(tmp_path, parent)) as reader:
        for _ in range(60):
            workload.run(place, 1)
            assert reader.ask(workload.ledger) == ""
    place.braid.close()


def test_a_read_error_that_passes_is_told_and_then_forgotten() -> None:
    disk = MemoryFiles()
    with open_files(disk, "memory://", folder=None) as writer:
        log = writer.create("log")
        log.append(b"before")
        files = FaultyFiles(disk)
        follower = Follower(DirectorySource(files, None))
        reader = Braid(follower, "memory://", read_only=True)
        files.fail_always("read", OSError(5, "the disk does not answer"))
        log.append(b"meanwhile")
        with pytest.raises(Unavailable, match="tried again"):
            follower.poll()
        files.mend()
        follower.poll()
        assert [record.value for record in reader.log("log").read(0)] == [b"before", b"meanwhile"]
        reader.close()
