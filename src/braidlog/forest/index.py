"""The hierarchical log index: where the records of one log's own appends stand.

A *run* is a stretch of positions that were appended together, or packed together later, and stand in consecutive rows
of one block. An index holds only a log's own runs. Beside each it keeps how many own records there are up to and
including it, and so a position that is not its own maps to the parent: subtract the own records before it.

Runs live in typed columns inside *segments*, never as a Python object each. An index is a list of segments, each
responsible from a position (`lows`) up to where the next one begins. A segment may stand in several indexes: promotion
gives the parent a new index that shares every segment below the fork point, and whoever pinned the old one keeps it.
So a segment's positions and rows never change meaning; packing only renames blocks and joins runs inside it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from braidlog import limits


class Run(NamedTuple):
    """A run, or the part of one that was asked for."""

    start: int
    rows: int
    size: int  # bytes of its records; a share of the whole when only a part was asked for
    block: int
    row: int
    least: int  # timestamps in the whole run
    greatest: int


class Segment:
    """Up to SEGMENT_RUNS_MAX runs as parallel columns.

    Invariants: `start` ascends strictly; `total` and `sizes` are running sums that continue from `base_total` and
    `base_size`; every run before `settled` stands in an object; some run begins at each of the `cuts`, where an index
    that shares the segment stops looking at it.
    """

    __slots__ = (
        "base_size",
        "base_total",
        "block",
        "cuts",
        "greatest",
        "least",
        "row",
        "settled",
        "sizes",
        "start",
        "total",
    )

    def __init__(self, base_total: int = 0, base_size: int = 0) -> None:
        self.base_total = base_total
        self.base_size = base_size
        self.settled = 0
        self.cuts: list[int] = []
        self.start = array("q")
        self.total = array("q")
        self.sizes = array("q")
        self.block = array("q")
        self.row = array("q")
        self.least = array("q")
        self.greatest = array("q")

    def __len__(self) -> int:
        return len(self.start)

    def end_total(self) -> int:
        return self.total[-1] if self.total else self.base_total

    def end_size(self) -> int:
        return self.sizes[-1] if self.sizes else self.base_size

    def push(self, start: int, count: int, size: int, block: int, row: int, least: int, greatest: int) -> None:
        total, sizes = self.total, self.sizes
        total.append((total[-1] if total else self.base_total) + count)
        sizes.append((sizes[-1] if sizes else self.base_size) + size)
        self.start.append(start)
        self.block.append(block)
        self.row.append(row)
        self.least.append(least)
        self.greatest.append(greatest)

    def run(self, k: int) -> Run:
        before_total, before_size = self._before(k)
        return Run(
            self.start[k],
            self.total[k] - before_total,
            self.sizes[k] - before_size,
            self.block[k],
            self.row[k],
            self.least[k],
            self.greatest[k],
        )

    def _before(self, k: int) -> tuple[int, int]:
        return (self.total[k - 1], self.sizes[k - 1]) if k else (self.base_total, self.base_size)

    def rename(self, moved: Mapping[int, tuple[int, int]], inline: Container[int], barrier: int) -> bool:
        """Point runs at the blocks they were packed into, and join neighbours that became consecutive rows.

        Nothing at or beyond `barrier` is joined: a promotion may still have to insert records between those runs. Nor
        is anything joined over a cut: how many bytes lie on either side of it could not be told any more.
        Returns whether runs that stand inline remain.
        """
        first = self.settled
        runs = [self.run(k) for k in range(first, len(self.start))]
        for column in (self.start, self.total, self.sizes, self.block, self.row, self.least, self.greatest):
            del column[first:]
        settled = -1
        last: Run | None = None
        for run in runs:
            place = moved.get(run.block)
            if place is not None:
                run = run._replace(block=place[0], row=place[1] + run.row)
            elif settled < 0 and run.block in inline:
                if last is not None:
                    self.push(*last)
                    last = None
                settled = len(self.start)
            if (
                last is not None
                and last.block == run.block
                and last.start + last.rows == run.start
                and last.row + last.rows == run.row
                and run.start < barrier
                and run.start not in self.cuts
            ):
                last = Run(
                    last.start,
                    last.rows + run.rows,
                    last.size + run.size,
                    last.block,
                    last.row,
                    min(last.least, run.least),
                    max(last.greatest, run.greatest),
                )
                continue
            if last is not None:
                self.push(*last)
            last = run
        if last is not None:
            self.push(*last)
        self.settled = settled if settled >= 0 else len(self.start)
        return settled >= 0


class Index:
    """The own runs of one version of a log."""

    __slots__ = ("lows", "segments")

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.segments: list[Segment] = []

    def append(self, start: int, count: int, size: int, block: int, row: int, least: int, greatest: int) -> Segment:
        """Add a run at the end; answers the segment it went to."""
        segments = self.segments
        if not segments:
            segments.append(Segment())
            self.lows.append(0)
        segment = segments[-1]
        if len(segment.start) >= limits.SEGMENT_RUNS_MAX:
            segment = Segment(segment.end_total(), segment.end_size())
            segments.append(segment)
            self.lows.append(start)
        segment.push(start, count, size, block, row, least, greatest)
        return segment

    def find(self, position: int) -> tuple[int, int]:
        """(block, row) when the position is this log's own; else (-1, the position in the parent)."""
        segments = self.segments
        if not segments:
            return -1, position
        segment = segments[-1 if len(segments) == 1 else bisect_right(self.lows, position) - 1]
        k = bisect_right(segment.start, position) - 1
        if k < 0:
            return -1, position - segment.base_total
        total = segment.total[k]
        offset = position - segment.start[k]
        if offset < total - (segment.total[k - 1] if k else segment.base_total):
            return segment.block[k], segment.row[k] + offset
        return -1, position - total

    def own_before(self, position: int) -> tuple[int, int]:
        """How many own records, and how many bytes of them, stand below the position."""
        if not self.segments or position <= 0:
            return 0, 0
        segment = self.segments[bisect_left(self.lows, position) - 1]
        k = bisect_left(segment.start, position) - 1
        if k < 0:
            return segment.base_total, segment.base_size
        run = segment.run(k)
        inside = min(run.rows, position - run.start)
        if inside == run.rows:
            return segment.total[k], segment.sizes[k]
        return segment.total[k] - run.rows + inside, segment.sizes[k] - run.size + run.size * inside // run.rows

    def runs(self, start: int, stop: int) -> Iterator[Run]:
        """The own runs in [start, stop), cut to that range, in order."""
        lows, segments = self.lows, self.segments
        for s in range(max(bisect_right(lows, start) - 1, 0), len(segments)):
            low = max(lows[s], start)
            if low >= stop:
                return
            high = min(lows[s + 1], stop) if s + 1 < len(lows) else stop
            segment = segments[s]
            for k in range(max(bisect_right(segment.start, low) - 1, 0), len(segment.start)):
                first = segment.start[k]
                if first >= high:
                    break
                run = segment.run(k)
                end = first + run.rows
                if first >= low and end <= high:
                    yield run
                    continue
                cut, keep = max(first, low), min(end, high)
                if cut < keep:
                    share = run.size * (keep - cut) // run.rows
                    yield run._replace(start=cut, rows=keep - cut, size=share, row=run.row + cut - first)

    def blocks(self, start: int, stop: int, into: set[int]) -> None:
        """Add every block that the runs in [start, stop) stand in."""
        lows, segments = self.lows, self.segments
        for s in range(len(segments)):
            low = max(lows[s], start)
            high = min(lows[s + 1], stop) if s + 1 < len(lows) else stop
            if low >= high:
                continue
            segment = segments[s]
            first = max(bisect_right(segment.start, low) - 1, 0)
            if first < len(segment.start):
                count = segment.total[first] - (segment.total[first - 1] if first else segment.base_total)
                if segment.start[first] + count <= low:
                    first += 1
            into.update(segment.block[first : bisect_left(segment.start, high)])

    def forget_below(self, floor: int) -> None:
        """Let go of whole segments that lie below a position nobody will ask for again."""
        gone = 0
        while gone + 1 < len(self.lows) and self.lows[gone + 1] <= floor:
            gone += 1
        if gone:
            del self.lows[:gone]
            del self.segments[:gone]
            self.lows[0] = 0

    def totals(self) -> tuple[int, int]:
        """Own records and their bytes, all of them."""
        if not self.segments:
            return 0, 0
        return self.segments[-1].end_total(), self.segments[-1].end_size()

    def merged(self, fork_point: int, fork: Index) -> Index:
        """This index with the fork's own records inserted where the fork has them: what promotion makes of it.

        Below the fork point everything is shared. After it, a record of ours moves up by the number of the fork's
        records before it, and the fork's records keep the positions they have in the fork.
        """
        result = Index()
        keep = bisect_left(self.lows, fork_point)
        result.lows = self.lows[:keep]
        result.segments = self.segments[:keep]
        if keep and self.segments[keep - 1].start and self.segments[keep - 1].start[-1] >= fork_point:
            self.segments[keep - 1].cuts.append(fork_point)
        segment = Segment(*self.own_before(fork_point))
        result.lows.append(fork_point if keep else 0)
        result.segments.append(segment)

        def push(run: Run, shift: int) -> None:
            nonlocal segment
            if len(segment.start) >= limits.SEGMENT_RUNS_MAX:
                segment = Segment(segment.end_total(), segment.end_size())
                result.lows.append(run.start + shift)
                result.segments.append(segment)
            segment.push(run.start + shift, *run[1:])

        ours = self.runs(fork_point, _FAR)
        mine = next(ours, None)
        inserted = 0
        for theirs in fork.runs(0, _FAR):
            # The fork put this run behind so many records of ours.
            behind = theirs.start - inserted
            while mine is not None and mine.start < behind:
                assert mine.start + mine.rows <= behind, "a run spans a record that a fork inserted"
                push(mine, inserted)
                mine = next(ours, None)
            push(theirs, 0)
            inserted += theirs.rows
        while mine is not None:
            push(mine, inserted)
            mine = next(ours, None)
        return result


_FAR = 1 << 62


class Insertions:
    """Where a fork's own records go among its parent's, to tell how far a promotion moves the parent's."""

    __slots__ = ("_before", "_points")

    def __init__(self, fork: Index) -> None:
        self._points = array("q")  # a run of the fork stands behind so many records of the parent
        self._before = array("q", [0])  # the fork's records in the first k runs
        inserted = 0
        for run in fork.runs(0, _FAR):
            self._points.append(run.start - inserted)
            inserted += run.rows
            self._before.append(inserted)

    def moved(self, position: int) -> int:
        """The position after promotion of the parent's record at `position`."""
        return position + self._before[bisect_right(self._points, position)]
