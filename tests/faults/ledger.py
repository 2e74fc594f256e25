"""What must be there: a naive account of everything that was acknowledged.

A log is a plain list of record numbers. An append puts numbers at the end of its log's list and of the list of every
live fork below; a fork copies a list; a promotion replaces the parent's list by the fork's. Each step is told twice:
`begin` before it is tried, `settle` with its answer. A step that was begun and never settled may have happened or not,
as a whole: `possible` gives both accounts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from braidlog.record import Record

LEASE_S = 300.0
TTL_S = 1000.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `records` are (number, size in bytes) of what is appended."""

    verb: str
    log: int = 0
    name: str = ""
    records: tuple[tuple[int, int], ...] = ()
    writer: str = ""
    sequence: int = 0
    at: int = 0
    lasting: bool = True  # of a fork: without a time to live
    now_us: int = 0


# What a step answers: the first position, or None if that is withheld; the id of the log that came to be; whether
# it was promoted. A refusal is the name of the error.
Answer = int | bool | str | None


@functools.lru_cache(maxsize=4096)
def record(number: int, size: int) -> Record:
    """The record of that number; nothing else looks like it."""
    head = f"{number}:".encode()
    value = (head + number.to_bytes(4, "big") * (size // 4 + 1))[: max(size, len(head))]
    key = f"key {number}".encode() if number % 3 == 0 else None
    headers = (("n", str(number).encode()), ("", b"")) if number % 5 == 0 else ()
    return Record(value, key, headers, timestamp=1_000_000 + number)


class Refused(Exception):
    """The account says that this step cannot be."""


@dataclass
class Account:
    """Of one log, living or ended."""

    id: int
    name: str
    kind: str
    source: int  # what it was forked from, 0 for a root
    content: list[int]
    fork_point: int = 0
    start: int = 0
    promotable: bool = False
    ttl: bool = False
    expires_us: int | None = None
    lease_expires_us: int | None = None
    writers: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    end: str = ""

    def overdue(self, now_us: int) -> bool:
        return any(moment is not None and moment <= now_us for moment in (self.expires_us, self.lease_expires_us))


@dataclass(frozen=True)
class Reach:
    readable: int
    blocked: bool  # for appends and promotable forks


class Ledger:
    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.sizes: dict[int, int] = {}  # of every record that was ever sent
        self.doubtful: Step | None = None

    def copy(self) -> Ledger:
        twin = Ledger()
        twin.accounts = {
            number: dataclasses.replace(
                account,
                content=list(account.content),
                writers=dict(account.writers),
                consumers=dict(account.consumers),
            )
            for number, account in self.accounts.items()
        }
        twin.sizes = dict(self.sizes)
        twin.doubtful = self.doubtful
        return twin

    # --- what there is -------------------------------------------------------------------------------------------

    def living(self) -> list[Account]:
        return [account for account in self.accounts.values() if not account.end]

    def forks(self, log: Account) -> list[Account]:
        """The live forks right below it."""
        return [fork for fork in self.living() if fork.kind == "cfork" and fork.source == log.id]

    def subtree(self, top: Account) -> list[Account]:
        members = [top]
        for member in members:  # grows while it is walked
            members += self.forks(member)
        return members

    def undecided(self, log: Account) -> list[Account]:
        return [fork for fork in self.forks(log) if fork.promotable]

    def reaches(self) -> dict[int, Reach]:
        """How far each log can be read: up to the first record that some pending decision could move."""
        found = {log.id: Reach(len(log.content), False) for log in self.living()}
        for holder in self.living():
            undecided = self.undecided(holder)
            if not undecided:
                continue
            hidden = set(holder.content[min(fork.fork_point for fork in undecided) :])
            exempt = {member.id for fork in undecided for member in self.subtree(fork)}
            for log in self.subtree(holder):
                if log.id in exempt:
                    continue
                known = found[log.id]
                first = next((at for at, number in enumerate(log.content) if number in hidden), len(log.content))
                found[log.id] = Reach(min(first, known.readable), known.blocked or log is not holder)
        return found

    def descends(self, log: Account, top: Account) -> bool:
        """Whether it was forked from there, over living and ended logs, live or severed."""
        while log is not top and log.source:
            log = self.accounts[log.source]
        return log is top

    def records(self, numbers: Sequence[int]) -> list[Record]:
        return [record(number, self.sizes[number]) for number in numbers]

    # --- what happens --------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        assert self.doubtful is None, f"{self.doubtful} is not settled yet"
        self.doubtful = step
        self.sizes.update(step.records)

    def settle(self, answer: Answer) -> None:
        step, self.doubtful = self.doubtful, None
        assert step is not None
        if isinstance(answer, str):
            return  # refused: nothing has changed
        try:
            foreseen = self._apply(step)
        except Refused as refused:
            raise AssertionError(f"{step} was acknowledged with {answer!r}, but {refused}") from refused
        if step.writer and answer is None:
            return  # a repetition may be told less than could be known by now
        assert answer == foreseen, f"{step} was acknowledged with {answer!r}, and {foreseen!r} is right"

    def possible(self) -> list[Ledger]:
        """What may be there if everything stops now. The first has least of the doubtful step, the last all of it."""
        without = self.copy()
        without.doubtful = None
        found = [without]
        if self.doubtful is not None:
            for part in self._parts(self.doubtful):
                twin = found[-1].copy()
                try:
                    twin._apply(part)
                except Refused:  # or it went with another fork
                    continue
                found.append(twin)
        return found

    def _parts(self, step: Step) -> Iterator[Step]:
        """What a step consists of. Only expiry ends one fork after the other."""
        if step.verb != "expire":
            yield step
            return
        for log in sorted(self.living(), key=lambda log: log.id):
            if log.overdue(step.now_us):
                yield msgspec.structs.replace(step, log=log.id)

    def _apply(self, step: Step) -> Answer:
        apply = getattr(self, f"_{step.verb}", None)
        if apply is None:
            return None  # it changes nothing that can be seen: upkeep, reopening
        answer: Answer = apply(step)
        return answer

    def _log(self, step: Step) -> Account:
        log = self.accounts.get(step.log)
        if log is None or log.end:
            raise Refused(f"log {step.log} does not live")
        return log

    def _create(self, step: Step) -> Answer:
        return self._open(step, "root", 0, [])

    def _append(self, step: Step) -> Answer:
        log = self._log(step)
        if step.writer:
            sequence, numbers = log.writers.get(step.writer, (-1, []))
            if step.sequence < sequence:
                raise Refused(f"writer {step.writer} is at {sequence} already")
            if step.sequence == sequence:
                return self._position(log, numbers)
        if self.reaches()[log.id].blocked:
            raise Refused(f"log {log.id} is blocked")
        numbers = [number for number, _ in step.records]
        for member in self.subtree(log):
            member.content += numbers
        if step.writer:
            log.writers[step.writer] = (step.sequence, numbers)
        return self._position(log, numbers)

    def _position(self, log: Account, numbers: list[int]) -> int | None:
        first = log.content.index(numbers[0])
        held_from = min((fork.fork_point for fork in self.undecided(log)), default=first + 1)
        return first if first < held_from else None

    def _cfork(self, step: Step) -> Answer:
        return self._live_fork(step, promotable=False)

    def _promotable(self, step: Step) -> Answer:
        return self._live_fork(step, promotable=True)

    def _live_fork(self, step: Step, *, promotable: bool) -> Answer:
        parent = self._log(step)
        if promotable and self.reaches()[parent.id].blocked:
            raise Refused(f"log {parent.id} is blocked")
        answer = self._open(step, "cfork", parent.id, list(parent.content))
        log = self.accounts[answer]
        log.start = parent.start
        log.promotable = promotable
        self._renew_deadlines(log, step.now_us)
        return answer

    def _sfork(self, step: Step) -> Answer:
        source = self._log(step)
        if not source.start <= step.at <= self.reaches()[source.id].readable:
            raise Refused(f"position {step.at} of log {source.id} cannot be read")
        answer = self._open(step, "sfork", source.id, source.content[: step.at])
        log = self.accounts[answer]
        log.start = source.start
        self._renew_deadlines(log, step.now_us)
        return answer

    def _open(self, step: Step, kind: str, source: int, content: list[int]) -> int:
        if any(log.name == step.name for log in self.living()):
            raise Refused(f"the name {step.name} is taken")
        log = Account(len(self.accounts) + 1, step.name, kind, source, content, len(content), ttl=not step.lasting)
        if source:
            inherited = self.accounts[source].consumers
            log.consumers = {name: min(at, len(content)) for name, at in inherited.items()}
        self.accounts[log.id] = log
        return log.id

    def _renew(self, step: Step) -> Answer:
        log = self._log(step)
        if not log.ttl and not log.promotable:
            raise Refused(f"log {log.id} has no deadline")
        self._renew_deadlines(log, step.now_us)
        return None

    @staticmethod
    def _renew_deadlines(log: Account, now_us: int) -> None:
        if log.ttl:
            log.expires_us = now_us + round(TTL_S * 1_000_000)
        if log.promotable:
            log.lease_expires_us = now_us + round(LEASE_S * 1_000_000)

    def _expire(self, step: Step) -> Answer:
        doomed = [self._log(step)] if step.log else [log for log in self.living() if log.overdue(step.now_us)]
        for log in doomed:
            self._end(self.subtree(log), "expired")
        return None

    def _promote(self, step: Step) -> Answer:
        fork = self.accounts[step.log]
        if fork.end == "lost":
            return False
        fork = self._log(step)
        if not fork.promotable:
            raise Refused(f"log {fork.id} is not promotable")
        parent = self.accounts[fork.source]
        held_from = min(rival.fork_point for rival in self.undecided(parent))
        for rival in self.undecided(parent):
            if rival is not fork:
                self._end(self.subtree(rival), "lost")
        before, after = parent.content, fork.content
        hidden = set(before[held_from:])
        promoted = {member.id for member in self.subtree(fork)}
        for other in self.subtree(parent):
            if other is not parent and other.id not in promoted:
                kept = [number for number in other.content if number not in hidden]
                other.content = kept + after[held_from:]
        for child in self.forks(parent):
            if child.fork_point:
                child.fork_point = after.index(before[child.fork_point - 1]) + 1
        parent.content = list(after)
        for child in self.forks(fork):
            child.source = parent.id
        for name, (sequence, numbers) in fork.writers.items():
            if parent.writers.get(name, (-1, []))[0] < sequence:
                parent.writers[name] = (sequence, numbers)
        self._end([fork], "promoted")
        return True

    def _squash(self, step: Step) -> Answer:
        log = self._log(step)
        if log.kind == "root":
            raise Refused(f"log {log.id} is a root")
        self._end(self.subtree(log), "squashed")
        return None

    def _drop(self, step: Step) -> Answer:
        top = self._log(step)
        if top.kind != "root":
            raise Refused(f"log {top.id} is a fork")
        self._end([log for log in self.living() if self.descends(log, top)], "dropped")
        return None

    def _commit(self, step: Step) -> Answer:
        log = self._log(step)
        if step.at > self.reaches()[log.id].readable:
            raise Refused(f"position {step.at} of log {log.id} cannot be read")
        log.consumers[step.name] = step.at
        return step.at

    def _forget_consumer(self, step: Step) -> Answer:
        log = self._log(step)
        if log.consumers.pop(step.name, None) is None:
            raise Refused(f"log {log.id} has no consumer {step.name}")
        return None

    def _trim(self, step: Step) -> Answer:
        log = self._log(step)
        if step.at > self.reaches()[log.id].readable:
            raise Refused(f"position {step.at} of log {log.id} cannot be read")
        log.start = max(log.start, step.at)
        return log.start

    @staticmethod
    def _end(logs: list[Account], how: str) -> None:
        for log in logs:
            if not log.end:
                log.end = how
