"""Every record is in one partition, in order, and partitions are about the same size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog import PlanPart, limits
from braidlog.spark.partitioning import Cutter, Slice, slices_of, target_bytes


def part(start: int, rows: int, size: int, *, row: int = 0, home: str | None = None) -> PlanPart:
    return PlanPart(start=start, stop=start + rows, row=row, object=home or f"o{start}", offset=8, length=size, crc=7)


def cut(parts: list[tuple[str, PlanPart]], target: int, rows_max: int | None = None) -> list[list[Slice]]:
    cutter = Cutter(target, rows_max)
    found: list[bytes] = []
    for log, each in parts:
        found += cutter.add(log, 1 if log == "a" else 2, "/objects", each)
    return [slices_of(encoded) for encoded in [*found, *cutter.finish()]]


def rows_of(partition: list[Slice]) -> int:
    return sum(stop - start for each in partition for start, stop, *_ in each.parts)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 50), st.integers(1, 1000)), max_size=40),
    st.integers(1, 2000),
    st.none() | st.integers(1, 30),
)
def test_nothing_is_lost_doubled_or_moved(sizes: list[tuple[str, int, int]], target: int, rows_max: int | None) -> None:
    at = {"a": 0, "b": 0}
    parts = []
    for log, rows, size in sizes:
        parts.append((log, part(at[log], rows, size, row=3)))
        at[log] += rows
    found = cut(parts, target, rows_max)
    seen = [
        (each.log, position, name, row + position - start)
        for partition in found
        for each in partition
        for start, stop, row, name, *_ in each.parts
        for position in range(start, stop)
    ]
    assert seen == [
        (log, position, p.object, p.row + position - p.start) for log, p in parts for position in range(p.start, p.stop)
    ]
    assert all(rows_of(partition) for partition in found)
    if rows_max is not None:
        assert all(rows_of(partition) <= rows_max for partition in found)


def test_partitions_are_balanced_by_bytes_and_follow_blocks() -> None:
    parts = [("a", part(10 * n, 10, 100)) for n in range(100)]
    found = cut(parts, 1000)
    assert [sum(p[5] for each in partition for p in each.parts) for partition in found] == [1000] * 10


def test_a_block_that_is_fetched_anyway_weighs_nothing() -> None:
    parts = [("a", part(n, 1, 1000, row=n, home="same")) for n in range(50)]
    assert len(cut(parts, 1500)) == 1


def test_several_small_logs_share_a_task() -> None:
    [only] = cut([("a", part(0, 1, 10)), ("b", part(0, 1, 10))], 1000)
    assert [each.log for each in only] == ["a", "b"]


def test_what_rides_in_the_plan_comes_along() -> None:
    inline = PlanPart(start=4, stop=6, row=1, object=None, offset=0, length=3, crc=9, data=b"abc")
    [[only]] = cut([("a", inline)], 1000)
    assert list(only.plan_parts) == [inline]


def test_a_gigabyte_and_a_terabyte_are_cut_sensibly() -> None:
    gigabyte, terabyte = 1 << 30, 1 << 40
    assert target_bytes(gigabyte // 1000, 8) == limits.SPARK_PARTITION_BYTES_MIN
    assert 8 <= gigabyte // target_bytes(gigabyte, 2) <= 32
    assert target_bytes(terabyte, 64) == limits.SPARK_PARTITION_BYTES_MAX


def test_tasks_come_in_whole_rounds() -> None:
    for megabytes in range(100, 2_000, 37):
        total = megabytes << 20
        tasks = -(-total // target_bytes(total, 3))
        assert tasks <= 3 or tasks % 3 == 0, megabytes


def test_parts_that_do_not_fit_do_not_add_up() -> None:
    """Each partition ends near its share of the whole, however the blocks fall."""
    parts = [("a", part(number, 1, 7)) for number in range(100)]
    assert [sum(len(each.parts) for each in found) for found in cut(parts, 70)] == [10] * 10
    assert len(cut(parts, 75)) == 10  # 700 bytes in shares of 75
