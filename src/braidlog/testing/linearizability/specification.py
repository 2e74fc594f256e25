"""What a tree of logs means, said as naively as possible: a log is a tuple of values, and a call takes a moment.

`perform` carries out one call on a state and tells the new state and the answer; states never change. An append puts
values at the end of its log and of every live fork below; a fork copies; a promotion gives the parent the fork's
values. A log with undecided promotable forks is held: what stands behind the earliest fork point is hidden from it and
from everything below it, except below those very forks; nothing below it takes appends, again except below those forks.

Nothing here is shared with braidlog itself. A log that no call created is an empty root that was there from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from braidlog.testing.linearizability.history import LogId, Operation, Value


@dataclass(frozen=True, slots=True)
class LogState:
    """One log. Of an ended one only `end` counts, and `parent`, which is what it was promoted into."""

    kind: str
    parent: LogId | None = None  # of a live fork
    content: tuple[Value, ...] = ()
    fork_point: int = 0
    promotable: bool = False
    end: str = ""


State: TypeAlias = Mapping[LogId, LogState]

EMPTY: Final[State] = {}


class Refused(Exception):
    """The call cannot be carried out on this state."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`held`: of an append, that its position may still change."""

    position: int | None = None
    held: bool = False
    records: tuple[tuple[int, Value], ...] = ()
    promoted: bool | None = None


def perform(state: State, call: Operation) -> tuple[State, Answer]:
    """Carry out what a call asks for; its recorded answer is not looked at, except for the id of a new log."""
    match call.verb:
        case "create":
            return _added(state, call, LogState("root")), Answer()
        case "append":
            return _append(state, call)
        case "read":
            content = _living(state, call.log).content[: readable(state, call.log)]
            chosen = content[call.start : call.stop]
            return state, Answer(records=tuple(enumerate(chosen, call.start)))
        case "tail":
            _living(state, call.log)
            return state, Answer(position=readable(state, call.log))
        case "cfork":
            parent = _living(state, call.log)
            if call.promotable and blocked(state, call.log):
                raise Refused("the log is blocked")
            point = len(parent.content)
            fork = LogState("cfork", call.log, parent.content, point, call.promotable)
            return _added(state, call, fork), Answer(position=point)
        case "sfork":
            source = _living(state, call.log)
            point = len(source.content) if call.at is None else call.at
            if point > readable(state, call.log):
                raise Refused("what is to be shared cannot be read")
            return _added(state, call, LogState("sfork", None, source.content[:point], point)), Answer(position=point)
        case "promote":
            return _promote(state, call.log)
        case "squash":
            if _living(state, call.log).kind == "root":
                raise Refused("a root cannot be squashed")
            return _ended(state, subtree(state, call.log), "squashed"), Answer()
        case "drop":
            if _living(state, call.log).kind != "root":
                raise Refused("a fork cannot be dropped")
            return _ended(state, [log for log in state if not state[log].end], "dropped"), Answer()
    raise AssertionError(f"unknown verb {call.verb}")


def settled(state: State, log: LogId, value: Value, count: int) -> int | None:
    """Where a batch finally stands that was appended to a held log; None while that is open. Refused if it is gone."""
    while state[log].end == "promoted":
        log = state[log].parent  # type: ignore[assignment]
    if state[log].end:
        raise Refused("the log ended before the position was known")
    position = state[log].content.index(value)
    points = [state[fork].fork_point for fork in undecided(state, log)]
    return position if not points or position + count <= min(points) else None


def forks(state: State, log: LogId) -> Iterator[LogId]:
    """The live forks right below a log."""
    return (other for other, found in state.items() if found.parent == log and not found.end)


def subtree(state: State, top: LogId) -> list[LogId]:
    members = [top]
    for member in members:  # grows while it is walked
        members += forks(state, member)
    return members


def undecided(state: State, log: LogId) -> list[LogId]:
    return [fork for fork in forks(state, log) if state[fork].promotable]


def readable(state: State, log: LogId) -> int:
    """The first position that cannot be read."""
    content = state[log].content
    limit = len(content)
    for holder, pending in _holds(state, log):
        hidden = set(state[holder].content[min(state[fork].fork_point for fork in pending) :])
        limit = next((at for at, value in enumerate(content[:limit]) if value in hidden), limit)
    return limit


def blocked(state: State, log: LogId) -> bool:
    """Whether a hold further up keeps the log from taking appends and promotable forks."""
    return any(holder != log for holder, _ in _holds(state, log))


def _holds(state: State, log: LogId) -> Iterator[tuple[LogId, list[LogId]]]:
    """The held logs on the way up whose hold reaches this log, each with the forks that are undecided."""
    below: LogId | None = None
    at: LogId | None = log
    while at is not None:
        pending = undecided(state, at)
        if pending and below not in pending:
            yield at, pending
        below, at = at, state[at].parent


def _living(state: State, log: LogId) -> LogState:
    found = state.get(log)
    if found is None:
        raise Refused("there is no such log")
    if found.end:
        raise Refused(f"the log was {found.end}")
    return found


def _added(state: State, call: Operation, log: LogState) -> State:
    assert call.child is not None
    if call.child in state:
        raise Refused("a log of that id is there already")
    return {**state, call.child: log}


def _append(state: State, call: Operation) -> tuple[State, Answer]:
    log = _living(state, call.log)
    if blocked(state, call.log):
        raise Refused("the log is blocked")
    changed = {
        member: replace(state[member], content=state[member].content + call.values)
        for member in subtree(state, call.log)
    }
    return {**state, **changed}, Answer(len(log.content), bool(undecided(state, call.log)))


def _promote(state: State, name: LogId) -> tuple[State, Answer]:
    fork = state.get(name)
    if fork is not None and fork.end == "lost":
        return state, Answer(promoted=False)
    fork = _living(state, name)
    if not fork.promotable or fork.parent is None:
        raise Refused("the log is not promotable")
    parent = state[fork.parent]
    rivals = undecided(state, fork.parent)
    held_from = min(state[rival].fork_point for rival in rivals)
    for rival in rivals:
        if rival != name:
            state = _ended(state, subtree(state, rival), "lost")
    hidden = set(parent.content[held_from:])
    carried = set(subtree(state, name))
    changed: dict[LogId, LogState] = {}
    for other in subtree(state, fork.parent):
        log = state[other]
        if other not in carried and other != fork.parent:
            kept = tuple(value for value in log.content if value not in hidden)
            log = replace(log, content=kept + fork.content[held_from:])
        if log.parent == fork.parent and log.fork_point:  # it was born behind a certain record, and still is
            log = replace(log, fork_point=fork.content.index(parent.content[log.fork_point - 1]) + 1)
        if log.parent == name:
            log = replace(log, parent=fork.parent)
        changed[other] = log
    changed[fork.parent] = replace(parent, content=fork.content)
    changed[name] = LogState("cfork", fork.parent, end="promoted")
    return {**state, **changed}, Answer(promoted=True)


def _ended(state: State, logs: list[LogId], how: str) -> State:
    return {**state, **{log: LogState(state[log].kind, end=how) for log in logs}}
