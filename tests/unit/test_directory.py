"""A folder is ours or free, or it is left alone; and only one process writes it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import BraidError, Corrupt, InvalidArgument, Locked, Unavailable
from braidlog.metadata.directory import WriterLock, put_file, read_format, sweep_unfinished, write_format
from braidlog.objects.files import Files, OsFile, OsFiles
from braidlog.objects.memory_files import MemoryFiles

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("disk", ["memory", "real"])
def test_a_directory_knows_its_id(disk: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if disk == "memory" else OsFiles(tmp_path)
    assert read_format(files) is None
    write_format(files, ID)
    assert read_format(files) == ID
    assert files.list("") == ["FORMAT"]


def test_a_folder_that_does_not_exist_is_free(tmp_path: Path) -> None:
    assert read_format(OsFiles(tmp_path / "new")) is None


def test_a_creation_that_was_cut_short_can_be_done_again() -> None:
    files = MemoryFiles({"LOCK": b"1\n", "FORMAT.tmp": b"brai"})
    assert read_format(files) is None
    write_format(files, ID)
    assert read_format(files) == ID


def test_somebody_elses_folder_is_left_alone() -> None:
    with pytest.raises(InvalidArgument, match=r"not a braidlog directory: .* there is 'thesis.tex'"):
        read_format(MemoryFiles({"thesis.tex": b""}))


def test_a_newer_format_is_named() -> None:
    with pytest.raises(InvalidArgument, match="format 4 and this braidlog reads formats 1 to 3: upgrade"):
        read_format(MemoryFiles({"FORMAT": b"braidlog 4\nwhatever it says"}))


@pytest.mark.parametrize("text", [b"", b"braidlog 1\n", b"braidlog 1\nxyz\n", b"other 1\n" + ID.encode() + b"\n"])
def test_a_damaged_format_file_is_corrupt(text: bytes) -> None:
    with pytest.raises(Corrupt, match="FORMAT"):
        read_format(MemoryFiles({"FORMAT": text}))


@given(st.binary(max_size=60))
def test_garbage_raises_nothing_but_our_errors(garbage: bytes) -> None:
    with pytest.raises(BraidError):
        read_format(MemoryFiles({"FORMAT": garbage}))


@pytest.mark.parametrize("directory_id", ["", ID.upper(), ID + "0", "../../etc"])
def test_an_id_that_is_none_is_refused(directory_id: str) -> None:
    with pytest.raises(InvalidArgument, match="directory_id"):
        write_format(MemoryFiles(), directory_id)


def test_an_interrupted_put_leaves_the_old_file_and_is_swept() -> None:
    files = MemoryFiles({"a/file": b"old", "a/file.tmp": b"ne"})
    sweep_unfinished(files, "a")
    assert files.contents() == {"a/file": b"old"}
    put_file(files, "a/file", b"new")
    assert files.contents() == {"a/file": b"new"}


def test_the_second_writer_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    lock = WriterLock.acquire(tmp_path)
    with pytest.raises(Locked, match="by this process") as caught:
        WriterLock.acquire(tmp_path)
    assert caught.value.pid == os.getpid()
    lock.release()
    lock.release()
    WriterLock.acquire(tmp_path).release()


def hold(root: Path, ready: Connection) -> None:
    lock = WriterLock.acquire(root)
    ready.send(os.getpid())
    signal.pause()
    lock.release()


def test_a_lock_names_the_process_that_holds_it_and_ends_with_it(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    holder = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path, theirs))
    holder.start()
    assert ours.poll(30)
    pid = ours.recv()
    with pytest.raises(Locked, match=rf"process {pid}: stop it, or open with read_only=True") as caught:
        WriterLock.acquire(tmp_path)
    assert caught.value.pid == pid
    holder.kill()
    holder.join()
    WriterLock.acquire(tmp_path).release()


def test_a_holder_that_has_not_written_its_pid_yet_is_just_another_process(tmp_path: Path) -> None:
    lock = WriterLock.acquire(tmp_path)
    (tmp_path / "LOCK").write_bytes(b"")
    with pytest.raises(Locked, match="by another process") as caught:
        WriterLock.acquire(tmp_path)
    assert caught.value.pid is None
    lock.release()


def test_programs_that_the_holder_starts_do_not_keep_the_lock(tmp_path: Path) -> None:
    lock = WriterLock.acquire(tmp_path)
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs its own program now, so what closes on exec is closed
        lock._disown()  # closes the file without unlocking it, as the death of the process does
        WriterLock.acquire(tmp_path).release()
        child.communicate(b"\n")
    lock.release()


FORKING = """
import os, pathlib, sys
from braidlog.metadata.directory import WriterLock
lock = WriterLock.acquire(pathlib.Path(sys.argv[1]))
if os.fork() == 0:
    lock.release()
    print("child", flush=True)
    sys.stdin.readline()
else:
    sys.stdin.readline()
    os._exit(0)
"""


def test_a_forked_child_neither_gives_up_its_parents_lock_nor_keeps_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"child\n"
        with pytest.raises(Locked) as caught:
            WriterLock.acquire(tmp_path)
        assert caught.value.pid == parent.pid
        parent.kill()
        os.waitpid(parent.pid, 0)
        WriterLock.acquire(tmp_path).release()  # while the child still lives: it waits for a line
        parent.communicate(b"\n")


def test_a_folder_that_cannot_be_locked_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot lock"):
        WriterLock.acquire(tmp_path / "missing")


def test_a_put_that_meets_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(OsFile, "write", full)
    with pytest.raises(OSError, match="no space"):
        put_file(OsFiles(tmp_path), "file", b"bytes")
    assert OsFiles(tmp_path).list("") == []
