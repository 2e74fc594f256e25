"""A disk that fails is never covered up: no acknowledgement without durability, no damaged byte taken for data.

Each kind of failure has its claim; a sweep then fails each single operation of a whole run in turn.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from random import Random

import pytest

from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.client.log import Log
from braidlog.client.opening import open_files
from braidlog.embedded.follower import DirectorySource, Follower
from braidlog.embedded.replica import Replica
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, Corrupt, InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from braidlog.objects.files import Files
from braidlog.objects.format import BlockPlace, check_object
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import FaultyFiles, RecordingFiles, VirtualClock
from tests.faults.ledger import Ledger, Step
from tests.faults.processes import DEADLINE_S
from tests.faults.verifier import difference, replica_of, verify
from tests.faults.workload import UPKEEP, Quiet, Workload, open_quietly

EIO = OSError(errno.EIO, "the disk failed")
ENOSPC = OSError(errno.ENOSPC, "no space left on device")
LARGE = bytes(limits.INLINE_BYTES_MAX + 1)


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def place(disk: FaultyFiles) -> Iterator[Quiet]:
    """A braid with one log of one record, on a disk that can fail."""
    opened = Quiet(disk, VirtualClock())
    opened.braid.create("log").append(b"first")
    yield opened
    disk.mend()
    opened.braid.close()


def values(braid: Braid, name: str = "log") -> list[bytes]:
    return [record.value for record in braid.log(name).read(0)]


def reopened(files: Files) -> Braid:
    return open_quietly(files, VirtualClock())[1]


def fail_next(disk: FaultyFiles, operation: str, error: OSError = EIO, *, skip: int = 0) -> None:
    disk.fail(operation, disk.calls[operation] + 1 + skip, error)


# A failed sync of the command log


def test_after_a_failed_sync_nothing_is_acknowledged_ever(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    fail_next(disk, "sync")  # once only: the disk says that the next ones succeed
    with pytest.raises(OutcomeUnknown):
        log.append(b"second")
    for attempt in (
        lambda: log.append(b"third"),
        lambda: log.append(LARGE),
        lambda: log.cfork("fork"),
        lambda: place.braid.create("other"),
        lambda: log.trim(0),
        lambda: log.submit(b"fourth").durable(5),
        lambda: place.do(Step(verb="pack")),
        lambda: place.do(Step(verb="checkpoint")),
    ):
        with pytest.raises(Unavailable):
            attempt()
    place.braid.close()
    assert values(reopened(disk))[:1] == [b"first"]


def test_what_was_acknowledged_stays_readable_after_a_failed_sync(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    fail_next(disk, "sync")
    with pytest.raises(OutcomeUnknown):
        log.append(b"second")
    assert values(place.braid) == [b"first"]
    assert log.info().tail == 1
    assert [record.value for record in log.subscribe(follow=False)] == [b"first"]


def test_an_unknown_outcome_can_be_resolved_after_reopening() -> None:
    """Whatever the disk kept of the append whose sync failed: resolve() says what the log shows."""
    recording = RecordingFiles()
    disk = FaultyFiles(recording)
    _, braid = open_quietly(disk, VirtualClock())
    log = braid.create("log")
    fail_next(disk, "sync")
    with pytest.raises(OutcomeUnknown) as unknown:
        log.append_many([b"a", b"b"])
    braid.close()
    seen = set()
    for remains in recording.crash_states(len(recording.operations), Random(1), 20):
        braid = reopened(remains)
        found = values(braid)
        seen.add(len(found))
        if found:
            assert found == [b"a", b"b"]
            assert braid.resolve(unknown.value.request_id).positions == range(2)
        else:
            with pytest.raises(NotFound):
                braid.resolve(unknown.value.request_id)
        braid.close()
    assert seen == {0, 2}


def test_everything_in_flight_at_a_failed_sync_has_an_unknown_outcome(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    with place.writer.committer.alone():  # so that they all go into one commit
        fail_next(disk, "sync")
        tickets = [log.submit(b"%d" % number) for number in range(5)]
    for ticket in tickets:
        with pytest.raises(OutcomeUnknown) as unknown:
            ticket.durable(5)
        assert unknown.value.request_id == ticket.request_id
    with pytest.raises(Unavailable):
        log.append(b"later")


def test_a_short_write_of_a_commit_is_cut_and_said_so(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    disk.short_write(disk.calls["write"] + 1, keep_bytes=40)
    with pytest.raises(OutcomeUnknown) as unknown:
        log.append(b"second" * 100)
    place.braid.close()
    writer, braid = open_quietly(disk, VirtualClock())
    assert writer.cut is not None
    assert writer.cut.path.startswith("log/")
    assert writer.cut.bytes > 0
    assert not writer.clean
    assert values(braid) == [b"first"]
    with pytest.raises(NotFound):
        braid.resolve(unknown.value.request_id)
    braid.close()


def test_an_interrupted_commit_acknowledges_nothing_more(place: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    log = place.braid.log("log")

    def interrupt(_: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(place.writer.log, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append(b"second")
    monkeypatch.undo()
    with pytest.raises(Unavailable):
        log.append(b"third")


# Objects


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_dir"])
def test_a_large_append_that_cannot_be_stored_is_refused_and_small_ones_go_on(
    operation: str, disk: FaultyFiles, place: Quiet
) -> None:
    log = place.braid.log("log")
    fail_next(disk, operation, ENOSPC)
    with pytest.raises(Unavailable, match="could not be stored"):
        log.append(LARGE)
    assert log.append(b"second") == 1
    assert log.append(LARGE) == 2
    place.braid.close()
    assert values(reopened(disk)) == [b"first", b"second", LARGE]


def test_a_large_append_that_there_is_no_memory_for_is_refused_and_small_ones_go_on(
    place: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_name: str, _data: bytes) -> None:
        raise MemoryError("malloc failed")

    log = place.braid.log("log")
    with monkeypatch.context() as patched:
        patched.setattr(place.writer.store, "put", no_memory)
        with pytest.raises(Unavailable, match="malloc failed"):
            log.append(LARGE)
    assert log.append(b"second") == 1
    assert log.append(LARGE) == 2


def test_of_large_appends_stored_side_by_side_only_those_fail_whose_object_did(
    disk: FaultyFiles, place: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OBJECT_BYTES_MAX", 1)  # each gets an object of its own
    log = place.braid.log("log")
    with place.writer.committer.alone():  # so that they all go into one commit
        fail_next(disk, "create", ENOSPC)
        tickets = [log.submit(LARGE + b"%d" % number) for number in range(4)]
    taken = []
    for ticket in tickets:
        try:
            taken.append(ticket.position(DEADLINE_S))
        except Unavailable:
            continue
    assert taken == [1, 2, 3]
    place.braid.close()
    assert len(set(values(reopened(disk)))) == 4


def test_a_pack_that_fails_loses_nothing_and_can_be_tried_again(disk: FaultyFiles, place: Quiet) -> None:
    for operation in ("create", "write", "sync", "sync_dir"):
        fail_next(disk, operation, ENOSPC)
        with pytest.raises(Unavailable):
            place.do(Step(verb="pack"))
        assert values(place.braid) == [b"first"]
    place.do(Step(verb="pack"))
    assert values(place.braid) == [b"first"]
    assert not place.writer.forest.space.inline


def test_an_object_that_cannot_be_read_is_unavailable_and_not_an_operating_system_error(
    disk: FaultyFiles, place: Quiet
) -> None:
    log = place.braid.log("log")
    place.do(Step(verb="pack"))
    for operation in ("open", "read"):
        disk.fail_always(operation, EIO)
        for attempt in (lambda: log.read(0), lambda: log.read_arrow(), lambda: log.position_at(0), lambda: log[0]):
            with pytest.raises(Unavailable, match="the disk failed"):
                attempt()
        disk.mend()
    assert values(place.braid) == [b"first"]


def test_a_removed_object_is_corrupt_and_named(disk: FaultyFiles, place: Quiet) -> None:
    place.do(Step(verb="pack"))
    (name,) = disk.list("objects")
    disk.remove(f"objects/{name}")
    with pytest.raises(Corrupt, match=rf"'log', positions 0 to 1.*{name}"):
        place.braid.log("log").read(0)


# A full disk


def test_on_a_full_disk_commits_go_on_as_long_as_they_overwrite(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    disk.fill()
    taken = 1 + fill_log(log)
    assert taken > 5
    with pytest.raises(Unavailable, match="free some space"):
        log.append(LARGE)
    disk.mend()
    assert log.append(b"there is room") == taken
    assert log.append(LARGE) == taken + 1
    place.braid.close()
    assert len(values(reopened(disk))) == taken + 2


def fill_log(log: Log) -> int:
    """Append until nothing more fits; answers how many were taken."""
    for taken in range(100):
        try:
            log.append(bytes(100_000))
        except Unavailable:
            return taken
    raise AssertionError("the disk is not full")


def test_a_checkpoint_on_a_full_disk_fails_and_appends_go_on(disk: FaultyFiles, place: Quiet) -> None:
    log = place.braid.log("log")
    disk.fill()
    with pytest.raises(Unavailable):
        place.writer.checkpoint()
    assert log.append(b"second") == 1
    disk.mend()
    place.writer.checkpoint()
    assert log.append(b"third") == 2
    place.braid.close()
    assert values(reopened(disk)) == [b"first", b"second", b"third"]


def test_a_checkpoint_whose_snapshot_fails_is_still_due(disk: FaultyFiles, place: Quiet) -> None:
    """Else a log that was replayed for ever would never be shortened."""
    before = place.writer.commands_since_checkpoint
    assert before > 0
    fail_next(disk, "sync", ENOSPC, skip=1)  # the new segment is synced first
    with pytest.raises(Unavailable, match="snapshot"):
        place.writer.checkpoint()
    assert place.writer.commands_since_checkpoint == before
    place.braid.log("log").append(b"second")
    place.braid.close()
    assert disk.list("snapshots"), "closing made up for it"
    assert values(reopened(disk)) == [b"first", b"second"]


def test_a_full_disk_at_closing_loses_nothing(disk: FaultyFiles, place: Quiet) -> None:
    disk.fill()
    with pytest.raises(Unavailable):
        place.braid.close()
    disk.mend()
    assert values(reopened(disk)) == [b"first"]


def test_a_directory_on_a_full_disk_can_be_read(disk: FaultyFiles, place: Quiet) -> None:
    place.braid.close()
    disk.fill()
    follower = Follower(DirectorySource(disk, None))
    assert values(Braid(follower, "", read_only=True)) == [b"first"]
    follower.close()


def test_a_collection_that_fails_is_tried_again(disk: FaultyFiles, place: Quiet) -> None:
    place.do(Step(verb="pack"))
    place.braid.drop("log")
    place.do(Step(verb="collect"))
    fail_next(disk, "remove")
    with pytest.raises(OSError, match="the disk failed"):
        place.do(Step(verb="collect"))
    place.do(Step(verb="collect"))
    assert disk.list("objects") == []


def test_a_collection_that_could_not_be_committed_is_still_due(
    disk: FaultyFiles, place: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: bytes) -> int:
        raise Unavailable("there is no room")

    place.do(Step(verb="pack"))
    place.braid.drop("log")
    with monkeypatch.context() as patched:
        patched.setattr(place.writer.log, "append", no_room)
        with pytest.raises(Unavailable):
            place.do(Step(verb="collect"))
    place.do(Step(verb="collect"))  # condemns
    place.do(Step(verb="collect"))  # deletes
    assert disk.list("objects") == []


def test_an_opening_that_fails_leaves_no_thread_behind(disk: FaultyFiles, place: Quiet) -> None:
    place.braid.close()
    before = threading.active_count()
    failed = 0
    for nth in range(6):
        fail_next(disk, "sync", skip=nth)
        try:
            braid = reopened(disk)
        except BraidError:
            failed += 1
        else:
            disk.mend()
            braid.close()
        disk.mend()
        assert threading.active_count() == before
    assert failed > 1


def test_the_keeper_survives_a_full_disk_and_makes_up_for_it(
    disk: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEEPER_PERIOD_S", 0.001)
    monkeypatch.setattr(limits, "PACK_AGE_S", 0.0)
    refused = threading.Event()
    monkeypatch.setattr("braidlog.embedded.upkeep._log.warning", lambda *_: refused.set())
    with open_files(disk, "memory://", folder=None) as braid:
        disk.fill()
        log = braid.create("log")
        log.append(b"first")
        assert refused.wait(DEADLINE_S), "the packer never met the full disk"
        assert log.append(b"second") == 1
        disk.mend()
        writer = replica_of(braid)
        deadline = time.monotonic() + DEADLINE_S
        while writer.inline_bytes:
            assert time.monotonic() < deadline, "the packer never made up for it"
            writer.wait_for_change(writer.version, 0.1)
        assert values(braid) == [b"first", b"second"]


# Each operation in turn


SWEPT = {
    "sync": EIO,
    "write": ENOSPC,
    "sync_dir": EIO,
    "rename": EIO,
    "create": ENOSPC,
    "remove": EIO,
    "truncate": EIO,
    "open": EIO,
    "read": EIO,
    "make_dir": ENOSPC,
}


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("operation", sorted(SWEPT))
def test_any_single_failure_costs_nothing_that_was_acknowledged(operation: str) -> None:
    calls = run_failing(operation, 0, seed=3)
    sample = Random(operation).sample(range(1, calls + 1), min(calls, 100))
    for nth in sorted(sample):
        run_failing(operation, nth, seed=3)


@pytest.mark.soak
@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(5, 15))
@pytest.mark.parametrize("operation", sorted(SWEPT))
def test_any_single_failure_of_long_runs_costs_nothing(operation: str, seed: int) -> None:
    for nth in range(1, run_failing(operation, 0, seed) + 1):
        run_failing(operation, nth, seed)


def run_failing(operation: str, nth: int, seed: int) -> int:
    """A workload in which the nth such operation fails, once. Answers how many there were."""
    disk = FaultyFiles(MemoryFiles())
    if nth:
        disk.fail(operation, nth, SWEPT[operation])
    ledger = Ledger()
    place = None
    try:
        place = Quiet(disk, VirtualClock())
        go_through(place, Workload(Random(seed), ledger, lambda _: None), steps=50)
        place.braid.close()
    except (BraidError, OSError):
        if not nth:
            raise
        if place is not None:
            close_anyhow(place.braid)
    calls = disk.calls[operation]
    disk.mend()
    braid = reopened(disk)
    found = verify(braid, ledger.possible())
    braid.close()
    braid = reopened(disk)
    verify(braid, [found])
    braid.close()
    return calls


def go_through(place: Quiet, workload: Workload, steps: int) -> None:
    """Go on past refusals, which change nothing. After an unknown outcome nothing may be acknowledged."""
    ledger = workload.ledger
    for _ in range(steps):
        step = workload.choose(place.now_us())
        try:
            workload.take(place, step)
        except OutcomeUnknown:
            with pytest.raises(Unavailable):
                place.braid.create("never")
            raise
        except Unavailable:
            if step.verb in UPKEEP:
                raise
            ledger.settle("Unavailable")
            assert not difference(place.braid, ledger)
        except OSError as error:
            if step.verb not in UPKEEP:
                raise AssertionError(f"{step} raised what is no BraidError") from error
            raise


def close_anyhow(braid: Braid) -> None:
    try:
        braid.close()
    except (BraidError, OSError):
        assert braid._session.backend.closed


# The end of the command log


def damaged(disk: MemoryFiles, value: bytes) -> MemoryFiles:
    """The same disk with the last byte of a value changed where it stands in the command log."""
    contents = {path: bytearray(data) for path, data in disk.contents().items()}
    (path,) = (path for path in contents if path.startswith("log/") and value in contents[path])
    contents[path][contents[path].index(value) + len(value) - 1] ^= 1
    return MemoryFiles(contents, disk.folders())


def without_mark(disk: MemoryFiles) -> MemoryFiles:
    """The same disk after a power cut that took the hint of how far the log was synced."""
    contents = {path: data for path, data in disk.contents().items() if path != "log/SYNCED"}
    return MemoryFiles(contents, disk.folders())


@pytest.fixture
def killed() -> MemoryFiles:
    """The disk of a writer that acknowledged two records, and was killed."""
    disk = MemoryFiles()
    _, braid = open_quietly(disk, VirtualClock())
    log = braid.create("log")
    log.append(b"the first")
    log.append(b"the second")
    image = MemoryFiles(disk.contents(), disk.folders())
    braid.close()
    return image


def test_a_bad_frame_followed_by_a_valid_one_is_corrupt(killed: MemoryFiles) -> None:
    with pytest.raises(Corrupt, match=r"log/0000000000000001.log at byte [\d,]+: frame 3 .* with frame 4 intact"):
        reopened(without_mark(damaged(killed, b"the first")))


def test_a_bad_last_frame_that_was_synced_is_corrupt(killed: MemoryFiles) -> None:
    with pytest.raises(Corrupt, match=r"frame 4 .* but it was synced"):
        reopened(damaged(killed, b"the second"))


def test_a_bad_last_frame_that_nobody_knows_of_is_cut_and_said_so(killed: MemoryFiles) -> None:
    writer, braid = open_quietly(without_mark(damaged(killed, b"the second")), VirtualClock())
    assert writer.cut is not None
    assert writer.cut.path == "log/0000000000000001.log"
    assert values(braid) == [b"the first"]
    assert braid.log("log").append(b"another") == 1
    braid.close()


def test_a_clean_close_marks_the_end_and_a_kill_does_not(killed: MemoryFiles) -> None:
    writer, braid = open_quietly(killed, VirtualClock())
    assert not writer.clean
    braid.close()
    writer, braid = open_quietly(killed, VirtualClock())
    assert writer.clean
    assert values(braid) == [b"the first", b"the second"]
    braid.close()


# Flipped bits


class Specimen:
    """A small directory with everything in it: a snapshot, a log behind it, objects, forks, records in all of them."""

    def __init__(self, *, closed: bool) -> None:
        disk = MemoryFiles()
        self.ledger = Ledger()
        place = Quiet(disk, VirtualClock())
        workload = Workload(Random(11), self.ledger, lambda _: None)
        workload.run(place, 30)
        workload.take(place, Step(verb="checkpoint"))
        workload.run(place, 4)
        if closed:
            place.braid.close()
        self.contents = disk.contents()
        self.folders = disk.folders()
        place.braid.close()

    def flipped(self, path: str, offset: int, bit: int) -> MemoryFiles:
        damaged = bytearray(self.contents[path])
        damaged[offset] ^= 1 << bit
        return MemoryFiles({**self.contents, path: damaged}, self.folders)

    def places(self) -> list[tuple[str, int]]:
        """Every byte of every file, but of the zeros behind a log only some."""
        found = []
        for path, data in self.contents.items():
            end = len(data.rstrip(b"\0")) if path.startswith("log/") else len(data)
            found += [(path, offset) for offset in (*range(end), *range(end, len(data), 509))]
        return found


@pytest.fixture(params=[False, True], ids=["killed", "closed"])
def specimen(request: pytest.FixtureRequest, small_bounds: None) -> Specimen:  # noqa: ARG001
    return Specimen(closed=request.param)


def test_a_flipped_bit_is_found_and_named_and_never_believed(specimen: Specimen) -> None:
    rng = Random(5)
    found = {look_at_flip(specimen, path, offset, rng.randrange(8)) for path, offset in sampled(specimen, rng, 600)}
    assert {"FORMAT", "log", "snapshots", "objects", "harmless"} <= found


@pytest.mark.soak
def test_a_flipped_bit_in_any_byte_is_found_and_named_and_never_believed(specimen: Specimen) -> None:
    rng = Random(6)
    for path, offset in specimen.places():
        look_at_flip(specimen, path, offset, rng.randrange(8))


def sampled(specimen: Specimen, rng: Random, count: int) -> list[tuple[str, int]]:
    """As many places of each file, whatever its size."""
    by_file: dict[str, list[tuple[str, int]]] = {}
    for path, offset in specimen.places():
        by_file.setdefault(path, []).append((path, offset))
    share = count // len(by_file)
    return [place for places in by_file.values() for place in rng.sample(places, min(share, len(places)))]


def look_at_flip(specimen: Specimen, path: str, offset: int, bit: int) -> str:
    """Open and read all of a damaged directory, for writing and read-only. Answers where the damage was found."""
    by_follower = found_by(lambda disk: Follower(DirectorySource(disk, None)), specimen, path, offset, bit)
    by_writer = found_by(lambda disk: open_quietly(disk, VirtualClock())[0], specimen, path, offset, bit)
    if by_follower != "harmless":
        assert by_writer != "harmless", "a reader must not refuse what a writer would take for sound"
    return by_writer


def found_by(opener: Callable[[MemoryFiles], Replica], specimen: Specimen, path: str, offset: int, bit: int) -> str:
    disk = specimen.flipped(path, offset, bit)
    folder, _, name = path.rpartition("/")
    replica: Replica | None = None
    problem, refusal = "", ""
    try:
        replica = opener(disk)
        problem = difference(Braid(replica, "", read_only=False), specimen.ledger)
    except Corrupt as error:
        refusal = str(error)
    except InvalidArgument as error:
        assert path == "FORMAT"  # a damaged version reads as that of another braidlog
        refusal = f"FORMAT: {error}"
    finally:
        if replica is not None:
            replica.close()
    where = f"{path}, bit {bit} of byte {offset}: {problem or refusal}"
    assert not problem, where
    if replica is None:
        assert path in refusal, where
        return folder or path
    if refusal:
        assert folder == "objects", where
        assert name in refusal, where
        assert "positions" in refusal, where
    if folder == "objects":
        examine_object(disk, replica, name)
        return folder
    if isinstance(replica, Writer) and folder == "log" and name != "SYNCED":
        assert replica.cut is not None, f"{where}: taken for an unfinished commit, and nobody says so"
    return "harmless"


def examine_object(disk: MemoryFiles, replica: Replica, name: str) -> None:
    """What reading a log never touches, a thorough check does."""
    space = replica.forest.space
    known = space.objects.get(name)
    if known is None:
        return  # nobody refers to it
    places = [BlockPlace(p.offset, p.length, p.crc) for p in space.places.values() if p.object == name]
    with pytest.raises(Corrupt, match=name):
        check_object(name, disk.contents()[f"objects/{name}"], known.crc, places)
