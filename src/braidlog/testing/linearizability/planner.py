"""What must come before an operation, and what had better: the rules by which an order is built.

All of them put something off or bring it forward; none decides whether it is right. They assume that what happened is
the simplest thing that the answers allow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from braidlog.testing.linearizability.attempt import Attempt
from braidlog.testing.linearizability.evidence import FAR
from braidlog.testing.linearizability.forest import Node
from braidlog.testing.linearizability.history import LogId


def _grown(node: Node, readable: int, tail: int) -> bool:
    return node.readable() > readable or node.tail() > tail


class Planner(Attempt, ABC):
    """Prepares for operations by letting others take effect."""

    @abstractmethod
    def _achieve(self, number: int) -> bool:
        """Make it take effect now, after whatever must come before it. If it cannot be, nothing has changed."""

    def _node(self, log: LogId) -> Node | None:
        node = self.forest.nodes.get(log)
        if node is None:
            if not self._achieve(self.tree.logs[log].creator):
                return None
            node = self.forest.nodes[log]
        return None if node.end else node

    def _precede(self, number: int) -> bool:
        """Every append whose records stand before those of this one comes first."""
        stack, seen = [number], {number}
        while stack:
            top = stack[-1]
            missing = [other for other in self._missing_before(top) if other not in seen]
            if missing:
                seen.update(missing)
                stack += missing
                continue
            stack.pop()
            if top != number and not self._achieve(top):
                return False
        return not self.status[number]

    def _missing_before(self, number: int) -> list[int]:
        """What stands before it in any log; or in one that receives it, if it is known not to stand among that."""
        one = self.operations[number]
        found = [other for other in self.before[number] if not self.status[other]]
        for log in self._receivers(one.log):
            if one.values[0] in self.hints.position_of[log]:
                continue
            node = self.forest.nodes.get(log)
            if node is None or node.end or not self._steady(node):
                continue
            tail = node.tail()
            start, end = self.hints.known_from(log, tail)
            if start == tail and not self.status[last := self._append_at(log, end - 1)]:
                found.append(last)
        return found

    def _receivers(self, log: LogId) -> list[LogId]:
        """A log, and the busy ones and the winners of holds that receive what is appended to it."""
        found = {other: None for other in (*self.busy, *self.champions) if log in self.hints.above[other]}
        found[log] = None
        return list(found)

    def _steady(self, node: Node) -> bool:
        """Whether its records stand where they will stay."""
        return not any(fork.id in self.hints.winners for holder in node.holders() for fork in holder.pending)

    def _append_at(self, log: LogId, position: int) -> int:
        value = self.hints.content[log][position]
        assert value is not None
        return self.tree.appender[value]

    def _make_room(self, number: int) -> bool:
        """Fill what a batch would leap over: a gap before known records, or a length that somebody saw."""
        one = self.operations[number]
        for log in self._receivers(one.log):
            node = self.forest.nodes.get(log)
            if node is None or node.end:
                continue
            tail = node.tail()
            if one.values[0] not in self.hints.position_of[log] and self._steady(node):
                start, _ = self.hints.known_from(log, tail)
                if start < tail + len(one.values) and not (self._fill(node, start) and self._precede(number)):
                    return False
            if len(one.values) > 1:
                for length in sorted(self._lengths_seen(log)):
                    if tail < length < tail + len(one.values):
                        mark = len(self.trail)
                        if not self._fill(node, length):
                            self._undo(mark)
                        break
        return True

    def _lengths_seen(self, log: LogId) -> Iterator[int]:
        """The lengths of a log that operations need that wait."""
        for number in self.exact.get(log, ()):
            yield self._needed_length(number) or 0
        for number in self.waiting.get(log, ()):
            yield self._exact_end(number) or 0

    def _clear(self, number: int, doomed: Callable[[], Iterable[Node]]) -> bool:
        """Whatever was surely done to logs that are about to end is done now."""
        while True:
            left = [other for node in doomed() for other in self.remaining[node.id] if other != number]
            if not left:
                return True
            if max(left) >= self.cursor:
                return False
            if not self._achieve(min(left, key=self.due.__getitem__)):
                return False

    def _before_growth(self, node: Node, winner: Node | None = None) -> None:
        """Whatever needs the present length of a log that is about to grow is done now. A winner does not grow."""
        if self._turned():
            return
        again = True
        while again:
            again = False
            for log in list(self.busy):
                numbers = self.exact.get(log)
                if not numbers:
                    continue
                found = self.forest.nodes.get(log)
                if found is None or found.end or not found.under(node):
                    continue
                if winner is not None and found.under(winner):
                    continue
                length = found.tail()
                released = length + sum(
                    len(fork.own)
                    for holder in found.holders()
                    for fork in holder.pending
                    if holder is not found and fork.id in self.hints.winners
                )
                for number in list(numbers):
                    one = self.operations[number]
                    at = length if one.verb == "cfork" and not one.promotable else released
                    if self._needed_length(number) != at or number in self.doing or self.status[number]:
                        continue
                    if one.verb == "append" and found.pending:
                        continue
                    if self._achieve(number):
                        again = True
                        break

    def _before_hold(self, parent: Node, child: LogId, point: int | None) -> None:
        """Whatever the hold would put off for too long is done now."""
        if self._turned():
            return
        decided = self.hints.decided[self.tree.logs[child].creator]
        for number in sorted(self.pending, key=self.due.__getitem__):
            one = self.operations[number]
            if self.due[number] >= decided:
                break
            if not self.tree.mandatory[number] or parent.id not in self.hints.above.get(one.log, ()):
                continue
            node = self.forest.nodes.get(one.log)
            if node is not None and (node.end or node.blocked() or any(node.under(fork) for fork in parent.pending)):
                continue
            if node is parent:
                put_off = one.position is not None and point is None if one.verb == "append" else one.verb == "sfork"
            else:
                put_off = one.verb in ("append", "sfork") or one.promotable
            if put_off and not (one.verb == "sfork" and one.at is not None):
                self._achieve(number)

    def _before_withheld(self, node: Node) -> None:
        """A fork that explains why an append was told no position is made now."""
        if node.pending or self._turned():
            return
        for number in list(self.pending):
            one = self.operations[number]
            if one.promotable and one.log == node.id and number not in self.doing and self._achieve(number):
                return

    def _before_rival(self, parent: Node, number: int) -> None:
        """A promotion that a new rival outlives is done now."""
        if self._turned():
            return
        child = self.operations[number].child
        assert child is not None
        for fork in list(parent.pending):
            for promotion in list(self.decisions.get(fork.id, ())):
                if self.operations[promotion].verb != "promote" or not self.tree.mandatory[promotion]:
                    continue
                if any(
                    self.operations[other].invoked > self.due[promotion] or self.operations[other].verb == "promote"
                    for other in self.remaining[child]
                ):
                    self._achieve(promotion)

    def _before_promotion(self, fork: Node, number: int) -> None:
        """A rival that nothing but this promotion can have ended is made now."""
        if self._turned():
            return
        assert fork.parent is not None
        for rival in self.tree.logs[fork.parent.id].forks:
            if self.hints.lost.get(rival.creator) == [number]:
                self._achieve(rival.creator)

    def _before_record(self, node: Node, number: int) -> bool:
        """Whatever shows the end of a log without a record that is about to come is done now. False if it cannot be."""
        if self._turned():
            return True
        value = self.operations[number].values[0]
        for log in list(self.busy):
            numbers = self.waiting.get(log)
            if not numbers or node.id not in self.hints.above[log]:
                continue
            standing = self.hints.position_of[log].get(value)
            found = self.forest.nodes.get(log)
            held = found is not None and found.limit() >= 0  # the record is hidden: it may come before
            least = found.readable() if held and found is not None else -1
            start, known = self.hints.known_from(log, 0 if found is None else found.tail())
            if found is not None and start > found.tail():
                known = 0
            for other in list(numbers):
                end = self._exact_end(other)
                if end is None:
                    continue
                lacks = standing >= end > least if standing is not None else not held and known >= end
                if not lacks or other in self.doing or self.status[other]:
                    continue
                if found is not None and any(
                    found.below(fork.stamp) == end for holder in found.holders() for fork in holder.pending
                ):
                    continue  # that is where a hold ends it
                if not self._achieve(other) and standing is not None and found is not None and self.strict:
                    return False
        return True

    def _before_release(self, fork: Node) -> None:
        """Whatever saw where the hold of a fork ends a log is done now, before the fork is decided."""
        if fork.parent is None or not fork.promotable or self._turned():
            return
        for log in list(self.busy):
            numbers = self.waiting.get(log)
            found = self.forest.nodes.get(log)
            if not numbers or found is None or found.end or not found.under(fork.parent) or found.under(fork):
                continue
            end = found.below(fork.stamp)
            if found.readable() < end:
                for number in list(numbers):
                    if self._exact_end(number) == end and number not in self.doing and not self.status[number]:
                        self._achieve(number)

    def _extend(self, node: Node, end: int, beyond: bool = False) -> bool:
        """Make a log readable up to a position, or `beyond`."""
        while not node.end and (readable := node.readable()) < end:
            tail = node.tail()
            if readable == tail:
                mark = len(self.trail)
                if self._fill(node, end, beyond):
                    if node.readable() > readable:
                        continue
                else:
                    self._undo(mark)
            if not self._release(node, partial(_grown, node, readable, tail)):
                return False
        return not node.end

    def _reach(self, node: Node, length: int) -> bool:
        """Let a log grow to a length, by what it receives and by what is promoted into it."""

        def filled() -> bool:
            mark = len(self.trail)
            if self._fill(node, length):
                return True
            self._undo(mark)
            return False

        return self._release(node, filled)

    def _fill(self, node: Node, length: int, beyond: bool = False) -> bool:
        """Let a log grow to a length, or `beyond`, by appends to it and to those that it receives from."""
        while (slot := node.tail()) < length:
            choices = self._choices(node, FAR if beyond else length)
            if len(choices) == 1:  # no need to come back
                if not (self._achieve(choices[0]) and node.tail() > slot):
                    return False
                continue
            for number in choices:
                mark = len(self.trail)
                if self._achieve(number) and node.tail() > slot and self._fill(node, length, beyond):
                    return True
                self._undo(mark)
            return False
        return beyond or slot == length

    def _choices(self, node: Node, length: int) -> list[int]:
        """The appends that may come next in a log, the likely ones first."""
        slot = node.tail()
        here = self.hints.position_of[node.id]
        final = self._steady(node)
        if final and self.hints.known_from(node.id, slot)[0] == slot:
            append = self._append_at(node.id, slot)
            return [append] if not self.status[append] else []
        candidates = []
        at: Node | None = node
        while at is not None:
            standing = self.hints.position_of[at.id]
            tail = at.tail()
            for number in self.appends.get(at.id, ()):
                one = self.operations[number]
                if number in self.doing or slot + len(one.values) > length:
                    continue
                standing_here = here.get(one.values[0], slot)
                if final and standing_here != slot:
                    continue
                if self._steady(at) and standing.get(one.values[0], tail) != tail:
                    continue
                ready = all(self.status[other] for other in self.before[number])
                optional = not self.tree.mandatory[number]
                candidates.append((optional, not ready, standing_here, self.due[number], number))
            at = at.parent
        found = [number for *_, number in sorted(candidates)]
        if self.chance is not None:
            self.chance.shuffle(found)
        return found

    def _release(self, node: Node, goal: Callable[[], bool]) -> bool:
        """Decide undecided forks until the goal is reached."""
        if goal():
            return True
        for holder in list(node.holders()):
            options = [
                number
                for fork in holder.pending
                for number in self.decisions.get(fork.id, ())
                if number not in self.doing
            ]
            options.sort(key=self._likelihood)
            if self._turned():
                options.reverse()
            for number in options:
                mark = len(self.trail)
                if self._achieve(number) and (goal() or (not node.end and self._release(node, goal))):
                    return True
                self._undo(mark)
        return False

    def _likelihood(self, number: int) -> tuple[bool, bool, int]:
        """Certain decisions first; then promotions of forks whose records the parent shows, then others."""
        one = self.operations[number]
        return (
            not self.tree.mandatory[number],
            (one.verb == "promote") != (one.log in self.hints.winners),
            self.due[number],
        )
