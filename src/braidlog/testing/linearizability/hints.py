"""What the answers of a history suggest without saying it outright: where to look first for an explanation.

A wrong hint costs time, never a wrong verdict.
"""

from __future__ import annotations

from bisect import bisect_right

from braidlog.testing.linearizability.evidence import FAR, LogFacts, Tree
from braidlog.testing.linearizability.history import LogId, Operation, Value


class Hints:
    """What the answers suggest without saying it. A wrong hint costs time, never a wrong verdict."""

    def __init__(self, tree: Tree, daring: bool) -> None:
        self.tree = tree
        self.daring = daring  # also believe what is only likely
        self.content: dict[LogId, list[Value | None]] = {}
        self.position_of: dict[LogId, dict[Value, int]] = {}
        self.runs: dict[LogId, tuple[list[int], list[int]]] = {}  # the positions that are known, from the fork point on
        self.winners: set[LogId] = set()  # forks that were promoted
        self.gaps: dict[int, list[tuple[LogId, int]]] = {}  # where an append stands, if it is not known what is before
        self.severed_at: dict[int, int] = {}
        self._points: dict[int, list[tuple[bool, int]]] = {}  # where forks may have been made that did not say so
        self.least_point: dict[int, int] = {}
        self.decided: dict[int, int] = {}  # when, at the earliest, a promotable fork was decided
        self.lost: dict[int, list[int]] = {}  # for makers of forks that surely lost to a rival: to which promotion
        self.above: dict[LogId, set[LogId]] = {}  # a log and those that it was forked from, live
        for log in tree.logs.values():
            self._note_above(log)
            self.content[log.id], self.position_of[log.id] = log.content, log.position_of
        for log in sorted(tree.logs.values(), key=lambda log: len(self.above[log.id])):
            if log.promotable:
                self._note_winner(log)
            self._note_runs(log)
            if log.kind == "sfork":
                self._note_severed(log)
            elif log.promotable:
                self._note_promotable(log)

    def _note_above(self, log: LogFacts) -> None:
        found = self.above[log.id] = {log.id}
        while log.kind == "cfork" and log.source is not None:
            log = log.source
            found.add(log.id)

    def known_from(self, log: LogId, position: int) -> tuple[int, int]:
        """The next positions of a log that are known, from there on; empty if there are none."""
        starts, ends = self.runs[log]
        at = bisect_right(ends, position)
        return (max(starts[at], position), ends[at]) if at < len(ends) else (FAR, FAR)

    def point(self, number: int, least: int) -> int | None:
        """Where a promotable fork was made that did not say so: not below that."""
        known = self._points.get(number)
        if known is None:
            return None
        if not self.daring:
            found = max((end for unsure, end in known if not unsure), default=-1)
            return found if found >= least else None
        return min((pair for pair in known if pair[1] >= least), default=(False, None))[1]

    def _note_winner(self, log: LogFacts) -> None:
        """What stands in the parent of a fork that won stood there in the fork, too."""
        assert log.source is not None
        promotions = [number for number in log.operations if self.tree.operations[number].verb == "promote"]
        shown = any(
            value in log.source.position_of
            for append in log.operations
            for value in self.tree.operations[append].values[:1]
        )
        if not any(shown or self.tree.mandatory[number] for number in promotions):
            return
        self.winners.add(log.id)
        content, positions = list(log.content), dict(log.position_of)
        above = self.content[log.source.id]
        for position in range(log.point or 0, min(len(above), (log.point or 0) + 4096)):
            value = above[position]
            if value is None or value in positions:
                continue
            if position >= len(content):
                content += [None] * (position + 1 - len(content))
            if content[position] is None:
                content[position] = value
                positions[value] = position
        self.content[log.id], self.position_of[log.id] = content, positions

    def _note_runs(self, log: LogFacts) -> None:
        starts: list[int] = []
        ends: list[int] = []
        first = log.point or 0
        content = self.content[log.id]
        for position in range(first, len(content)):
            if content[position] is None:
                continue
            if ends and ends[-1] == position:
                ends[-1] += 1
            else:
                starts.append(position)
                ends.append(position + 1)
        self.runs[log.id] = (starts, ends)
        for start in starts:
            value = content[start]
            assert value is not None
            number = self.tree.appender[value]
            if start > first and value == self.tree.operations[number].values[0]:
                self.gaps.setdefault(number, []).append((log.id, start))

    def _note_severed(self, log: LogFacts) -> None:
        """It is severed at the least length that was seen of it, unless something else is known."""
        if log.point is not None:
            self.severed_at[log.creator] = log.point
            return
        seen = []
        for number in log.operations:
            one = self.tree.operations[number]
            if one.outcome != "ok" or one.verb == "sfork":
                continue
            if one.position is not None:
                seen.append(one.position)
            elif one.verb == "read" and one.records and one.stop is None:
                seen.append(one.start + len(one.records))
        if seen:
            self.severed_at[log.creator] = min(seen)

    def _note_promotable(self, log: LogFacts) -> None:
        assert log.source is not None
        operations = self.tree.operations
        own = [number for number in log.operations if operations[number].verb in ("promote", "squash")]
        decided = min((operations[number].invoked for number in own), default=FAR)
        beyond = [
            self.tree.answered[number]
            for number in log.source.operations
            if log.point is not None and _end(operations[number]) > log.point and self.tree.answered[number] < decided
        ]
        if beyond:
            self.lost[log.creator] = [
                number
                for rival in _promotable_below(log.source)
                for number in (rival.operations if rival is not log else ())
                if operations[number].verb == "promote"
                and self.tree.mandatory[number]
                and self.tree.deadline[number] >= operations[log.creator].invoked
                and operations[number].invoked <= min(beyond)
            ]
        for rival in log.source.forks:
            for number in rival.operations if rival.promotable else ():
                if operations[number].verb == "promote":
                    decided = min(decided, operations[number].invoked)
        alive = [operations[number].invoked for number in log.operations if self.tree.mandatory[number]]
        decided = max(decided, max(alive, default=0))
        self.decided[log.creator] = decided
        made = self.tree.answered[log.creator]
        if log.point is None:  # where the parent ended while it was held is where it was forked, or another was before
            ended = min((self.tree.answered[number] for number in own), default=FAR)
            for number in log.source.operations:
                end = exact_end(operations[number])
                if end is not None and made < operations[number].invoked < ended:
                    surely = self.tree.answered[number] < decided
                    self._points.setdefault(log.creator, []).append((not surely, end))
        ends = [_end(operations[number]) for number in log.source.operations if self.tree.answered[number] < decided]
        self.least_point[log.creator] = max(ends, default=0)


def _promotable_below(log: LogFacts) -> list[LogFacts]:
    """The forks that may be promoted into it, at once or after others were."""
    found = [fork for fork in log.forks if fork.promotable]
    for fork in found:  # grows while it is walked
        found += [other for other in fork.forks if other.promotable]
    return found


def exact_end(one: Operation) -> int | None:
    """Of an observation that saw the end of a log: where that was."""
    if one.outcome != "ok":
        return None
    if one.verb == "tail":
        return one.position
    end = one.start + len(one.records)
    return end if one.verb == "read" and one.records and (one.stop is None or end < one.stop) else None


def _end(one: Operation) -> int:
    """How far a log could be read for that answer."""
    if one.verb == "append":
        return 0 if one.position is None else one.position + len(one.values)
    if one.verb == "read":
        return one.start + len(one.records) if one.records else 0
    if one.verb == "sfork":
        return one.at or 0
    return one.position or 0 if one.verb == "tail" else 0
