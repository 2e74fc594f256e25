"""A faulty disk fails exactly where it was told to, and nowhere else."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from braidlog.errors import InvalidArgument
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing.files import OPERATIONS, FaultyFiles

PLANNED = OSError(errno.EIO, "planned")

CALLS: dict[str, Callable[[FaultyFiles], object]] = {
    "make_dir": lambda files: files.make_dir("d"),
    "create": lambda files: files.create(f"new{files.calls['create']}"),
    "open": lambda files: files.open_read("a"),
    "rename": lambda files: files.rename("a", "a"),
    "remove": lambda files: files.remove(files.list("")[-1]),
    "sync_dir": lambda files: files.sync_dir(""),
    "read": lambda files: files.open("a").read(0, 1),
    "write": lambda files: files.open("a").write(0, b"x"),
    "truncate": lambda files: files.open("a").truncate(1),
    "sync": lambda files: files.open("a").sync(),
}


def disk() -> FaultyFiles:
    return FaultyFiles(MemoryFiles(dict.fromkeys("axyz", b"hello")))


def test_every_operation_can_fail() -> None:
    assert CALLS.keys() == OPERATIONS


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_an_operation_fails_at_the_call_it_was_told_to_and_only_there(operation: str) -> None:
    files = disk()
    files.fail(operation, 2, PLANNED)
    CALLS[operation](files)
    with pytest.raises(OSError, match="planned") as caught:
        CALLS[operation](files)
    assert caught.value.errno == errno.EIO
    CALLS[operation](files)
    assert files.calls[operation] == 3


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_an_operation_can_fail_until_it_is_mended(operation: str) -> None:
    files = disk()
    files.fail_always(operation, PLANNED)
    for _ in range(3):
        with pytest.raises(OSError, match="planned"):
            CALLS[operation](files)
    files.mend()
    CALLS[operation](files)


def test_calls_are_counted_over_all_files() -> None:
    files = disk()
    for name in ("a", "x"):
        files.open(name).sync()
    files.fail("sync", files.calls["sync"] + 1, PLANNED)
    with pytest.raises(OSError, match="planned"):
        files.open("y").sync()


def test_an_operation_that_failed_did_not_happen() -> None:
    files = disk()
    for operation in ("write", "truncate", "remove", "create", "rename"):
        files.fail(operation, 1, PLANNED)
    for attempt in (
        lambda: files.open("a").write(0, b"J"),
        lambda: files.open("a").truncate(0),
        lambda: files.remove("a"),
        lambda: files.create("b"),
        lambda: files.rename("a", "b"),
    ):
        with pytest.raises(OSError, match="planned"):
            attempt()
    assert files.list("") == ["a", "x", "y", "z"]
    assert files.open("a").read(0, 9) == b"hello"


def test_the_error_keeps_its_kind() -> None:
    files = disk()
    files.fail("open", 1, FileNotFoundError(errno.ENOENT, "planned"))
    with pytest.raises(FileNotFoundError):
        files.open("a")


def test_a_short_write_leaves_its_first_bytes_on_a_full_disk() -> None:
    files = disk()
    files.short_write(2, 3)
    file = files.open("a")
    file.write(0, b"J")
    with pytest.raises(OSError, match="No space left") as caught:
        file.write(5, b" world")
    assert caught.value.errno == errno.ENOSPC
    assert file.read(0, 99) == b"Jello wo"
    file.write(5, b" world")
    assert file.read(0, 99) == b"Jello world"


def test_a_flipped_bit_is_seen_by_every_read_that_covers_it_and_no_other() -> None:
    files = disk()
    files.flip(lambda path: path == "a", 1, 3)
    file = files.open_read("a")
    assert file.read(0, 5) == b"hmllo"
    assert file.read(1, 1) == b"m"
    assert (file.read(0, 1), file.read(2, 9), file.read(9, 1)) == (b"h", b"llo", b"")
    assert files.open_read("x").read(0, 5) == b"hello"
    files.mend()
    assert file.read(0, 5) == b"hello"


def test_an_unknown_operation_is_refused() -> None:
    for plan in (lambda: disk().fail("fsync", 1, PLANNED), lambda: disk().fail_always("fsync", PLANNED)):
        with pytest.raises(InvalidArgument, match="'fsync' is none of"):
            plan()


KILLED = """
import sys
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing.files import FaultyFiles

class LoudFile:
    def sync(self):
        print("synced", flush=True)

class LoudFiles(MemoryFiles):
    def create(self, path):
        return LoudFile()

files = FaultyFiles(LoudFiles())
files.kill_at_sync(2, after=sys.argv[1] == "after")
file = files.create("a")
for _ in range(3):
    file.sync()
"""


@pytest.mark.parametrize(("when", "syncs"), [("before", 1), ("after", 2)])
def test_the_process_dies_before_or_after_the_sync_it_was_told_to(when: str, syncs: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, when], timeout=30, check=False, stdout=subprocess.PIPE, text=True
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["synced"] * syncs
