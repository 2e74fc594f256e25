"""`braid doctor`: a healthy directory is called healthy, every kind of damage is found, named and left as it is."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import braidlog
from braidlog import bulk, errors, limits
from braidlog.cli import exit_codes
from braidlog.embedded.doctor import Finding, Report, examine
from braidlog.embedded.writer import Snapshot, Writer, load_snapshot
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze
from braidlog.metadata import snapshots
from braidlog.objects.batch import Batch, encode
from braidlog.objects.files import OsFiles
from tests.e2e.test_cli import Command

LARGE = b"x" * (limits.INLINE_BYTES_MAX + 1)


def write_some(braid: braidlog.Braid) -> None:
    """Two logs and forks of them, records inline and in objects."""
    orders = braid.create("orders")
    orders.append_many([b"%d" % number for number in range(10)])
    orders.append(LARGE)
    braid.create("other").append(LARGE)
    fork = orders.cfork("trial", promotable=True)
    fork.append_many([b"own", b"own too"])
    orders.append(b"late")
    orders.sfork("copy", at=5)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that was closed: a snapshot, objects, and nothing to replay."""
    with braidlog.open(tmp_path / "logs") as braid:
        write_some(braid)
    return tmp_path / "logs"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A directory as a killed writer leaves it: no snapshot, and everything in the command log."""
    with braidlog.open(tmp_path / "live") as braid:
        write_some(braid)
        shutil.copytree(tmp_path / "live", tmp_path / "logs", ignore=shutil.ignore_patterns("SOCKET"))
    return tmp_path / "logs"


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def look(place: Path) -> Report:
    """Examine, and see that nothing was changed by it."""
    before = contents(place)
    report = examine(place)
    assert contents(place) == before
    return report


def test_what_may_yet_be_published_is_no_damage(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        log = braid.create("orders")
        uploads = [log.upload(), log.upload()]
        for upload in uploads:
            with bulk.ObjectWriter(upload) as writer:
                writer.add(pa.table({"value": [b"a", b"b"]}))
        log.publish(writer.close())
    report = look(tmp_path / "logs")
    assert report.healthy
    [note] = [finding for finding in report.findings if finding.where.endswith(".arrow")]
    assert note.problem == "a client wrote it, or is at it, and may yet publish it"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def corrupt_ones(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity == "corrupt"]


def object_of(place: Path, log: str, position: int) -> tuple[Path, int, int]:
    """The file, the offset and the length of the block that a record stands in."""
    with braidlog.open(place, read_only=True) as braid:
        (part,) = braid.log(log).plan(position, position + 1).parts
    assert part.object is not None
    return place / "objects" / part.object, part.offset, part.length


# --- healthy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["closed", "crashed"])
def test_a_healthy_directory(state: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(state)
    report = look(place)
    assert report.healthy
    assert report.findings == []
    assert (report.logs, report.records, report.writer) == (4, 15, None)
    assert report.clean == (state == "closed")
    assert report.objects >= 2


def test_a_directory_in_which_nothing_happened(tmp_path: Path) -> None:
    braidlog.open(tmp_path / "logs").close()
    assert look(tmp_path / "logs").findings == []


def test_the_status_and_the_words(closed: Path) -> None:
    braid = Command(closed)
    assert braid.lines("doctor")[-1] == "healthy"
    told = braid.json("doctor")
    assert (told["healthy"], told["logs"], told["findings"]) == (True, 4, [])
    path, offset, _ = object_of(closed, "other", 0)
    flip(path, offset + 500)
    assert braid.lines("doctor", code=exit_codes.CORRUPT)[-1] == "corrupt"
    told = json.loads(braid("--json", "doctor", code=exit_codes.CORRUPT).stdout)
    assert told["findings"][0].keys() == {"severity", "where", "problem", "advice"}


def test_next_to_a_writer_it_examines_what_is_durable(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        write_some(braid)
        report = examine(tmp_path)
        assert report.healthy
        assert [(finding.severity, finding.where) for finding in report.findings] == [("note", "LOCK")]
        assert (report.logs, report.records) == (4, 15)
        assert report.writer is not None


def test_next_to_a_busy_writer_nothing_is_held_against_it(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        log = braid.create("orders")
        log.append(b"the first")
        enough = threading.Event()

        def write() -> None:
            while not enough.is_set():
                log.append_many([b"x" * 1_000] * 50)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                report = examine(tmp_path)
                assert report.healthy, report.findings
        finally:
            enough.set()
            writer.join()
        assert report.records > 0


def test_a_lock_that_a_killed_writer_left_is_no_writer(crashed: Path) -> None:
    assert (crashed / "LOCK").read_text().split()[0].isdigit()
    assert look(crashed).writer is None


# --- damage to the log and the snapshot ------------------------------------------------------------------------------


def test_a_torn_last_commit_is_no_damage_and_will_be_cut(crashed: Path) -> None:
    (segment,) = (crashed / "log").glob("*.log")
    (crashed / "log" / "SYNCED").unlink()
    end = len(segment.read_bytes().rstrip(b"\0"))
    flip(segment, end - 1)
    report = look(crashed)
    assert report.healthy
    (finding,) = report.findings
    assert finding.severity == "warning"
    assert "will be cut at next open" in finding.advice
    assert f"log/{segment.name}" in finding.where
    with braidlog.open(crashed) as braid:
        assert len(list(braid.logs())) == 3  # the last commit made the severed fork
    assert look(crashed).findings == []


def test_a_flipped_bit_in_a_frame(crashed: Path) -> None:
    (segment,) = (crashed / "log").glob("*.log")
    flip(segment, segment.read_bytes().index(b"own too"))
    report = look(crashed)
    first = corrupt_ones(report)[0]
    assert first.where.startswith(f"log/{segment.name} at byte ")
    assert "restore it from a copy" in first.advice
    assert report.logs == 3  # what stands before the damage is still made out
    with pytest.raises(errors.Corrupt):
        braidlog.open(crashed)


def test_a_synced_frame_that_is_gone(crashed: Path) -> None:
    (segment,) = (crashed / "log").glob("*.log")
    data = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(data[:-64])
    assert not look(crashed).healthy


def test_a_segment_that_is_gone(closed: Path) -> None:
    for segment in (closed / "log").glob("*.log"):
        segment.unlink()
    report = look(closed)
    assert not report.healthy
    assert "missing" in corrupt_ones(report)[0].problem


def test_a_flipped_bit_in_the_snapshot(closed: Path) -> None:
    (snapshot,) = (closed / "snapshots").glob("*.snap")
    flip(snapshot, snapshot.stat().st_size // 2)
    report = look(closed)
    (finding,) = corrupt_ones(report)
    assert finding.where.startswith("snapshots")
    assert snapshot.name in finding.problem
    assert any("not examined" in finding.problem for finding in report.findings)


def test_a_damaged_format_file(closed: Path) -> None:
    flip(closed / "FORMAT", 0)
    assert [finding.where for finding in corrupt_ones(look(closed))] == ["FORMAT"]


def test_a_missing_format_file(closed: Path) -> None:
    (closed / "FORMAT").unlink()
    assert [finding.where for finding in corrupt_ones(look(closed))] == ["FORMAT"]


# --- damage to objects -----------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_block_names_the_logs_and_positions(closed: Path) -> None:
    path, offset, length = object_of(closed, "orders", 3)
    flip(path, offset + length - 1)
    (finding,) = corrupt_ones(look(closed))
    assert finding.where == f"objects/{path.name}"
    for affected in ("log 'orders' positions 0 to 9", "log 'trial' positions 0 to 9", "log 'copy' positions 0 to 4"):
        assert affected in finding.problem
    assert "'other'" not in finding.problem


def test_a_flipped_bit_between_blocks_affects_no_record(closed: Path) -> None:
    path, _, _ = object_of(closed, "orders", 3)
    flip(path, path.stat().st_size - 1)
    (finding,) = corrupt_ones(look(closed))
    assert "no log's records are affected" in finding.problem


def test_every_bit_of_an_object_is_guarded(closed: Path) -> None:
    path, _, _ = object_of(closed, "orders", 3)
    whole = path.read_bytes()
    for offset in range(0, len(whole), max(len(whole) // 40, 1)):
        flip(path, offset)
        assert not examine(closed).healthy, offset
        path.write_bytes(whole)
    assert examine(closed).healthy


def test_a_shortened_object(closed: Path) -> None:
    path, _, _ = object_of(closed, "other", 0)
    path.write_bytes(path.read_bytes()[:-100])
    (finding,) = corrupt_ones(look(closed))
    assert "bytes, but" in finding.problem


def test_a_missing_object(closed: Path) -> None:
    path, _, _ = object_of(closed, "other", 0)
    path.unlink()
    (finding,) = corrupt_ones(look(closed))
    assert (finding.where, finding.severity) == (f"objects/{path.name}", "corrupt")
    assert "missing" in finding.problem
    assert "log 'other' position 0" in finding.problem


def test_an_object_that_nobody_registered_is_only_noted(closed: Path) -> None:
    path, _, _ = object_of(closed, "other", 0)
    shutil.copy(path, closed / "objects" / "00000000-00000001.arrow")
    (closed / "objects" / ".tmp-00000000-00000002.arrow").write_bytes(b"half")
    report = look(closed)
    assert report.healthy
    assert {finding.where for finding in report.findings} == {
        "objects/00000000-00000001.arrow",
        "objects/.tmp-00000000-00000002.arrow",
    }
    braidlog.open(closed).close()
    assert look(closed).findings == []


# --- what no checksum guards: bytes that were written wrong -----------------------------------------------------------


@pytest.fixture
def checkpointed(tmp_path: Path) -> Path:
    """A crashed directory whose snapshot holds bytes that ride inline."""
    with braidlog.open(tmp_path / "live") as braid:
        write_some(braid)
        backend = braid._session.backend
        assert isinstance(backend, Writer)
        backend.checkpoint()
        shutil.copytree(tmp_path / "live", tmp_path / "logs", ignore=shutil.ignore_patterns("SOCKET"))
    return tmp_path / "logs"


def rewrite(place: Path, change: Callable[[Forest, dict[int, bytes]], None]) -> None:
    """Put another state into the snapshot, with checksums that are right."""
    files = OsFiles(place)
    sequence, forest, payloads = load_snapshot(snapshots.latest(files))
    change(forest, payloads)
    snapshots.write(files, sequence, msgspec.msgpack.encode(Snapshot(freeze(forest), payloads)))


def miscount(forest: Forest, _: dict[int, bytes]) -> None:
    forest.names["orders"].own += 1


def misplace(forest: Forest, _: dict[int, bytes]) -> None:
    places = forest.space.places
    block = next(block for block, place in places.items() if place.log == forest.names["other"].id)
    places[block] = places[block]._replace(row=1)


def forget_bytes(_: Forest, payloads: dict[int, bytes]) -> None:
    del payloads[min(payloads)]


def spoil_bytes(_: Forest, payloads: dict[int, bytes]) -> None:
    payloads[min(payloads)] = b"\xc1"


def lose_a_record(_: Forest, payloads: dict[int, bytes]) -> None:
    payloads[min(payloads)] = encode(Batch([b"only one"]))


@pytest.mark.parametrize(
    ("change", "where", "problem"),
    [
        (miscount, "forest", "log 'orders' counts"),
        (misplace, "log 'other'", "has 1 rows, too few for position 0"),
        (forget_bytes, "block 1, inline", "its bytes are missing; it takes away log 'orders' positions 0 to 9"),
        (spoil_bytes, "block 1, inline", "cannot be decoded"),
        (lose_a_record, "block 1, inline", "it has 1 records instead of 10"),
    ],
)
def test_a_state_that_cannot_be(
    checkpointed: Path, change: Callable[[Forest, dict[int, bytes]], None], where: str, problem: str
) -> None:
    assert look(checkpointed).findings == []
    rewrite(checkpointed, change)
    found = {finding.where: finding.problem for finding in corrupt_ones(look(checkpointed))}
    assert problem in found[where]


# --- where there is nothing to examine -------------------------------------------------------------------------------


def nowhere(tmp_path: Path) -> Path:
    return tmp_path / "nowhere"


def empty(tmp_path: Path) -> Path:
    return tmp_path


def strange(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize("make", [nowhere, empty, strange])
def test_what_is_no_braidlog_directory_is_not_found(make: Callable[[Path], Path], tmp_path: Path) -> None:
    Command(make(tmp_path))("doctor", code=exit_codes.NOT_FOUND)


def test_a_newer_format_is_not_judged(closed: Path) -> None:
    text = (closed / "FORMAT").read_text()
    (closed / "FORMAT").write_text(text.replace("braidlog 3", "braidlog 4"))
    assert "upgrade" in Command(closed)("doctor", code=exit_codes.USAGE).stderr


def test_memory_has_nothing_to_examine() -> None:
    Command("memory://")("doctor", code=exit_codes.USAGE)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Examining starts nothing that outlives it."""
    before = threading.active_count()
    yield
    assert threading.active_count() <= before
