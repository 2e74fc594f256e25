"""A random workload over everything that changes a braid, one call after the other.

What is tried is told to `tell` before, what came of it after: so that a ledger kept elsewhere, in another process or
for another moment, says what must be there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.embedded.clock import Clock
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, OutcomeUnknown, Unavailable
from braidlog.metadata.home import DirectoryHome
from braidlog.objects.files import Files
from braidlog.testing import VirtualClock
from tests.faults.ledger import LEASE_S, TTL_S, Account, Answer, Ledger, Step, record

LOGS_MAX = 8
CALLS = {
    "append": 45,
    "create": 4,
    "cfork": 6,
    "promotable": 8,
    "sfork": 5,
    "promote": 8,
    "squash": 3,
    "trim": 4,
    "commit": 8,
    "forget_consumer": 1,
    "drop": 2,
    "renew": 2,
}
UPKEEP = {"pack": 6, "collect": 4, "compact": 4, "checkpoint": 4, "expire": 2, "reopen": 3}


class Place(Protocol):
    """Where steps are carried out."""

    braid: Braid

    def now_us(self) -> int: ...

    def do(self, step: Step) -> None:
        """One of UPKEEP."""


class Quiet(Place):
    """A braid without its keeper: the duties are carried out as steps, so that a run repeats itself."""

    def __init__(self, files: Files, clock: VirtualClock) -> None:
        self._files = files
        self._clock = clock
        self._open()

    def _open(self) -> None:
        self.writer, self.braid = open_quietly(self._files, self._clock)
        self._upkeep = Upkeep(self.writer)

    def now_us(self) -> int:
        return self._clock.now_us()

    def do(self, step: Step) -> None:
        match step.verb:
            case "reopen":
                self.braid.close()
                self._open()
            case "checkpoint":
                self.writer.checkpoint()
            case "collect":
                self._clock.advance(limits.GRACE_S + 1)
                self._upkeep.collect()
            case _:
                getattr(self._upkeep, step.verb)()


def open_quietly(files: Files, clock: Clock) -> tuple[Writer, Braid]:
    """Open for writing with nothing going on behind the scenes."""
    writer = Writer(DirectoryHome(files, "0" * 32, folder=None), clock)
    return writer, Braid(writer, "memory://", read_only=False, clock=clock)


class Workload:
    """Chooses steps by what the ledger says there is, and carries them out."""

    def __init__(
        self, rng: Random, ledger: Ledger, tell: Callable[[Step | Answer], None], weights: dict[str, int] | None = None
    ) -> None:
        self.ledger = ledger
        self._rng = rng
        self._tell = tell
        self._weights = weights or CALLS | UPKEEP

    def run(self, place: Place, steps: int) -> None:
        for _ in range(steps):
            self.take(place, self.choose(place.now_us()))

    def take(self, place: Place, step: Step) -> None:
        """Carry out one step. Raises OutcomeUnknown and Unavailable, which nobody can go on after."""
        self.ledger.begin(step)
        self._tell(step)
        try:
            if step.verb in UPKEEP:
                place.do(step)
                answer: Answer = None
            else:
                answer = call(place.braid, step)
        except (OutcomeUnknown, Unavailable):
            raise
        except BraidError as error:
            answer = type(error).__name__
        self.ledger.settle(answer)
        self._tell(answer)

    def choose(self, now_us: int) -> Step:
        rng = self._rng
        living = self.ledger.living()
        if not living:
            return Step(verb="create", name=self._name(), now_us=now_us)
        verb = rng.choices(list(self._weights), list(self._weights.values()))[0]
        if len(living) >= LOGS_MAX and verb in ("create", "cfork", "promotable", "sfork"):
            verb = rng.choice(("promote", "squash", "drop"))
        log = rng.choice(living)
        match verb:
            case "append":
                return self._append(log)
            case "create":
                return Step(verb=verb, name=self._name())
            case "cfork" | "promotable":
                return Step(verb=verb, log=log.id, name=self._name(), lasting=rng.random() < 0.7, now_us=now_us)
            case "sfork":
                at = rng.randint(log.start, len(log.content))
                return Step(verb=verb, log=log.id, name=self._name(), at=at, now_us=now_us)
            case "trim":
                return Step(verb=verb, log=log.id, at=rng.randint(log.start, len(log.content)))
            case "commit":
                at = rng.randint(0, len(log.content))
                return Step(verb=verb, log=log.id, name=rng.choice(("mail", "bills")), at=at)
            case "forget_consumer":
                return Step(verb=verb, log=log.id, name=rng.choice(("mail", "bills")))
            case "promote":
                undecided = [fork for fork in living if fork.promotable]
                return Step(verb=verb, log=rng.choice(undecided).id) if undecided else self._append(log)
            case "squash":
                log = rng.choice([fork for fork in living if fork.kind != "root"] or living)
                return Step(verb=verb, log=log.id)
            case "expire":
                return Step(verb=verb, now_us=now_us)
        return Step(verb=verb, log=log.id, now_us=now_us)

    def _append(self, log: Account) -> Step:
        rng = self._rng
        writer, sequence = "", 0
        if rng.random() < 0.3:
            writer = rng.choice(("anna", "bert"))
            known, numbers = log.writers.get(writer, (-1, []))
            if numbers and rng.random() < 0.3:  # the same again, as after a lost answer
                records = tuple((number, self.ledger.sizes[number]) for number in numbers)
                return Step(verb="append", log=log.id, records=records, writer=writer, sequence=known)
            sequence = known + 1
        first = len(self.ledger.sizes) + 1
        if rng.random() < 0.1:
            sizes = [limits.INLINE_BYTES_MAX + rng.randint(1, 2000)]
        else:
            sizes = [rng.randint(0, 200) for _ in range(rng.choice((1, 1, 1, 2, 7, 30)))]
        records = tuple(enumerate(sizes, first))
        return Step(verb="append", log=log.id, records=records, writer=writer, sequence=sequence)

    def _name(self) -> str:
        """Sometimes the name of a log that ended: it must not come back to life."""
        names = [account.name for account in self.ledger.accounts.values() if account.end]
        if names and self._rng.random() < 0.3:
            return self._rng.choice(names)
        return f"log-{len(self.ledger.accounts)}-{self._rng.randrange(1_000_000)}"


def call(braid: Braid, step: Step) -> Answer:
    """The call that a step stands for, and its answer in the form that the ledger knows."""
    if step.verb == "create":
        return braid.create(step.name).id
    log = next((log for log in braid.logs() if log.id == step.log), None)
    assert log is not None, f"log {step.log} is not there"
    ttl = None if step.lasting else TTL_S
    match step.verb:
        case "append":
            batch = [record(number, size) for number, size in step.records]
            named = {"writer": step.writer, "sequence": step.sequence} if step.writer else {}
            if len(batch) == 1:
                one = batch[0]
                return log.append(one.value, key=one.key, headers=one.headers, timestamp=one.timestamp, **named)
            positions = log.append_many(batch, **named)
            return None if positions is None else positions.start
        case "cfork":
            return log.cfork(step.name, ttl=ttl).id
        case "promotable":
            return log.cfork(step.name, promotable=True, ttl=ttl, lease=LEASE_S).id
        case "sfork":
            return log.sfork(step.name, at=step.at, ttl=ttl).id
        case "promote":
            return log.promote()
        case "squash":
            log.squash()
        case "drop":
            braid.drop(log.name, cascade=True)
        case "renew":
            log.renew()
        case "trim":
            return log.trim(step.at)
        case "commit":
            return log.commit(step.name, step.at)
        case "forget_consumer":
            log.forget_consumer(step.name)
    return None


def take(ledger: Ledger, event: object) -> None:
    """Enter what a workload told into another ledger."""
    if isinstance(event, Step):
        ledger.begin(event)
    else:
        assert event is None or isinstance(event, int | str)
        ledger.settle(event)
