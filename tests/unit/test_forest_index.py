"""The index of a log's own runs, against plain lists of positions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from braidlog import limits
from braidlog.forest.index import Index, Insertions

FAR = 1 << 62
SIZE = 3  # bytes of every record: shares of a run are then exact


@dataclass(frozen=True)
class Own:
    """One own record of a naive index."""

    position: int
    block: int
    row: int


@pytest.fixture(autouse=True, params=[1, 3, 1_000])
def _segments(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_RUNS_MAX", request.param)


def fill(index: Index, own: list[Own], chance: Random, tail: int, runs: int) -> int:
    """Append runs with gaps of inherited records between; answers the new tail."""
    for _ in range(runs):
        tail += chance.choice([0, 0, 1, 3])
        count = chance.randint(1, 3)
        block = chance.randrange(1_000_000)
        index.append(tail, count, count * SIZE, block, 0, tail, tail + count)
        own += [Own(tail + row, block, row) for row in range(count)]
        tail += count
    return tail


def check(index: Index, own: list[Own], start: int, tail: int) -> None:
    """Everything an index is asked, from `start` on."""
    by_position = {record.position: record for record in own}
    for position in range(start, tail + 2):
        before = sum(record.position < position for record in own)
        record = by_position.get(position)
        assert index.find(position) == ((record.block, record.row) if record else (-1, position - before))
        assert index.own_before(position) == (before, before * SIZE)
    assert index.totals() == (len(own), len(own) * SIZE)
    for low in range(start, tail + 1, 3):
        for high in range(low, tail + 1, 4):
            inside = [record for record in own if low <= record.position < high]
            assert records(index, low, high) == inside
            blocks: set[int] = set()
            index.blocks(low, high, blocks)
            assert blocks == {record.block for record in inside}


def records(index: Index, low: int, high: int) -> list[Own]:
    found = []
    for run in index.runs(low, high):
        assert run.size == run.rows * SIZE
        found += [Own(run.start + k, run.block, run.row + k) for k in range(run.rows)]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_an_index_finds_what_a_list_of_own_records_finds(seed: int) -> None:
    index, own = Index(), list[Own]()
    tail = fill(index, own, Random(seed), 0, 12)
    check(index, own, 0, tail)


def test_an_empty_index_leaves_every_position_to_the_parent() -> None:
    assert Index().find(7) == (-1, 7)
    assert Index().own_before(7) == (0, 0)
    assert Index().totals() == (0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_forgetting_a_prefix_changes_nothing_from_there_on(seed: int) -> None:
    index, own = Index(), list[Own]()
    chance = Random(seed)
    tail = fill(index, own, chance, 0, 12)
    floor = chance.randrange(tail)
    index.forget_below(floor)
    for position in range(floor, tail + 1):
        before = sum(record.position < position for record in own)
        assert index.own_before(position)[0] == before
    assert records(index, floor, FAR) == [record for record in own if record.position >= floor]
    assert index.totals()[0] == len(own)


@pytest.mark.parametrize("seed", range(12))
def test_merging_a_fork_inserts_its_records_where_the_fork_has_them(seed: int) -> None:
    chance = Random(seed)
    parent, fork = Index(), Index()
    ours, theirs = list[Own](), list[Own]()
    fork_point = fill(parent, ours, chance, 0, 5)
    before = list(ours)
    # Both grow. What the parent gets the fork inherits, what the fork gets is its own; `order` is what the fork sees.
    order: list[Own] = []
    parent_tail = fork_tail = fork_point
    for block in range(chance.randrange(1, 12)):
        count = chance.randint(1, 3)
        batch = [Own(fork_tail + row, block, row) for row in range(count)]
        if chance.random() < 0.5:
            fork.append(fork_tail, count, count * SIZE, block, 0, 0, 0)
            theirs += batch
        else:
            parent.append(parent_tail, count, count * SIZE, block, 0, 0, 0)
            ours += [Own(parent_tail + row, block, row) for row in range(count)]
            parent_tail += count
        order += batch
        fork_tail += count

    merged = parent.merged(fork_point, fork)
    check(merged, before + order, 0, fork_tail)
    check(parent, ours, 0, parent_tail)  # whoever pinned the old version keeps it
    moved = Insertions(fork)
    after = {(record.block, record.row): record.position for record in order}
    for record in ours[len(before) :]:
        assert moved.moved(record.position) == after[record.block, record.row]
    for record in before:
        assert moved.moved(record.position) == record.position


def test_merging_shares_every_segment_below_the_fork_point() -> None:
    parent, fork = Index(), Index()
    fork_point = fill(parent, [], Random(1), 0, 9)
    fork.append(fork_point, 1, SIZE, 5, 0, 0, 0)
    merged = parent.merged(fork_point, fork)
    shared = zip(merged.segments, parent.segments, strict=False)
    assert all(mine is theirs for mine, theirs in list(shared)[: len(parent.segments)])


@pytest.mark.parametrize("barrier", [0, 4, FAR])
def test_packing_renames_blocks_and_joins_neighbours_below_the_barrier(barrier: int) -> None:
    index = Index()
    for start in range(0, 8, 2):
        index.append(start, 2, 2 * SIZE, start, 0, start, start + 1)
    moved = {start: (100, start) for start in range(0, 8, 2)}
    for segment in index.segments:
        assert not segment.rename(moved, (), barrier)
    assert records(index, 0, FAR) == [Own(position, 100, position) for position in range(8)]
    for run in index.runs(0, FAR):
        assert run.least == run.start
        assert run.greatest == run.start + run.rows - 1
        assert run.rows == 2 or run.start + run.rows <= barrier


def test_packing_leaves_what_stands_inline_and_says_so() -> None:
    index = Index()
    for start in range(3):
        segment = index.append(start, 1, SIZE, start, 0, 0, 0)
    remains = [segment.rename({0: (100, 0), 2: (100, 1)}, {1}, FAR) for segment in index.segments]
    assert any(remains)
    assert records(index, 0, FAR) == [Own(0, 100, 0), Own(1, 1, 0), Own(2, 100, 1)]
    for segment in index.segments:
        assert not segment.rename({1: (101, 0)}, (), FAR)
    assert records(index, 0, FAR) == [Own(0, 100, 0), Own(1, 101, 0), Own(2, 100, 1)]
