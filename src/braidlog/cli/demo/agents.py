"""The three agents of the demo. They are scripts: no model is asked. What they find they find in the log.

They wait for each other just so far that all three are at work on forks at the same time.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.agents import Desk, Policy, Proposal, Rule
from braidlog.agents.verdict import reasons_of
from braidlog.cli.demo import questions
from braidlog.cli.demo.hands import HOLD_S, Hands
from braidlog.cli.demo.market import Hold
from braidlog.cli.demo.outcome import Attempt, SparkCheck
from braidlog.cli.demo.pacing import PATIENCE_S
from braidlog.cli.demo.shop import SHELF, Order, Restock, encode
from braidlog.cli.demo.sparking import HELD_S, START_S, TooSlow
from braidlog.cli.failures import Refused

if TYPE_CHECKING:
    from braidlog import Log
    from braidlog.cli.demo.board import Board
    from braidlog.cli.demo.market import Production
    from braidlog.cli.demo.pacing import Pace
    from braidlog.cli.demo.sparking import SparkProcess
    from braidlog.cli.demo.trade import Mispriced

_INJECTED_NUMBER: Final = 1_000_000_000  # order numbers from here on are nobody's
_BETWEEN_ORDERS: Final = 20  # that arrive on a fork between two that are injected


class Stage:
    """What the three share: production, the pace, and how far each has got."""

    def __init__(self, production: Production, pace: Pace, board: Board) -> None:
        self.production = production
        self.pace = pace
        self.board = board
        self.looking = threading.Event()  # the analyst has its fork
        self.testing = threading.Event()  # the tester has its fork, and wrote on it
        self.holding = threading.Event()  # the restocker has its first one

    def wait(self, event: threading.Event, what: str) -> None:
        self.pace.until(event.is_set, what, PATIENCE_S)

    def wait_for_orders(self, count: int) -> None:
        """Until production has placed so many more."""
        until = self.production.placed() + count
        self.pace.until(
            lambda: self.production.placed() >= until or self.production.trouble, f"{count} orders", PATIENCE_S
        )


def analyse(hands: Hands, stage: Stage) -> list[Mispriced]:
    """Look for what is wrong with prices, on a snapshot."""
    fork = hands.fork("look", severed=True)
    stage.looking.set()
    stage.wait(stage.testing, "the tester's fork")
    stage.pace.pause(1.0)
    found, count = hands.query(fork, questions.MISPRICED, questions.mispriced)
    asked = "what was sold far below its usual price, by whom, and when?"
    hands.say(f"asks {questions.engine()} about {count:,} records: {asked}")
    for one in found:
        said = f"{one.shop} sold {one.orders} orders of {one.sku} for a tenth of the price on day {one.day}"
        hands.say(f"finds it: {said}", "good")
    stage.wait(stage.holding, "the restocker's fork")
    stage.pace.pause(2.0)
    hands.squash(fork)
    hands.say("is done: its fork is squashed")
    return found


def probe(hands: Hands, stage: Stage, seed: int) -> dict[str, str]:
    """Inject what should never come, between live orders, and see what the consumer would make of it."""
    fork = hands.fork("try")
    chance = random.Random(seed)
    last = hands.last(fork)
    late = Order(number=_INJECTED_NUMBER, day=1, shop="north", sku="cleat", quantity=chance.randint(1, 5), cents=900)
    injected = [("late", encode(late)), ("duplicate", last), ("malformed", _malformed(chance, late))]
    chance.shuffle(injected)
    for kind, value in injected:
        hands.append(fork, [value])
        hands.say(f"injects an order that is {'a ' if kind == 'duplicate' else ''}{kind}, between live ones")
        stage.wait_for_orders(_BETWEEN_ORDERS)
    stage.testing.set()
    stage.wait(stage.holding, "the restocker's fork")
    said = _examined(hands, stage, fork, len(injected))
    tested = {kind: words for (kind, _), words in zip(injected, said, strict=True)}
    for kind, words in tested.items():
        hands.say(f"a copy of the consumer, on {kind}: {words}", "bad" if words.startswith("crash") else "plain")
    stage.pace.pause(1.0)
    hands.squash(fork)
    hands.say("is done: its fork is squashed, and production never saw any of it")
    return tested


def _examined(hands: Hands, stage: Stage, fork: Log, count: int) -> list[str]:
    """What the consumer makes of each. A hold on the parent hides some of the fork: then it is looked at again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stage.pace.until(lambda: _whole(fork), "the hold to end", HOLD_S + PATIENCE_S)
        samples = hands.validate(fork).verdict.samples
        if len(samples) == count:
            return samples
        if time.monotonic() > deadline:
            raise Refused(f"the consumer's copy saw {len(samples)} of {count} records on {fork.name}")


def _whole(fork: Log) -> bool:
    info = fork.info()
    return info.readable_tail == info.tail


def _malformed(chance: random.Random, order: Order) -> bytes:
    event = msgspec.to_builtins(order) | {"number": _INJECTED_NUMBER + 1}
    spoilt = chance.choice(({"quantity": "a few"}, {"quantity": -3}, {"sku": None}, {"cents": 0}))
    return msgspec.json.encode(event | spoilt)


class Restocker:
    """Writes to production: first badly, then well. Its policy leaves the decision to the validators."""

    def __init__(self, hands: Hands, stage: Stage, desk: Desk, spark: SparkProcess | None, seed: int) -> None:
        self._hands = hands
        self._stage = stage
        self._desk = desk
        self._spark = spark
        self._chance = random.Random(seed)
        self._number = 0
        self.check: SparkCheck | None = None
        self.no_spark = ""  # why it was given up

    @staticmethod
    def policy(log: str) -> Policy:
        """What passes is promoted at once, and what does not is gone."""
        rule = Rule(pattern=log, promotion="auto", on_failure="squash", hold=HOLD_S)
        return Policy(rules=(rule,))

    def work(self) -> tuple[Attempt, Attempt]:
        """What was caught, and what was promoted."""
        hands, stage = self._hands, self._stage
        stage.wait(stage.looking, "the analyst's fork")
        stage.wait(stage.testing, "the tester's fork")
        stock = hands.query(hands.log, questions.STOCK, questions.stock)
        sku = min(stock, key=lambda name: stock[name])
        hands.say(f"reads that {sku} runs out first: {stock[sku]:,} are left of {SHELF:,}")
        stage.pace.pause(1.0)
        careless = [encode(Restock(sku=sku, quantity=SHELF)), _unreadable(self._chance, sku)]
        caught = self._attempt(careless)
        stage.pace.pause(2.0)
        against = self._rehearse(careless)
        room = SHELF - stock[sku]
        careful = [encode(Restock(sku=sku, quantity=self._chance.randint(room // 4, room // 2)))]
        promoted = self._attempt(careful, against)
        return caught, promoted

    def _attempt(self, values: list[bytes], against: list[str] | None = None) -> Attempt:
        """Fork, write, validate, and promote if all is well."""
        hands, production = self._hands, self._stage.production
        self._number += 1
        began = time.perf_counter()
        fork = hands.fork(f"{self._number}", promotable=True)
        hold = Hold(fork.name, fork.info().fork_point or 0, began)
        production.holds.append(hold)
        try:
            hands.append(fork, values)
            positions = [record.position for record in fork.diff().own]
            for value in values:
                hands.say(f"writes {value.decode()}")
            self._stage.holding.set()
            self._stage.pace.pause(1.5)
            self._stage.board.scene()
            if self._spark is not None and against is not None:
                self._ask_spark(self._spark, fork, against)
            proposal = self._desk.propose(fork, agent=hands.agent, title=f"restock, attempt {self._number}")
        finally:
            hold.ended = time.perf_counter()
        self._stage.pace.until(lambda: production.read_up_to(hold.point), "production reads on", PATIENCE_S)
        attempt = Attempt(
            fork=fork.name,
            state=proposal.state,
            positions=positions,
            reasons=reasons_of([*proposal.findings, *proposal.rechecks]),
            held_s=hold.ended - began,
            waited_s=max(0.0, (production.arrived(hold.point) or began) - began),
        )
        self._tell(attempt, proposal)
        return attempt

    def _tell(self, attempt: Attempt, proposal: Proposal) -> None:
        seconds = sum(finding.seconds for finding in proposal.findings)
        waited = f"production read on after {attempt.waited_s:.1f} s"
        if proposal.state == "promoted":
            at = ", ".join(map(str, attempt.positions))
            self._hands.say(f"passes a copy of the consumer, in {seconds:.1f} s, and is promoted", "good")
            self._hands.say(f"its record stands at {at} of {proposal.parent}; {waited}", "good")
            return
        self._hands.say(f"is caught by a copy of the consumer, in {seconds:.1f} s, and squashed; {waited}", "bad")
        for reason in attempt.reasons:
            self._hands.say(f"  {reason}", "bad")

    def _rehearse(self, careless: list[bytes]) -> list[str]:
        """Show Spark the bad records, on a plain fork that holds nobody; that also warms it up."""
        if self._spark is None:
            return []
        self._hands.say("waits for Spark, which still starts; nothing is held meanwhile")
        try:
            self._spark.wait_until_ready(self._stage.pace)
            fork = self._hands.fork("rehearsal")
            try:
                self._hands.append(fork, careless)
                said = self._spark.verdict(fork.name, self._stage.pace)
            finally:
                self._hands.squash(fork)
        except TooSlow:
            self._give_up(self._spark, f"it was not ready within {START_S:g} s")
            return []
        if said.passed:
            raise Refused(f"Spark found nothing wrong with {fork.name}")
        self._hands.say(f"shows Spark the bad ones on a plain fork, and is refused: {said.reasons[0]}", "bad")
        return said.reasons

    def _ask_spark(self, spark: SparkProcess, fork: Log, against: list[str]) -> None:
        spark.allow(HELD_S)
        try:
            said = spark.verdict(fork.name, self._stage.pace)
        except TooSlow:
            self._give_up(spark, f"it said nothing within {HELD_S:g} s")
            return
        if not said.passed:
            raise Refused(f"Spark has something against {fork.name}: {said.reasons[0]}")
        self._hands.say(f"passes a Spark job over the fork, in {said.seconds:.1f} s", "good")
        self.check = SparkCheck(start_s=spark.start_s, against=against, passed=True, seconds=said.seconds)

    def _give_up(self, spark: SparkProcess, why: str) -> None:
        spark.close()
        self._spark = None
        self.no_spark = why
        self._hands.say(f"goes on without Spark: {why}. This machine is busy; --spark waits for it")


def leave_for_review(hands: Hands, desk: Desk) -> Proposal:
    """Propose something that a person decides about: it waits on a plain fork, and holds nobody."""
    stock = hands.query(hands.log, questions.STOCK, questions.stock)
    sku = min(stock, key=lambda name: stock[name])
    fork = hands.fork("idea")
    hands.append(fork, [encode(Restock(sku=sku, quantity=(SHELF - stock[sku]) // 4))])
    proposal = desk.propose(fork, agent=hands.agent, title=f"restock {sku}")
    hands.say(f"proposes more {sku} to a person: that waits on a plain fork, and holds nobody")
    return proposal


def _unreadable(chance: random.Random, sku: str) -> bytes:
    spoilt = chance.choice(
        (
            {"item": sku, "amount": 500},
            {"sku": sku, "quantity": "a few"},
            {"sku": sku, "quantity": -500},
            {"sku": sku, "quantity": None},
        )
    )
    return msgspec.json.encode({"type": "restock", **spoilt})
