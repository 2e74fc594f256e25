"""A disk behaves the same in memory as on a file system, and a store on it keeps objects whole or not at all."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgument
from braidlog.objects.files import File, Files, OsFiles
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.store import FOLDER, FileStore, object_name
from braidlog.testing.files import FaultyFiles, RecordingFiles

A, B, C = (object_name(1, seq) for seq in (1, 2, 3))


@pytest.fixture(params=["os", "memory", "recording", "faulty"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    match request.param:
        case "os":
            return OsFiles(tmp_path)
        case "memory":
            return MemoryFiles()
        case "recording":
            return RecordingFiles()
        case _:
            return FaultyFiles(MemoryFiles())


class TestEveryDisk:
    """The contract of `Files`."""

    def test_bytes_are_read_where_they_were_written(self, files: Files) -> None:
        file = files.create("a")
        file.write(0, b"hello")
        file.write(3, memoryview(b"LOWER"))
        file.sync()
        assert file.read(0, 100) == b"helLOWER"
        assert file.read(2, 3) == b"lLO"
        assert file.read(8, 1) == b""
        assert file.read(50, 1) == b""
        assert file.size() == 8

    def test_a_gap_reads_as_zeros(self, files: Files) -> None:
        file = files.create("a")
        file.write(3, b"x")
        assert file.read(0, 9) == b"\0\0\0x"

    def test_truncation_cuts_and_extends(self, files: Files) -> None:
        file = files.create("a")
        file.write(0, b"hello")
        file.truncate(2)
        assert file.read(0, 9) == b"he"
        file.truncate(4)
        assert file.read(0, 9) == b"he\0\0"

    def test_room_that_was_reserved_changes_nothing_once_it_is_cut_off(self, files: Files) -> None:
        file = files.create("a")
        file.write(0, b"hello")
        file.reserve(5, 100_000)
        file.write(5, b" there")
        file.truncate(11)
        file.sync()
        assert file.read(0, 200_000) == b"hello there"
        assert file.size() == 11

    def test_a_file_is_created_once(self, files: Files) -> None:
        files.create("a").close()
        with pytest.raises(FileExistsError):
            files.create("a")

    def test_what_is_missing_is_not_found(self, files: Files) -> None:
        for attempt in (
            lambda: files.open("a"),
            lambda: files.open_read("a"),
            lambda: files.remove("a"),
            lambda: files.rename("a", "b"),
            lambda: files.create("no/a"),
            lambda: files.sync_dir("no"),
        ):
            with pytest.raises(FileNotFoundError):
                attempt()
        assert not files.exists("a")
        assert files.list("no") == []

    def test_a_folder_is_no_file(self, files: Files) -> None:
        files.make_dir("d")
        files.create("a").close()
        for attempt in (lambda: files.open("d"), lambda: files.rename("a", "d")):
            with pytest.raises(IsADirectoryError):
                attempt()
        with pytest.raises(FileExistsError):
            files.create("d")

    def test_folders_nest_and_making_one_again_is_fine(self, files: Files) -> None:
        files.make_dir("d/e")
        files.make_dir("d/e")
        files.create("d/e/b").close()
        files.create("d/a").close()
        files.sync_dir("d/e")
        assert files.list("") == ["d"]
        assert files.list("d") == ["a", "e"]
        assert files.list("d/e") == ["b"]
        assert files.exists("d/e")
        assert files.exists("d/e/b")

    def test_a_rename_replaces_what_had_the_name(self, files: Files) -> None:
        for name in "ab":
            files.create(name).write(0, name.encode())
        files.rename("a", "b")
        assert files.list("") == ["b"]
        assert files.open_read("b").read(0, 9) == b"a"

    def test_an_open_file_follows_its_bytes_and_not_its_name(self, files: Files) -> None:
        writer = files.create("a")
        writer.write(0, b"one")
        reader = files.open_read("a")
        files.rename("a", "b")
        writer.write(3, b"two")
        files.remove("b")
        assert reader.read(0, 9) == b"onetwo"
        assert files.list("") == []

    def test_a_file_opened_for_reading_cannot_be_written(self, files: Files) -> None:
        files.create("a").close()
        reader = files.open_read("a")
        with pytest.raises(OSError, match="Bad file descriptor"):
            reader.write(0, b"x")

    def test_a_closed_file_is_of_no_use_and_closing_it_again_is_fine(self, files: Files) -> None:
        file = files.create("a")
        file.close()
        file.close()
        for attempt in (lambda: file.read(0, 1), lambda: file.write(0, b"x"), file.size):
            with pytest.raises(OSError, match="Bad file descriptor"):
                attempt()

    @pytest.mark.parametrize("path", ["/a", "../a", "d/../../a"])
    def test_no_path_leaves_the_disk(self, files: Files, path: str) -> None:
        with pytest.raises(InvalidArgument, match="leaves the store"):
            files.create(path)


class TestStore:
    """Objects on any disk."""

    def test_an_object_is_read_in_ranges(self, files: Files) -> None:
        store = FileStore(files)
        store.put(A, memoryview(b"hello world"))
        assert store.get(A, 0, 11) == b"hello world"
        assert store.get(A, 6, 3) == b"wor"
        assert store.get(A, 9, 100) == b"ld"
        assert store.size(A) == 11
        store.close()

    def test_an_object_is_gone_once_deleted_and_deleting_it_again_is_fine(self, files: Files) -> None:
        store = FileStore(files)
        store.put(A, b"hello")
        store.get(A, 0, 1)
        store.delete(A)
        store.delete(A)
        for attempt in (lambda: store.get(A, 0, 1), lambda: store.size(A)):
            with pytest.raises(FileNotFoundError):
                attempt()
        assert store.list() == []

    def test_a_list_names_objects_only(self, files: Files) -> None:
        store = FileStore(files)
        assert store.list() == []
        for name in (B, A):
            store.put(name, b"")
        for stray in (f".tmp-{C}", "notes.txt", C.upper()):
            files.create(f"{FOLDER}/{stray}").close()
        assert store.list() == [A, B]

    def test_only_what_was_left_unfinished_is_swept(self, files: Files) -> None:
        store = FileStore(files)
        store.put(A, b"kept")
        files.create(f"{FOLDER}/.tmp-{B}").close()
        files.create(f"{FOLDER}/notes.txt").close()
        store.sweep_unfinished(lambda _: True)
        assert files.list(FOLDER) == [A, "notes.txt"]

    def test_an_object_is_never_replaced(self, files: Files) -> None:
        store = FileStore(files)
        store.put(A, b"first")
        with pytest.raises(FileExistsError):
            store.put(A, b"second")
        assert store.get(A, 0, 9) == b"first"
        assert files.list(FOLDER) == [A]

    def test_parts_that_end_with_an_exception_leave_nothing(self, files: Files) -> None:
        def parts() -> Iterator[bytes]:
            yield b"half"
            raise MemoryError("no memory for the rest")

        store = FileStore(files)
        with pytest.raises(MemoryError):
            store.put(A, parts())
        assert files.list(FOLDER) == []
        store.put(A, iter([b"wh", b"ole" * 1_000_000, b"."]))
        assert store.get(A, 0, 3_000_003) == b"wh" + b"ole" * 1_000_000 + b"."

    @pytest.mark.parametrize("name", ["", "a.arrow", f"../{A}", f"{A}.tmp", A.replace("1", "G"), A + "\n"])
    def test_a_name_of_another_form_is_refused(self, files: Files, name: str) -> None:
        store = FileStore(files)
        for attempt in (lambda: store.put(name, b""), lambda: store.get(name, 0, 1), lambda: store.delete(name)):
            with pytest.raises(InvalidArgument, match="object name"):
                attempt()


@pytest.mark.parametrize("room", ["there is room", "the disk finds none ahead"])
def test_a_large_object_has_just_its_bytes_and_no_room_beyond(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def reserve(fd: int, offset: int, length: int) -> None:
        asked.append(length)
        if room != "there is room":
            raise OSError(errno.ENOSPC, "no space left")
        really_reserve(fd, offset, length)

    really_reserve = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", reserve)
    store = FileStore(OsFiles(tmp_path))
    parts = [b"head", *(os.urandom(size) for size in (1_100_000, 1_000_001, 2_500_000, 1_200_000)), b"foot"]
    store.put(A, parts)
    found = (tmp_path / FOLDER / A).stat()
    assert asked
    assert found.st_size == sum(map(len, parts))
    assert found.st_blocks * 512 <= found.st_size + 65_536
    assert bytes(store.get(A, 0, 2 * found.st_size)) == b"".join(parts)
    store.close()


def test_names_sort_as_they_were_given() -> None:
    given = [object_name(epoch, seq) for epoch in (1, 15, 16) for seq in (0, 9, 10, 255, 256)]
    assert sorted(given) == given


@pytest.mark.parametrize(
    ("operation", "shared"),
    [*((operation, shared) for operation in ("create", "write", "sync", "sync_dir") for shared in (False, True))]
    + [("rename", True)],
)
def test_a_put_that_fails_leaves_nothing_and_can_be_tried_again(operation: str, shared: bool) -> None:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    store = FileStore(files, shared=shared)
    files.fail(operation, 1, OSError(errno.EIO, "planned"))
    with pytest.raises(OSError, match="planned"):
        store.put(A, b"hello")
    assert disk.contents() == {}
    store.put(A, b"hello")
    assert store.get(A, 0, 9) == b"hello"


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_put_could_not_even_clean_up_keeps_its_name_taken(shared: bool) -> None:
    files = FaultyFiles(MemoryFiles())
    store = FileStore(files, shared=shared)
    files.short_write(1, 2)
    files.fail("remove", 1, OSError(errno.EIO, "planned"))
    with pytest.raises(OSError, match="No space"):
        store.put(A, b"hello")
    assert files.list(FOLDER) == [f".tmp-{A}" if shared else A]
    with pytest.raises(FileExistsError):
        store.put(A, b"hello")
    store.put(B, b"hello")
    assert store.get(B, 0, 9) == b"hello"


@pytest.mark.parametrize("shared", [False, True])
def test_after_a_power_cut_an_object_is_whole_once_its_put_returned(shared: bool) -> None:
    """And where others look for objects before they are told of them, it is whole or absent at any time."""
    files = RecordingFiles()
    store = FileStore(files, shared=shared)
    wanted = {name: name.encode() * 100 for name in (A, B)}
    for name, data in wanted.items():
        store.put(name, data)
        files.mark(name)
    rng = random.Random(1)
    torn = 0
    for upto in range(len(files.operations) + 1):
        for disk in files.crash_states(upto, rng, limit=40):
            survivor = FileStore(disk, shared=shared)
            survivor.sweep_unfinished(lambda _: True)
            found = {name: survivor.get(name, 0, 10_000) for name in survivor.list()}
            whole = {name for name, data in found.items() if data == wanted[name]}
            assert set(files.marked(upto)) <= whole
            assert disk.list(FOLDER) == survivor.list()
            torn += len(found) - len(whole)
    assert (torn == 0) == shared


class OpenCount(MemoryFiles):
    """A disk that knows which of its handles are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.open_now: set[File] = set()

    def open_read(self, path: str) -> File:
        file, disk = super().open_read(path), self
        self.opened += 1
        self.open_now.add(file)
        close = file.close

        class Counted(File):
            read, size = file.read, file.size

            def close(self) -> None:
                disk.open_now.discard(file)
                close()

        return Counted()


def test_handles_are_kept_and_the_least_used_is_closed_first() -> None:
    files = OpenCount()
    store = FileStore(files, handles=2)
    for name in (A, B, C):
        store.put(name, name.encode())
    for name in (A, B, A, A, C):
        store.get(name, 0, 1)
    assert (files.opened, len(files.open_now)) == (3, 2)
    store.get(A, 0, 1)
    assert files.opened == 3  # B made room for C
    store.delete(A)
    assert len(files.open_now) == 1
    store.close()
    assert files.open_now == set()


def test_an_object_removed_behind_the_store_is_gone_once_its_handle_is() -> None:
    files = MemoryFiles()
    store = FileStore(files)
    store.put(A, b"hello")
    store.get(A, 0, 1)
    files.remove(f"{FOLDER}/{A}")
    assert store.get(A, 0, 9) == b"hello"
    store.close()
    with pytest.raises(FileNotFoundError):
        store.get(A, 0, 9)


def test_a_handle_in_use_is_not_closed_under_its_reader() -> None:
    reading, go_on = threading.Event(), threading.Event()

    class Slow(MemoryFiles):
        def open_read(self, path: str) -> File:
            file = super().open_read(path)
            read_into = file.read_into

            def slow_read(offset: int, target: memoryview) -> int:
                reading.set()
                assert go_on.wait(10)
                return read_into(offset, target)

            class SlowFile(File):
                def read_into(self, offset: int, target: memoryview) -> int:
                    return slow_read(offset, target)

                def close(self) -> None:
                    file.close()

            return SlowFile()

    store = FileStore(Slow(), shared=True)
    store.put(A, b"hello")
    got: list[memoryview] = []
    reader = threading.Thread(target=lambda: got.append(store.get(A, 0, 9)))
    reader.start()
    assert reading.wait(10)
    store.delete(A)
    store.close()
    go_on.set()
    reader.join(10)
    assert got == [b"hello"]


def test_many_threads_read_through_few_handles(tmp_path: Path) -> None:
    store = FileStore(OsFiles(tmp_path), handles=2)
    names = [object_name(1, seq) for seq in range(8)]
    for name in names:
        store.put(name, name.encode())
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(200):
                name = rng.choice(names)
                if store.get(name, 0, 100) != name.encode():
                    wrong.append(name)
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    store.close()
    assert wrong == []


def test_puts_side_by_side_share_a_sync_that_began_after_each_had_its_name() -> None:
    events: list[str] = []
    go_on = threading.Event()
    begun = threading.Event()

    class Slow(MemoryFiles):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            events.append("name")

        def sync_dir(self, path: str) -> None:
            events.append("begin")
            begun.set()
            assert go_on.wait(10)
            super().sync_dir(path)
            events.append("end")

    store = FileStore(Slow(), shared=True)
    with ThreadPoolExecutor(4) as threads:
        puts = [threads.submit(store.put, object_name(1, 1), b"one")]
        assert begun.wait(10)
        puts += [threads.submit(store.put, object_name(1, number), b"more") for number in (2, 3, 4)]
        while events.count("name") < 4:
            threading.Event().wait(0.001)
        go_on.set()
        for put in puts:
            put.result(10)
    assert events.count("end") == 2
    assert events.index("begin", events.index("end")) > max(at for at, event in enumerate(events) if event == "name")


def test_a_failed_sync_of_the_folder_fails_every_put_that_waited_for_it() -> None:
    class Failing(MemoryFiles):
        def sync_dir(self, path: str) -> None:
            raise OSError(5, f"no sync of {path}")

    store = FileStore(Failing())
    for number in (1, 2):
        with pytest.raises(OSError, match="no sync"):
            store.put(object_name(1, number), b"x")
    assert store.list() == []


def test_a_sync_that_is_interrupted_fails_every_put_that_waited_for_it() -> None:
    """Whoever led it is told of the interruption, and the others must not take it for a sync."""
    begun, go_on = threading.Event(), threading.Event()
    syncs = iter(range(10))

    class Interrupted(MemoryFiles):
        def sync_dir(self, path: str) -> None:
            if next(syncs) == 1:
                raise KeyboardInterrupt
            begun.set()
            assert go_on.wait(10)
            super().sync_dir(path)

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            named.release()

    named = threading.Semaphore(0)
    store = FileStore(Interrupted(), shared=True)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(store.put, A, b"one")
        assert begun.wait(10)
        others = [threads.submit(store.put, name, b"more") for name in (B, C)]
        for _ in range(3):
            assert named.acquire(timeout=10)
        deadline = time.monotonic() + 10
        while len(store._named._changed._waiters) < 2:  # type: ignore[attr-defined]
            assert time.monotonic() < deadline
            threading.Event().wait(0.001)
        go_on.set()
        first.result(10)
        found = {type(put.exception(10)) for put in others}
    assert found == {KeyboardInterrupt, OSError}
    assert store.list() == [A]


def test_nobody_puts_anything_into_a_folder_that_is_not_durable_yet() -> None:
    making, go_on = threading.Event(), threading.Event()
    events: list[str] = []

    class Slow(MemoryFiles):
        def make_dir(self, path: str) -> None:
            super().make_dir(path)
            making.set()
            assert go_on.wait(10)
            events.append("durable")

        def create(self, path: str) -> File:
            found = super().create(path)
            events.append("create")
            return found

    store = FileStore(Slow())
    with ThreadPoolExecutor(2) as threads:
        puts = [threads.submit(store.put, A, b"one")]
        assert making.wait(10)
        puts.append(threads.submit(store.put, B, b"two"))
        with pytest.raises(TimeoutError):
            puts[1].result(0.1)  # it cannot end before the folder is there to stay
        go_on.set()
        for put in puts:
            put.result(10)
    assert events == ["durable", "create", "create"]


def test_a_folder_that_another_process_has_just_made_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles(tmp_path)
    (tmp_path / FOLDER).mkdir()
    synced: list[int] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    files.make_dir(FOLDER)
    assert synced == [tmp_path.stat().st_ino]
