"""Appends that wait for the packer: they wait no longer than they were told to, and not for what will never come."""

from __future__ import annotations

import errno
import threading
import time

import pytest

from braidlog import limits
from braidlog.errors import BraidError, ConditionFailed, OutcomeUnknown, Unavailable
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import FaultyFiles, VirtualClock
from tests.faults.processes import DEADLINE_S
from tests.faults.workload import Quiet


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def place(disk: FaultyFiles, monkeypatch: pytest.MonkeyPatch) -> Quiet:
    """A braid with a log that has one record, and room for no more until that is packed."""
    place = Quiet(disk, VirtualClock())
    place.braid.create("log").append(b"first")
    monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", 0)
    return place


@pytest.mark.parametrize("call", ["append", "submit"])
def test_who_waits_for_room_is_told_at_once_that_the_log_has_failed(call: str, disk: FaultyFiles, place: Quiet) -> None:
    waiting, met = threading.Event(), []
    place.writer.on_full = waiting.set

    def wait() -> None:
        try:
            getattr(place.braid.log("log"), call)(b"second")
        except BraidError as error:
            met.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(DEADLINE_S)
    disk.fail("sync", disk.calls["sync"] + 1, OSError(errno.EIO, "the disk failed"))
    with pytest.raises(OutcomeUnknown):
        place.braid.create("other")
    thread.join(limits.COMMIT_TIMEOUT_S / 4)
    assert not thread.is_alive()
    assert isinstance(met[0], Unavailable)
    assert "the command log failed" in str(met[0])


def test_who_comes_for_room_after_the_log_has_failed_does_not_wait(disk: FaultyFiles, place: Quiet) -> None:
    disk.fail("sync", disk.calls["sync"] + 1, OSError(errno.EIO, "the disk failed"))
    with pytest.raises(OutcomeUnknown):
        place.braid.create("other")
    with pytest.raises(Unavailable, match="the command log failed"):
        place.braid.log("log").submit(b"second")


def test_submit_waits_for_room_only_as_long_as_it_was_told(place: Quiet) -> None:
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="packer"):
        place.braid.log("log").submit(b"second", timeout=0.01)
    assert time.monotonic() - begun < limits.COMMIT_TIMEOUT_S / 4


def test_an_append_of_nothing_checks_its_condition(place: Quiet) -> None:
    log = place.braid.log("log")
    assert log.append_many([], expected_tail=1) == range(1, 1)
    with pytest.raises(ConditionFailed, match="ends at 1, not at 5"):
        log.append_many([], expected_tail=5)
