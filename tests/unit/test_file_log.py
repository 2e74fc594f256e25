"""The command log keeps what it acknowledged, and tells a power cut from damage."""

from __future__ import annotations

import errno
import multiprocessing
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog import limits
from braidlog.errors import BraidError, Corrupt, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.metadata import file_log, frames
from braidlog.metadata.file_log import Cut, FileLog, Recovery
from braidlog.metadata.frames import HEADER_BYTES, Kind
from braidlog.metadata.log_check import check_log
from braidlog.metadata.log_follower import LogFollower, Superseded
from braidlog.metadata.segments import SYNCED
from braidlog.objects.files import File, Files, OsFiles
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing.files import RecordingFiles

FIRST = "log/0000000000000001.log"
THREE = [(1, b"one"), (2, b"two two"), (3, b"")]
ENDS = [HEADER_BYTES]  # where the frames of THREE end
for _, one_payload in THREE:
    ENDS.append(ENDS[-1] + frames.frame_bytes(len(one_payload)))


class Watched:
    """Files that call `before_sync` with each path about to be synced; what it raises is the sync's failure."""

    def __init__(self, inner: Files, before_sync: Callable[[str], None]) -> None:
        self.inner = inner
        self.before_sync = before_sync

    def create(self, path: str) -> File:
        return WatchedFile(self.inner.create(path), path, self)

    def open(self, path: str) -> File:
        return WatchedFile(self.inner.open(path), path, self)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class WatchedFile:
    def __init__(self, inner: File, path: str, files: Watched) -> None:
        self.inner = inner
        self.path = path
        self.files = files

    def sync(self) -> None:
        self.files.before_sync(self.path)
        self.inner.sync()

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def opened(files: Files, after: int = 0) -> tuple[FileLog, Recovery]:
    return FileLog.open(files, after)


def reopened(files: Files, after: int = 0) -> tuple[list[tuple[int, bytes]], Recovery]:
    """What is there after a stop of any kind."""
    taken: list[tuple[int, bytes]] = []
    log, recovery = FileLog.open(files, after, lambda sequence, payload: taken.append((sequence, payload)))
    log.close()
    assert taken == list(recovery.replay()), "it is handed over while it is checked as it is read later"
    return taken, recovery


def log_of_three(*, clean: bool = False) -> dict[str, bytes]:
    """The files of a log with the frames THREE, without the zeros behind them."""
    files = MemoryFiles()
    log, _ = opened(files)
    for _, payload in THREE:
        log.append(payload)
    if clean:
        log.append_end()
    log.close()
    contents = files.contents()
    contents[FIRST] = contents[FIRST][: ENDS[3] + clean * HEADER_BYTES]
    return contents


def without_mark(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in contents.items() if path != SYNCED}


def edit(files: MemoryFiles, path: str, offset: int, data: bytes) -> None:
    files.open(path).write(offset, data)


# Round trips


@pytest.mark.parametrize("disk", ["memory", "real"])
def test_what_was_appended_comes_back_in_order(disk: str, tmp_path: Path) -> None:
    files: Files = MemoryFiles() if disk == "memory" else OsFiles(tmp_path)
    log, recovery = opened(files)
    assert (recovery.clean, recovery.cut, recovery.last_sequence) == (False, None, 0)
    assert list(recovery.replay()) == []
    assert log.append(b"a") == 1
    assert log.append([b"b", b"", memoryview(b"bb")]) == 2
    assert log.last_sequence == 2
    assert log.bytes_since_roll == 2 * frames.frame_bytes(1)
    log.close()
    found, recovery = reopened(files)
    assert found == [(1, b"a"), (2, b"bbb")]
    assert recovery.cut is None


def test_only_an_end_mark_at_the_very_end_makes_a_stop_clean() -> None:
    files = MemoryFiles()
    log, _ = opened(files)
    log.append(b"a")
    assert log.append_end() == 2
    log.close()
    log, recovery = opened(files)
    assert recovery.clean
    assert log.append(b"b") == 3
    log.close()
    found, recovery = reopened(files)
    assert not recovery.clean
    assert found == [(1, b"a"), (3, b"b")]


def test_a_clean_stop_is_known_though_the_log_was_rolled_after_it() -> None:
    files = MemoryFiles()
    log, _ = opened(files)
    log.append_end()
    log.roll()
    log.close()
    assert reopened(files)[1].clean


def test_replay_gives_what_was_there_at_opening_and_only_what_the_snapshot_does_not_cover() -> None:
    files = MemoryFiles(log_of_three())
    log, recovery = opened(files, after=1)
    replay = recovery.replay()
    assert next(replay) == (2, b"two two")
    log.append(b"later")
    assert list(replay) == [(3, b"")]
    assert list(opened(files, after=4)[1].replay()) == []


def test_a_commit_that_is_too_large_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRAME_BYTES_MAX", 8)
    log, _ = opened(MemoryFiles())
    with pytest.raises(InvalidArgument, match="9 bytes: at most 8"):
        log.append([b"12345", b"6789"])
    assert log.append(b"12345678") == 1


def test_a_commit_overwrites_zeros_that_are_already_there() -> None:
    files = MemoryFiles()
    log, _ = opened(files)
    sizes = set()
    for _ in range(10):
        sizes.add(len(files.contents()[FIRST]))
        log.append(bytes(4096))
    assert len(sizes) == 1
    log.append(bytes(3 * limits.LOG_GROWTH_BYTES))
    assert len(files.contents()[FIRST]) >= log.bytes_since_roll + limits.LOG_GROWTH_BYTES
    assert [len(payload) for _, payload in reopened(files)[0]] == [4096] * 10 + [3 * limits.LOG_GROWTH_BYTES]


# Damage and power cuts


def test_no_flipped_bit_is_silent_and_none_that_was_synced_is_forgiven() -> None:
    contents = log_of_three()
    for bit in range(len(contents[FIRST]) * 8):
        damaged = bytearray(contents[FIRST])
        damaged[bit // 8] ^= 1 << bit % 8
        image = {**contents, FIRST: bytes(damaged)}
        with pytest.raises(Corrupt, match=FIRST):
            opened(MemoryFiles(image))
        files = MemoryFiles(without_mark(image))
        if bit // 8 < ENDS[2]:
            with pytest.raises(Corrupt, match=FIRST):
                opened(files)
            assert files.contents() == without_mark(image), "a log that fails its checks is left as it is"
        else:
            found, recovery = reopened(files)
            assert found == THREE[:2]
            assert recovery.cut is not None
            assert (recovery.cut.path, recovery.cut.offset) == (FIRST, ENDS[2])
            assert 0 < recovery.cut.bytes <= HEADER_BYTES
            assert reopened(files)[1].cut is None, "a cut is done once"


def test_a_log_cut_off_at_any_byte_gives_the_whole_frames_before_it_unless_more_was_synced() -> None:
    contents = log_of_three()
    for length in range(len(contents[FIRST])):
        image = {**contents, FIRST: contents[FIRST][:length]}
        with pytest.raises(Corrupt, match=FIRST):
            opened(MemoryFiles(image))
        files = MemoryFiles(without_mark(image))
        if length < HEADER_BYTES:
            with pytest.raises(Corrupt, match="first header"):
                opened(files)
            continue
        whole = sum(end <= length for end in ENDS) - 1
        found, recovery = reopened(files)
        assert found == THREE[:whole]
        assert (recovery.cut is None) == (length in ENDS)
        if recovery.cut is not None:
            assert recovery.cut.offset == ENDS[whole]


def test_a_torn_commit_is_cut_wherever_its_bytes_went_missing_and_its_place_is_used_again() -> None:
    contents = log_of_three()
    frame = frames.encode(Kind.DATA, 4, b"torn" * 300)
    for start, stop in [(0, 16), (0, 32), (16, 64), (40, 50), (600, len(frame))]:
        torn = bytearray(frame)
        torn[start:stop] = bytes(stop - start)
        files = MemoryFiles({**contents, FIRST: contents[FIRST] + torn + bytes(512)})
        log, recovery = opened(files)
        assert recovery.cut == Cut(FIRST, ENDS[3], len(torn.rstrip(b"\0")))
        assert not recovery.clean
        assert log.append(b"next") == 4
        log.close()
        found, recovery = reopened(files)
        assert found == [*THREE, (4, b"next")]
        assert recovery.cut is None


def test_a_torn_commit_behind_an_end_mark_is_cut_and_the_stop_was_not_clean() -> None:
    contents = log_of_three(clean=True)
    files = MemoryFiles({**contents, FIRST: contents[FIRST] + frames.encode(Kind.DATA, 5, b"x" * 40)[:48]})
    found, recovery = reopened(files)
    assert found == THREE
    assert recovery.cut is not None
    assert not recovery.clean


@pytest.mark.parametrize("lost", ["head", "tail"])
def test_a_torn_commit_that_carries_other_frames_is_still_torn(lost: str) -> None:
    contents = log_of_three()
    carried = frames.encode(Kind.DATA, 900, b"of another log") + frames.encode(Kind.DATA, 2, b"a copy of this one")
    if lost == "tail":
        carried += frames.encode(Kind.DATA, 5, b"just what would come next")
    torn = bytearray(frames.encode(Kind.DATA, 4, carried + b"tail"))
    place = slice(0, 32) if lost == "head" else slice(-16, None)
    torn[place] = bytes(len(torn[place]))
    found, recovery = reopened(MemoryFiles({**contents, FIRST: contents[FIRST] + torn}))
    assert found == THREE
    assert recovery.cut is not None


def test_a_bad_frame_followed_by_a_valid_one_is_corrupt_however_far_behind() -> None:
    files = MemoryFiles()
    log, _ = opened(files)
    log.append(b"a")
    log.append(bytes(3 * limits.MIB))
    log.append(b"c")
    log.close()
    files.remove(SYNCED)
    edit(files, FIRST, HEADER_BYTES + frames.frame_bytes(1), bytes(HEADER_BYTES))
    with pytest.raises(Corrupt, match="frame 2 is damaged or incomplete, with frame 3 intact behind it"):
        opened(files)


def test_a_gap_in_the_sequence_is_corrupt() -> None:
    contents = without_mark(log_of_three())
    files = MemoryFiles({FIRST: contents[FIRST] + frames.encode(Kind.DATA, 5, b"five")})
    with pytest.raises(Corrupt, match="frame 5 where frame 4 should be"):
        opened(files)


def test_a_frame_that_does_not_belong_into_a_log_is_corrupt() -> None:
    contents = without_mark(log_of_three())
    files = MemoryFiles({FIRST: contents[FIRST] + frames.encode(Kind.SNAPSHOT, 4, b"state")})
    with pytest.raises(Corrupt, match="a SNAPSHOT frame"):
        opened(files)


def three_segments() -> MemoryFiles:
    files = MemoryFiles()
    log, _ = opened(files)
    for sequence in range(1, 7):
        log.append(b"%d" % sequence)
        if sequence % 2 == 0 and sequence < 6:
            assert log.roll() == sequence + 1
    log.close()
    return files


def path_of(first: int) -> str:
    return f"log/{first:016x}.log"


def test_segments_join_without_a_seam() -> None:
    found, _ = reopened(three_segments())
    assert found == [(sequence, b"%d" % sequence) for sequence in range(1, 7)]


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("lost", [1, 3])
def test_a_missing_segment_is_corrupt(lost: int, mark: bool) -> None:
    files = three_segments()
    files.remove(path_of(lost))
    if not mark:
        files.remove(SYNCED)
    with pytest.raises(Corrupt, match="log"):
        opened(files)


def test_a_missing_last_segment_is_corrupt_as_the_mark_knows_it() -> None:
    files = three_segments()
    files.remove(path_of(5))
    with pytest.raises(Corrupt, match=path_of(5)):
        opened(files)


def test_a_missing_last_segment_is_corrupt_though_it_held_no_frame() -> None:
    files = three_segments()
    log, _ = opened(files)
    log.roll()
    log.close()
    files.remove(path_of(7))
    with pytest.raises(Corrupt, match=path_of(7)):
        opened(files)


def test_a_log_that_vanished_is_corrupt_and_not_begun_anew() -> None:
    files = three_segments()
    for first in (1, 3, 5):
        files.remove(path_of(first))
    with pytest.raises(Corrupt, match="frame 1 is missing"):
        opened(files)
    files.remove(SYNCED)
    with pytest.raises(Corrupt, match="frame 7 is missing"):
        opened(files, after=6)


def test_a_log_shorter_than_its_snapshot_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="ends with frame 3, but the snapshot covers 4"):
        opened(MemoryFiles(log_of_three()), after=4)


def test_damage_at_the_end_of_a_segment_that_has_a_successor_is_corrupt() -> None:
    files = three_segments()
    files.remove(SYNCED)
    edit(files, path_of(3), HEADER_BYTES + frames.frame_bytes(1) + 8, b"\xff")
    with pytest.raises(Corrupt, match=path_of(3)):
        opened(files)


def test_a_renamed_segment_is_corrupt() -> None:
    files = MemoryFiles(without_mark(log_of_three()))
    files.rename(FIRST, path_of(2))
    with pytest.raises(Corrupt, match="renamed"):
        opened(files, after=1)


def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "_ZEROS", bytes(1024))
    monkeypatch.setattr(limits, "LOG_GROWTH_BYTES", 1024)
    recording = RecordingFiles()
    payloads = [b"%d" % sequence * (sequence * 331 % 1500) for sequence in range(1, 13)]
    log, _ = opened(recording)
    for sequence, payload in enumerate(payloads, 1):
        log.append(payload)
        recording.mark(sequence)
        if sequence % 5 == 0:
            log.roll()
    rng = random.Random(1)
    cuts = 0
    for upto in range(len(recording.operations) + 1):
        acknowledged = len(recording.marked(upto))
        for state in recording.crash_states(upto, rng, 12):
            seen = LogFollower(state, 0).poll()
            found, recovery = reopened(state)
            assert found[:acknowledged] == list(enumerate(payloads, 1))[:acknowledged]
            assert len(found) <= acknowledged + 1
            assert seen == found[: len(seen)], "what a reader saw is there to stay"
            assert reopened(state) == (found, replace(recovery, cut=None))
            cuts += recovery.cut is not None
    assert cuts > 10, "the states include torn commits"


def test_an_unreadable_mark_says_nothing() -> None:
    contents = log_of_three()
    for mark in (b"", b"x" * 32, contents[SYNCED][:31], bytes(32)):
        assert reopened(MemoryFiles({**contents, SYNCED: mark}))[0] == THREE


def test_a_mark_that_lags_behind_is_no_harm() -> None:
    files = MemoryFiles()
    log, _ = opened(files)
    log.append(b"one")
    old = files.contents()[SYNCED]
    log.append(b"two")
    edit(files, SYNCED, 0, old)
    assert [sequence for sequence, _ in reopened(files)[0]] == [1, 2]


def test_an_unfinished_segment_is_swept() -> None:
    contents = log_of_three()
    files = MemoryFiles({**contents, path_of(4) + ".tmp": b"half"})
    assert reopened(files)[0] == THREE
    assert not files.exists(path_of(4) + ".tmp")


def test_opening_syncs_before_it_trusts_and_writes_again_what_no_mark_covers() -> None:
    files = MemoryFiles(without_mark(log_of_three()))
    synced: list[str] = []
    reopened(Watched(files, synced.append))  # type: ignore[arg-type]
    assert synced == [FIRST, FIRST]
    synced.clear()
    reopened(Watched(files, synced.append))  # type: ignore[arg-type]
    assert synced == [FIRST], "the mark covers the last frame now"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_garbage_in_the_files_of_a_log_never_raises_anything_but_our_errors(data: st.DataObject) -> None:
    contents = dict(log_of_three(clean=data.draw(st.booleans())))
    for path in data.draw(st.sets(st.sampled_from([FIRST, SYNCED, path_of(4), path_of(2**64 - 1)]))):
        old = contents.get(path, b"")
        start = data.draw(st.integers(0, len(old)))
        contents[path] = old[:start] + data.draw(st.binary(max_size=80)) + old[start + data.draw(st.integers(0, 80)) :]
    after = data.draw(st.integers(0, 5))
    try:
        LogFollower(MemoryFiles(contents), after).poll()
    except (BraidError, Superseded):
        pass
    check_log(MemoryFiles(contents), after)
    try:
        found, recovery = reopened(MemoryFiles(contents), after)
    except BraidError:
        return
    assert found == [frame for frame in THREE if after < frame[0] <= recovery.last_sequence]


# Rolling and dropping


def test_dropping_removes_whole_segments_only_and_never_the_current_one() -> None:
    files = three_segments()
    log, _ = opened(files)
    log.drop_through(3)
    assert [files.exists(path_of(first)) for first in (1, 3, 5)] == [False, True, True]
    log.drop_through(100)
    assert [files.exists(path_of(first)) for first in (1, 3, 5)] == [False, False, True]
    assert log.append(b"7") == 7
    log.close()
    assert reopened(files, after=4)[0] == [(5, b"5"), (6, b"6"), (7, b"7")]


def test_left_overs_of_an_interrupted_checkpoint_do_not_matter_and_can_be_dropped() -> None:
    files = three_segments()
    files.remove(path_of(3))
    edit(files, path_of(1), 0, b"damage")
    log, recovery = opened(files, after=4)
    assert [sequence for sequence, _ in recovery.replay()] == [5, 6]
    log.drop_through(4)
    assert not files.exists(path_of(1))


def test_rolling_an_empty_segment_keeps_it() -> None:
    files = three_segments()
    log, _ = opened(files)
    assert log.roll() == 7
    assert log.bytes_since_roll == 0
    assert log.roll() == 7
    assert log.append(b"7") == 7


# Failures


def fail_syncs_of(path: str, failing: list[bool]) -> Callable[[str], None]:
    def before_sync(synced: str) -> None:
        if failing[0] and synced == path:
            raise OSError(errno.EIO, "the disk is on fire")

    return before_sync


def test_a_failed_sync_leaves_the_outcome_unknown_and_ends_the_log() -> None:
    failing = [False]
    memory = MemoryFiles()
    log, _ = opened(Watched(memory, fail_syncs_of(FIRST, failing)))  # type: ignore[arg-type]
    log.append(b"a")
    failing[0] = True
    with pytest.raises(OutcomeUnknown, match="disk is on fire"):
        log.append(b"b")
    failing[0] = False
    for refused in (lambda: log.append(b"c"), log.append_end, log.roll):
        with pytest.raises(Unavailable, match="frame 2 could not be stored"):
            refused()
    assert log.last_sequence == 1
    log.close()
    assert reopened(memory)[0] in ([(1, b"a")], [(1, b"a"), (2, b"b")])


def test_an_interrupted_commit_ends_the_log_too() -> None:
    def interrupt(_: str) -> None:
        if interrupting:
            raise KeyboardInterrupt

    interrupting = False
    log, _ = opened(Watched(MemoryFiles(), interrupt))  # type: ignore[arg-type]
    interrupting = True
    with pytest.raises(KeyboardInterrupt):
        log.append(b"a")
    with pytest.raises(Unavailable):
        log.append(b"b")


def test_a_failed_roll_ends_the_log_and_loses_nothing() -> None:
    memory = MemoryFiles()
    log, _ = opened(Watched(memory, fail_syncs_of(path_of(2) + ".tmp", [True])))  # type: ignore[arg-type]
    log.append(b"a")
    with pytest.raises(Unavailable, match="cannot begin"):
        log.roll()
    with pytest.raises(Unavailable):
        log.append(b"b")
    assert reopened(memory)[0] == [(1, b"a")]


def test_a_full_disk_is_met_before_any_of_the_frame_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryFiles()
    log, _ = opened(memory)
    log.append(b"a")

    def no_space(_offset: int, data: bytes) -> None:
        assert not any(data), "only zeros were tried"
        raise OSError(errno.ENOSPC, "no space left")

    file = log._file
    monkeypatch.setattr(log, "_file", WatchedFile(file, FIRST, Watched(memory, lambda _: None)))
    monkeypatch.setattr(log._file, "write", no_space, raising=False)
    with pytest.raises(Unavailable, match="cannot extend"):
        log.append(b"b" * 2 * limits.LOG_GROWTH_BYTES)
    found, recovery = reopened(memory)
    assert found == [(1, b"a")]
    assert recovery.cut is None


def test_a_closed_log_says_so() -> None:
    log, _ = opened(MemoryFiles())
    log.close()
    log.close()
    with pytest.raises(Unavailable, match="closed"):
        log.append(b"a")


# Following


def test_a_follower_sees_each_commit_once_and_in_order() -> None:
    files = MemoryFiles()
    follower = LogFollower(files, 0)
    assert follower.poll() == []
    log, _ = opened(files)
    assert follower.poll() == []
    log.append(b"a")
    log.append(b"b")
    assert follower.poll() == [(1, b"a"), (2, b"b")]
    assert follower.poll() == []
    log.append_end()
    log.append(b"d")
    assert follower.poll() == [(4, b"d")]
    assert LogFollower(files, 2).poll() == [(4, b"d")]
    follower.close()


def test_a_follower_never_sees_a_frame_before_it_is_synced() -> None:
    memory = MemoryFiles()
    follower = LogFollower(memory, 0)
    seen: list[int] = []
    polled: list[tuple[int, int]] = []  # at each sync about to happen: the last synced frame, the last one seen

    def before_sync(_: str) -> None:
        if syncing:
            seen.extend(sequence for sequence, _ in follower.poll())
            assert seen == [sequence for sequence, _ in LogFollower(memory, 0).poll()]
            polled.append((log.last_sequence, len(seen)))

    syncing = False
    log, _ = opened(Watched(memory, before_sync))  # type: ignore[arg-type]
    syncing = True
    for sequence in range(1, 6):
        log.append(b"x" * sequence)
        if sequence == 3:
            log.roll()
    assert polled == [(0, 0), (1, 1), (2, 2), (3, 3), (3, 3), (4, 4)]


def test_a_frame_whose_sync_failed_is_seen_only_after_a_writer_made_sure_of_it() -> None:
    failing = [False]
    memory = MemoryFiles()
    log, _ = opened(Watched(memory, fail_syncs_of(FIRST, failing)))  # type: ignore[arg-type]
    follower = LogFollower(memory, 0)
    failing[0] = True
    with pytest.raises(OutcomeUnknown):
        log.append(b"a")
    assert follower.poll() == []
    log, _ = opened(memory)
    assert follower.poll() == [(1, b"a")]


def test_without_a_mark_a_frame_counts_once_the_next_header_or_segment_is_there() -> None:
    contents = without_mark(log_of_three())
    files = MemoryFiles(contents)
    follower = LogFollower(files, 0)
    assert follower.poll() == THREE[:2]
    files.create(path_of(4)).write(0, frames.encode(Kind.SEGMENT, 4, b""))
    assert follower.poll() == THREE[2:]
    assert follower.poll() == []


def test_a_half_written_frame_is_not_there_yet_and_then_it_is() -> None:
    contents = log_of_three()
    files = MemoryFiles(contents)
    follower = LogFollower(files, 0)
    assert follower.poll() == THREE
    frame = frames.encode(Kind.DATA, 4, b"four" * 10)
    for length in range(len(frame) + 1):
        edit(files, FIRST, ENDS[3], frame[:length])
        assert follower.poll() == []
    edit(files, FIRST, ENDS[3] + len(frame), frames.encode(Kind.DATA, 5, b"five"))
    assert follower.poll() == [(4, b"four" * 10)]


def test_a_follower_goes_on_over_rolls_and_finishes_a_segment_that_was_dropped() -> None:
    files = three_segments()
    follower = LogFollower(files, 0)
    log, _ = opened(files)
    assert [sequence for sequence, _ in follower.poll()] == [1, 2, 3, 4, 5, 6]
    log.append(b"7")
    log.roll()
    log.append(b"8")
    log.drop_through(4)
    assert follower.poll() == [(7, b"7"), (8, b"8")]
    log.append(b"9")
    log.roll()
    log.drop_through(9)
    assert follower.poll() == [(9, b"9")], "its file stays readable though the name is gone"
    log.append(b"10")
    assert follower.poll() == [(10, b"10")]


def test_a_follower_looks_again_at_a_segment_that_was_finished_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    files = three_segments()
    log, _ = opened(files)
    follower = LogFollower(files, 6)
    assert follower.poll() == []
    listing = files.list

    def after_a_commit_and_a_roll(path: str) -> list[str]:
        monkeypatch.setattr(files, "list", listing)
        log.append(b"7")
        log.roll()
        return listing(path)

    monkeypatch.setattr(files, "list", after_a_commit_and_a_roll)
    assert follower.poll() == [(7, b"7")]


def test_a_follower_that_was_overtaken_is_told_so_and_keeps_what_it_could_get() -> None:
    files = three_segments()
    follower = LogFollower(files, 0)
    edit(files, SYNCED, 0, bytes(32))
    assert [sequence for sequence, _ in follower.poll()] == [1, 2, 3, 4, 5]
    log, _ = opened(files)
    log.roll()
    log.append(b"7")
    log.roll()
    log.append(b"8")
    log.drop_through(7)
    assert follower.poll() == [(6, b"6")]
    for _ in range(2):
        with pytest.raises(Superseded):
            follower.poll()
    with pytest.raises(Superseded):
        LogFollower(files, 3).poll()
    assert LogFollower(files, 7).poll() == [(8, b"8")]


def test_a_follower_behind_a_missing_segment_meets_corruption() -> None:
    files = three_segments()
    files.remove(path_of(3))
    follower = LogFollower(files, 0)
    assert [sequence for sequence, _ in follower.poll()] == [1, 2]
    with pytest.raises(Corrupt, match=f"ends before frame 3, and {path_of(3)} is gone"):
        follower.poll()


def test_a_follower_finds_every_flipped_bit_that_the_mark_covers() -> None:
    contents = log_of_three()
    for bit in range(len(contents[FIRST]) * 8):
        damaged = bytearray(contents[FIRST])
        damaged[bit // 8] ^= 1 << bit % 8
        follower = LogFollower(MemoryFiles({**contents, FIRST: bytes(damaged)}), 0)
        good = max(0, sum(end <= bit // 8 for end in ENDS) - 1)
        if good:
            assert follower.poll() == THREE[:good]
        with pytest.raises(Corrupt, match=FIRST):
            follower.poll()


def test_a_follower_finds_lost_frames_that_the_mark_covers() -> None:
    contents = log_of_three()
    files = MemoryFiles({**contents, FIRST: contents[FIRST][: ENDS[1]]})
    follower = LogFollower(files, 0)
    assert follower.poll() == THREE[:1]
    with pytest.raises(Corrupt, match="frame 2 was synced"):
        follower.poll()


def test_following_changes_nothing() -> None:
    files = three_segments()
    edit(files, path_of(5), HEADER_BYTES + 2 * frames.frame_bytes(1), b"torn")
    before = files.contents()
    follower = LogFollower(files, 0)
    follower.poll()
    check_log(files, 0)
    assert files.contents() == before


def write_much(root: Path, count: int) -> None:
    log, _ = opened(OsFiles(root))
    for sequence in range(log.last_sequence + 1, count + 1):
        log.append(b"%d" % sequence * 50)
        if sequence % 20 == 0:
            log.roll()
            log.drop_through(sequence - 60)


def test_a_follower_in_another_process_keeps_up_with_a_writer(tmp_path: Path) -> None:
    count = 300
    writer = multiprocessing.get_context("spawn").Process(target=write_much, args=(tmp_path, count))
    writer.start()
    last = 0
    follower = LogFollower(OsFiles(tmp_path), 0)
    finished = False
    while last < count:
        assert not finished, f"the writer is done, and the follower still at {last}"
        finished = not writer.is_alive()
        try:
            for sequence, payload in follower.poll():
                assert sequence == last + 1
                assert payload == b"%d" % sequence * 50
                last = sequence
        except Superseded:
            follower.close()
            last = max(last, last // 20 * 20 + 20)  # where some snapshot would be
            follower = LogFollower(OsFiles(tmp_path), last)
    writer.join()
    assert writer.exitcode == 0


# Checking


def test_a_check_of_a_sound_log_counts_and_finds_nothing() -> None:
    checked = check_log(three_segments(), 0)
    assert (checked.segments, checked.frames, checked.last_sequence) == (3, 6, 6)
    assert (checked.bytes, checked.clean, checked.findings) == (6 * frames.frame_bytes(1), False, ())
    assert check_log(three_segments(), 4).frames == 2
    assert check_log(MemoryFiles(log_of_three(clean=True)), 0).clean
    assert check_log(MemoryFiles(), 0).findings == ()


def test_a_check_goes_on_past_damage_and_names_each_place() -> None:
    files = three_segments()
    edit(files, path_of(1), HEADER_BYTES, b"damage")
    edit(files, path_of(3), HEADER_BYTES + frames.frame_bytes(1) + HEADER_BYTES, b"damage")
    checked = check_log(files, 0)
    assert [(finding.path, finding.offset, finding.torn) for finding in checked.findings] == [
        (path_of(1), HEADER_BYTES, False),
        (path_of(3), HEADER_BYTES + frames.frame_bytes(1), False),
        (path_of(5), 0, False),
    ]
    assert checked.frames == 4
    assert checked.last_sequence == 6


def test_a_check_tells_a_torn_commit_from_one_that_was_synced() -> None:
    contents = log_of_three()
    torn = {**contents, FIRST: contents[FIRST] + b"torn"}
    (finding,) = check_log(MemoryFiles(torn), 0).findings
    assert finding.torn
    lost = {**contents, FIRST: contents[FIRST][:-1]}
    findings = check_log(MemoryFiles(lost), 0).findings
    assert findings
    assert not any(finding.torn for finding in findings)


def test_a_check_finds_what_is_missing() -> None:
    files = three_segments()
    files.remove(path_of(1))
    assert "frame 1 is missing" in check_log(files, 0).findings[0].message
    contents = log_of_three()
    shorter = MemoryFiles({**contents, FIRST: contents[FIRST][: ENDS[2]]})
    (finding,) = check_log(shorter, 0).findings
    assert "synced through frame 3" in finding.message
