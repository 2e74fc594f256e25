"""Other ways to build a forkable log, behind the same door (`apply`) as the forest, to compare it with.

They are what the AgileLog paper compares with: forks that copy the parent's index (BoltMetaCpy), forks whose index is
fed on every append of the parent (BoltNaiveCF), tails that are pushed to every descendant (Bolt-ET), and a promotion
that copies the data from a temporary log. Each differs from the forest in just that one thing.
"""

from __future__ import annotations

from array import array

import braidlog
from braidlog.errors import BraidError
from braidlog.forest import commands as c
from braidlog.forest import forks
from braidlog.forest.index import Index, Segment
from braidlog.forest.log import Log, View
from braidlog.forest.machine import Forest
from braidlog.forest.tails import reach


class MetadataCopy(Forest):
    """Fork by copying the parent's index (BoltMetaCpy). A lookup in a fork never looks further."""

    def _cfork(self, command: c.CFork) -> c.Result:
        result = super()._cfork(command)
        assert isinstance(result, c.Opening)
        log = self.logs[result.log]
        assert log.parent is not None
        log.view = View(_copy(log.parent.view.index), None)
        return result


class NaiveForks(MetadataCopy):
    """Every append is inserted into the index of every descendant as well (BoltNaiveCF)."""

    def __init__(self) -> None:
        super().__init__()
        self.tails: dict[int, int] = {}

    def _cfork(self, command: c.CFork) -> c.Result:
        result = super()._cfork(command)
        assert isinstance(result, c.Opening)
        self.tails[result.log] = reach(self.logs[result.log]).tail
        return result

    def _append(self, command: c.Append) -> c.Result:
        result = super()._append(command)
        assert isinstance(result, c.Appended)
        tails = self.tails
        log = self.logs[command.log]
        if command.log in tails:
            tails[command.log] += command.count
        for member in forks.subtree(log)[1:]:
            tail = tails[member.id]
            member.view.index.append(
                tail, command.count, command.size, result.block, 0, command.least, command.greatest
            )
            tails[member.id] = tail + command.count
        return result


class EagerTails(Forest):
    """Every append is added to the tail of every descendant at once (Bolt-ET); the index stays hierarchical."""

    def __init__(self) -> None:
        super().__init__()
        self.tails: dict[int, int] = {}

    def _cfork(self, command: c.CFork) -> c.Result:
        result = super()._cfork(command)
        assert isinstance(result, c.Opening)
        self.tails[result.log] = reach(self.logs[result.log]).tail
        return result

    def _append(self, command: c.Append) -> c.Result:
        result = super()._append(command)
        tails = self.tails
        count = command.count
        for member in forks.subtree(self.logs[command.log]):
            if member.id in tails:
                tails[member.id] += count
        return result


def _copy(index: Index) -> Index:
    copy = Index()
    copy.lows = list(index.lows)
    for segment in index.segments:
        twin = Segment(segment.base_total, segment.base_size)
        twin.settled = segment.settled
        for column in ("start", "total", "sizes", "block", "row", "least", "greatest"):
            setattr(twin, column, array("q", getattr(segment, column)))
        copy.segments.append(twin)
    return copy


def walked_tail(log: Log) -> int:
    """A tail as the plain sum over the path to the root, whatever its length."""
    tail = log.base
    at: Log | None = log
    while at is not None:
        tail += at.own
        at = at.parent
    return tail


def promote_by_copy(temporary: braidlog.Log, parent: braidlog.Log) -> None:
    """Promotion without forks: read what was written to a temporary log and append it to the real one."""
    parent.append_many(temporary.read(0))


# --- building forests -------------------------------------------------------------------------------------------------


def must(answer: c.Result | BraidError) -> c.Result:
    """The answer of a command that cannot fail here."""
    if isinstance(answer, BraidError):
        raise answer
    return answer


def root(forest: Forest, name: str = "root") -> int:
    opened = must(forest.apply(c.Create(name, 0)))
    assert isinstance(opened, c.Opening)
    return opened.log


def cfork(forest: Forest, log: int, *, promotable: bool = False) -> int:
    opened = must(forest.apply(c.CFork(log, "", 0, promotable)))
    assert isinstance(opened, c.Opening)
    return opened.log


def appends(log: int, runs: int, *, records: int = 1, stored: str = "") -> list[c.Append]:
    """Commands that make so many runs; `stored` names the registered object that their blocks stand in."""
    return [c.Append(log, records, 100 * records, 0, 0, object=stored, offset=128 * k, length=128) for k in range(runs)]


def fill(forest: Forest, log: int, runs: int, *, records: int = 1, stored: str = "") -> None:
    apply = forest.apply
    command = c.Append(log, records, 100 * records, 0, 0, object=stored, length=128)
    for _ in range(runs):
        apply(command)


def register(forest: Forest, name: str = "00000001-00000001.arrow") -> str:
    """An object in the forest's books, for appends whose bytes are stored already."""
    must(forest.apply(c.Opened(1, 0)))
    must(forest.apply(c.Register(name, 1, 1 << 30, 0, 0)))
    return name
