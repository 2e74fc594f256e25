"""A snapshot is there whole or not at all, and damage to the newest is never papered over with an older one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import BraidError, Corrupt, InvalidArgument, Unavailable
from braidlog.metadata import frames, snapshots
from braidlog.objects.files import Files, OsFiles
from braidlog.objects.memory_files import MemoryFiles

SEVEN = "snapshots/0000000000000007.snap"


@pytest.mark.parametrize("disk", ["memory", "real"])
def test_the_newest_snapshot_comes_back(disk: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if disk == "memory" else OsFiles(tmp_path)
    assert snapshots.latest(files) is None
    snapshots.write(files, 2, b"two")
    snapshots.write(files, 0x10, [b"six", b"teen"])
    snapshots.write(files, 9, b"")
    assert snapshots.latest(files) == (0x10, b"sixteen")


def test_writing_the_same_sequence_again_replaces_it() -> None:
    files = MemoryFiles()
    snapshots.write(files, 7, b"first")
    snapshots.write(files, 7, b"second")
    assert snapshots.latest(files) == (7, b"second")


def test_dropping_keeps_the_named_one_and_what_is_newer() -> None:
    files = MemoryFiles()
    for sequence in (1, 5, 7, 8):
        snapshots.write(files, sequence, b"")
    snapshots.drop_before(files, 7)
    assert files.list("snapshots") == ["0000000000000007.snap", "0000000000000008.snap"]


def test_damage_to_the_newest_is_corrupt_and_names_it() -> None:
    files = MemoryFiles()
    snapshots.write(files, 3, b"older")
    snapshots.write(files, 7, b"state")
    contents = files.contents()
    for bit in range(len(contents[SEVEN]) * 8):
        damaged = bytearray(contents[SEVEN])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match=SEVEN):
            snapshots.latest(MemoryFiles({**contents, SEVEN: bytes(damaged)}))
    for length in range(len(contents[SEVEN])):
        with pytest.raises(Corrupt, match=SEVEN):
            snapshots.latest(MemoryFiles({**contents, SEVEN: contents[SEVEN][:length]}))
    with pytest.raises(Corrupt, match=SEVEN):
        snapshots.latest(MemoryFiles({**contents, SEVEN: contents[SEVEN] + b"\0"}))


def test_a_renamed_snapshot_is_corrupt() -> None:
    files = MemoryFiles()
    snapshots.write(files, 3, b"state")
    files.rename("snapshots/0000000000000003.snap", SEVEN)
    with pytest.raises(Corrupt, match="renamed"):
        snapshots.latest(files)


def test_an_unfinished_snapshot_does_not_count_and_is_swept() -> None:
    files = MemoryFiles({SEVEN + ".tmp": b"half"})
    assert snapshots.latest(files) is None
    snapshots.write(files, 7, b"state")
    assert snapshots.latest(files) == (7, b"state")
    files.create("snapshots/0000000000000009.snap.tmp")
    snapshots.sweep_unfinished(files)
    assert files.list("snapshots") == ["0000000000000007.snap"]


def test_a_snapshot_is_named_only_after_it_was_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    steps: list[str] = []

    class Recorded:
        def __init__(self, path: str) -> None:
            self.inner = MemoryFiles.create(files, path)

        def sync(self) -> None:
            steps.append("sync")
            self.inner.sync()

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    def rename(old: str, new: str) -> None:
        steps.append("rename")
        MemoryFiles.rename(files, old, new)

    monkeypatch.setattr(files, "create", Recorded)
    monkeypatch.setattr(files, "rename", rename)
    monkeypatch.setattr(files, "sync_dir", lambda path: steps.append(f"sync_dir {path}"))
    snapshots.write(files, 7, b"state")
    assert steps == ["sync", "rename", "sync_dir snapshots"]


def test_a_reader_whose_find_was_just_dropped_takes_the_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    snapshots.write(files, 3, b"old")
    open_read = files.open_read

    def replaced_meanwhile(path: str) -> object:
        monkeypatch.setattr(files, "open_read", open_read)
        snapshots.write(files, 7, b"new")
        snapshots.drop_before(files, 7)
        return open_read(path)

    monkeypatch.setattr(files, "open_read", replaced_meanwhile)
    assert snapshots.latest(files) == (7, b"new")


def test_a_snapshot_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PAYLOAD_BYTES_MAX", 4)
    with pytest.raises(InvalidArgument, match="a snapshot of 5 bytes cannot be stored"):
        snapshots.write(MemoryFiles(), 1, b"12345")


def test_a_disk_that_fails_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot write the snapshot at 1"):
        snapshots.write(OsFiles(tmp_path), 1, b"")


@given(st.binary(max_size=100))
def test_garbage_raises_nothing_but_our_errors(garbage: bytes) -> None:
    with pytest.raises(BraidError):
        snapshots.latest(MemoryFiles({SEVEN: garbage}))
