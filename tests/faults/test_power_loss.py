"""Whatever a power cut leaves of the disk, everything that was acknowledged before it is there when it is opened again.

A workload runs on a disk that records each step. For prefixes of those steps, recovery runs from the disks that a cut
right there may leave. Nothing acknowledged may be lost, what was under way happened as a whole or not at all, no disk
may be refused as damaged, and the directory must go on working.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import pytest

from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.errors import BraidError
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import RecordingFiles, VirtualClock
from braidlog.testing.files import Create, MakeDir, Sync, SyncDir
from tests.faults.ledger import Ledger, Step
from tests.faults.processes import DEADLINE_S
from tests.faults.verifier import verify
from tests.faults.workload import Quiet, Workload, call, open_quietly, take

pytestmark = pytest.mark.usefixtures("small_bounds")

CLOCK = VirtualClock()  # recovery itself looks at no deadline, so any time will do


def recorded(seed: int, steps: int) -> RecordingFiles:
    """The disk of a braid that is opened, worked on, and closed."""
    files = RecordingFiles()
    place = Quiet(files, VirtualClock())
    Workload(Random(seed), Ledger(), files.mark).run(place, steps)
    place.braid.close()
    return files


class Reader:
    """The ledger as it stood after any number of disk operations, asked for in ascending order."""

    def __init__(self, files: RecordingFiles) -> None:
        self._files = files
        self._told = 0
        self.ledger = Ledger()

    def at(self, upto: int) -> Ledger:
        events = self._files.marked(upto)
        for event in events[self._told :]:
            take(self.ledger, event)
        self._told = len(events)
        return self.ledger


def distinct(disks: Iterator[MemoryFiles]) -> Iterator[MemoryFiles]:
    """Choices of survivors that lead to the same bytes need not be recovered twice."""
    seen = set()
    for disk in disks:
        image = hash((tuple(disk.contents().items()), disk.folders()))
        if image not in seen:
            seen.add(image)
            yield disk


def recover(disk: MemoryFiles, possible: list[Ledger], doubtful: Step | None) -> None:
    """Open, find one of the possible accounts, go on working, and find all of it again."""
    _, braid = open_quietly(disk, CLOCK)
    try:
        ledger = verify(braid, possible)
        if doubtful is not None and doubtful.writer and not ledger.accounts[doubtful.log].end:
            go_on(braid, ledger, doubtful)  # whoever lost the answer asks again
        go_on(braid, ledger, Step(verb="create", name="afterwards"))
        go_on(braid, ledger, Step(verb="append", log=len(ledger.accounts), records=((len(ledger.sizes) + 1, 50),)))
    finally:
        braid.close()
    writer, braid = open_quietly(disk, CLOCK)
    try:
        assert writer.clean
        assert writer.cut is None
        verify(braid, [ledger])
    finally:
        braid.close()


def go_on(braid: Braid, ledger: Ledger, step: Step) -> None:
    ledger.begin(step)
    ledger.settle(call(braid, step))


def boundaries(files: RecordingFiles) -> Sequence[int]:
    """Right before and right after each sync: between two syncs a longer prefix only adds to what may be lost."""
    found = {0, len(files.operations)}
    for index, operation in enumerate(files.operations):
        if isinstance(operation, Sync | SyncDir):
            found.update((index, index + 1))
    return sorted(found)


def recover_from_cuts(files: RecordingFiles, cuts: Iterable[int], states: int, rng: Random) -> int:
    """Recover from some of the disks that a cut at each of these operations may leave; answers from how many."""
    reader = Reader(files)
    count = 0
    for upto in sorted(cuts):
        ledger = reader.at(upto)
        for disk in distinct(files.crash_states(upto, rng, states)):
            recover(disk, ledger.possible(), ledger.doubtful)
            count += 1
    return count


def sweep(seed: int, steps: int, cuts: int, states: int) -> int:
    """One recorded run, cut off in many places: around syncs, where most is decided, and anywhere."""
    files = recorded(seed, steps)
    rng = Random(seed)
    around = boundaries(files)
    chosen = set(rng.sample(around, min(cuts // 2, len(around))))
    chosen.update(rng.sample(range(len(files.operations) + 1), min(cuts // 2, len(files.operations))))
    return recover_from_cuts(files, chosen, states, rng)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    assert sweep(seed, steps=60, cuts=90, states=6) > 200


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_nothing_acknowledged_is_lost_in_long_runs(seed: int) -> None:
    assert sweep(seed, steps=120, cuts=240, states=12) > 500


def material(log: int) -> list[Step]:
    """A log that was packed twice, so that every duty has something to do."""
    small = Step(verb="append", log=log, records=((9_000, 10), (9_001, 20)))
    large = Step(verb="append", log=log, records=((9_002, limits.INLINE_BYTES_MAX + 1),))
    more = Step(verb="append", log=log, records=((9_003, 10),))
    pack = Step(verb="pack")
    return [Step(verb="create", name="material"), small, pack, large, more, pack]


BEFORE = {
    "pack": [Step(verb="append", log=1, records=((9_004, 10),))],
    "collect": [Step(verb="drop", log=1), Step(verb="collect")],  # which condemns; the next one deletes
}


@pytest.mark.parametrize("duty", ["pack", "compact", "collect", "checkpoint", "reopen"])
def test_a_cut_anywhere_in_a_duty_loses_nothing(duty: str) -> None:
    files = RecordingFiles()
    place = Quiet(files, VirtualClock())
    workload = Workload(Random(1), Ledger(), files.mark)
    for step in (*material(1), *BEFORE.get(duty, [])):
        workload.take(place, step)
    workload.take(place, Step(verb="create", name="bystander"))
    began = len(files.operations)
    workload.take(place, Step(verb=duty))
    cuts = range(began, len(files.operations) + 1)
    place.braid.close()
    assert len(cuts) > 2, "there was nothing to do"
    assert recover_from_cuts(files, cuts, 30, Random(duty)) > len(cuts)


SENT = [bytes([number]) * size for number, size in enumerate((5000, 10, 6000, 20, 7000))]


def test_a_cut_anywhere_in_a_commit_of_many_appends_takes_all_of_them_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones and small ones of several callers, whose objects are stored side by side."""
    monkeypatch.setattr(limits, "OBJECT_BYTES_MAX", 1)  # each large one gets an object of its own
    files = RecordingFiles()
    place = Quiet(files, VirtualClock())
    log = place.braid.create("log")
    began = len(files.operations)
    committer = place.writer.committer
    with committer.alone():  # so that they all go into one commit, once they are stored
        tickets = [log.submit(value) for value in SENT]
        for ticket in tickets:
            if (load := ticket._receipt.pending.load) is not None:
                committer._storing.complete(load)
    for ticket in tickets:
        ticket.durable(DEADLINE_S)
    ended = len(files.operations)
    place.braid.close()
    seen = set()
    for upto in range(began, ended + 1):
        for found in found_after_cuts(files, upto):
            assert found == SENT or (not found and upto < ended)
            seen.add(len(found))
    assert seen == {0, len(SENT)}


@pytest.mark.parametrize("bound", [1, 12_000])
def test_a_cut_anywhere_while_large_appends_are_stored_ahead_takes_the_first_of_them(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are stored while earlier commits are written: what is there is what came first, acknowledged or not."""
    monkeypatch.setattr(limits, "OBJECT_BYTES_MAX", bound)
    files = RecordingFiles()
    place = Quiet(files, VirtualClock())
    log = place.braid.create("log")
    began = len(files.operations)
    tickets = []
    for number, value in enumerate(SENT * 2):
        tickets.append(log.submit(value))
        if number % 4 == 3:
            tickets[-2].durable(DEADLINE_S)
            files.mark(number)  # so that these are there from now on
    for ticket in tickets:
        ticket.durable(DEADLINE_S)
    ended = len(files.operations)
    place.braid.close()
    seen = set()
    for upto in range(began, ended + 1):
        acknowledged = [event for event in files.marked(upto) if isinstance(event, int)]
        for found in found_after_cuts(files, upto):
            assert found == (SENT * 2)[: len(found)]
            assert len(found) >= (acknowledged[-1] if acknowledged else 0)
            seen.add(len(found))
    assert {0, len(SENT) * 2} <= seen


def found_after_cuts(files: RecordingFiles, upto: int) -> Iterator[list[bytes]]:
    for disk in distinct(files.crash_states(upto, Random(upto), 12)):
        _, braid = open_quietly(disk, CLOCK)
        yield [record.value for record in braid.log("log").read(0)]
        braid.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_second_cut_during_recovery_loses_nothing(seed: int) -> None:
    assert cut_twice(seed, cuts=10, states=2) > 150


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2030))
def test_a_second_cut_during_recovery_loses_nothing_in_long_runs(seed: int) -> None:
    assert cut_twice(seed, cuts=60, states=6) > 500


def cut_twice(seed: int, cuts: int, states: int) -> int:
    """Cut a run, then cut the recovery at each of its operations. What a reader was shown in between must stay."""
    files = recorded(seed, steps=40)
    rng = Random(seed)
    reader = Reader(files)
    count = 0
    for upto in sorted(rng.sample(boundaries(files), cuts)):
        ledger = reader.at(upto)
        for disk in distinct(files.crash_states(upto, rng, states)):
            again = RecordingFiles(disk)
            _, braid = open_quietly(again, CLOCK)
            opened = len(again.operations)
            shown = verify(braid, ledger.possible())
            braid.close()
            for second in range(len(again.operations) + 1):
                possible = ledger.possible() if second < opened else [shown]
                for remains in distinct(again.crash_states(second, rng, 2)):
                    recover(remains, [twin.copy() for twin in possible], ledger.doubtful)
                    count += 1
    return count


# What the proof itself is worth


FORGOTTEN = ["log/", "objects/", "snapshots/", "log", "objects", "snapshots"]


@pytest.mark.parametrize("place", FORGOTTEN)
def test_the_proof_notices_a_sync_that_was_left_out(place: str) -> None:
    """Of the files in a folder, or of the folder itself: each is needed, and a cut shows what for."""
    with pytest.raises((AssertionError, BraidError)):
        recover_without_syncs(place)


def recover_without_syncs(place: str) -> None:
    for seed in range(20):
        files = recorded(seed, steps=40)
        forget_syncs(files, place)
        recover_from_cuts(files, boundaries(files)[::5], 3, Random(seed))


def forget_syncs(files: RecordingFiles, place: str) -> None:
    """Let the recorded syncs of a folder, or of the files in it, not have happened."""
    paths = {operation.inode: operation.path for operation in files.operations if isinstance(operation, Create)}
    for index, operation in enumerate(files.operations):
        if operation == SyncDir(place) or (
            isinstance(operation, Sync) and place.endswith("/") and paths[operation.inode].startswith(place)
        ):
            files.operations[index] = MakeDir("")  # there already
