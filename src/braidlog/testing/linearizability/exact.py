"""The exact checker: tries orders one after the other, over the naive specification, until one explains every answer.

The search is that of Wing and Gong with the memory of Lowe: from a state, any operation may come next that was invoked
before the earliest answer still outstanding; what was found hopeless for a set of operations and a state is not tried
again. An observation that fits is taken at once: it changes nothing, so taking it can only help.

An append to a held log that was answered with a position was answered when the position was decided: it takes effect
at one moment, and is complete at a later one at which the position is final.

It is exponential in the number of concurrent operations: for histories of a few dozen.
"""

from __future__ import annotations

from typing import NamedTuple

from braidlog.testing.linearizability.evidence import FAR
from braidlog.testing.linearizability.history import OBSERVATIONS, LogId, Operation
from braidlog.testing.linearizability.specification import EMPTY, LogState, Refused, State, perform, settled


class Search(NamedTuple):
    """`order` is None if there is none, or if the search was given up. `furthest` is the longest that was tried."""

    order: list[Operation] | None
    given_up: bool
    furthest: list[Operation]


class _GivenUp(Exception):
    pass


class _Searcher:
    def __init__(self, operations: list[Operation], steps: int) -> None:
        self.operations = operations
        self.steps = steps
        self.invoked = [one.invoked for one in operations]
        self.answered = [one.answered if one.outcome == "ok" else None for one in operations]
        self.certain = [number for number, one in enumerate(operations) if one.outcome == "ok"]
        self.hopeless: set[object] = set()
        self.furthest: list[int] = []

    def explore(self, state: State, done: int, open_: frozenset[int], order: list[int]) -> list[int] | None:
        """`done`: a bit for each operation that took effect; `open_`: appends whose position is not final yet."""
        candidates: list[int] = []
        while True:
            outstanding = [number for number in self.certain if not done >> number & 1 or number in open_]
            if not outstanding:
                return order
            limit = min(self.answered[number] or 0 for number in outstanding)
            candidates = [
                number for number, invoked in enumerate(self.invoked) if invoked <= limit and not done >> number & 1
            ]
            fitting = [
                number
                for number in candidates
                if self.operations[number].verb in OBSERVATIONS and self._step(state, number) is not None
            ]
            if not fitting:
                break
            for number in fitting:
                done |= 1 << number
            order = order + fitting
        if len(order) > len(self.furthest):
            self.furthest = order
        key = (done, open_, frozenset(state.items()))
        if key in self.hopeless:
            return None
        self.steps -= 1
        if self.steps < 0:
            raise _GivenUp
        for number in sorted(candidates, key=lambda number: self.answered[number] or FAR):
            if self.operations[number].verb in OBSERVATIONS:
                continue
            taken = self._step(state, number)
            if taken is None:
                continue
            after, held = taken
            still_open = self._settle(after, open_ | {number} if held else open_)
            if still_open is None:
                continue
            found = self.explore(after, done | 1 << number, still_open, order + [number])
            if found is not None:
                return found
        self.hopeless.add(key)
        return None

    def _step(self, state: State, number: int) -> tuple[State, bool] | None:
        """The state after an operation, and whether its position is still open. None if its answer does not fit."""
        one = self.operations[number]
        try:
            after, answer = perform(state, one)
        except Refused:
            return None
        held = False
        if one.outcome == "ok":
            match one.verb:
                case "append":
                    held = answer.held and one.position is not None
                    if one.position is not None and not held and answer.position != one.position:
                        return None
                case "read":
                    if answer.records != one.records:
                        return None
                case "tail" | "cfork" | "sfork":
                    if one.position is not None and answer.position != one.position:
                        return None
                case "promote":
                    if answer.promoted != one.promoted:
                        return None
        elif one.verb == "promote" and not answer.promoted:
            return None
        return after, held

    def _settle(self, state: State, open_: frozenset[int]) -> frozenset[int] | None:
        left = open_
        for number in open_:
            one = self.operations[number]
            try:
                position = settled(state, one.log, one.values[0], len(one.values))
            except Refused:
                return None
            if position is not None:
                if position != one.position:
                    return None
                left -= {number}
        return left


def search(operations: list[Operation], steps: int) -> Search:
    """Look for an order of the operations of one tree. Gives up after so many steps."""
    made = {one.child for one in operations if one.child is not None}
    start: dict[LogId, LogState] = dict(EMPTY)
    for one in operations:
        if one.verb != "create" and one.log not in made:
            start[one.log] = LogState("root")
    searcher = _Searcher(operations, steps)
    given_up = False
    try:
        order = searcher.explore(start, 0, frozenset(), [])
    except _GivenUp:
        order, given_up = None, True
    named = [operations[number] for number in order] if order is not None else None
    return Search(named, given_up, [operations[number] for number in searcher.furthest])


def replay(operations: list[Operation], order: list[Operation]) -> bool:
    """Whether an order explains every answer and keeps to real time: the judge of what other checkers find."""
    left = [one for one in operations if one.outcome == "ok"]
    latest = -1
    for one in order:
        latest = max(latest, one.invoked)
        if one.outcome == "ok" and one.answered is not None and one.answered < latest:
            return False
    placed = set(map(id, order))
    if len(placed) != len(order) or any(id(one) not in placed for one in left):
        return False
    return _replays(operations, order)


def _replays(operations: list[Operation], order: list[Operation]) -> bool:
    searcher = _Searcher(order, 0)
    made = {one.child for one in operations if one.child is not None}
    state: State = {one.log: LogState("root") for one in operations if one.verb != "create" and one.log not in made}
    open_: frozenset[int] = frozenset()
    for number, one in enumerate(order):
        if any((order[waiting].answered or 0) < one.invoked for waiting in open_):
            return False
        taken = searcher._step(state, number)
        if taken is None:
            return False
        state, held = taken
        still_open = searcher._settle(state, open_ | {number} if held else open_)
        if still_open is None:
            return False
        open_ = still_open
    return not open_
