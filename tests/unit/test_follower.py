"""A follower shows what is durable, and never less than it has shown before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest

from braidlog.embedded.follower import Follower
from braidlog.embedded.writer import Snapshot
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze
from braidlog.metadata.log_follower import Superseded
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.store import FileStore

COMMANDS: list[c.Command] = [c.Create(f"log-{number}", 0) for number in range(1, 9)]


class Scripted:
    """A command log that tells what it is told to tell, and is forgotten when it is told so."""

    folder = None
    failing = ""

    def __init__(self) -> None:
        self.store = FileStore(MemoryFiles())
        self.snapshot = 0  # covers so many frames
        self.known = 0  # how many a follower is told of
        self.next = 1
        self.forgotten = False

    def latest(self) -> tuple[int, memoryview] | None:
        self.forgotten = False
        if not self.snapshot:
            return None
        forest = Forest()
        for command in COMMANDS[: self.snapshot]:
            forest.apply(command)
        return self.snapshot, memoryview(msgspec.msgpack.encode(Snapshot(freeze(forest), {})))

    def follow(self, after: int) -> Scripted:
        self.next = after + 1
        return self

    def poll(self) -> list[tuple[int, memoryview]]:
        if self.forgotten:
            raise Superseded("the next frame was dropped")
        first, self.next = self.next, max(self.next, self.known + 1)
        return [
            (sequence, memoryview(msgspec.msgpack.encode([COMMANDS[sequence - 1]])))
            for sequence in range(first, self.next)
        ]

    def wait(self, stop: threading.Event) -> bool:
        return stop.wait()  # whoever tests polls

    def unwritten(self) -> bool:
        return False

    def silent_s(self) -> float:
        return 0.0

    def close(self) -> None:
        """There is nothing to let go of."""


@pytest.fixture
def log() -> Scripted:
    return Scripted()


@pytest.fixture
def follower(log: Scripted) -> Iterator[Follower]:
    log.known = 5
    follower = Follower(log)
    yield follower
    follower.close()


def names(follower: Follower) -> list[str]:
    return sorted(log.name for log in follower.forest.logs.values())


def test_it_does_not_go_back_when_it_begins_again_from_an_older_snapshot(follower: Follower, log: Scripted) -> None:
    assert follower.forest.applied == 5
    shown, version = names(follower), follower.version
    log.snapshot, log.known, log.forgotten = 2, 3, True
    follower.poll()
    assert follower.forest.applied == 5  # not 3
    assert names(follower) == shown
    log.known = 4
    follower.poll()
    assert follower.forest.applied == 5
    assert follower.version == version
    log.known = 7
    follower.poll()
    assert follower.forest.applied == 7
    assert names(follower) == [f"log-{number}" for number in range(1, 8)]
    assert follower.version > version
    log.known = 8
    follower.poll()
    assert follower.forest.applied == 8


def test_a_newer_snapshot_is_shown_at_once(follower: Follower, log: Scripted) -> None:
    log.snapshot, log.known, log.forgotten = 7, 7, True
    follower.poll()
    assert follower.forest.applied == 7


def test_a_snapshot_that_is_overtaken_before_it_has_caught_up_is_begun_anew(follower: Follower, log: Scripted) -> None:
    log.snapshot, log.known, log.forgotten = 2, 3, True
    follower.poll()
    log.snapshot, log.known, log.forgotten = 6, 6, True
    follower.poll()
    assert follower.forest.applied == 6
