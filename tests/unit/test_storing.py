"""Large batches are stored ahead of the commits that bind them, and bound in the order in which they were queued."""

from __future__ import annotations

import threading
from functools import partial

import pyarrow as pa
import pytest

from braidlog import limits
from braidlog.embedded.committer import Committer, Pending
from braidlog.embedded.replica import closed
from braidlog.embedded.storing import Load, Storing
from braidlog.errors import BraidError, Unavailable
from braidlog.forest import commands as c
from braidlog.objects.batch import SCHEMA, Batch, to_arrow
from braidlog.objects.format import ObjectWriter

DEADLINE_S = 30.0


class Disk:
    """Counts what is stored, and holds it up until it is told to go on."""

    def __init__(self, *, held: bool = False) -> None:
        self.objects: list[int] = []  # how many batches each has, as they were begun
        self.threads: list[str] = []
        self.most = 0
        self.fails: set[int] = set()
        self._under_way = 0
        self._go = threading.Event()
        self._changed = threading.Condition()
        if not held:
            self._go.set()

    def store(self, writer: ObjectWriter) -> tuple[c.Register, list[tuple[int, int, int]]]:
        blocks = writer.finish().blocks
        with self._changed:
            number = len(self.objects)
            self.objects.append(len(blocks))
            self.threads.append(threading.current_thread().name)
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            self._changed.notify_all()
        assert self._go.wait(DEADLINE_S)
        with self._changed:
            self._under_way -= 1
        if number in self.fails:
            raise OSError("the disk is full")
        return c.Register(f"object {number}", 1, 1, 1, 1), [(b.offset, b.length, b.crc) for b in blocks]

    def wait_for(self, objects: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.objects) >= objects, DEADLINE_S)

    def go_on(self) -> None:
        self._go.set()


class Log:
    """The command log: what was applied, frame by frame."""

    def __init__(self) -> None:
        self.frames: list[list[c.Command]] = []

    def write(self, payload: bytes) -> None:
        del payload

    def apply(self, batch: list[c.Command]) -> list[c.Result | BraidError]:
        self.frames.append(batch)
        return [c.Done() for _ in batch]

    def numbers(self) -> list[int]:
        """The logs that were appended to, in order: each append here goes to a log of its own."""
        return [command.log for frame in self.frames for command in frame if isinstance(command, c.Append)]

    def check_registrations(self) -> None:
        """Each object is registered once, before the first append that refers to it."""
        known = set()
        for command in (command for frame in self.frames for command in frame):
            if isinstance(command, c.Register):
                assert command.object not in known
                known.add(command.object)
            elif isinstance(command, c.Append) and command.object:
                assert command.object in known


def large(number: int, size: int = limits.MIB) -> Pending:
    return Pending(c.Append(number, 1, size, 0, 0), size, to_arrow([Batch([b"x"])]))


def small(number: int) -> Pending:
    return Pending(c.Append(number, 1, 1, 0, 0, payload=b"x"), 1)


def test_what_is_queued_behind_a_large_batch_is_bound_behind_it() -> None:
    disk, log = Disk(held=True), Log()
    committer = Committer(disk.store, log.write, log.apply)
    queued = [small(1), large(2), small(3), large(4), small(5)]
    for pending in queued:
        committer.submit(pending)
    disk.wait_for(1)
    assert queued[0].wait(DEADLINE_S)
    assert not any(pending.done for pending in queued[1:])
    disk.go_on()
    committer.stop(closed())
    assert log.numbers() == [1, 2, 3, 4, 5]
    log.check_registrations()


def test_the_next_objects_are_stored_while_a_frame_is_written() -> None:
    disk, log = Disk(), Log()

    def write(payload: bytes) -> None:
        del payload
        if not log.frames:
            for pending in queued[1:]:
                committer.submit(pending)
            disk.wait_for(2)

    queued = [large(number, limits.OBJECT_BYTES_MAX) for number in range(1, 4)]
    committer = Committer(disk.store, write, log.apply)
    committer.submit(queued[0])
    for pending in queued:
        assert pending.wait(DEADLINE_S)
    committer.stop(closed())
    assert log.numbers() == [1, 2, 3]


def test_under_load_objects_are_full_and_only_so_many_are_under_way() -> None:
    disk, log = Disk(held=True), Log()
    committer = Committer(disk.store, log.write, log.apply)
    per_object = limits.OBJECT_BYTES_MAX // limits.MIB
    count = 3 * limits.STORERS * per_object
    for number in range(count):
        committer.submit(large(number))
    disk.wait_for(limits.STORERS)
    disk.go_on()
    committer.stop(closed())
    assert disk.most == limits.STORERS
    # The first two do not wait for others, and the last has what is left. They may be laid out in another order.
    assert sorted(disk.objects) == [1, 1, per_object - 2, *[per_object] * (3 * limits.STORERS - 1)]
    assert log.numbers() == list(range(count))
    log.check_registrations()


def test_beside_one_object_another_is_begun_once_it_is_worth_its_syncs_and_no_third() -> None:
    disk, log = Disk(held=True), Log()
    committer = Committer(disk.store, log.write, log.apply)
    half = limits.SECOND_OBJECT_BYTES_MIN // 2
    for number in range(6):
        committer.submit(large(number, half))
    disk.wait_for(2)
    disk.go_on()
    committer.stop(closed())
    assert sorted(disk.objects) == [1, 2, 3]
    assert disk.most == 2
    assert log.numbers() == list(range(6))
    log.check_registrations()


def test_a_lone_caller_stores_by_himself() -> None:
    disk, log = Disk(), Log()
    committer = Committer(disk.store, log.write, log.apply)
    for number in range(3):
        committer.carry_out(large(number))
    committer.stop(closed())
    assert disk.threads == [threading.current_thread().name] * 3


def test_an_object_that_cannot_be_stored_refuses_its_appends_and_no_others() -> None:
    disk, log = Disk(held=True), Log()
    disk.fails = {1}
    committer = Committer(disk.store, log.write, log.apply)
    queued = [large(number, limits.OBJECT_BYTES_MAX) for number in range(4)]
    for pending in queued:
        committer.submit(pending)
    disk.go_on()
    committer.stop(closed())
    refused = [pending for pending in queued if isinstance(pending.answer, Unavailable)]
    assert len(refused) == 1
    assert "the disk is full" in str(refused[0].answer)
    assert len(log.numbers()) == 3
    assert sorted(log.numbers()) == log.numbers()


def test_batches_on_both_sides_of_a_collection_share_no_object() -> None:
    disk, log = Disk(held=True), Log()
    committer = Committer(disk.store, log.write, log.apply)
    committer.submit(large(1))
    disk.wait_for(1)
    behind = [large(number, limits.KIB) for number in (2, 3, 4)]  # from which the disk is kept by the first
    for pending in (behind[0], Pending(c.Collect(0)), *behind[1:]):
        committer.submit(pending)
    disk.go_on()
    committer.stop(closed())
    assert disk.objects == [1, 1, 2]
    for frame in log.frames:
        assert len(frame) == 1 or not any(isinstance(command, c.Collect) for command in frame)


def test_of_an_object_whose_first_commit_was_refused_the_next_registers_it() -> None:
    disk, log = Disk(held=True), Log()
    refusals = [Unavailable("no room")]

    def write(payload: bytes) -> None:
        if b"object 1" in payload and refusals:
            raise refusals.pop()

    committer = Committer(disk.store, write, log.apply)
    first, second, third = large(1), large(2, limits.KIB), large(3, limits.KIB)  # the last two share an object
    committer.submit(first)
    disk.wait_for(1)
    committer.submit(second)
    filler = Pending(c.Append(9, 1, 1, 0, 0, payload=b"x"), limits.FRAME_TARGET_BYTES)  # which fills a frame
    committer.submit(filler)
    committer.submit(third)
    disk.go_on()
    committer.stop(closed())
    assert disk.objects == [1, 2]
    assert isinstance(second.answer, Unavailable)
    assert third.answer == c.Done()
    log.check_registrations()


@pytest.mark.parametrize("what", ["a failure", "the end"])
def test_nothing_waits_for_a_store_that_nobody_will_begin(what: str) -> None:
    log = Log()

    def write(payload: bytes) -> None:
        raise OSError(f"the disk failed at {len(payload)} bytes")

    disk = Disk()
    committer = Committer(disk.store, write if what == "a failure" else log.write, log.apply)
    if what == "the end":
        committer.stop(closed())
    committer.carry_out(small(1))
    queued = [large(number) for number in range(2, 6)]
    for pending in queued[1:]:
        committer.submit(pending)
    committer.carry_out(queued[0])
    for pending in queued:
        assert pending.wait(DEADLINE_S)
        assert isinstance(pending.answer, Unavailable)
    assert disk.objects == []
    if what == "a failure":
        committer.stop(closed())


@pytest.mark.parametrize("when", ["before the end", "after it"])
def test_whoever_waits_for_what_is_never_begun_is_told(when: str) -> None:
    disk = Disk()
    storing = Storing(disk.store)
    load = Load(partial(pa.RecordBatch.from_pylist, [], SCHEMA), 100)
    if when == "before the end":
        storing.add(load)
    storing.end()
    if when == "after it":
        storing.add(load)
    storing.complete(load)
    assert load.parcel is not None
    assert isinstance(load.parcel.refusal, Unavailable)
    assert disk.objects == []
    storing.close()
