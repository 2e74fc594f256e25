"""The fast way to no: rules that every history keeps, each checked by one pass, each with the operations that break it.

Each rule is sound: whatever breaks it has no explanation. Together they are not complete. They rest on a few facts:
what can be read of a log never becomes less and never changes; a live fork has what its parent has and its own; a
severed one has nothing of its source beyond its fork point; a promoted fork's records are its parent's from then on, at
their positions; a log that is held cannot be read beyond the fork point before somebody began to decide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from braidlog.testing.linearizability.bounds import Bounds, Floor
from braidlog.testing.linearizability.evidence import FAR, LogFacts, Tree
from braidlog.testing.linearizability.history import LogId

SOURCES_MAX: Final = 16


class Sweeps:
    """Checks every rule; what is found is added to the tree's violations."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.operations = tree.operations
        self.bounds = Bounds(tree)
        self._sent_to: dict[LogId | None, tuple[list[int], list[int]]] = {}
        for rule in (
            self._kinds,
            self._lives,
            self._rivals,
            self._origins,
            self._prefixes,
            self._holds,
            self._batches,
            self._counts,
            self._floors,
            self._moments,
        ):
            rule()
            if tree.violations:
                return

    # --- lives ---------------------------------------------------------------------------------------------------

    def _kinds(self) -> None:
        """Roots are dropped, forks are squashed, promotable ones are promoted."""
        for log in self.tree.logs.values():
            root = log.kind in ("root", "create")
            for number in self.bounds.own_ends(log):
                fits = {"drop": root, "squash": not root, "promote": log.promotable}
                if not fits[self.operations[number].verb]:
                    self.tree.violate("malformed", f"that cannot be done to {log.id}", number, log.creator)
                    return

    def _lives(self) -> None:
        """A log answers between its making and its end, and ends once."""
        for log in self.tree.logs.values():
            ends = self.bounds.own_ends(log)
            if len(ends) > 1:
                self.tree.violate("ended", f"{log.id} ended twice", *ends)
            end = self.bounds.surely_ended_by(log)
            for number in log.operations:
                one = self.operations[number]
                if one.outcome != "ok" or one.answered is None:
                    continue
                if log.creator >= 0 and one.answered < self.operations[log.creator].invoked:
                    self.tree.violate("unborn", f"{log.id} answered before it was made", number, log.creator)
                if end is not None and number not in ends and one.invoked > (self.operations[end].answered or 0):
                    self.tree.violate("ended", f"{log.id} answered after its end", end, number)
            if self.tree.violations:
                return

    def _rivals(self) -> None:
        """The first promotion ends its rivals; whoever wins later was made later."""
        for log in self.tree.logs.values():
            winners = [
                (fork, number)
                for fork in log.forks
                if fork.promotable
                for number in self.bounds.own_ends(fork)
                if self.operations[number].verb == "promote"
            ]
            for at, (fork, number) in enumerate(winners):
                for rival, other in winners[at + 1 :]:
                    if self._made_before(rival, number) and self._made_before(fork, other):
                        message = f"{fork.id} and {rival.id} are rivals, and both were promoted into {log.id}"
                        self.tree.violate("rivals", message, number, other, fork.creator, rival.creator)
                        return

    def _made_before(self, log: LogFacts, number: int) -> bool:
        return self.tree.deadline[log.creator] < self.operations[number].invoked

    # --- contents ------------------------------------------------------------------------------------------------

    def _origins(self) -> None:
        """A log shows records of its own, of the logs that it was forked from, and of what was promoted into those."""
        for log in self.tree.logs.values():
            if not log.content:
                continue
            live = self.bounds.flows(log)
            top = self.bounds.severed_top(log)
            inherited = self.bounds.all_flows(top.source) if top is not None and top.source is not None else set()
            for position, value in enumerate(log.content):
                if value is None:
                    continue
                append = self.tree.appender[value]
                origin = self.operations[append].log
                if origin in live:
                    continue
                told = log.told_by[position]
                if top is None or origin not in inherited:
                    self._blame_leak(log, position, append, told)
                    return
                late = self.operations[append].invoked > self.tree.deadline[top.creator]
                if late or (top.point is not None and position >= top.point):
                    message = f"{log.id} shows {value!r} of {origin} at {position}, after it was severed from it"
                    self.tree.violate("severed", message, told, top.creator, append)
                    return

    def _blame_leak(self, log: LogFacts, position: int, append: int, told: int) -> None:
        value, origin = log.content[position], self.tree.logs[self.operations[append].log]
        ends = [number for number in origin.operations if self.operations[number].verb in ("squash", "promote")]
        message = f"{log.id} shows {value!r} at {position}, which was appended to {origin.id} and never came to it"
        self.tree.violate("leaked", message, told, append, origin.creator, *ends)

    def _prefixes(self) -> None:
        """A fork begins as its parent was, and a parent goes on as the fork that was promoted into it."""
        for fork in self.tree.logs.values():
            if fork.source is None:
                continue
            shared = (fork.point or 0) if fork.kind == "sfork" else self.bounds.before_birth(fork).end
            promotions = [number for number in self.bounds.own_ends(fork) if self.operations[number].verb == "promote"]
            for position, (mine, theirs) in enumerate(zip(fork.content, fork.source.content, strict=False)):
                if mine == theirs or mine is None or theirs is None:
                    continue
                told = (fork.told_by[position], fork.source.told_by[position])
                if position < shared:
                    message = f"position {position} is {mine!r} on {fork.id} and {theirs!r} on {fork.source.id}"
                    self.tree.violate("fork", f"{message}, which it was forked from behind that", *told, fork.creator)
                    return
                if promotions:
                    message = f"{fork.id} was promoted with {mine!r} at {position}, and {fork.source.id} has {theirs!r}"
                    self.tree.violate("promotion", message, *told, *promotions)
                    return

    def _batches(self) -> None:
        """A log never ends within a batch."""
        for log in self.tree.logs.values():
            for number in log.operations:
                one = self.operations[number]
                end = self.bounds.exact_end(number) if one.records or one.verb == "tail" else None
                content = log.content
                if (
                    one.verb == "cfork"
                    and one.position is not None
                    and self._free(log, one.invoked, one.answered or FAR)
                ):
                    end = one.position
                    content = self.tree.logs[one.child].content if one.child is not None else []
                if end is None or not 0 < end < len(content):
                    continue
                before, after = content[end - 1], content[end]
                if before is None or after is None:
                    continue
                append = self.tree.appender[before]
                if append == self.tree.appender[after]:
                    message = f"{log.id} ended at {end}, between {before!r} and {after!r} of one batch"
                    self.tree.violate("torn", message, number, append)
                    return

    # --- how far -------------------------------------------------------------------------------------------------

    def _holds(self) -> None:
        """A held log is not read beyond the fork point, and what is held or below it gives no positions."""
        for fork in self.tree.logs.values():
            if not fork.promotable or fork.source is None or not self.tree.mandatory[fork.creator]:
                continue
            decided = self.bounds.decided_from(fork)
            made = self.tree.answered[fork.creator]
            for number in fork.source.operations:
                if self.tree.answered[number] >= decided:
                    continue
                end = self.bounds.readable_end(number)
                held = f"{fork.source.id} was held by {fork.id}, which was not decided yet"
                if fork.point is not None and end > fork.point:
                    self.tree.violate("hold", f"{held}, at {fork.point}, and told of {end}", fork.creator, number)
                    return
                one = self.operations[number]
                if one.verb == "append" and one.position is not None and one.invoked > made:
                    self.tree.violate("hold", f"{held}, and told a position", fork.creator, number)
                    return

    def _counts(self) -> None:
        """No log is longer than what was appended so far to it and to those that it receives from."""
        for log in self.tree.logs.values():
            top = self.bounds.severed_top(log)
            shared = 0
            if top is not None:
                if top.point is None:
                    continue
                shared = top.point
            sources = self.bounds.flows(log)
            for number in log.operations:
                one = self.operations[number]
                end = one.position if one.verb == "cfork" else self.bounds.readable_end(number)
                if not end or one.outcome != "ok":
                    continue
                most = shared + self._appended_by(sources, self.tree.answered[number])
                if end > most:
                    message = f"{log.id} has {end} records, and only {most} had been appended to where it receives from"
                    self.tree.violate("early", message, number)
                    return

    def _appended_by(self, logs: set[LogId], moment: int) -> int:
        """How many records had been sent to these logs; if they are many, to any."""
        if len(logs) > SOURCES_MAX:
            return self._sent(None, moment)
        return sum(self._sent(log, moment) for log in logs)

    def _sent(self, log: LogId | None, moment: int) -> int:
        known = self._sent_to.get(log)
        if known is None:
            sizes = [
                (one.invoked, len(one.values))
                for one in self.operations
                if one.verb == "append" and (log is None or one.log == log)
            ]
            known = self._sent_to[log] = [at for at, _ in sizes], [0, *accumulate(size for _, size in sizes)]
        moments, totals = known
        return totals[bisect_right(moments, moment)]

    def _moments(self) -> None:
        """What is counted had been sent; and what is known to stand behind the end was not complete before."""
        for log in self.tree.logs.values():
            latest = self._latest_invoked(log)
            earliest = self._earliest_complete(log)
            for number in log.operations:
                one = self.operations[number]
                end = min(self.bounds.readable_end(number), len(latest) - 1)
                if end > 0 and self.operations[latest[end]].invoked > self.tree.answered[number]:
                    message = f"{log.id} has {end} records, before one that is among them was sent"
                    self.tree.violate("early", message, number, latest[end])
                    return
                exact = self.bounds.exact_end(number)
                if exact is None or exact >= len(earliest) or (last := earliest[exact]) < 0:
                    continue
                if self.tree.deadline[last] < one.invoked and self._free(log, one.invoked, self.tree.answered[number]):
                    value = self.operations[last].values[0]
                    message = f"{log.id} ended at {exact}, without {value!r}, which was complete before that began"
                    self.tree.violate("stale", message, number, last)
                    return

    def _latest_invoked(self, log: LogFacts) -> list[int]:
        """For each length: the append that was sent last, of those that stand below it."""
        found = [0]
        for value in log.content:
            last = found[-1]
            if value is not None:
                append = self.tree.appender[value]
                if self.operations[append].invoked > self.operations[last].invoked:
                    last = append
            found.append(last)
        return found

    def _earliest_complete(self, log: LogFacts) -> list[int]:
        """For each position: the append that was complete first, of those that stand there or behind."""
        receives = {log.id}
        at = log
        while at.kind == "cfork" and at.source is not None:
            at = at.source
            receives.add(at.id)
        found = [-1] * len(log.content)
        first = -1
        for position in range(len(log.content) - 1, -1, -1):
            value = log.content[position]
            if value is not None:
                append = self.tree.appender[value]
                if self.operations[append].log in receives and (
                    first < 0 or self.tree.deadline[append] < self.tree.deadline[first]
                ):
                    first = append
            found[position] = first
        return found

    def _free(self, log: LogFacts, moment: int, until: int) -> bool:
        at: LogFacts | None = log
        while at is not None:
            if not self.bounds.surely_free(at, moment, until):
                return False
            at = at.source if at.kind == "cfork" else None
        return True

    def _floors(self) -> None:
        """Nothing is older than what was complete before it began."""
        for log in self.tree.logs.values():
            for number in log.operations:
                one = self.operations[number]
                if one.outcome != "ok":
                    continue
                end = self.bounds.exact_end(number)
                if end is None and one.position is not None and one.verb in ("append", "cfork", "sfork"):
                    if one.verb == "sfork" and one.at is not None:
                        continue
                    end = one.position
                if end is None:
                    continue
                floor = self.bounds.floor(log, one.invoked, one.answered or FAR)
                if end < floor.end:
                    self._blame_age(log, number, end, floor)
                    return

    def _blame_age(self, log: LogFacts, number: int, end: int, floor: Floor) -> None:
        one = self.operations[number]
        evidence = [other for other in floor.because if other >= 0]
        before = f"{log.id} could be read up to {floor.end} before that began"
        if floor.why == "count":
            missing = list(self._acknowledged_but_absent(log, number, end))
            names = ", ".join(repr(self.operations[other].values[0]) for other in missing[:3])
            message = f"{log.id} ended at {end}, and {floor.end} records were complete before that began"
            self.tree.violate(
                "missing", message + (f": {names} is not there" if names else ""), number, *missing[:3], *evidence
            )
        elif one.verb == "append":
            self.tree.violate("conflict", f"position {end} was given, and {before}", number, *evidence)
        elif floor.why == "promotion":
            self.tree.violate(
                "promotion", f"{log.id} ended at {end}, and with what was promoted {before}", number, *evidence
            )
        elif floor.why == "fork" or one.verb in ("cfork", "sfork"):
            self.tree.violate(
                "fork", f"{log.id} ended at {end}, and its parent had {floor.end} before that", number, *evidence
            )
        elif one.verb == "tail" and any(self.operations[other].verb == "tail" for other in evidence):
            self.tree.violate(
                "backwards", f"the tail of {log.id} went back from {floor.end} to {end}", *evidence, number
            )
        else:
            self.tree.violate("stale", f"{log.id} ended at {end}, and {before}", number, *evidence)

    def _acknowledged_but_absent(self, log: LogFacts, number: int, end: int) -> Iterator[int]:
        began = self.operations[number].invoked
        for other in log.operations:
            one = self.operations[other]
            if one.verb == "append" and self.tree.deadline[other] < began:
                position = log.position_of.get(one.values[0])
                if position is None or position >= end:
                    yield other
