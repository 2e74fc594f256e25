"""A history sorted for checking: one `Tree` for each family of logs, with everything that its answers say outright.

What is refused is left out, and so are promotions that answered False: neither changed anything. Operations are known
by their number, in the order of invocation. `deadline` is the moment at which an operation must have taken effect: its
answer, or for an append that is unknown the end of the first read that shows it; FAR for those that may never have.

The tree's `contents` say for each log which value stands at which position. That can be asked for without asking when,
because what could once be read, or was once answered, never moves. Building them finds the plain contradictions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from braidlog.testing.linearizability.history import CREATIONS, OBSERVATIONS, LogId, Operation, Value
from braidlog.testing.linearizability.verdict import Violation

FAR: Final = 1 << 62


class LogFacts:
    """What the history says of one log."""

    __slots__ = (
        "content",
        "creator",
        "forks",
        "id",
        "kind",
        "operations",
        "point",
        "position_of",
        "promotable",
        "source",
        "told_by",
    )

    def __init__(self, log: LogId) -> None:
        self.id = log
        self.kind = "root"
        self.creator = -1
        self.source: LogFacts | None = None
        self.forks: list[LogFacts] = []
        self.promotable = False
        self.point: int | None = None  # where it was forked, if that is known
        self.operations: list[int] = []
        self.content: list[Value | None] = []
        self.told_by: list[int] = []  # the operation that told it first
        self.position_of: dict[Value, int] = {}


class Tree:
    """One family of logs and everything that was done to it."""

    def __init__(self, operations: list[Operation], refused: dict[Value, Operation], origin: int) -> None:
        self.operations = operations
        self.origin = origin
        self.violations: list[Violation] = []
        self.logs: dict[LogId, LogFacts] = {}
        self.appender: dict[Value, int] = {}
        self.answered = [
            one.answered if one.outcome == "ok" and one.answered is not None else FAR for one in operations
        ]
        self.deadline = list(self.answered)
        self.shown_by: dict[int, int] = {}  # of an append: the read that showed it first
        self._refused = refused
        self._note_logs()
        self._note_contents()
        if not self.violations:
            for log in self.logs.values():
                self._complete_batches(log)
        self.mandatory = [moment != FAR for moment in self.deadline]
        self._demand_creations()

    def violate(self, kind: str, message: str, *operations: int) -> None:
        named = tuple(self.operations[number] for number in dict.fromkeys(operations) if number >= 0)
        self.violations.append(Violation(kind, message, named, self.origin))

    def log(self, log: LogId) -> LogFacts:
        found = self.logs.get(log)
        if found is None:
            found = self.logs[log] = LogFacts(log)
        return found

    def _note_logs(self) -> None:
        for number, one in enumerate(self.operations):
            self.log(one.log if one.verb != "create" else one.child or one.log)
            if one.verb == "append":
                for value in one.values:
                    self.appender[value] = number
            if one.verb not in CREATIONS:
                self.logs[one.log].operations.append(number)
                continue
            assert one.child is not None
            made = self.log(one.child)
            if made.creator >= 0 or (one.verb != "create" and one.child == one.log):
                self.violate("unborn", f"{one.child} was made twice", made.creator, number)
                continue
            made.kind, made.creator, made.promotable = one.verb, number, one.verb == "cfork" and one.promotable
            if one.verb != "create":
                made.point = one.position if one.position is not None or one.verb == "cfork" else one.at
                made.source = self.log(one.log)
                made.source.forks.append(made)
                made.source.operations.append(number)
                if one.verb == "sfork" and one.at is not None and one.position not in (None, one.at):
                    self.violate("malformed", f"{one.child} was severed at {one.position}, not at {one.at}", number)
        self._refuse_circles()

    def _refuse_circles(self) -> None:
        for log in self.logs.values():
            seen, at = {log.id}, log.source
            while at is not None:
                if at.id in seen:
                    self.violate("unborn", f"{log.id} descends from itself", log.creator, at.creator)
                    at.source = None
                    break
                seen.add(at.id)
                at = at.source

    def _note_contents(self) -> None:
        for number in sorted(range(len(self.operations)), key=self.answered.__getitem__):
            one = self.operations[number]
            if one.outcome != "ok":
                continue
            if one.verb == "read":
                self._note_read(number, one)
            elif one.verb == "append" and one.position is not None:
                self._note(self.logs[one.log], one.position, one.values, number)

    def _note_read(self, number: int, one: Operation) -> None:
        if not one.records:
            return
        log = self.logs[one.log]
        values = [value for _, value in one.records]
        if [position for position, _ in one.records] != list(range(one.start, one.start + len(values))):
            self.violate("malformed", f"the positions of a read do not follow each other from {one.start}", number)
            return
        if one.stop is not None and one.start + len(values) > one.stop:
            self.violate("malformed", f"a read shows more than was asked for: it is to stop at {one.stop}", number)
            return
        if log.content[one.start : one.start + len(values)] == values:
            return  # all of it was told before
        answered = self.answered[number]
        for value in values:
            append = self.appender.get(value)
            if append is None:
                refused = self._refused.get(value)
                if refused is None:
                    self.violate("invented", f"nobody appended {value!r}, which {log.id} shows", number)
                else:
                    self.violations.append(
                        Violation(
                            "refused",
                            f"{log.id} shows {value!r}, whose append was refused",
                            (refused, one),
                            self.origin,
                        )
                    )
                return
            if self.operations[append].invoked > answered:
                self.violate("early", f"{log.id} shows {value!r} before its append was invoked", number, append)
                return
            if append not in self.shown_by:
                self.shown_by[append] = number
                self.deadline[append] = min(self.deadline[append], answered)
        self._note(log, one.start, values, number)

    def _note(self, log: LogFacts, start: int, values: Iterable[Value], number: int) -> None:
        values = list(values)
        end = start + len(values)
        if log.content[start:end] == values:
            return
        if len(log.content) < end:
            more = end - len(log.content)
            log.content += [None] * more
            log.told_by += [-1] * more
        for position, value in enumerate(values, start):
            known = log.content[position]
            if known == value:
                continue
            if known is not None:
                self._contradict(log, position, known, value, number)
                return
            other = log.position_of.setdefault(value, position)
            if other != position:
                message = f"{log.id} has {value!r} twice, at {other} and at {position}"
                self.violate("twice", message, log.told_by[other], number, self.appender[value])
                return
            log.content[position] = value
            log.told_by[position] = number

    def _contradict(self, log: LogFacts, position: int, known: Value, value: Value, number: int) -> None:
        first = log.told_by[position]
        for claim, lost, shown in ((first, known, number), (number, value, first)):
            if self.operations[claim].verb == "append" and self.operations[shown].verb == "read":
                if any(
                    lost == seen for one in self.operations if one.verb == "read" for _, seen in one.records
                ):  # it is somewhere
                    break
                message = f"{lost!r} was acknowledged at {position} of {log.id}, is not there and was never shown"
                self.violate("missing", message, claim, shown)
                return
        message = f"position {position} of {log.id} has {known!r} and {value!r}"
        self.violate("conflict", message, first, number, self.appender[known], self.appender[value])

    def cuts(self, log: LogFacts) -> list[int | None]:
        """Where the log, or a log that it comes from, was severed: there, and only there, a batch may be cut."""
        found: list[int | None] = []
        at: LogFacts | None = log
        while at is not None:
            if at.kind == "sfork":
                found.append(at.point)
            at = at.source
        return found

    def _complete_batches(self, log: LogFacts) -> None:
        """A batch stands in one piece: where one record of it stands, the others stand around it."""
        cuts: list[int | None] | None = None
        previous = -1
        for position, value in enumerate(list(log.content)):
            if value is None or (number := self.appender[value]) == previous:
                continue
            previous = number
            values = self.operations[number].values
            if len(values) == 1:
                continue
            start = position - values.index(value)
            end = start + len(values)
            if log.content[max(start, 0) : end] == list(values):
                continue
            if cuts is None:
                cuts = self.cuts(log)
            if None in cuts:
                return  # where it is cut is not known
            end = min((cut for cut in cuts if cut is not None and start < cut < end), default=end)
            for at in range(start, end):
                known = log.content[at] if 0 <= at < len(log.content) else None
                wanted = values[at - start]
                if at < 0 or known not in (None, wanted) or log.position_of.get(wanted, at) != at:
                    message = f"a batch is in pieces on {log.id}: {value!r} is at {position}, {wanted!r} is not at {at}"
                    told = log.told_by[at] if 0 <= at < len(log.content) else -1
                    self.violate("torn", message, number, log.told_by[position], told)
                    return
            self._note(log, start, values[: end - start], log.told_by[position])

    def _demand_creations(self) -> None:
        """A log that was surely used was surely made."""
        for log in self.logs.values():
            at: LogFacts | None = log
            if any(self.mandatory[number] for number in log.operations):
                while at is not None and at.creator >= 0:
                    self.mandatory[at.creator] = True
                    at = at.source


def trees(history: list[Operation]) -> list[Tree]:
    """Sort a verified history by families of logs. Logs of different families have nothing to do with each other."""
    refused = {value: one for one in history if one.outcome == "refused" for value in one.values}
    useful: list[Operation] = []
    for number, one in enumerate(history):
        if one.outcome == "refused" or (one.outcome == "unknown" and one.verb in OBSERVATIONS):
            continue
        if one.outcome == "ok" and one.verb == "promote" and not one.promoted:
            continue
        if one.verb in CREATIONS and one.child is None:
            one = _named(one, number)
        useful.append(one)
    useful = _made_once(useful)
    top: dict[LogId, LogId] = {}

    def find(log: LogId) -> LogId:
        top.setdefault(log, log)
        while top[log] != log:
            top[log] = log = top[top[log]]
        return log

    for one in useful:
        root = find(one.log if one.verb != "create" else _child(one))
        if one.verb in CREATIONS:
            top[find(_child(one))] = root
    families: dict[LogId, list[Operation]] = {}
    for one in useful:
        families.setdefault(find(one.log if one.verb != "create" else _child(one)), []).append(one)
    origin = min((one.invoked for one in history), default=0)
    return [Tree(operations, refused, origin) for operations in families.values()]


def _made_once(operations: list[Operation]) -> list[Operation]:
    """Of several calls that would have made one log only one did: the one that said so, or else any, say the first."""
    certain = {one.child for one in operations if one.verb in CREATIONS and one.outcome == "ok"}
    kept: list[Operation] = []
    for one in operations:
        if one.verb in CREATIONS and one.outcome == "unknown":
            if one.child in certain:
                continue
            certain.add(one.child)
        kept.append(one)
    return kept


def _child(one: Operation) -> LogId:
    assert one.child is not None
    return one.child


def _named(one: Operation, number: int) -> Operation:
    """A log of which only its maker knew: nobody can name it, but a hold of it can be felt."""
    return dataclasses.replace(one, child=f"the fork of call {number}")
