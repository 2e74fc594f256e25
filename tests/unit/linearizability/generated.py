"""Histories for the checkers: valid ones, by letting clients call the specification at random, and damaged ones.

A valid history comes from calls that take effect in one moment each, at a random time between invocation and answer.
Some outcomes are not told, and of those some take effect late, or never.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from random import Random

from braidlog.testing.linearizability.history import Operation, Value
from braidlog.testing.linearizability.specification import Refused, State, perform, settled


@dataclasses.dataclass(frozen=True)
class Taste:
    """What a history is made of."""

    operations: int = 14
    clients: int = 4
    unknown: float = 0.1
    batch: int = 3
    points_told: float = 0.7
    final_reads: bool = False
    weights: tuple[tuple[str, int], ...] = (
        ("append", 40),
        ("read", 18),
        ("tail", 14),
        ("cfork", 8),
        ("promotable", 8),
        ("sfork", 5),
        ("promote", 8),
        ("squash", 4),
        ("drop", 1),
    )
    reach: int = 1 << 30  # how far back a read starts at most
    pace: int = 30  # how long a call takes at most, before and after its moment


class Simulation:
    """Clients that call the specification; `run` gives the history of what they were told."""

    def __init__(self, seed: int, taste: Taste) -> None:
        self.chance = Random(seed)
        self.taste = taste
        self.state: State = {}
        self.history: list[Operation] = []
        self.made = 0
        self.values = 0
        self.events: list[tuple[int, int, Callable[[int], None]]] = []
        self.told: list[str] = []
        self.waiting: list[tuple[Operation, str]] = []
        self.invoked = 0

    def run(self) -> list[Operation]:
        self.state, _ = perform(self.state, _call("setup", "create", "root", child="root"))
        self.history.append(_call("setup", "create", "root", child="root", answered=0, outcome="ok"))
        self.told.append("root")
        for client in range(self.taste.clients):
            self._at(self.chance.randrange(1, 10), self._invoker(f"c{client}"))
        while self.events:
            now, _, event = heapq.heappop(self.events)
            event(now)
        if self.taste.final_reads:
            end = max(one.answered or 0 for one in self.history)
            for log, found in self.state.items():
                if not found.end:
                    call = _call("auditor", "read", str(log), end + 1)
                    answer = perform(self.state, call)[1]
                    self.history.append(
                        dataclasses.replace(call, answered=end + 2, outcome="ok", records=answer.records)
                    )
        return self.history

    def _at(self, moment: int, event: Callable[[int], None]) -> None:
        heapq.heappush(self.events, (moment, self.chance.randrange(1 << 30), event))

    def _delay(self) -> int:
        return self.chance.randrange(1, self.taste.pace + 1)

    def _invoker(self, client: str) -> Callable[[int], None]:
        def invoke(now: int) -> None:
            if self.invoked >= self.taste.operations:
                return
            self.invoked += 1
            call = self._choose(client, now)
            moment = now + self._delay()
            if self.chance.random() < self.taste.unknown:
                answered = now + self._delay()
                self.history.append(dataclasses.replace(call, answered=answered, outcome="unknown"))
                late = moment + self.chance.choice([0, 0, 5 * self.taste.pace])
                if self.chance.random() < 0.6:
                    self._at(late, lambda now: self._quietly(call, now))
                self._at(answered + 1, self._invoker(f"{client}'"))
            else:
                self._at(moment, self._performer(call))

        return invoke

    def _quietly(self, call: Operation, now: int) -> None:
        try:
            self.state, _ = perform(self.state, call)
        except Refused:
            return
        if call.child is not None:
            self.told.append(str(call.child))
        self._wake(now)

    def _performer(self, call: Operation) -> Callable[[int], None]:
        def take_effect(now: int) -> None:
            answered = now + self._delay()
            self._at(answered + self.chance.randrange(1, 5), self._invoker(call.client))
            try:
                self.state, answer = perform(self.state, call)
            except Refused:
                self.history.append(dataclasses.replace(call, answered=answered, outcome="refused"))
                return
            told: dict[str, object] = {"answered": answered, "outcome": "ok"}
            match call.verb:
                case "append":
                    if not answer.held:
                        told["position"] = answer.position
                    elif self.chance.random() < 0.3:  # the answer waits for the decision
                        settles = (dataclasses.replace(call, outcome="unknown", answered=answered), len(self.history))
                        self.history.append(settles[0])
                        self.waiting.append((settles[0], str(settles[1])))
                        self._wake(now)
                        return
                case "read":
                    told["records"] = answer.records
                case "tail":
                    told["position"] = answer.position
                case "cfork" | "sfork":
                    if self.chance.random() < self.taste.points_told:
                        told["position"] = answer.position
                    self._at(answered, lambda _: self.told.append(str(call.child)))
                case "promote":
                    told["promoted"] = answer.promoted
            self.history.append(dataclasses.replace(call, **told))  # type: ignore[arg-type]
            self._wake(now)

        return take_effect

    def _wake(self, now: int) -> None:
        """Answer appends whose position has been decided."""
        for waiting in list(self.waiting):
            call, index = waiting
            try:
                position = settled(self.state, call.log, call.values[0], len(call.values))
            except Refused:
                self.waiting.remove(waiting)
                continue
            if position is not None:
                answered = max(now, call.answered or 0) + self._delay()
                self.history[int(index)] = dataclasses.replace(call, outcome="ok", position=position, answered=answered)
                self.waiting.remove(waiting)

    def _choose(self, client: str, now: int) -> Operation:
        chance = self.chance
        verbs, weights = zip(*self.taste.weights, strict=True)
        verb = chance.choices(verbs, weights)[0]
        known = [log for log in self.told if not self.state[log].end] if chance.random() < 0.9 else self.told
        log = chance.choice((known or self.told)[-4:] if chance.random() < 0.8 else known or self.told)
        if chance.random() < 0.3:
            log = "root"
        length = len(self.state[log].content)
        match verb:
            case "append":
                values: list[Value] = []
                for _ in range(chance.choice([1, 1, chance.randint(1, self.taste.batch)])):
                    self.values += 1
                    values.append(f"v{self.values}")
                return _call(client, verb, log, now, values=tuple(values))
            case "read":
                start = max(0, length - 6)
                if chance.random() < 0.4:
                    start = chance.randrange(max(0, length - self.taste.reach), length + 2)
                stop = None if chance.random() < 0.7 else start + chance.randrange(4)
                return _call(client, verb, log, now, start=start, stop=stop)
            case "cfork" | "promotable":
                self.made += 1
                promotable = verb == "promotable"
                return _call(client, "cfork", log, now, child=f"f{self.made}", promotable=promotable)
            case "sfork":
                self.made += 1
                at = None if chance.random() < 0.4 else chance.randint(max(0, length - 3), length)
                return _call(client, "sfork", log, now, child=f"s{self.made}", at=at)
            case "promote" | "squash":
                forks = [name for name in self.told if name != "root"] or ["root"]
                if verb == "promote":
                    forks = [name for name in forks if self.state[name].promotable] or forks
                return _call(client, verb, chance.choice(forks[-4:]), now)
            case "drop":
                return _call(client, verb, "root" if chance.random() < 0.1 else log, now)
        return _call(client, verb, log, now)


def _call(client: str, verb: str, log: str, invoked: int = 0, **more: object) -> Operation:
    return Operation(client=client, verb=verb, log=log, invoked=invoked, **more)  # type: ignore[arg-type]


def valid(seed: int, taste: Taste = Taste()) -> list[Operation]:
    return Simulation(seed, taste).run()


def damaged(history: list[Operation], seed: int) -> list[Operation]:
    """The history with one to three answers or times changed; it may still be explicable."""
    chance = Random(seed)
    changed = list(history)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(1, len(changed))
        done = _DAMAGES[chance.randrange(len(_DAMAGES))](changed, at, chance)
        if done is not None:
            changed[at] = done
    return changed


def _moved(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.outcome != "ok" or one.position is None:
        return None
    return dataclasses.replace(one, position=max(0, one.position + chance.choice([-2, -1, 1, 2])))


def _shifted(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.answered is None:
        return None
    by = max(chance.randrange(-60, 60), -one.invoked)
    return dataclasses.replace(one, invoked=one.invoked + by, answered=one.answered + by)


def _hastened(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.answered is None or one.answered == one.invoked:
        return None
    return dataclasses.replace(one, answered=chance.randrange(one.invoked, one.answered))


def _reread(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.verb != "read" or not one.records:
        return None
    values = [value for _, value in one.records]
    match chance.randrange(5):
        case 0:
            values.pop(chance.randrange(len(values)))
        case 1:
            values.pop()
        case 2:
            values.insert(chance.randrange(len(values) + 1), chance.choice(values))
        case 3:
            chance.shuffle(values)
        case 4:
            first, second = chance.randrange(len(values)), chance.randrange(len(values))
            values[first], values[second] = values[second], values[first]
    if one.stop is not None:
        values = values[: one.stop - one.start]
    return dataclasses.replace(one, records=tuple(enumerate(values, one.start)))


def _exchanged(history: list[Operation], one: Operation, chance: Random) -> Operation | None:
    """The answer of another operation of the same kind."""
    others = [other for other in history if (other.verb, other.log, other.outcome) == (one.verb, one.log, "ok")]
    if one.outcome != "ok" or not others:
        return None
    other = chance.choice(others)
    if one.verb == "read":
        return dataclasses.replace(one, start=other.start, stop=other.stop, records=other.records)
    return dataclasses.replace(one, position=other.position)


def _decided(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    """Another outcome."""
    if one.verb in ("append", "promote", "squash") and one.answered is not None:
        outcome = chance.choice(["ok", "refused", "unknown"])
        promoted = True if one.verb == "promote" and outcome == "ok" else one.promoted
        return dataclasses.replace(one, outcome=outcome, promoted=promoted)  # type: ignore[arg-type]
    return None


def _redirected(history: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.verb == "create":
        return None
    return dataclasses.replace(one, log=chance.choice(history).log)


def _severed(_: list[Operation], one: Operation, chance: Random) -> Operation | None:
    if one.verb not in ("cfork", "sfork"):
        return None
    if chance.random() < 0.5:
        return dataclasses.replace(one, promotable=not one.promotable and one.verb == "cfork")
    return dataclasses.replace(one, verb="cfork" if one.verb == "sfork" else "sfork", at=None, promotable=False)


def _each(
    damage: Callable[[list[Operation], Operation, Random], Operation | None],
) -> Callable[[list[Operation], int, Random], Operation | None]:
    return lambda history, at, chance: damage(history, history[at], chance)


_DAMAGES = [
    _each(damage)
    for damage in (_moved, _shifted, _hastened, _reread, _reread, _exchanged, _decided, _redirected, _severed)
]
