"""From positions to places: which rows of which blocks hold a range of a log.

Resolving walks up the views once, whatever the length of the range: at each level the own runs are taken out and what
is left between them goes on, in the parent's positions. There is no recursion: 10,000 nested forks are only a loop.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from braidlog.forest.log import View


class Extent(NamedTuple):
    """`rows` records from `position` on stand in rows `row`, `row + 1`, ... of a block."""

    position: int
    rows: int
    block: int
    row: int
    own: bool  # appended to the very log that was asked, not inherited
    least: int
    greatest: int


def locate(view: View, position: int) -> tuple[int, int]:
    """(block, row) of one position, which must exist."""
    while True:
        block, place = view.index.find(position)
        if block >= 0:
            return block, place
        assert view.up is not None, f"position {place} lies beyond the root"
        view, position = view.up.target(), place


def resolve(view: View, start: int, stop: int) -> list[Extent]:
    """Where the positions [start, stop) stand, in order. All of them must exist."""
    found: list[Extent] = []
    pending = [(start, stop, 0)] if start < stop else []
    own = True
    levels = 0
    while pending:
        index = view.index
        if index.segments:
            rest: list[tuple[int, int, int]] = []
            count_before = len(found)
            for low, high, shift in pending:
                at = low
                before = index.own_before(low)[0]
                for run in index.runs(low, high):
                    if run.start > at:
                        rest.append((at - before, run.start - before, shift + before))
                    found.append(Extent(run.start + shift, run.rows, run.block, run.row, own, run.least, run.greatest))
                    before += run.rows
                    at = run.start + run.rows
                if at < high:
                    rest.append((at - before, high - before, shift + before))
            pending = rest
            levels += len(found) > count_before
        if not pending:
            break
        assert view.up is not None, f"positions {pending} lie beyond the root"
        view = view.up.target()
        own = False
    if levels > 1:
        found.sort(key=attrgetter("position"))
    return found


def size_of(view: View, start: int, stop: int) -> int:
    """Bytes of the records in [start, stop), those of partly covered runs in proportion."""
    total = 0
    at: View = view
    while True:
        before_start, size_start = at.index.own_before(start)
        before_stop, size_stop = at.index.own_before(stop)
        total += size_stop - size_start
        start, stop = start - before_start, stop - before_stop
        if at.up is None or start >= stop:
            return total
        at = at.up.target()
