"""Whatever stands in a directory and whatever a caller passes: only errors of ours come out, and nothing hangs.

Checksums guard against damage, not against forgery. Still, commands that carry valid checksums pass the forest's door
like any others, and a snapshot that makes no sense is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import braidlog
from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.embedded.follower import DirectorySource, Follower
from braidlog.embedded.replica import Replica
from braidlog.embedded.writer import Snapshot, load_snapshot
from braidlog.errors import BraidError, Corrupt, InvalidArgument, Trimmed
from braidlog.facts import UploadedBlock, UploadedObject
from braidlog.forest import commands as c
from braidlog.metadata import frames, snapshots
from braidlog.metadata.file_log import FileLog
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import VirtualClock
from tests.faults.ledger import Ledger, Step
from tests.faults.workload import Quiet, Workload, open_quietly

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def sound() -> MemoryFiles:
    """A directory with a bit of everything."""
    disk = MemoryFiles()
    place = Quiet(disk, VirtualClock())
    workload = Workload(Random(11), Ledger(), lambda _: None)
    workload.run(place, 40)
    workload.take(place, Step(verb="pack"))
    workload.take(place, Step(verb="checkpoint"))
    workload.run(place, 10)
    contents = disk.contents()
    place.braid.close()
    # Most of a log is zeros written ahead: without them it means the same, and is examined faster.
    for path in contents:
        if path.endswith(".log"):
            contents[path] = contents[path].rstrip(b"\0") + bytes(64)
    return MemoryFiles(contents, disk.folders())


def copy_of(disk: MemoryFiles, **changes: bytes) -> MemoryFiles:
    return MemoryFiles({**disk.contents(), **changes}, disk.folders())


def open_and_read(disk: MemoryFiles) -> str:
    """Open it read-only and for writing, and read everything. Answers which error of ours came out, if one did."""
    outcome = ""
    openers: list[Callable[[], Replica]] = [
        lambda: Follower(DirectorySource(disk, None)),
        lambda: open_quietly(disk, VirtualClock())[0],
    ]
    for opener in openers:
        try:
            replica = opener()
        except BraidError as error:
            outcome = type(error).__name__
            continue
        try:
            read_all(Braid(replica, "", read_only=False))
        except BraidError as error:
            outcome = type(error).__name__
        finally:
            replica.close()
    return outcome


def read_all(braid: Braid) -> None:
    for log in braid.logs():
        try:
            log.read(0, max_records=1000)
            start = 0
        except Trimmed as error:
            start = error.start
        log.read(start, max_records=1000)
        log.read(start, max_bytes=1000)
        list(log.subscribe(start, follow=False))
        log.lineage()


# What stands in a directory


@QUICK
@given(data=st.data())
def test_files_with_any_bytes_in_them(data: st.DataObject, sound: MemoryFiles) -> None:
    contents = sound.contents()
    path = data.draw(st.sampled_from(sorted(contents)))
    old = contents[path]
    kind = data.draw(st.sampled_from(["replace", "cut", "insert", "zero", "swap"]))
    if kind == "replace":
        new = data.draw(st.binary(max_size=200))
    elif kind == "swap":
        new = contents[data.draw(st.sampled_from(sorted(contents)))]
    else:
        at = data.draw(st.integers(0, len(old)))
        new = {
            "cut": old[:at],
            "insert": old[:at] + data.draw(st.binary(min_size=1, max_size=40)) + old[at:],
            "zero": old[:at] + bytes(min(64, len(old) - at)) + old[at + 64 :],
        }[kind]
    open_and_read(copy_of(sound, **{path: new}))


@QUICK
@given(lost=st.sets(st.integers(0, 30)))
def test_files_that_are_missing(lost: set[int], sound: MemoryFiles) -> None:
    contents = sound.contents()
    kept = {path: data for number, (path, data) in enumerate(contents.items()) if number not in lost}
    open_and_read(MemoryFiles(kept, sound.folders()))


FOLDERS = ["", "log/", "objects/", "snapshots/"]
NAMES = st.one_of(
    st.sampled_from(
        [
            "0000000000000001.log",
            "ffffffffffffffff.log",
            "0000000000000000.log",
            "ffffffffffffffff.snap",
            "0000000000000000.snap",
            "00000001-00000001.arrow",
            "ffffffff-ffffffff.arrow",
            ".tmp-00000001-00000001.arrow",
            "SYNCED",
            "FORMAT.tmp",
            "stranger",
        ]
    ),
    st.text("abcdef0123456789.-", min_size=1, max_size=20).filter(lambda name: name not in (".", "..")),
)


@QUICK
@given(strangers=st.dictionaries(st.tuples(st.sampled_from(FOLDERS), NAMES), st.binary(max_size=100), max_size=4))
def test_files_that_nobody_put_there(strangers: dict[tuple[str, str], bytes], sound: MemoryFiles) -> None:
    open_and_read(copy_of(sound, **{folder + name: data for (folder, name), data in strangers.items()}))


@QUICK
@given(text=st.one_of(st.binary(max_size=300), st.from_regex(rb"braidlog \d{1,12}\n[0-9a-f]{0,40}\n?", fullmatch=True)))
def test_any_format_file(text: bytes, sound: MemoryFiles) -> None:
    outcome = open_and_read(copy_of(sound, FORMAT=text))
    sound_text = text.startswith((b"braidlog 1\n", b"braidlog 2\n", b"braidlog 3\n")) and len(text) == 44
    assert outcome in ("Corrupt", "InvalidArgument") or sound_text


@pytest.mark.parametrize("name", ["FORMAT", "LOCK", "log", "objects", "snapshots", "log/SYNCED"])
@pytest.mark.parametrize("instead", ["a file", "a folder", "a link to nowhere", "a link to itself"])
def test_something_else_under_a_name_that_matters(name: str, instead: str, tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        braid.create("log").append_many([b"x", bytes(limits.INLINE_BYTES_MAX)])
    path = tmp_path / name
    path.rename(tmp_path.parent / f"{tmp_path.name}-{path.name}")
    if instead == "a file":
        path.write_bytes(b"nonsense")
    elif instead == "a folder":
        path.mkdir()
    else:
        path.symlink_to(path if instead.endswith("itself") else tmp_path / "nowhere" / "at-all")
    for read_only in (True, False):
        try:
            with braidlog.open(tmp_path, read_only=read_only) as braid:
                read_all(braid)
        except BraidError:
            continue


def test_a_directory_that_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        braid.create("log").append(b"x")
    (segment,) = (tmp_path / "log").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[40] ^= 1
    segment.write_bytes(damaged)
    before = sorted(os.listdir("/proc/self/fd"))
    for read_only in (True, False):
        with pytest.raises(Corrupt):
            braidlog.open(tmp_path, read_only=read_only)
        assert sorted(os.listdir("/proc/self/fd")) == before


# Frames and snapshots whose checksums are right


NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63)]))
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "eager", "00000001-00000001.arrow"]), st.text(max_size=5))
RANGES = st.integers(0, 12)
BLOCKS = st.builds(
    c.PackedBlock,
    NUMBERS,
    RANGES,
    RANGES,
    NUMBERS,
    st.lists(st.integers(0, 6), max_size=3),
    st.lists(NUMBERS, max_size=3),
)
UPLOADED = st.builds(
    UploadedObject,
    TEXTS,
    RANGES,
    NUMBERS,
    st.lists(st.builds(UploadedBlock, RANGES, RANGES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=2),
)
MOVES = st.builds(c.Move, NUMBERS, RANGES, RANGES, NUMBERS, NUMBERS)
PAYLOADS = st.sampled_from([b"", b"r" * 16, b"\x91\x91\xc4\x01x", b"\x94\x91\xc4\x01x\xc0\xc0\x00"])
FIELDS: dict[object, st.SearchStrategy[object]] = {
    int: NUMBERS,
    str: TEXTS,
    bool: st.booleans(),
    bytes: PAYLOADS,
    memoryview: PAYLOADS,
    dict[str, str]: st.dictionaries(TEXTS, TEXTS, max_size=2),
    list[str]: st.lists(TEXTS, max_size=2),
    list[c.PackedBlock]: st.lists(BLOCKS, max_size=2),
    list[c.Move]: st.lists(MOVES, max_size=2),
    list[UploadedObject]: st.lists(UPLOADED, max_size=2),
    list[int]: st.lists(st.integers(0, 4), max_size=2),
}


SMALL = {"now", "ttl_us", "lease_us", "offset", "length"}  # there is no calendar and no memory for what lies beyond


def commands_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[object]:
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, *(RANGES if field.name in SMALL else FIELDS[field.type] for field in fields))


KINDS = list(c.Command.__args__)
FIELDS[c.Command] = st.deferred(lambda: st.one_of(*map(commands_of, KINDS)))  # inside of a repetition
BEGINNING = [
    c.Create("a", 0),
    c.Create("b", 0),
    c.Append(1, 1, 1, 0, 0, payload=b"\x91\x91\xc4\x01x"),
    c.Register("00000001-00000001.arrow", 1, 10, 0, 0),
    c.Append(1, 1, 1, 0, 0, payload=b"\x91\x91\xc4\x01y"),
    c.Upload(1, 0, 10),
]


@settings(QUICK, max_examples=250)
@given(st.lists(st.one_of(*map(commands_of, KINDS)), max_size=8))
def test_commands_that_no_writer_would_give(commands: list[c.Command]) -> None:
    """Each is carried out as a whole or refused by the forest; what cannot be carried out at all is Corrupt."""
    disk = MemoryFiles()
    _, braid = open_quietly(disk, VirtualClock())
    braid.close()
    log, _ = FileLog.open(disk, load_snapshot(snapshots.latest(disk))[0])
    try:
        payload = msgspec.msgpack.encode([*BEGINNING, *commands])
    except OverflowError:
        return
    log.append(payload)
    log.close()
    open_and_read(disk)


@QUICK
@given(payload=st.binary(max_size=200))
def test_frames_of_any_bytes(payload: bytes, sound: MemoryFiles) -> None:
    disk = copy_of(sound)
    log, _ = FileLog.open(disk, load_snapshot(snapshots.latest(disk))[0])
    log.append(payload)
    log.close()
    assert open_and_read(disk) in ("", "Corrupt")


@settings(QUICK, max_examples=400)
@given(data=st.data())
def test_snapshots_that_make_no_sense(data: st.DataObject, sound: MemoryFiles) -> None:
    """Loading one gives a forest or Corrupt. What a forged one shows is the forger's affair."""
    (name,) = sound.list("snapshots")
    sequence, _, _ = load_snapshot(snapshots.latest(sound))
    found = snapshots.latest(sound)
    assert found is not None
    snapshot = msgspec.msgpack.decode(found[1], type=Snapshot)
    forest = bytearray(snapshot.forest)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(forest) - 1))
        if data.draw(st.booleans()):
            forest[at] = data.draw(st.integers(0, 255))
        else:
            del forest[at : at + data.draw(st.integers(1, 20))]
    payload = msgspec.msgpack.encode(Snapshot(bytes(forest), snapshot.payloads))
    disk = copy_of(sound, **{f"snapshots/{name}": frames.encode(frames.Kind.SNAPSHOT, sequence, payload)})
    try:
        load_snapshot(snapshots.latest(disk))
    except Corrupt:
        return


# What a caller passes


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(["\ud800", "\udc80"]),  # what cannot be encoded
    st.binary(max_size=10),
    st.datetimes(),
    st.timedeltas(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.binary(max_size=3), st.integers()), max_size=3),
    st.builds(object),
)
WAITS = ANYTHING.filter(lambda value: not _is_long(value))


def _is_long(value: object) -> bool:
    """A patience that a test has not got."""
    if isinstance(value, timedelta):
        return value.total_seconds() > 0
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value) and value > 0


@QUICK
@given(st.one_of(ANYTHING, st.text(), st.text(alphabet="../\\\0\n%ä-_a", max_size=8)))
def test_names_are_taken_or_refused(name: object) -> None:
    with braidlog.open("memory://") as braid:
        root = braid.create("root")
        for attempt in (braid.create, braid.log, root.cfork, root.sfork, braid.drop):
            try:
                attempt(name)  # type: ignore[arg-type]
            except BraidError:
                continue
        assert len({log.name for log in braid.logs()}) == len(list(braid.logs()))


@QUICK
@given(
    value=ANYTHING,
    options=st.fixed_dictionaries(
        {},
        optional={
            "key": ANYTHING,
            "headers": ANYTHING,
            "timestamp": ANYTHING,
            "ack": ANYTHING,
            "expected_tail": ANYTHING,
            "writer": ANYTHING,
            "sequence": ANYTHING,
            "wait": WAITS,
        },
    ),
)
def test_appends_are_taken_as_they_are_or_refused(value: object, options: dict[str, object]) -> None:
    with braidlog.open("memory://") as braid:
        log = braid.create("log")
        try:
            log.append(value, **options)  # type: ignore[arg-type]
        except BraidError:
            assert log.tail() == 0
        else:
            assert log[0].value == value
        many = {name: given for name, given in options.items() if name not in ("key", "headers")}
        for batch in (value, [value], [braidlog.Record(value)]):  # type: ignore[arg-type]
            before = log.tail()
            try:
                log.append_many(batch, **many)  # type: ignore[arg-type]
            except BraidError:
                assert log.tail() == before


@QUICK
@given(ANYTHING, ANYTHING, ANYTHING)
def test_reads_answer_or_refuse(first: object, second: object, third: object) -> None:
    with braidlog.open("memory://") as braid:
        log = braid.create("log")
        log.append_many([b"a", b"b"])
        fork = log.cfork("fork")
        for attempt in (
            lambda: log.read(first, second, max_records=third),  # type: ignore[arg-type]
            lambda: log.read(first, max_bytes=second),  # type: ignore[arg-type]
            lambda: log.read_arrow(first, second),  # type: ignore[arg-type]
            lambda: log[first],  # type: ignore[call-overload]
            lambda: log[first:second:third],  # type: ignore[misc]
            lambda: log.plan(first, second),  # type: ignore[arg-type]
            lambda: log.position_at(first),  # type: ignore[arg-type]
            lambda: list(log.subscribe(first, follow=False)),  # type: ignore[arg-type]
            lambda: log.trim(first),  # type: ignore[arg-type]
            lambda: fork.diff(max_records=first),  # type: ignore[arg-type]
            lambda: fork.promote(expected_own=first, expected_tail=second),  # type: ignore[arg-type]
            lambda: log.cfork(ttl=first, lease=second, labels=third, promotable=True),  # type: ignore[arg-type]
            lambda: log.sfork(at=first, ttl=second, labels=third),  # type: ignore[arg-type]
            lambda: braid.create("x", retention=first, labels=second, discipline=third),  # type: ignore[arg-type]
            lambda: braid.resolve(first),  # type: ignore[arg-type]
        ):
            try:
                attempt()
            except BraidError:
                continue


@QUICK
@given(where=st.one_of(ANYTHING, st.text("/:mef.~\0%?#", max_size=6).map(lambda text: "x-" + text)))
def test_places_are_opened_or_refused(
    where: object, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("hostile"))
    try:
        braidlog.open(where).close()  # type: ignore[arg-type]
    except BraidError:
        return


@pytest.mark.parametrize(
    "where", ["~nobody-of-that-name/x", "x" * 300, "\ud800", b"x", "file:///%00", "file://[", "a\0b", ""]
)
def test_places_that_cannot_be_are_refused(where: object) -> None:
    for read_only in (True, False):
        with pytest.raises(InvalidArgument):
            braidlog.open(where, read_only=read_only)  # type: ignore[arg-type]


def test_a_moment_outside_the_calendar_is_refused_or_kept() -> None:
    with braidlog.open("memory://") as braid:
        log = braid.create("log")
        for moment in (datetime.min, datetime.max, 2**63 - 1, -(2**63) + 1):
            try:
                log.append(b"x", timestamp=moment)
            except InvalidArgument:
                continue
            assert log[-1].value == b"x"
