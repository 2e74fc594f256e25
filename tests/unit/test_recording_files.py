"""A recorded disk shows every state that a power cut may leave, and none that it may not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import InvalidArgument
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing.files import (
    Create,
    MakeDir,
    RecordingFiles,
    Remove,
    Rename,
    Sync,
    SyncDir,
    Truncate,
    Write,
)


def states(files: RecordingFiles, upto: int | None = None, limit: int = 400) -> list[dict[str, bytes]]:
    upto = len(files.operations) if upto is None else upto
    return [disk.contents() for disk in files.crash_states(upto, random.Random(7), limit)]


def synced(path: str, data: bytes = b"") -> RecordingFiles:
    return RecordingFiles(MemoryFiles({path: data}))


def test_every_operation_is_recorded_in_order() -> None:
    files = RecordingFiles()
    files.make_dir("d/e")
    file = files.create("d/a")
    file.write(2, bytearray(b"xy"))
    file.truncate(3)
    file.sync()
    files.rename("d/a", "d/b")
    files.open("d/b").write(0, b"z")
    files.remove("d/b")
    files.sync_dir("d")
    assert files.operations == [
        MakeDir("d"),
        MakeDir("d/e"),
        Create("d/a", 0),
        Write(0, 2, b"xy"),
        Truncate(0, 3),
        Sync(0),
        Rename("d/a", "d/b"),
        Write(0, 0, b"z"),
        Remove("d/b"),
        SyncDir("d"),
    ]


def test_what_failed_is_not_recorded() -> None:
    files = RecordingFiles()
    with pytest.raises(FileNotFoundError):
        files.remove("a")
    assert files.operations == []


def test_the_extremes_come_first_whatever_the_limit() -> None:
    files = synced("a", b"old")
    files.open("a").write(0, b"new")
    files.create("b")
    assert states(files, limit=0) == [{"a": b"old"}, {"a": b"new", "b": b""}]


def test_with_nothing_pending_there_is_one_state() -> None:
    files = RecordingFiles()
    file = files.create("a")
    file.write(0, b"x")
    file.sync()
    files.sync_dir("")
    assert states(files) == [{"a": b"x"}]


def test_what_was_synced_is_in_every_state() -> None:
    files = synced("a")
    file = files.open("a")
    file.write(0, b"durable")
    file.sync()
    file.write(7, b" not")
    assert {state["a"][:7] for state in states(files)} == {b"durable"}
    assert {state["a"] for state in states(files)} == {b"durable", b"durable not", b"durable\0\0\0\0"}


def test_a_sync_says_nothing_about_another_file() -> None:
    files = RecordingFiles(MemoryFiles({"a": b"", "b": b""}))
    files.open("a").write(0, b"x")
    files.open("b").sync()
    assert {"a": b"", "b": b""} in states(files)


def test_an_earlier_write_may_be_lost_while_a_later_one_is_there() -> None:
    files = synced("a")
    file = files.open("a")
    file.write(0, b"1111")
    file.write(4, b"2222")
    found = {state["a"] for state in states(files)}
    assert {b"", b"1111", b"\0\0\0\x002222", b"11112222"} <= found


def test_a_write_is_torn_only_at_sectors_and_from_either_side() -> None:
    files = synced("a", b"-" * 1536)
    files.open("a").write(500, b"x" * 600)  # over the sectors that begin at 512 and 1024
    found = {state["a"] for state in states(files)}

    def mixed(start: int, stop: int) -> bytes:
        return b"-" * start + b"x" * (stop - start) + b"-" * (1536 - stop)

    assert found == {
        mixed(0, 0),
        mixed(500, 1100),
        mixed(500, 512),
        mixed(512, 1100),
        mixed(500, 1024),
        mixed(1024, 1100),
    }


def test_a_file_may_have_grown_without_its_data() -> None:
    files = synced("a", b"head")
    files.open("a").write(4, b"tail")
    assert {"a": b"head\0\0\0\0"} in states(files)


def test_a_truncation_happened_or_not() -> None:
    files = synced("a", b"hello")
    files.open("a").truncate(2)
    assert sorted(state["a"] for state in states(files)) == [b"he", b"hello"]


def test_a_file_may_be_missing_although_its_data_was_synced() -> None:
    files = RecordingFiles()
    file = files.create("a")
    file.write(0, b"x")
    file.sync()
    assert states(files) == [{}, {"a": b"x"}]


def test_names_are_lost_from_the_last_step_backwards() -> None:
    files = RecordingFiles()
    for name in "abc":
        files.create(name)
    assert sorted("".join(state) for state in states(files)) == ["", "a", "ab", "abc"]


def test_names_in_two_folders_are_lost_independently() -> None:
    files = RecordingFiles()
    for path in ("d/a", "e/b"):
        files.make_dir(path[0])
        files.create(path)
    assert sorted(" ".join(state) for state in states(files)) == ["", "d/a", "d/a e/b", "e/b"]
    files.sync_dir("e")
    assert sorted(" ".join(state) for state in states(files)) == ["d/a e/b", "e/b"]


def test_an_undone_rename_shows_the_file_that_it_replaced() -> None:
    files = RecordingFiles(MemoryFiles({"current": b"old", "next": b"new"}))
    files.rename("next", "current")
    assert states(files) == [{"current": b"old", "next": b"new"}, {"current": b"new"}]
    files.sync_dir("")
    assert states(files) == [{"current": b"new"}]


def test_a_rename_may_be_durable_before_the_data_it_names() -> None:
    files = RecordingFiles(MemoryFiles({"current": b"old", "next": b""}))
    files.open("next").write(0, b"new")
    files.rename("next", "current")
    assert {"current": b""} in states(files)


def test_an_undone_removal_shows_the_file_again() -> None:
    files = synced("a", b"x")
    files.remove("a")
    assert states(files) == [{"a": b"x"}, {}]


def test_folders_survive_once_made() -> None:
    files = RecordingFiles()
    files.make_dir("d/e")
    [disk] = files.crash_states(2, random.Random(1), 10)
    assert disk.folders() == ("d", "d/e")
    [earlier] = files.crash_states(1, random.Random(1), 10)
    assert earlier.folders() == ("d",)


def test_a_power_cut_can_be_put_anywhere_in_any_order() -> None:
    files = synced("a")
    file = files.open("a")
    for index in range(3):
        file.write(index, b"%d" % index)
        file.sync()
    fullest = {upto: states(files, upto)[-1]["a"] for upto in (6, 0, 3, 4, 2)}
    assert states(files, 6) == [{"a": b"012"}]
    assert states(files, 0) == [{"a": b""}]
    assert (fullest[6], fullest[0], fullest[4], fullest[2]) == (b"012", b"", b"01", b"0")
    assert {state["a"] for state in states(files, 3)} == {b"0", b"01", b"0\0"}


def test_a_number_beyond_the_record_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="upto=1"):
        next(RecordingFiles().crash_states(1, random.Random(1), 10))


def test_a_rename_between_folders_is_refused() -> None:
    files = synced("d/a")
    with pytest.raises(InvalidArgument, match="two folders"):
        files.rename("d/a", "a")


def test_each_state_is_a_disk_of_its_own() -> None:
    files = synced("a", b"old")
    files.open("a").write(0, b"new")
    disks = list(files.crash_states(1, random.Random(1), 10))
    disks[0].open("a").write(0, b"XXX")
    assert [disk.contents()["a"] for disk in disks[1:]].count(b"XXX") == 0
    assert files.open_read("a").read(0, 9) == b"new"


def test_the_same_seed_gives_the_same_states() -> None:
    files = synced("a")
    for index in range(6):
        files.open("a").write(index * 700, b"x" * 700)
    assert states(files, limit=50) == states(files, limit=50)
    assert len(states(files, limit=50)) == 50


def test_marks_tell_what_was_acknowledged_by_then() -> None:
    files = RecordingFiles()
    files.mark("at once")
    file = files.create("a")
    file.sync()
    files.mark(("later", 1))
    assert files.marked(0) == ["at once"]
    assert files.marked(1) == ["at once"]
    assert files.marked(2) == ["at once", ("later", 1)]


def test_a_crash_during_recovery_can_be_recorded_too() -> None:
    first = synced("a", b"1")
    first.open("a").write(1, b"2")
    for disk in first.crash_states(1, random.Random(1), 10):
        before = disk.contents()["a"]
        again = RecordingFiles(disk)
        again.open("a").truncate(1)
        assert {state["a"] for state in states(again)} == {before, b"1"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "truncate", "sync", "rename", "sync_dir"]), st.integers(0, 1200)),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_a_disk_on_which_everything_survived_is_the_disk_as_it_was_used(
    steps: list[tuple[str, int]], seed: int
) -> None:
    files = RecordingFiles()
    name, file = "a0", files.create("a0")
    for count, (step, number) in enumerate(steps, 1):
        match step:
            case "write":
                file.write(number, bytes([count]) * (number // 2))
            case "truncate":
                file.truncate(number)
            case "sync":
                file.sync()
            case "rename":
                files.rename(name, f"a{count}")
                name = f"a{count}"
            case "sync_dir":
                files.sync_dir("")
    used = {name: file.read(0, 10_000)}
    assert used in [disk.contents() for disk in files.crash_states(len(files.operations), random.Random(seed), 0)]
