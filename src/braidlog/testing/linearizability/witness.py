"""The fast way to yes: builds an order that explains a history, guided by what the answers say, and hardly ever tries.

It walks along the answers in time. An observation is taken as soon as it fits, since it changes nothing. Anything else
is put off until its own answer is due, or until something else needs it: a record that stands before another, a record
that a position or a tail counts, a decision that ends a hold, what was done to a log before its end. Before a log grows
everything is taken that needs its present length. Where several operations would do, the one that is due first is
taken, and if that leads nowhere at once, the next. Where it is stuck it goes back some answers and comes again by other
ways, which are left to chance (always the same one).

Every step is checked by the forest, so an order that is found is an explanation. That none is found means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from braidlog.testing.linearizability.attempt import APPLIED, DONE
from braidlog.testing.linearizability.evidence import Tree
from braidlog.testing.linearizability.forest import Node
from braidlog.testing.linearizability.planner import Planner

BACK_MAX: Final = 512  # answers
ATTEMPTS: Final = 16


class Builder(Planner):
    """Builds one order for one tree. `stuck` is the operation at which it gave up."""

    def __init__(self, tree: Tree, before: list[list[int]], due: list[int], variant: int = 0) -> None:
        super().__init__(tree, before, due, variant)
        self._carry_out: dict[str, Callable[[int], bool]] = {
            "create": self._create,
            "append": self._append,
            "read": self._observe,
            "tail": self._observe,
            "cfork": self._cfork,
            "sfork": self._sfork,
            "promote": self._promote,
            "squash": self._squash,
            "drop": self._drop,
        }

    def build(self, effort: int) -> list[int] | None:
        """An order of the operations by their numbers; None if there is no way on, or not within the effort."""
        self.effort = effort
        answers = sorted(
            (one.answered, number)
            for number, one in enumerate(self.operations)
            if one.outcome == "ok" and one.answered is not None
        )
        for at in range(len(answers)):
            if not self._advance(*answers[at]) and not self._try_again(answers, at):
                self.stuck = answers[at][1]
                return None
        return self.order

    def _advance(self, answered: int, number: int) -> bool:
        """Go on to the next answer. If it cannot be, nothing has changed."""
        while self.cursor < len(self.operations) and self.operations[self.cursor].invoked <= answered:
            self._invoke(self.cursor)
        if self.chance is not None:
            self._stray()
        if self.status[number] != DONE and not self._finish(number):
            self._undo(0)
            return False
        self.steps.append(self.trail[:])
        self.trail.clear()
        if len(self.steps) > 2 * BACK_MAX:
            del self.steps[:BACK_MAX]
        return True

    def _try_again(self, answers: list[tuple[int, int]], at: int) -> bool:
        """Go back some answers, further and further, and come again by other ways, which are left to chance."""
        here, back = at, 1
        while here and self.steps and at - here < BACK_MAX and self.effort > 0:
            back *= 2
            start = max(0, at - back, here - len(self.steps))
            self._go_back(here - start)
            here = start
            for attempt in range(ATTEMPTS):
                self.chance = chance = Random((self.variant * len(answers) + at) * ATTEMPTS + attempt)
                self.straying = min(0.5, chance.choice((0.0, 1.0, 2.0, 4.0)) / (at + 1 - here))
                self.turning = chance.choice((0.01, 0.05, 0.3))
                self.strict = chance.random() < 0.5
                reached = here
                while reached <= at and self.effort > 0 and self._advance(*answers[reached]):
                    reached += 1
                self.chance, self.strict = None, True
                if reached > at:
                    return True
                self._go_back(reached - here)
        return False

    def _go_back(self, steps: int) -> None:
        for _ in range(steps):
            self.trail[:] = self.steps.pop()
            self._undo(0)

    def _stray(self) -> None:
        """Let something take effect that need not yet."""
        assert self.chance is not None
        while self.pending and self.chance.random() < self.straying:
            self._achieve(self.chance.choice(list(self.pending)))

    def _finish(self, number: int) -> bool:
        """Complete an operation whose answer is due."""
        mark = len(self.trail)
        if self._achieve(number):
            if self.status[number] == DONE:
                return True
            node = self.forest.successor(self.forest.nodes[self.operations[number].log])
            if self._release(node, lambda: self.status[number] == DONE):
                return True
        self._undo(mark)
        if self.status[number] or self.operations[number].verb != "append":
            return False
        found = self._node(self.operations[number].log)  # a hold may have to be decided before it
        return (
            found is not None
            and self._release(found, lambda: not found.pending)
            and self._achieve(number)
            and self.status[number] == DONE
        )

    def _achieve(self, number: int) -> bool:
        """Make it take effect now, after whatever must come before it. If it cannot be, nothing has changed."""
        if self.status[number]:
            return True
        self.effort -= 1
        if number >= self.cursor or number in self.doing or self.effort < 0:
            return False
        mark = len(self.trail)
        self.doing.add(number)
        done = self._carry_out[self.operations[number].verb](number)
        self.doing.discard(number)
        if not done:
            self._undo(mark)
        return done

    def _create(self, number: int) -> bool:
        one = self.operations[number]
        assert one.child is not None
        if one.child in self.forest.nodes:
            return False
        self.forest.create(one.child)
        self._mark(number)
        return self._changed(None)

    def _append(self, number: int) -> bool:
        one = self.operations[number]
        node = self._node(one.log)
        if node is None or not self._precede(number):
            return False
        if node.blocked() and not self._release(node, lambda: not node.blocked()):
            return False
        wanted = one.position if one.outcome == "ok" else None
        if wanted is None and one.outcome == "ok":
            self._before_withheld(node)
            if self.status[number]:
                return True
        if wanted is not None and not node.pending and not self._fill(node, wanted):
            return False
        for log, position in self.hints.gaps.get(number, ()):
            found = self.forest.nodes.get(log)
            if found is None or found.end or not found.under(node) or not self._steady(found):
                continue
            if not self._fill(found, position):
                return False
        if not self._turned() and not self.status[number] and not self._make_room(number):
            return False
        if self.status[number]:
            return True
        self._before_growth(node)
        if not self._before_record(node, number):
            return False
        if self.status[number]:
            return True
        if node.end or node.blocked():
            return False
        held = wanted is not None and bool(node.pending)
        if wanted is not None and not held and node.tail() != wanted:
            return False
        self.trail.append((self.first.__setitem__, (number, -1)))
        self.first[number] = self.forest.append(node, len(one.values))
        if held:
            self._note(self.open, number)
        self._mark(number, APPLIED if held else DONE)
        return self._changed(node)

    def _observe(self, number: int) -> bool:
        one = self.operations[number]
        node = self._node(one.log)
        if node is None:
            return False
        appends = dict.fromkeys(self.tree.appender[value] for _, value in one.records)
        if not all(self._achieve(append) for append in appends if not self.status[append]):
            return False
        if self.status[number]:
            return True
        end = one.start + len(one.records) if one.records else 0
        beyond = one.verb == "read" and end == one.stop
        if not self._extend(node, end if one.verb == "read" else one.position or 0, beyond):
            return False
        if self.status[number]:
            return True
        if node.end or not self._fits(number, node, node.readable()):
            return False
        self._mark(number)
        return True

    def _cfork(self, number: int) -> bool:
        one = self.operations[number]
        assert one.child is not None
        parent = self._node(one.log)
        if parent is None or one.child in self.forest.nodes:
            return False
        if one.promotable and parent.blocked() and not self._release(parent, lambda: not parent.blocked()):
            return False
        point = one.position if one.outcome == "ok" else None
        if point is None and not self._turned():
            point = self.hints.point(number, parent.tail())
        if one.promotable:
            self._before_rival(parent, number)
        if point is not None and not self._reach(parent, point):
            return False
        if point is None and one.promotable and parent.tail() < self.hints.least_point.get(number, 0):
            self._extend(parent, self.hints.least_point[number], True)
        if one.promotable:
            self._before_hold(parent, one.child, point)
        if parent.end or (one.promotable and parent.blocked()) or (point is not None and parent.tail() != point):
            return False
        self.forest.cfork(parent, one.child, one.promotable)
        if one.child in self.hints.winners:
            self._note(self.champions, one.child)
        self._mark(number)
        return self._changed(None)

    def _sfork(self, number: int) -> bool:
        one = self.operations[number]
        assert one.child is not None
        source = self._node(one.log)
        if source is None or one.child in self.forest.nodes:
            return False
        point = one.at
        if point is None and (log := self.tree.logs[one.child]).point is None and not self._turned():
            point = self.hints.severed_at.get(number)
        elif point is None:
            point = log.point
        if one.outcome == "ok" and one.position not in (None, point):
            return False
        if point is not None and not self._extend(source, point, one.at is not None):
            return False
        if one.at is None:
            if source.readable() < source.tail() and not self._release(
                source, lambda: source.readable() == source.tail()
            ):
                return False
            if point is None:
                point = source.tail()
            if source.tail() != point:
                return False
        if source.end or point is None or source.readable() < point:
            return False
        self.forest.sfork(source, one.child, point)
        self._mark(number)
        return self._changed(None)

    def _promote(self, number: int) -> bool:
        fork = self._node(self.operations[number].log)
        if fork is None or not fork.promotable:
            return False

        def doomed() -> list[Node]:
            return [fork] + [node for rival in self.forest.rivals(fork) for node in rival.subtree()]

        self._before_release(fork)
        self._before_promotion(fork, number)
        if fork.end or not self._clear(number, doomed):
            return False
        if fork.own and fork.parent is not None:
            self._before_growth(fork.parent, fork)
            if fork.end or not self._clear(number, doomed):
                return False
        if fork.end:
            return False
        self.forest.promote(fork)
        if self.champions.pop(fork.id, 0) is None:
            self.trail.append((self.champions.__setitem__, (fork.id, None)))
        self._mark(number)
        return self._changed(None)

    def _squash(self, number: int) -> bool:
        node = self._node(self.operations[number].log)
        if node is None or node.kind == "root":
            return False
        self._before_release(node)
        if not self._clear(number, node.subtree) or node.end:
            return False
        self.forest.end(node.subtree(), "squashed")
        self._mark(number)
        return self._changed(None)

    def _drop(self, number: int) -> bool:
        node = self._node(self.operations[number].log)

        def living() -> list[Node]:
            return [other for other in self.forest.nodes.values() if not other.end]

        if node is None or node.kind != "root" or not self._clear(number, living) or node.end:
            return False
        for other in living():
            if not other.end:
                self.forest.end(other.subtree(), "dropped")
        self._mark(number)
        return self._changed(None)
