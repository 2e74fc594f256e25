"""Blobs that are near: what `Blobs` promises, and that a power cut leaves a blob whole or not there."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgument
from braidlog.objects.blobs import Blobs
from braidlog.objects.files import OsFiles
from braidlog.objects.local_blobs import FileBlobs, MemoryBlobs
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import RecordingFiles

KEY = "snapshots/0001-a"


@pytest.fixture(params=["os", "files in memory", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "memory":
        return MemoryBlobs()
    return FileBlobs(OsFiles(tmp_path) if request.param == "os" else MemoryFiles())


def test_what_was_created_is_read_until_it_is_deleted(blobs: Blobs) -> None:
    blobs.create(KEY, (part for part in (b"hello ", memoryview(b"world"))))
    assert bytes(blobs.read(KEY, 0, 100)) == b"hello world"
    assert bytes(blobs.read(KEY, 6, 3)) == b"wor"
    assert bytes(blobs.read(KEY, 50, 3)) == b""
    assert blobs.size(KEY) == 11
    blobs.delete(KEY)
    blobs.delete(KEY)
    for gone in (lambda: blobs.read(KEY, 0, 1), lambda: blobs.size(KEY)):
        with pytest.raises(FileNotFoundError):
            gone()
    blobs.create(KEY, b"again")
    blobs.close()


def test_a_key_is_created_once(blobs: Blobs) -> None:
    blobs.create(KEY, b"first")
    with pytest.raises(FileExistsError):
        blobs.create(KEY, b"second")
    assert bytes(blobs.read(KEY, 0, 10)) == b"first"


def test_of_those_who_create_a_key_at_once_one_wins(blobs: Blobs) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        try:
            blobs.create(KEY, b"%d" % number)
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = won
    assert bytes(blobs.read(KEY, 0, 10)) == b"%d" % winner


def test_keys_are_listed_by_how_they_begin(blobs: Blobs) -> None:
    keys = ["snapshots/1", "snapshots/2", "snapshots-other", ".hidden", "ä b+%2F"]
    for key in keys:
        blobs.create(key, b"")
    assert blobs.list("") == sorted(keys)
    assert blobs.list("snapshots/") == ["snapshots/1", "snapshots/2"]
    assert blobs.list("nothing") == []


@pytest.mark.parametrize("key", ["", "/etc/passwd", "a\0b"])
def test_what_is_no_key_is_refused(blobs: Blobs, key: str) -> None:
    with pytest.raises(InvalidArgument):
        blobs.create(key, b"")


def test_a_failed_creation_leaves_nothing(blobs: Blobs) -> None:
    def parts() -> object:
        yield b"beginning"
        raise OSError("the source failed")

    with pytest.raises(OSError, match="the source failed"):
        blobs.create(KEY, parts())  # type: ignore[arg-type]
    assert blobs.list("") == []
    blobs.create(KEY, b"whole")


def test_after_a_power_cut_a_blob_is_whole_or_not_there() -> None:
    files = RecordingFiles()
    blobs = FileBlobs(files)
    data = {f"snapshots/{number}": bytes([number]) * 3000 for number in range(1, 4)}
    for key, content in data.items():
        blobs.create(key, content)
        files.mark(key)
    rng = random.Random(5)
    for upto in range(len(files.operations) + 1):
        for disk in files.crash_states(upto, rng, 30):
            found = FileBlobs(disk)
            keys = found.list("")
            assert set(keys) >= set(files.marked(upto))
            for key in keys:
                assert bytes(found.read(key, 0, 10_000)) == data[key]
