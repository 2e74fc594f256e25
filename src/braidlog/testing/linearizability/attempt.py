"""The state of an attempt at an order: what was invoked, what took effect, what fits, and how to take it all back.

An observation is taken as soon as it fits: it changes nothing, so that is never wrong. An append to a held log that was
answered with a position is applied first, and done when its position is final; if that is another one, the attempt has
failed.
"""

from __future__ import annotations

from random import Random
from typing import TypeVar

from braidlog.testing.linearizability.evidence import Tree
from braidlog.testing.linearizability.forest import Forest, Node, Undo
from braidlog.testing.linearizability.hints import Hints
from braidlog.testing.linearizability.history import OBSERVATIONS, LogId

APPLIED, DONE = 1, 2  # an append is only applied while its position is not final

Key = TypeVar("Key", int, LogId)


class Attempt:
    """Bookkeeping. Every change is noted on the trail of the forest."""

    def __init__(self, tree: Tree, before: list[list[int]], due: list[int], variant: int) -> None:
        self.tree = tree
        self.operations = tree.operations
        self.before = before  # the appends whose records stand right before those of this one
        self.due = due  # the moment before which it must come, by its own answer or by what stands behind it
        self.forest = Forest()
        self.trail = self.forest.trail
        self.status = [0] * len(self.operations)
        self.first = [-1] * len(self.operations)  # of an append: the number of its first record
        self.offset = {value: at for one in self.operations for at, value in enumerate(one.values)}
        self.order: list[int] = []
        self.cursor = 0  # operations below it have been invoked
        self.stuck = -1
        self.effort = 0  # how many steps are left before it gives up
        self.doing: set[int] = set()
        self.chance: Random | None = None
        self.straying = self.turning = 0.0
        self.strict = True
        self.steps: list[list[Undo]] = []  # how to take back the last answers
        self.pending: dict[int, None] = {}  # invoked, and would change something
        self.waiting: dict[LogId, dict[int, None]] = {}  # observations
        self.exact: dict[LogId, dict[int, None]] = {}  # what needs a certain length of its log
        self.appends: dict[LogId, dict[int, None]] = {}
        self.decisions: dict[LogId, dict[int, None]] = {}
        self.busy: dict[LogId, int] = {}  # logs with operations that were invoked and are not done
        self.champions: dict[LogId, None] = {}  # undecided forks that will win
        self.open: dict[int, None] = {}  # applied, and the position is not final
        self.remaining: dict[LogId, dict[int, None]] = {log: {} for log in tree.logs}
        self.hints = Hints(tree, daring=variant % 2 == 1)
        self.variant = variant
        for number, one in enumerate(self.operations):
            if tree.mandatory[number] and one.verb != "create":
                self.remaining[one.log][number] = None
        for log in tree.logs.values():
            if log.creator < 0:
                self.forest.create(log.id)
        self.trail.clear()

    def _invoke(self, number: int) -> None:
        one = self.operations[number]
        self.cursor = number + 1
        self.trail.append((setattr, (self, "cursor", number)))
        self._occupy(one.log, 1)
        if one.verb not in OBSERVATIONS:
            self._note(self.pending, number)
        if one.verb in OBSERVATIONS:
            node = self.forest.nodes.get(one.log)
            if node is not None and not node.end and self._fits(number, node, node.readable()):
                self._mark(number)
            else:
                self._note(self.waiting.setdefault(one.log, {}), number)
        elif one.verb == "append":
            self._note(self.appends.setdefault(one.log, {}), number)
        elif one.verb in ("promote", "squash"):
            self._note(self.decisions.setdefault(one.log, {}), number)
        if self._needed_length(number) is not None:
            self._note(self.exact.setdefault(one.log, {}), number)

    def _occupy(self, log: LogId, more: int) -> None:
        before = self.busy.get(log, 0)
        self._set_busy(log, before + more)
        self.trail.append((self._set_busy, (log, before)))

    def _set_busy(self, log: LogId, count: int) -> None:
        if count:
            self.busy[log] = count
        else:
            self.busy.pop(log, None)

    def _note(self, numbers: dict[Key, None], number: Key) -> None:
        numbers[number] = None
        self.trail.append((numbers.pop, (number,)))

    def _undo(self, mark: int) -> None:
        self.forest.undo(mark)

    def _mark(self, number: int, status: int = DONE) -> None:
        """Note that it took effect."""
        self.trail.append((self._unmark, (number, self.status[number])))
        if not self.status[number]:
            self.order.append(number)
        self.status[number] = status
        one = self.operations[number]
        if number < self.cursor and status == DONE:
            self._occupy(one.log, -1)
        if number in self.pending:
            del self.pending[number]
            self.trail.append((self.pending.__setitem__, (number, None)))
        for where in (self.waiting, self.exact, self.appends, self.decisions, self.remaining):
            numbers = where.get(one.log)
            if numbers is not None and number in numbers:
                del numbers[number]
                self.trail.append((numbers.__setitem__, (number, None)))

    def _unmark(self, number: int, status: int) -> None:
        self.status[number] = status
        if not status:
            self.order.pop()

    def _changed(self, node: Node | None) -> bool:
        """After a change of this log and those below, or of any: take what fits now. False if something never can."""
        for number in list(self.open):
            if not self._settle(number):
                return False
        for log in list(self.busy):
            numbers = self.waiting.get(log)
            if not numbers:
                continue
            found = self.forest.nodes.get(log)
            if found is None or found.end or not (node is None or found.under(node)):
                continue
            readable = found.readable()
            for number in list(numbers):
                if self._fits(number, found, readable):
                    self._mark(number)
        return True

    def _settle(self, number: int) -> bool:
        one = self.operations[number]
        node = self.forest.successor(self.forest.nodes[one.log])
        if node.end:
            return False
        first = self.first[number]
        if node.pending and first + len(one.values) > min(fork.stamp for fork in node.pending):
            return True
        if node.below(first) != one.position:
            return False
        del self.open[number]
        self.trail.append((self.open.__setitem__, (number, None)))
        self._mark(number)
        return True

    def _fits(self, number: int, node: Node, readable: int) -> bool:
        one = self.operations[number]
        if one.verb == "tail":
            return readable == one.position
        count = len(one.records)
        end = one.start + count
        if one.stop is None or end < one.stop:  # it shows all there was
            if readable != end and (count or readable > end):
                return False
        elif count and readable < end:
            return False
        return not count or self._shows(one.start, [value for _, value in one.records], node)

    def _shows(self, start: int, values: list[str | int], node: Node) -> bool:
        appender, first, offset = self.tree.appender, self.first, self.offset
        numbers = []
        for value in values:
            number = first[appender[value]]
            if number < 0:
                return False
            numbers.append(number + offset[value])
        if node.parent is None and not node.pinned:
            return node.own[start : start + len(numbers)] == numbers
        if node.below(numbers[0]) != start or node.below(numbers[-1]) != start + len(numbers) - 1:
            return False
        previous = -1
        for number in numbers:
            if number <= previous or not node.has(number):
                return False
            previous = number
        return True

    def _needed_length(self, number: int) -> int | None:
        """Of what changes something: the length that its log must have, if it must have a certain one."""
        one = self.operations[number]
        if one.verb == "sfork":
            return self.hints.severed_at.get(number) if one.at is None and self.tree.mandatory[number] else None
        if one.verb == "cfork" and one.position is None:
            node = self.forest.nodes.get(one.log)
            return self.hints.point(number, 0 if node is None else node.tail())
        return one.position if one.outcome == "ok" and one.verb in ("append", "cfork") else None

    def _exact_end(self, number: int) -> int | None:
        """Of an observation that saw the end of a log: where that was."""
        one = self.operations[number]
        if one.verb == "tail":
            return one.position
        end = one.start + len(one.records)
        return end if one.stop is None or end < one.stop else None

    def _turned(self) -> bool:
        """Whether to do otherwise than seems best."""
        return self.chance is not None and self.chance.random() < self.turning
