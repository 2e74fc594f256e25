"""What a forest means, said as naively as possible: a log is a plain list of records.

A record is a unique integer. An append puts it at the end of the log's list and of the list of every live descendant; a
fork copies a list; a promotion replaces the parent's list by the fork's. Nothing here is shared with the forest except
the commands and the errors: no index, no path sums, no tour, no views. Everything that the forest computes cleverly is
computed here by looking for records in lists, or by walking from each log to its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from braidlog import errors as e
from braidlog import limits
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.names import check_consumer, check_name

Answer = tuple[object, ...]


class Refused(Exception):
    """The command does not apply: the class of the error, and the detail that its receiver acts on."""

    def __init__(self, error: type[e.BraidError], detail: object = None) -> None:
        super().__init__(error.__name__, detail)
        self.answer: Answer = ("refused", error.__name__, detail)


@dataclass(eq=False)
class NaiveLog:
    """One log, living or ended. The links of ended logs stay: they tell where their severed forks belong now."""

    id: int
    name: str
    kind: str
    parent: NaiveLog | None
    origin: NaiveLog | None  # of any fork: what it was forked from, or what that was promoted into
    content: list[int]
    created: int
    fork_point: int = 0
    start: int = 0
    epoch: int = 0
    promotable: bool = False
    dedicated: bool = False
    consumers: dict[str, tuple[int, int]] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    writers: dict[str, tuple[int, Batch]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    origin_id: int = NONE
    origin_name: str = ""
    ttl_us: int = NONE
    expires: int = NONE
    lease_us: int = NONE
    lease_expires: int = NONE
    retain_age_us: int = NONE
    retain_bytes: int = NONE
    end: str = ""
    end_tail: int = 0

    def deadline(self) -> int:
        return min((moment for moment in (self.expires, self.lease_expires) if moment != NONE), default=NONE)


@dataclass(eq=False)
class Batch:
    """An append that somebody may ask about later. Its position is final when it is not withheld."""

    log: NaiveLog
    records: list[int]
    position: int
    withheld: bool


@dataclass(eq=False)
class Block:
    """Where records stand. A row is None when its record had left the block before the block came to be."""

    log: int
    object: str  # empty: inline
    rows: list[int | None]


class Limit(NamedTuple):
    """How far a log goes, and how far it can be read."""

    tail: int
    readable: int
    holder: NaiveLog | None
    blocked: bool


class Oracle:
    """The naive forest. `apply` answers in tuples that can be compared; the first word says what kind of answer."""

    def __init__(self, record_size: int) -> None:
        self.record_size = record_size
        self.logs: dict[int, NaiveLog] = {}  # every log that ever was
        self.living: dict[int, NaiveLog] = {}
        self.answers: dict[bytes, Batch | Answer] = {}
        self.undecided: list[Batch] = []
        self.blocks: dict[int, Block] = {}
        self.objects: dict[str, bool] = {}  # whether it is condemned
        self.epoch = 0
        self.newest_epoch = 0
        self.admitted: set[int] = set()
        self.uploads: dict[int, tuple[int, int]] = {}  # epoch -> log, when it is over
        self.floors: dict[bytes, int] = {}  # of clients
        self.applied = 0
        self.blocks_made = 0

    # --- what can be asked ---------------------------------------------------------------------------------------

    def forks(self, log: NaiveLog) -> list[NaiveLog]:
        """The live forks right below a log."""
        return [other for other in self.living.values() if other.parent is log]

    def subtree(self, top: NaiveLog) -> list[NaiveLog]:
        """A log and everything that inherits from it."""
        members = [top]
        for member in members:  # grows while it is walked
            members += self.forks(member)
        return members

    def undecided_forks(self, log: NaiveLog) -> list[NaiveLog]:
        return [fork for fork in self.forks(log) if fork.promotable]

    def held_from(self, log: NaiveLog) -> int | None:
        """The earliest position that a pending decision could change, if one is pending."""
        return min((fork.fork_point for fork in self.undecided_forks(log)), default=None)

    def limits(self) -> dict[int, Limit]:
        """For every living log: it can be read up to the first record that somebody's pending decision could move.

        A held log's records from its earliest undecided fork on are such records, for the log itself and everything
        below it, except below those very undecided forks. Where two holds meet, the nearer one is named.
        """
        found = {log.id: Limit(len(log.content), len(log.content), None, False) for log in self.living.values()}
        for holder in self.living.values():  # an ancestor is always older than its descendants
            held_from = self.held_from(holder)
            if held_from is None:
                continue
            hidden = set(holder.content[held_from:])
            exempt = {member for fork in self.undecided_forks(holder) for member in self.subtree(fork)}
            for log in self.subtree(holder):
                if log in exempt:
                    continue
                known = found[log.id]
                first = next((at for at, record in enumerate(log.content) if record in hidden), known.tail)
                blocked = known.blocked or log is not holder
                if first <= known.readable:
                    found[log.id] = Limit(known.tail, first, holder, blocked)
                else:
                    found[log.id] = known._replace(blocked=blocked)
        return found

    def limit(self, log: NaiveLog) -> Limit:
        return self.limits()[log.id]

    def successor(self, log_id: int) -> NaiveLog:
        """The log itself, or what it was promoted into."""
        log = self.logs[log_id]
        while log.end == "promoted":
            assert log.parent is not None
            log = log.parent
        return log

    def overdue(self, now: int) -> list[int]:
        return sorted(log.id for log in self.living.values() if NONE < log.deadline() <= now)

    def recall(self, request: bytes) -> Answer | None:
        known = self.answers.get(request)
        return self.told(known) if isinstance(known, Batch) else known

    def told(self, batch: Batch) -> Answer:
        """What is said about an append now. A position that is not final yet is where the record stands now."""
        log = self.successor(batch.log.id)
        position = log.content.index(batch.records[0]) if batch.withheld else batch.position
        return "appended", log.id, position, len(batch.records), batch.withheld

    def needed(self) -> set[int]:
        """Every record that some living log may still be asked for.

        A promotable fork's own trim does not count before it is decided: promotion must find all its records.
        """
        found: set[int] = set()
        for log in self.living.values():
            found.update(log.content[min(log.start, log.fork_point) if log.promotable else log.start :])
        return found

    def contradictions(self) -> list[str]:
        """What must be true of the lists themselves."""
        found = []
        for log in self.living.values():
            if len(set(log.content)) != len(log.content):
                found.append(f"{log.name} holds a record twice")
            if log.parent is not None:
                if log.content[: log.fork_point] != log.parent.content[: log.fork_point]:
                    found.append(f"{log.name} does not share its parent's first {log.fork_point} records")
                if [record for record in log.content if record not in log.own] != log.parent.content:
                    found.append(f"{log.name} is not its parent's records and its own")
        return found

    # --- what can happen -----------------------------------------------------------------------------------------

    def apply(self, command: c.Command, records: Sequence[int] = ()) -> Answer:
        """Carry out a command. `records` are those of an append."""
        self.applied += 1
        request: bytes = getattr(command, "request", b"")
        known = self.recall(request)
        if known is not None:
            return known
        if isinstance(command, c.Again) and request:
            # Nothing is ever forgotten here, so what is not known never happened, unless it was settled long ago.
            settled = int.from_bytes(request[8:], "big") < self.floors.get(request[:8], 0)
            if settled and self.applied - command.since > limits.YOUNG_COMMANDS:
                return Refused(e.OutcomeUnknown, request.hex()).answer
            command = command.command
        try:
            answer = self._apply(command, list(records))
        except Refused as refused:
            return refused.answer
        if request and not isinstance(command, c.Append | c.Publish):
            self.answers[request] = answer
        self._settle()
        return answer

    def _apply(self, command: c.Command, records: list[int]) -> Answer:
        match command:
            case c.Opened():
                if command.epoch <= self.newest_epoch:
                    raise Refused(e.ConditionFailed)
                self.epoch = self.newest_epoch = command.epoch
                return "done", command.epoch
            case c.Admit():
                self.newest_epoch += 1
                self.admitted.add(self.newest_epoch)
                return "done", self.newest_epoch
            case c.Retire():
                if command.epoch == self.epoch or not 0 < command.epoch <= self.newest_epoch:
                    raise Refused(e.InvalidArgument)
                self.admitted.discard(command.epoch)
                return "done", 0
            case c.Upload():
                self._live(command.log)
                if command.ttl_us <= 0:
                    raise Refused(e.InvalidArgument)
                self.newest_epoch += 1
                self.uploads[self.newest_epoch] = (command.log, command.now + command.ttl_us)
                return "done", self.newest_epoch
            case c.Discard():
                others = self.uploads.get(command.epoch, (command.log,))[0] != command.log
                if others or not 0 < command.epoch <= self.newest_epoch:
                    raise Refused(e.InvalidArgument)
                self.uploads.pop(command.epoch, None)
                return "done", 0
            case c.Publish():
                return self._publish(command, records)
            case c.Settle():
                self.floors[command.client] = max(command.floor, self.floors.get(command.client, 0))
                return "done", self.floors[command.client]
            case c.Again():
                raise Refused(e.InvalidArgument)
            case c.Commit():
                return self._commit(command)
            case c.ForgetConsumer():
                log = self._live(command.log)
                if command.consumer not in log.consumers:
                    raise Refused(e.NotFound)
                return "done", log.consumers.pop(command.consumer)[0]
            case c.Create():
                return self._create(command)
            case c.Append():
                return self._append(command, records)
            case c.CFork():
                return self._cfork(command)
            case c.SFork():
                return self._sfork(command)
            case c.Promote():
                return self._promote(command)
            case c.Squash():
                return self._squash(command)
            case c.Drop():
                return self._drop(command)
            case c.Renew():
                return self._renew(command)
            case c.Expire():
                log = self._live(command.log)
                if not NONE < log.deadline() <= command.now:
                    return "ended", frozenset()
                return self._end(self.subtree(log), "expired")
            case c.Trim():
                return self._trim(command)
            case c.Register():
                if command.epoch != self.epoch and command.epoch not in self.admitted:
                    raise Refused(e.ConditionFailed)
                self.objects.setdefault(command.object, False)
                return "done", 0
            case c.Pack():
                return self._pack(command)
            case c.Relocate():
                self._require(command.object)
                for move in command.moves:
                    if move.block in self.blocks:
                        self.blocks[move.block].object = command.object
                return "done", 0
            case c.Collect():
                return self._collect()
            case c.Forget():
                for name in command.objects:
                    if self.objects.get(name):
                        del self.objects[name]
                return "done", 0
        raise AssertionError(f"the oracle does not know {command}")

    def _live(self, log_id: int) -> NaiveLog:
        log = self.logs.get(log_id)
        if log is None:
            raise Refused(e.NotFound)
        if log.end:
            raise Refused(e.Gone, log.end)
        return log

    def _name(self, name: str, parent: NaiveLog | None, kind: str) -> str:
        if not name and parent is not None:
            name = f"{parent.name}.{kind}-{len(self.logs) + 1}"
        try:
            check_name(name)
        except e.InvalidArgument as error:
            raise Refused(e.InvalidArgument) from error
        if any(log.name == name for log in self.living.values()):
            raise Refused(e.AlreadyExists)
        return name

    def _add(self, log: NaiveLog) -> Answer:
        self.logs[log.id] = self.living[log.id] = log
        return "opening", log.id, log.name

    def _create(self, command: c.Create) -> Answer:
        name = self._name(command.name, None, "")
        if command.discipline != "eager":
            raise Refused(e.InvalidArgument)
        log = NaiveLog(len(self.logs) + 1, name, "root", None, None, [], command.now)
        log.labels, log.owner = dict(command.labels), command.owner
        log.retain_age_us, log.retain_bytes = command.retain_age_us, command.retain_bytes
        return self._add(log)

    def _append(self, command: c.Append, records: list[int]) -> Answer:
        log = self._live(command.log)
        if not records:
            raise Refused(e.InvalidArgument)
        before = self._before(command, log)
        if before is not None:
            return before
        limit = self._appendable(command, log)
        if command.object:
            self._require(command.object)
        self._block(log, command.object, records)
        return self._bind(command, log, records, limit)

    def _publish(self, command: c.Publish, records: list[int]) -> Answer:
        log = self._live(command.log)
        before = self._before(command, log)
        if before is not None:
            return before
        limit = self._appendable(command, log)
        for epoch in command.epochs:
            if epoch not in self.uploads:
                raise Refused(e.ConditionFailed)
            if self.uploads[epoch][0] != log.id:
                raise Refused(e.InvalidArgument)
        if not command.objects:
            raise Refused(e.InvalidArgument)
        names = [uploaded.object for uploaded in command.objects]
        for number, name in enumerate(names):
            if int(name.split("-")[0], 16) not in command.epochs:
                raise Refused(e.InvalidArgument)
            if name in self.objects or name in names[:number]:
                raise Refused(e.ConditionFailed)
        at = 0
        for uploaded in command.objects:
            self.objects[uploaded.object] = False
            for block in uploaded.blocks:
                self._block(log, uploaded.object, records[at : at + block.count])
                at += block.count
        for epoch in command.epochs:
            self.uploads.pop(epoch, None)
        return self._bind(command, log, records, limit)

    def _before(self, command: c.Append | c.Publish, log: NaiveLog) -> Answer | None:
        if command.writer in log.writers:
            sequence, batch = log.writers[command.writer]
            if command.sequence == sequence:
                return self.told(batch)
            if command.sequence < sequence:
                raise Refused(e.ConditionFailed)
        return None

    def _appendable(self, command: c.Append | c.Publish, log: NaiveLog) -> Limit:
        limit = self.limit(log)
        if limit.blocked:
            assert limit.holder is not None
            raise Refused(e.Blocked, limit.holder.name)
        if command.expected_tail not in (NONE, limit.tail):
            raise Refused(e.ConditionFailed)
        return limit

    def _block(self, log: NaiveLog, name: str, records: list[int]) -> None:
        self.blocks_made += 1
        self.blocks[self.blocks_made] = Block(log.id, name, list(records))

    def _bind(self, command: c.Append | c.Publish, log: NaiveLog, records: list[int], limit: Limit) -> Answer:
        log.own.update(records)
        for member in self.subtree(log):
            member.content += records
        batch = Batch(log, records, limit.tail, bool(self.undecided_forks(log)))
        if batch.withheld:
            self.undecided.append(batch)
        if command.request:
            self.answers[command.request] = batch
        if command.writer:
            log.writers[command.writer] = (command.sequence, batch)
        return self.told(batch)

    def _fork(self, command: c.CFork | c.SFork, parent: NaiveLog, kind: str, name: str, content: list[int]) -> NaiveLog:
        log = NaiveLog(len(self.logs) + 1, name, kind, None, parent, content, command.now)
        log.fork_point = len(content)
        log.start = parent.start
        log.consumers = {name: (min(at, len(content)), when) for name, (at, when) in parent.consumers.items()}
        log.origin_id, log.origin_name = parent.id, parent.name
        log.labels, log.owner = dict(command.labels), command.owner
        if command.ttl_us != NONE:
            log.ttl_us, log.expires = command.ttl_us, command.now + command.ttl_us
        return log

    def _cfork(self, command: c.CFork) -> Answer:
        parent = self._live(command.log)
        name = self._name(command.name, parent, "cfork")
        limit = self.limit(parent)
        if command.promotable and limit.blocked:
            assert limit.holder is not None
            raise Refused(e.Blocked, limit.holder.name)
        log = self._fork(command, parent, "cfork", name, list(parent.content))
        log.parent = parent
        log.promotable = command.promotable
        log.dedicated = command.dedicated
        if command.promotable and command.lease_us != NONE:
            log.lease_us, log.lease_expires = command.lease_us, command.now + command.lease_us
        return self._add(log)

    def _sfork(self, command: c.SFork) -> Answer:
        source = self._live(command.log)
        name = self._name(command.name, source, "sfork")
        limit = self.limit(source)
        at = limit.tail if command.at == NONE else command.at
        if at < source.start:
            raise Refused(e.Trimmed, source.start)
        if at > limit.tail:
            raise Refused(e.OutOfRange)
        if at > limit.readable:
            assert limit.holder is not None
            raise Refused(e.Blocked, limit.holder.name)
        return self._add(self._fork(command, source, "sfork", name, source.content[:at]))

    def _promote(self, command: c.Promote) -> Answer:
        fork = self.logs.get(command.log)
        if fork is not None and fork.end == "lost":
            return "promotion", False, frozenset()
        fork = self._live(command.log)
        if not fork.promotable:
            raise Refused(e.NotPromotable)
        if command.expected_own not in (NONE, len(fork.own)) or command.expected_tail not in (NONE, len(fork.content)):
            return "promotion", False, frozenset()
        parent = fork.parent
        assert parent is not None
        ended = {fork.id}
        held_from = self.held_from(parent)
        assert held_from is not None
        before, after = parent.content, fork.content
        for rival in self.undecided_forks(parent):
            if rival is not fork:
                ended |= self._kill(self.subtree(rival), "lost")
        promoted = set(self.subtree(fork))
        for other in self.subtree(parent):
            if other not in promoted and other is not parent:
                self._follow(other, set(before[held_from:]), after[held_from:])
        for child in self.forks(parent):  # a fork was born behind a certain record, and still is
            if child.fork_point:
                child.fork_point = after.index(before[child.fork_point - 1]) + 1
        parent.content = list(after)
        parent.own |= fork.own
        parent.epoch += 1
        for child in self.forks(fork):
            child.parent = parent
        for writer, (sequence, batch) in fork.writers.items():
            if writer not in parent.writers or parent.writers[writer][0] < sequence:
                parent.writers[writer] = (sequence, batch)
        self._kill([fork], "promoted")
        return "promotion", True, frozenset(ended)

    def _follow(self, other: NaiveLog, hidden: set[int], decided: list[int]) -> None:
        """A log that had to wait keeps what it could read, and goes on as was decided."""
        kept = [record for record in other.content if record not in hidden]
        assert other.content[: len(kept)] == kept, f"{other.name} was appended to while it was blocked"
        other.content = kept + decided

    def _squash(self, command: c.Squash) -> Answer:
        log = self._live(command.log)
        if log.kind == "root":
            raise Refused(e.InvalidArgument)
        return self._end(self._closure(log) if command.cascade_severed else self.subtree(log), "squashed")

    def _drop(self, command: c.Drop) -> Answer:
        log = self._live(command.log)
        if log.kind != "root":
            raise Refused(e.InvalidArgument)
        doomed = self._closure(log)
        if len(doomed) > 1 and not command.cascade:
            raise Refused(e.ConditionFailed)
        return self._end(doomed, "dropped")

    def _closure(self, top: NaiveLog) -> list[NaiveLog]:
        """Every living log that descends from this one, by live or by severed forks, through logs living or ended."""
        return [log for log in self.living.values() if top in self._lineage(log)]

    def _lineage(self, log: NaiveLog) -> list[NaiveLog]:
        line = [log]
        while (above := line[-1].parent or line[-1].origin) is not None:
            line.append(above)
        return line

    def _end(self, logs: Iterable[NaiveLog], how: str) -> Answer:
        return "ended", frozenset(self._kill(logs, how))

    def _kill(self, logs: Iterable[NaiveLog], how: str) -> set[int]:
        ended = set()
        for log in logs:
            log.end, log.end_tail = how, len(log.content)
            del self.living[log.id]
            ended.add(log.id)
        return ended

    def _settle(self) -> None:
        """A position is final as soon as no decision that is pending on its log could move it."""
        for batch in self.undecided:
            log = self.successor(batch.log.id)
            if log.end:
                batch.position, batch.withheld = NONE, False
                continue
            position = log.content.index(batch.records[0])
            held_from = self.held_from(log)
            if held_from is None or position + len(batch.records) <= held_from:
                batch.position, batch.withheld = position, False
        self.undecided = [batch for batch in self.undecided if batch.withheld]

    def _renew(self, command: c.Renew) -> Answer:
        log = self._live(command.log)
        if log.lease_us == NONE and log.ttl_us == NONE:
            raise Refused(e.InvalidArgument)
        if log.lease_us != NONE:
            log.lease_expires = command.now + log.lease_us
        if log.ttl_us != NONE:
            log.expires = command.now + log.ttl_us
        return "done", log.deadline()

    def _trim(self, command: c.Trim) -> Answer:
        log = self._live(command.log)
        limit = self.limit(log)
        if command.before > limit.tail:
            raise Refused(e.OutOfRange)
        if command.before > limit.readable:
            assert limit.holder is not None
            raise Refused(e.Blocked, limit.holder.name)
        log.start = max(log.start, command.before)
        return "done", log.start

    def _commit(self, command: c.Commit) -> Answer:
        log = self._live(command.log)
        try:
            check_consumer(command.consumer)
        except e.InvalidArgument as error:
            raise Refused(e.InvalidArgument) from error
        limit = self.limit(log)
        if not 0 <= command.position <= limit.tail:
            raise Refused(e.OutOfRange)
        if command.position > limit.readable:
            assert limit.holder is not None
            raise Refused(e.Blocked, limit.holder.name)
        if command.consumer not in log.consumers and len(log.consumers) >= limits.CONSUMERS_PER_LOG_MAX:
            raise Refused(e.ConditionFailed)
        log.consumers[command.consumer] = (command.position, command.now)
        return "done", command.position

    # --- blocks and objects --------------------------------------------------------------------------------------

    def _require(self, name: str) -> None:
        if self.objects.get(name, True):
            raise Refused(e.InvalidArgument)

    def inline(self) -> list[int]:
        return [number for number, block in self.blocks.items() if not block.object]

    def _pack(self, command: c.Pack) -> Answer:
        self._require(command.object)
        packed: set[int] = set()
        for part in command.blocks:
            rows: list[int | None] = []
            for source, count in zip(part.sources, part.counts, strict=True):
                block = self.blocks.get(source)
                if block is not None and not block.object:
                    rows += block.rows
                    packed.add(source)
                    del self.blocks[source]
                else:
                    rows += [None] * count
            if any(row is not None for row in rows):
                self.blocks_made += 1
                self.blocks[self.blocks_made] = Block(part.log, command.object, rows)
        return "collected", frozenset(packed), frozenset()

    def _collect(self) -> Answer:
        needed = self.needed()
        dead = {number for number, block in self.blocks.items() if not needed.intersection(block.rows)}
        dead_inline = frozenset(dead.intersection(self.inline()))
        for number in dead:
            del self.blocks[number]
        used = {block.object for block in self.blocks.values()}
        condemned = frozenset(name for name, gone in self.objects.items() if not gone and name not in used)
        self.objects.update(dict.fromkeys(condemned, True))
        return "collected", dead_inline, condemned
