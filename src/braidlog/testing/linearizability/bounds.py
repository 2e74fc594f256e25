"""How far a log must have been readable by a moment, how long it lived, and whose records it may hold.

Each is what surely is, whatever the operations whose outcome is not known did.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from braidlog.testing.linearizability.evidence import FAR, LogFacts, Tree
from braidlog.testing.linearizability.history import LogId


class Floor(NamedTuple):
    """A log could be read up to `end`. `why`: it was `seen`, by a `promotion`, by its `fork`, or by `count`."""

    end: int
    because: tuple[int, ...] = ()
    why: str = "seen"


class Bounds:
    """Answers about the logs of one tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.operations = tree.operations
        self._ends: dict[LogId, list[int]] = {log.id: [] for log in tree.logs.values()}
        self._dropped: list[int] = []
        for number, one in enumerate(self.operations):
            if one.outcome == "ok" and one.verb in ("squash", "promote", "drop"):
                self._ends[one.log].append(number)
                if one.verb == "drop":
                    self._dropped.append(number)
        self._flows: dict[LogId, set[LogId]] = {}
        self._promotions: dict[LogId, bool] = {}
        self._below: dict[LogId, list[LogFacts]] = {}
        self._seen: dict[LogId, tuple[list[int], list[Floor]]] = {}
        self._acknowledged: dict[LogId, tuple[list[int], list[int]]] = {}
        self._pending: dict[LogId, tuple[list[int], list[int]]] = {}
        self._at_birth: dict[LogId, Floor] = {}

    # --- what an operation says ----------------------------------------------------------------------------------

    def exact_end(self, number: int) -> int | None:
        """Of an observation that saw the end of a log: where that was, at the latest."""
        one = self.operations[number]
        if one.outcome != "ok":
            return None
        if one.verb == "tail":
            return one.position
        end = one.start + len(one.records)
        return end if one.verb == "read" and (one.stop is None or end < one.stop) else None

    def readable_end(self, number: int) -> int:
        """How far its log could surely be read when it was answered."""
        one = self.operations[number]
        if one.outcome != "ok":
            return 0
        match one.verb:
            case "tail":
                return one.position or 0
            case "read":
                return one.start + len(one.records) if one.records else 0
            case "append":
                return one.position + len(one.values) if one.position is not None else 0
            case "sfork":
                return one.at or one.position or 0
        return 0

    # --- lives ---------------------------------------------------------------------------------------------------

    def own_ends(self, log: LogFacts) -> list[int]:
        """What surely ended this log itself."""
        return self._ends[log.id]

    def surely_ended_by(self, log: LogFacts) -> int | None:
        """The operation by whose answer the log had surely ended, the earliest of them."""
        found = [*self.own_ends(log), *self._dropped, *self._lost_to(log)]
        at = log
        while at.kind == "cfork" and at.source is not None:
            at = at.source
            found += [number for number in self.own_ends(at) if self.operations[number].verb == "squash"]
        return min(found, key=self.tree.deadline.__getitem__, default=None)

    def _lost_to(self, log: LogFacts) -> list[int]:
        """Promotions of rivals that were there before."""
        if not log.promotable or log.source is None:
            return []
        return [
            number
            for rival in log.source.forks
            if rival is not log and rival.promotable
            for number in self.own_ends(rival)
            if self.operations[number].verb == "promote"
            and self.tree.deadline[log.creator] < self.operations[number].invoked
        ]

    def decided_from(self, fork: LogFacts) -> int:
        """The moment before which a promotable fork was surely undecided."""
        assert fork.source is not None
        holder = fork.source
        while holder.source is not None and holder.promotable and self._may_be_promoted(holder):
            holder = holder.source  # what it holds is then held by its parent
        deciders = [
            number
            for rival in self.promotable_below(holder)
            for number in rival.operations
            if self.operations[number].verb == "promote" or (rival is fork and self.operations[number].verb == "squash")
        ]
        return min((self.operations[number].invoked for number in deciders), default=FAR)

    def promotable_below(self, log: LogFacts) -> list[LogFacts]:
        """The forks that may be promoted into a log, at once or after others were."""
        found = self._below.get(log.id)
        if found is None:
            found = self._below[log.id] = [fork for fork in log.forks if fork.promotable]
            for fork in found:  # grows while it is walked
                found += [other for other in fork.forks if other.promotable]
        return found

    # --- whose records -------------------------------------------------------------------------------------------

    def flows(self, log: LogFacts) -> set[LogId]:
        """The logs whose appends it may hold, as far as it is not severed from them."""
        found = self._flows.get(log.id)
        if found is None:
            found = {log.id}
            if log.kind == "cfork" and log.source is not None:
                found |= self.flows(log.source)
            for fork in log.forks:
                if fork.promotable and self._may_be_promoted(fork):
                    found |= self._flows_up(fork)
            self._flows[log.id] = found
        return found

    def _flows_up(self, fork: LogFacts) -> set[LogId]:
        found = {fork.id}
        for other in fork.forks:
            if other.promotable and self._may_be_promoted(other):
                found |= self._flows_up(other)
        return found

    def _may_be_promoted(self, fork: LogFacts) -> bool:
        found = self._promotions.get(fork.id)
        if found is None:
            verbs = {self.operations[number].verb for number in fork.operations}
            ended = {self.operations[number].verb for number in self.own_ends(fork)}
            found = self._promotions[fork.id] = "promote" in verbs and "squash" not in ended
        return found

    def severed_top(self, log: LogFacts) -> LogFacts | None:
        """The severed fork that the log is, or was forked from live."""
        at: LogFacts | None = log
        while at is not None and at.kind == "cfork":
            at = at.source
        return at if at is not None and at.kind == "sfork" else None

    def all_flows(self, log: LogFacts) -> set[LogId]:
        """The logs whose appends it may hold, severed or not."""
        found = set(self.flows(log))
        top = self.severed_top(log)
        if top is not None and top.source is not None:
            found |= self.all_flows(top.source)
        return found

    # --- how far -------------------------------------------------------------------------------------------------

    def floor(self, log: LogFacts, moment: int, until: int) -> Floor:
        """How far a log could surely be read at that moment; by counting only if it is surely not held until then."""
        best = max(self._seen_before(log, moment), self._birth(log))
        if self.surely_free(log, moment, until):
            inherited = Floor(0)
            if log.kind == "cfork" and log.source is not None and not self._may_be_promoted(log):
                inherited = self.floor(log.source, moment, until)
            elif log.source is not None:  # its own records may be the parent's by now, and must not count twice
                inherited = self._birth(log)
            own = self._acknowledged_before(log, moment)
            if own and inherited.end + own > best.end:
                return Floor(inherited.end + own, inherited.because, "count")
            best = max(best, inherited)
        return best

    def _seen_before(self, log: LogFacts, moment: int) -> Floor:
        known = self._seen.get(log.id)
        if known is None:
            known = self._seen[log.id] = self._all_seen(log)
        moments, floors = known
        at = bisect_left(moments, moment)
        return floors[at - 1] if at else Floor(0)

    def _all_seen(self, log: LogFacts) -> tuple[list[int], list[Floor]]:
        found = self._directly_seen(log)
        for fork, promotions in self._promoted_into(log):
            moment = max(self.tree.answered[number] for number in promotions)
            seen = self._directly_seen(fork)
            if self.promotable_below(fork):  # a position may have been told, late, after the promotion
                seen = [pair for pair in seen if pair[0] < self.operations[promotions[0]].invoked]
            _, best = max(seen, key=lambda pair: pair[1].end, default=(0, Floor(0)))
            found.append((moment, Floor(best.end, (*best.because, *promotions), "promotion")))
        found.sort(key=lambda pair: pair[0])
        moments, floors = [], []
        highest = Floor(0)
        for moment, floor in found:
            if floor.end > highest.end:
                highest = floor
                moments.append(moment)
                floors.append(floor)
        return moments, floors

    def _directly_seen(self, log: LogFacts) -> list[tuple[int, Floor]]:
        return [
            (self.tree.answered[number], Floor(end, (number,)))
            for number in log.operations
            if (end := self.readable_end(number))
        ]

    def _promoted_into(self, log: LogFacts) -> Iterator[tuple[LogFacts, list[int]]]:
        """The forks that were surely promoted into it, each with all the promotions that took."""
        for fork in log.forks:
            for number in self.own_ends(fork) if fork.promotable else ():
                if self.operations[number].verb == "promote":
                    yield fork, [number]
                    for other, promotions in self._promoted_into(fork):
                        yield other, [*promotions, number]

    def before_birth(self, fork: LogFacts) -> Floor:
        """How far the parent could be read when it was forked."""
        assert fork.source is not None
        return self.floor(fork.source, self.operations[fork.creator].invoked, self.tree.deadline[fork.creator])

    def _birth(self, log: LogFacts) -> Floor:
        """How far a fork could be read from the first."""
        found = self._at_birth.get(log.id)
        if found is None:
            found = Floor(0)
            if log.source is not None:
                if log.kind == "sfork" and log.point is not None:
                    found = Floor(log.point, (log.creator,), "fork")
                elif log.kind == "cfork" or self.operations[log.creator].at is None:
                    above = self.before_birth(log)
                    found = Floor(above.end, (*above.because, log.creator), "fork")
            self._at_birth[log.id] = found
        return found

    def _acknowledged_before(self, log: LogFacts, moment: int) -> int:
        """How many own records it surely has."""
        known = self._acknowledged.get(log.id)
        if known is None:
            found = [
                (self.tree.deadline[number], len(self.operations[number].values))
                for number in log.operations
                if self.operations[number].verb == "append" and self.operations[number].outcome == "ok"
            ]
            for fork, promotions in self._promoted_into(log):
                promoted = max(self.tree.answered[number] for number in promotions)
                sizes = [
                    len(self.operations[number].values)
                    for number in fork.operations
                    if self.operations[number].verb == "append" and self.operations[number].outcome == "ok"
                ]
                found.append((promoted, sum(sizes)))
            found.sort()
            total, totals = 0, []
            for _, size in found:
                total += size
                totals.append(total)
            known = self._acknowledged[log.id] = ([at for at, _ in found], totals)
        moments, totals = known
        at = bisect_left(moments, moment)
        return totals[at - 1] if at else 0

    def surely_free(self, log: LogFacts, moment: int, until: int) -> bool:
        """Whether no undecided fork of its own can limit it between the two moments."""
        known = self._pending.get(log.id)
        if known is None:
            spans = sorted(
                (self.operations[fork.creator].invoked, self._ended(fork)) for fork in self.promotable_below(log)
            )
            known = self._pending[log.id] = (
                [began for began, _ in spans],
                [-1, *accumulate((end for _, end in spans), max)],
            )
        moments, latest = known
        return latest[bisect_right(moments, until)] < moment

    def _ended(self, fork: LogFacts) -> int:
        """When it had surely ended, by itself or by losing."""
        return min((self.tree.deadline[number] for number in (*self.own_ends(fork), *self._lost_to(fork))), default=FAR)
