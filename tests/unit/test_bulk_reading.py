"""Plans carried out: what comes is what reading reads, whatever shape the bytes are in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import braidlog
from braidlog import Braid, Log, Plan, Record, bulk, errors, limits
from braidlog.embedded.upkeep import Upkeep
from braidlog.testing.seaweed import Seaweed
from tests.e2e.conformance import writer_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs.braid"


@pytest.fixture
def home(folder: Path) -> Iterator[Braid]:
    with braidlog.open(folder) as braid:
        yield braid


@pytest.fixture
def orders(home: Braid) -> Log:
    return home.create("orders")


def records_of(batches: list[pa.RecordBatch]) -> list[Record]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [
        Record(
            row["value"],
            row["key"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
            round(row["timestamp"].timestamp() * 1e6),
            row["position"],
        )
        for row in rows
    ]


def read(plan: Plan, **more: object) -> list[pa.RecordBatch]:
    return list(bulk.read_parts(plan.objects, plan.parts, **more))  # type: ignore[arg-type]


def check(log: Log, start: int = 0) -> None:
    plan = log.plan(start)
    assert records_of(read(plan)) == log.read(start)


def pack(braid: Braid) -> None:
    assert Upkeep(writer_of(braid)).pack()


def varied(log: Log) -> None:
    """Records of all shapes: inline, packed, large; with and without keys and headers."""
    log.append(b"", key=b"", headers=[("a", b""), ("a", b"1"), ("ü", b"\0")])
    log.append_many([b"x" * n for n in range(50)], timestamp=1_700_000_000_000_000)
    log.append_many([Record(b"v", b"k%d" % n if n % 2 else None, (("n", b"%d" % n),)) for n in range(50)])


def test_all_shapes_of_records_come_as_they_were_written(home: Braid, orders: Log) -> None:
    varied(orders)
    check(orders)
    pack(home)
    check(orders)
    orders.append_many([b"y" * 10_000] * 100)
    varied(orders)
    check(orders)
    check(orders, 77)
    assert read(orders.plan(orders.tail())) == []


def test_a_fork_of_a_fork_of_a_fork_is_read_across_all_of_them(home: Braid, orders: Log) -> None:
    log = orders
    for depth in range(5):
        log.append_many([b"%d-%d" % (depth, n) for n in range(10)])
        if depth % 2:
            pack(home)
        orders.append(b"late %d" % depth)
        log = log.cfork(f"depth-{depth}")
    log.append(b"mine")
    check(log)
    check(log, 13)


def test_columns_are_those_that_were_asked_for_in_that_order(orders: Log) -> None:
    varied(orders)
    [batch] = read(orders.plan(), columns=["value", "position"])
    assert batch.schema.names == ["value", "position"]
    [batch] = read(orders.plan(), columns=["position"])
    assert batch.column("position").to_pylist() == list(range(101))
    with pytest.raises(errors.InvalidArgument, match="nothing"):
        read(orders.plan(), columns=["nothing"])
    with pytest.raises(errors.InvalidArgument, match="not none"):
        read(orders.plan(), columns=[])


def test_small_blocks_are_joined_and_large_ones_cut(orders: Log) -> None:
    for n in range(300):
        orders.append(b"%d" % n)
    parts = [part for n in range(300) for part in orders.plan(n, n + 1).parts]
    assert len(parts) == 300
    assert len(read(msgspec.structs.replace(orders.plan(), parts=parts))) == 1
    orders.append_many([b"z" * 1000] * 10_000)
    batches = read(orders.plan(300))
    assert len(batches) >= 5
    assert max(batch.nbytes for batch in batches) < 2 * limits.BULK_BATCH_BYTES
    orders.append_many([b""] * 25_000)
    assert max(batch.num_rows for batch in read(orders.plan(10_300))) <= limits.BULK_BATCH_ROWS
    check(orders)


def test_a_changed_byte_is_found_and_placed(home: Braid, folder: Path, orders: Log) -> None:
    orders.append_many([b"payload"] * 10)
    pack(home)
    plan = orders.plan()
    [path] = (folder / "objects").glob("*.arrow")
    data = bytearray(path.read_bytes())
    data[plan.parts[0].offset + plan.parts[0].length - 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.Corrupt, match=rf"positions 0 to 10: object {path.name}.*CRC"):
        read(plan)


@pytest.mark.parametrize("left", ["nothing", "some", "up to the block"])
def test_an_object_that_was_cut_short_is_corrupt(home: Braid, folder: Path, orders: Log, left: str) -> None:
    orders.append_many([b"payload"] * 10)
    pack(home)
    plan = orders.plan()
    offset = plan.parts[0].offset
    [path] = (folder / "objects").glob("*.arrow")
    path.write_bytes(path.read_bytes()[: {"nothing": 0, "some": offset // 2, "up to the block": offset}[left]])
    with pytest.raises(errors.Corrupt, match=rf"positions 0 to 10: object {path.name}.*cut short"):
        read(plan)


def test_an_object_that_is_gone_is_planned_again_by_position(home: Braid, folder: Path, orders: Log) -> None:
    expected = [b"%d" % n for n in range(2 * limits.COMPACT_OBJECTS_MIN)]
    for value in expected:
        orders.append(value)
        pack(home)
    old = orders.plan(3)
    assert Upkeep(writer_of(home)).compact()
    living = {part.object for part in orders.plan().parts}
    for path in (folder / "objects").glob("*.arrow"):
        if path.name not in living:
            path.unlink()  # as the collector does when the grace period is over
    asked: list[tuple[int, int]] = []

    def replan(start: int, stop: int) -> list[Plan]:
        asked.append((start, stop))
        return [orders.plan(start, stop)]

    assert records_of(read(old, replan=replan)) == orders.read(3)
    assert asked[0][0] == 3
    with pytest.raises(errors.Corrupt, match="missing"):
        read(old)
    with pytest.raises(errors.Corrupt, match="missing"):
        read(old, replan=lambda *_: [old])


def test_another_directory_in_the_place_of_an_old_one_is_not_taken_for_it(folder: Path) -> None:
    for value in (b"old", b"new"):
        with braidlog.open(folder) as braid:
            log = braid.create("orders")
            log.append_many([value] * 10, timestamp=0)
            pack(braid)
            check(log)
        shutil.rmtree(folder)


def test_a_folder_that_is_not_here_is_told_from_an_object_that_is_gone(home: Braid, folder: Path, orders: Log) -> None:
    orders.append(b"x")
    pack(home)
    plan = orders.plan()
    shutil.rmtree(folder / "objects")
    with pytest.raises(errors.Unavailable, match="no folder"):
        read(plan, replan=lambda *_: [plan])


def test_what_is_in_the_memory_of_another_process_says_so() -> None:
    with braidlog.open("memory://") as braid:
        log = braid.create("orders")
        log.append(b"inline")
        check(log)
        pack(braid)
        with pytest.raises(errors.Unavailable, match="memory of the process"):
            read(log.plan())


def test_a_store_elsewhere_gives_the_same(seaweed: Seaweed, prefix: str, tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "far.braid", objects=seaweed.url(prefix)) as braid:
        log = braid.create("orders")
        for n in range(5):
            varied(log)
            log.append_many([b"%d" % n * 3000] * 1000)
            if n % 2:
                pack(braid)
        check(log)
        check(log, 1234)
