"""The demo: a careless agent is caught on a fork and squashed, a careful one is promoted, and production never stops.

Every number is measured as it happens, and every claim is checked: one that does not hold ends the demo with an error.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from braidlog.cli.demo.market import Consumer, Orders
from braidlog.cli.demo.restock import CAREFUL, CARELESS, validate
from braidlog.cli.failures import Refused

if TYPE_CHECKING:
    from braidlog import Braid, Log, Record

T = TypeVar("T")

_PATIENCE_S: Final = 10.0


class Hold(Struct):
    """How one fork went."""

    fork: str
    decision: str  # "squash" or "promote"
    fork_us: float
    decide_us: float
    waited_ms: float  # from the fork to the consumer's next record: as long as the decision took
    resumed_ms: float  # from the decision to that record


class Outcome(Struct):
    """What was measured."""

    orders: int  # appended
    append_p50_us: float
    append_held_p50_us: float  # while a hold was in force
    caught: int  # bad records that the validator found
    read_orders: int
    read_restocks: int
    read_bad: int
    holds: list[Hold]


class Narrator(Protocol):
    """Whoever tells the story."""

    def chapter(self, title: str) -> None: ...
    def say(self, text: str) -> None: ...
    def tree(self, braid: Braid) -> None: ...
    def problems(self, found: Sequence[tuple[Record, str]]) -> None: ...
    def watch(self, seconds: float, line: Callable[[], str]) -> None:
        """Let time pass, showing the line as it changes."""


def tell(braid: Braid, narrator: Narrator) -> Outcome:
    """Run the whole story and return what was measured."""
    return _Story(braid, narrator).run()


class _Story:
    def __init__(self, braid: Braid, narrator: Narrator) -> None:
        self.braid = braid
        self.narrator = narrator
        self.name = _free_name(braid, "orders")
        self.log = braid.create(self.name)
        self.consumer = Consumer(self.log)  # before the first order, so that it sees every one
        self.orders = Orders(self.log)
        self.held: list[float] = []  # microseconds of the appends during holds
        self.holds: list[Hold] = []

    def run(self) -> Outcome:
        try:
            self._live()
            caught = self._careless()
            self._careful()
            self.orders.stop()
            end = self.log.tail()
            self._expect(lambda: len(self.consumer.arrivals) == end, "production reads all there is")
        finally:
            self.orders.stop()
            self.consumer.stop()
        kinds = self.consumer.kinds
        return Outcome(
            orders=len(self.orders.micros),
            append_p50_us=_median(self.orders.micros),
            append_held_p50_us=_median(self.held),
            caught=caught,
            read_orders=kinds["order"],
            read_restocks=kinds["restock"],
            read_bad=self.consumer.bad,
            holds=self.holds,
        )

    def _live(self) -> None:
        self.narrator.chapter("Orders arrive")
        self.narrator.say(f"A writer appends orders to {self.name!r}; production reads them as they come.")
        self.narrator.watch(2.0, self._line)
        self._expect(lambda: self.consumer.kinds["order"] > 0, "production reads orders")
        self.narrator.tree(self.braid)

    def _careless(self) -> int:
        self.narrator.chapter("An agent restocks, carelessly")
        fork, point, began, fork_us = self._fork("restock-1", CARELESS)
        found = validate(fork.diff())
        self.narrator.problems(found)
        self._require(len(found) > 0, "the validator finds the bad records")
        _, squash_us = _timed(fork.squash)
        self._decided(fork, "squash", point, began, fork_us, squash_us)
        self._require(self.consumer.kinds["restock"] == 0 and self.consumer.bad == 0, "production saw none of it")
        self.narrator.say("Squashed. Production goes on where it paused and saw nothing of the agent's records.")
        self.narrator.tree(self.braid)
        self.narrator.watch(1.0, self._line)
        return len(found)

    def _careful(self) -> None:
        self.narrator.chapter("It tries again")
        fork, point, began, fork_us = self._fork("restock-2", CAREFUL)
        diff = fork.diff()
        self._require(not validate(diff), "the second fork is in order")
        self.narrator.say(
            f"The validator passes all {len(diff.own)} records; {len(diff.inherited)} orders came between meanwhile."
        )
        promoted, promote_us = _timed(lambda: fork.promote(expected_own=len(diff.own)))
        self._require(promoted, "the fork is promoted")
        self._decided(fork, "promote", point, began, fork_us, promote_us)
        self._expect(lambda: self.consumer.kinds["restock"] == len(CAREFUL), "production sees the restock")
        self._require(self.consumer.bad == 0, "production saw nothing bad")
        self.narrator.say(f"Promoted, exactly as validated. Production now reads its {len(CAREFUL)} restock records.")
        self.narrator.tree(self.braid)
        self.narrator.watch(1.0, self._line)

    def _fork(self, name: str, writes: Sequence[object]) -> tuple[Log, int, float, float]:
        """Fork, let the agent write, and show it. Answers the fork, its fork point, when it began, and its cost."""
        before = len(self.orders.micros)
        began = time.perf_counter()
        fork, fork_us = _timed(lambda: self.log.cfork(_free_name(self.braid, name), promotable=True))
        point = fork.info().fork_point
        assert point is not None
        self.narrator.say(f"It forks {self.name!r} as {fork.name!r} in {fork_us:,.0f} µs, and writes only there.")
        for write in writes:
            fork.append(msgspec.json.encode(write))
        self.narrator.tree(self.braid)
        self.narrator.say("Orders go on being appended; readers wait at the fork point until the fork is decided.")
        self.narrator.watch(1.5, self._line)
        self.held += self.orders.micros[before:]
        return fork, point, began, fork_us

    def _decided(self, fork: Log, how: str, point: int, began: float, fork_us: float, decide_us: float) -> None:
        decided = time.perf_counter()
        self._expect(lambda: self.consumer.time_of(point) is not None, "production goes on after the decision")
        resumed = self.consumer.time_of(point)
        assert resumed is not None
        self.holds.append(
            Hold(fork.name, how, fork_us, decide_us, (resumed - began) * 1e3, max(resumed - decided, 0.0) * 1e3)
        )

    def _line(self) -> str:
        read = sum(self.consumer.kinds.values())
        return f"{len(self.orders.micros):,} appended, {read:,} read by production   {self.orders.latest}"

    def _expect(self, reached: Callable[[], bool], claim: str) -> None:
        """Wait until it is so."""
        self.consumer.wait_until(lambda: reached() or self.orders.error is not None, _PATIENCE_S)
        self._require(reached(), claim)

    def _require(self, holds: bool, claim: str) -> None:
        if self.orders.error is not None:
            raise self.orders.error
        if not holds:
            raise Refused(f"the demo failed: it is not so that {claim}")


def pause(seconds: float) -> None:
    """Let the others work."""
    threading.Event().wait(seconds)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - began) * 1e6


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def _free_name(braid: Braid, name: str) -> str:
    """The name, or the first of name-2, name-3 ... that is free: a demo may run twice in one directory."""
    candidate, number = name, 1
    while candidate in braid:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
