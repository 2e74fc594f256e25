"""The forest: the one place where records are bound to positions. One door for changes: `apply`.

PURE and deterministic: no clock, chance, file, thread or network. The same commands in the same order give the same
answers and the same state, byte for byte (see `state`). A command either applies as a whole or changes nothing and
answers with an error. Reading goes through the other methods, which change nothing.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Any, NamedTuple

from braidlog import limits
from braidlog.errors import (
    AlreadyExists,
    BraidError,
    ConditionFailed,
    Gone,
    InvalidArgument,
    NotFound,
    NotPromotable,
    OutOfRange,
)
from braidlog.forest import commands as c
from braidlog.forest import consumers, forks
from braidlog.forest.commands import NONE
from braidlog.forest.index import Index
from braidlog.forest.log import Log, Outcome, View, Writer
from braidlog.forest.names import check_name
from braidlog.forest.space import Place, Space
from braidlog.forest.tails import reach
from braidlog.forest.tokens import Tokens
from braidlog.forest.windows import Windows

_NOTED = frozenset({c.Append, c.Publish, c.Again})  # see to it themselves that their outcome is remembered


class End(NamedTuple):
    """How a log ended: see `forks` for the kinds. A promoted one goes on as `into`, from `position`."""

    kind: str
    name: str
    into: int
    position: int


class Forest:
    """All logs, their forks, and where their records are."""

    def __init__(self) -> None:
        self.logs: dict[int, Log] = {}
        self.names: dict[str, Log] = {}
        # These forget their oldest entry again and again, which a plain dict can only find by walking over holes.
        self.ends: OrderedDict[int, End] = OrderedDict()
        self.space = Space()
        self.next_id = 1
        self.applied = 0  # commands ever applied, refused ones too: how far somebody has seen the forest
        self._settled: OrderedDict[bytes, Outcome | c.Result] = OrderedDict()
        self._settled_before: Callable[[], Iterable[tuple[bytes, Outcome | c.Result]]] | None = None
        self.pending: dict[bytes, Outcome] = {}  # of appends whose position a hold withholds
        self.decided: OrderedDict[bytes, Outcome] = OrderedDict()  # of those whose position was withheld
        self.windows = Windows()
        self.tokens = Tokens()
        self._clients = self.windows.by_client
        self.deadlines: list[tuple[int, int]] = []  # a heap of (time, log); may name dead or renewed logs
        self._doors: dict[type[Any], Callable[[Any], c.Result]] = {
            c.Append: self._append,
            c.Upload: self._upload,
            c.Publish: self._publish,
            c.Discard: self._discard,
            c.Opened: self._opened,
            c.Create: self._create,
            c.CFork: self._cfork,
            c.SFork: self._sfork,
            c.Promote: self._promote,
            c.Squash: self._squash,
            c.Drop: self._drop,
            c.Renew: self._renew,
            c.Expire: self._expire,
            c.Trim: self._trim,
            c.Retain: self._retain,
            c.Commit: self._commit,
            c.ForgetConsumer: self._forget_consumer,
            c.Settle: self._settle_client,
            c.Again: self._again,
            c.Admit: self._admit,
            c.Retire: self._retire,
            c.Register: self._register,
            c.Pack: self._pack,
            c.Relocate: self._relocate,
            c.Collect: self._collect,
            c.Forget: self._forget,
            c.CreateToken: self._create_token,
            c.RevokeToken: self._revoke_token,
        }

    # --- the door ------------------------------------------------------------------------------------------------

    def apply(self, command: c.Command) -> c.Result | BraidError:
        """Carry out one command. An error is an answer like any other: it is returned, and nothing has changed."""
        self.applied += 1
        try:
            request: bytes = getattr(command, "request", b"")
            if request:
                if self._clients:
                    self.windows.heard(request)
                known = self.recall(request)
                if known is not None:
                    return known
                kind = type(command)
                result = self._doors[kind](command)
                if kind not in _NOTED:
                    self._remember(request, result)
                return result
            return self._doors[type(command)](command)
        except BraidError as error:
            return error

    def recall(self, request: bytes) -> c.Result | None:
        """What a request that was applied before answered; positions withheld then are told if they are final now."""
        known = self.pending.get(request) or self.decided.get(request) or self.outcomes.get(request)
        if known is None and self._clients:
            known = self.windows.recall(request)
        if isinstance(known, Outcome):
            return repeat(known)
        return known

    def live(self, log_id: int) -> Log:
        log = self.logs.get(log_id)
        if log is not None:
            return log
        end = self.ends.get(log_id)
        if end is not None:
            into = self.ends_into(end)
            hint = f" into {into!r}: go on there" if into else ""
            raise Gone(f"log {end.name!r} was {end.kind}{hint}", end=end.kind)
        if 0 < log_id < self.next_id:
            raise Gone(f"log number {log_id} ended long ago: open another by its name")
        raise NotFound(f"there is no log number {log_id}")

    def check_holds(self, command: c.Append | c.Publish | c.CFork | c.SFork | c.Again) -> None:
        """Raise what `apply` would answer if a hold, or something else for good, stands in the way now."""
        if self.recall(command.request) is not None:
            return
        if isinstance(command, c.Again):
            self.windows.check_new(command.request, command.since, self.applied)
            inner = command.command
            if not isinstance(inner, c.Append | c.Publish | c.CFork | c.SFork):
                return
            command = inner
        log = self.live(command.log)
        if isinstance(command, c.CFork):
            forks.cforkable(log, command)
        elif isinstance(command, c.SFork):
            forks.sforkable(log, command)
        elif command.writer not in log.writers or log.writers[command.writer].sequence < command.sequence:
            forks.appendable(log)

    def by_name(self, name: str) -> Log:
        log = self.names.get(name)
        if log is None:
            end = next((end for end in reversed(self.ends.values()) if end.name == name), None)
            into, how = ("", "") if end is None else (self.ends_into(end), end.kind)
            told = f"there is no log named {name!r}: "
            if into:
                raise NotFound(f"{told}it was promoted into {into!r}, go on there", into=into, end=how)
            last = f"the last one was {how}; " if how else ""
            raise NotFound(f"{told}{last}`logs()` lists those there are, `create` makes one", end=how)
        return log

    def ends_into(self, end: End) -> str:
        """The name of the living log that a promoted one goes on as; empty if there is none."""
        seen = end.into
        while seen != NONE:
            if seen in self.logs:
                return self.logs[seen].name
            follow = self.ends.get(seen)
            seen = follow.into if follow is not None else NONE
        return ""

    def overdue(self, now: int) -> list[int]:
        """Forks whose time to live or decision lease ran out by `now`."""
        found: list[int] = []
        while self.deadlines and self.deadlines[0][0] <= now:
            _, log_id = heapq.heappop(self.deadlines)
            log = self.logs.get(log_id)
            if log is None or (deadline := log.deadline()) == NONE:
                continue
            if deadline <= now:
                found.append(log_id)
            else:
                heapq.heappush(self.deadlines, (deadline, log_id))
        overdue = sorted(set(found))
        for log_id in overdue:  # until the command that ends it is applied, it stays overdue
            heapq.heappush(self.deadlines, (self.logs[log_id].deadline(), log_id))
        return overdue

    # --- what the parts need of the whole ------------------------------------------------------------------------

    def take_id(self) -> int:
        taken = self.next_id
        self.next_id += 1
        return taken

    def settle(self, outcomes: list[Outcome]) -> None:
        """These positions are final now."""
        for outcome in outcomes:
            outcome.withheld = False
            if outcome.request and self.pending.pop(outcome.request, None) is not None:
                self.decided[outcome.request] = outcome  # kept longer: somebody was told to ask for it
        while len(self.decided) > limits.DECIDED_OUTCOMES_KEPT_MAX:
            self.windows.keep(*self.decided.popitem(last=False), self.applied)

    def bury(self, log: Log, kind: str, tail: int) -> None:
        """The log is out of the tree already; now it is out of the forest."""
        into = log.parent.id if kind == forks.PROMOTED and log.parent is not None else NONE
        log.promotables = {}  # nothing will be inserted into it any more, so packing may join the runs it leaves
        del self.logs[log.id]
        del self.names[log.name]
        self.ends[log.id] = End(kind, log.name, into, tail)
        if len(self.ends) > limits.TOMBSTONES_KEPT_MAX:
            self.ends.popitem(last=False)

    def trim_writers(self, log: Log) -> None:
        surplus = len(log.writers) - limits.WRITERS_PER_LOG_MAX
        if surplus > 0:  # some more than that, so that it is not due again at once
            for name in list(islice(log.writers, surplus + limits.WRITERS_PER_LOG_MAX // 100)):
                del log.writers[name]

    @property
    def outcomes(self) -> OrderedDict[bytes, Outcome | c.Result]:
        """Of requests that are settled, as they settled."""
        if self._settled_before is not None:
            self._settled = OrderedDict(self._settled_before())  # all of it or nothing: half would pass for the whole
            self._settled_before = None
        return self._settled

    def remember_when_asked(self, settled: Callable[[], Iterable[tuple[bytes, Outcome | c.Result]]]) -> None:
        """For a forest that settled nothing yet: take over what another one had settled, once somebody asks."""
        self._settled_before = settled

    def _remember(self, request: bytes, outcome: Outcome | c.Result) -> None:
        outcomes = self.outcomes
        outcomes[request] = outcome
        if len(outcomes) > limits.OUTCOMES_KEPT_MAX:
            forgotten = outcomes.popitem(last=False)
            if self._clients:  # as many as are kept were applied later than this one
                self.windows.keep(*forgotten, self.applied - limits.OUTCOMES_KEPT_MAX)

    def _welcome(self, log: Log) -> c.Opening:
        self.logs[log.id] = log
        self.names[log.name] = log
        deadline = log.deadline()
        if deadline != NONE:
            heapq.heappush(self.deadlines, (deadline, log.id))
        return c.Opening(log.id, log.name)

    def _free_name(self, name: str, parent: Log | None = None, kind: str = "") -> str:
        if not name:
            assert parent is not None
            suffix = f".{kind}-{self.next_id}"
            tries = count(2)
            while (name := parent.name[: limits.NAME_CHARS_MAX - len(suffix)] + suffix) in self.names:
                suffix = f".{kind}-{self.next_id}-{next(tries)}"
        check_name(name)
        if name in self.names:
            raise AlreadyExists(f"a log named {name!r} lives already: choose another name, or open it with log()")
        return name

    # --- the commands --------------------------------------------------------------------------------------------

    def _opened(self, command: c.Opened) -> c.Result:
        self.space.open(command.epoch)
        return c.Done(command.epoch)

    def _create(self, command: c.Create) -> c.Result:
        name = self._free_name(command.name) if command.name else command.name
        check_name(name)
        if command.discipline != "eager":
            raise InvalidArgument(f"discipline {command.discipline!r} is unknown: 'eager' is the one there is")
        log = Log(self.take_id(), name, "root", None, View(Index(), None), command.now)
        log.discipline = command.discipline
        log.retain_age_us = command.retain_age_us
        log.retain_bytes = command.retain_bytes
        log.labels = dict(command.labels)
        log.owner = command.owner
        return self._welcome(log)

    def _append(self, command: c.Append) -> c.Result:
        log = self.live(command.log)
        if command.count <= 0:
            raise InvalidArgument("an append needs at least one record")
        before = self._written_before(command, log) if command.writer else None
        if before is not None:
            return before
        tail = self._appendable(command, log)
        space = self.space
        if command.object:
            space.require(command.object)
            place = Place(command.object, command.offset, command.length, command.crc, command.row, log.id)
            block = space.add_placed(place)
        else:
            block = space.add_inline(log, command.count)
        segment = log.view.index.append(tail, command.count, command.size, block, 0, command.least, command.greatest)
        if not command.object:
            space.watch(segment, log)
        return self._bound(command, log, tail, command.count, command.size, block)

    def _publish(self, command: c.Publish) -> c.Result:
        log = self.live(command.log)
        before = self._written_before(command, log) if command.writer else None
        if before is not None:
            return before
        tail = self._appendable(command, log)
        self.space.uploads.check(command, self.space.objects)
        numbers = self.space.publish(command)
        index = log.view.index
        at, size = tail, 0
        blocks = (block for uploaded in command.objects for block in uploaded.blocks)
        for number, block in zip(numbers, blocks, strict=True):
            index.append(at, block.count, block.size, number, 0, block.least, block.greatest)
            at += block.count
            size += block.size
        return self._bound(command, log, tail, at - tail, size, numbers[0])

    def _written_before(self, command: c.Append | c.Publish, log: Log) -> c.Appended | None:
        """What the same sequence of the same writer was answered; one that is lower is refused."""
        written = log.writers.get(command.writer)
        if written is None or command.sequence > written.sequence:
            return None
        if command.sequence == written.sequence:
            return repeat(written.outcome)
        raise ConditionFailed(
            f"writer {command.writer!r} is at sequence {written.sequence} on {log.name!r} and cannot go back "
            f"to {command.sequence}: that append was taken before",
            sequence=written.sequence,
        )

    @staticmethod
    def _appendable(command: c.Append | c.Publish, log: Log) -> int:
        """The tail, if something can be appended there and that is where it is expected."""
        tail = forks.appendable(log).tail
        if command.expected_tail != NONE and command.expected_tail != tail:
            raise ConditionFailed(
                f"log {log.name!r} ends at {tail}, not at {command.expected_tail}: nothing was appended"
            )
        return tail

    def _bound(
        self, command: c.Append | c.Publish, log: Log, tail: int, count: int, size: int, block: int
    ) -> c.Appended:
        """Its runs are in the index: count them, and remember what it is answered."""
        log.own += count
        log.own_size += size
        tour = log.tree.tour
        if tour is not None:
            tour.add(log, count, 0)
        withheld = bool(log.promotables)
        if command.request or command.writer:
            self._note(command, log, Outcome(command.request, log.id, tail, count, withheld))
        return c.Appended(log.id, tail, count, block, withheld)

    def _note(self, command: c.Append | c.Publish, log: Log, outcome: Outcome) -> None:
        if outcome.withheld:
            log.withheld.append(outcome)
            if command.request:
                self.pending[command.request] = outcome
        elif command.request:
            self._remember(command.request, outcome)
        if command.writer:
            log.writers.pop(command.writer, None)  # the latest writer stands last
            log.writers[command.writer] = Writer(command.sequence, outcome)
            self.trim_writers(log)

    def _cfork(self, command: c.CFork) -> c.Result:
        parent = self.live(command.log)
        name = self._free_name(command.name, parent, "cfork")
        fork = forks.cfork(self, parent, command, name)
        consumers.inherit(fork, parent, fork.fork_point)
        return self._welcome(fork)

    def _sfork(self, command: c.SFork) -> c.Result:
        source = self.live(command.log)
        name = self._free_name(command.name, source, "sfork")
        fork = forks.sfork(self, source, command, name)
        consumers.inherit(fork, source, fork.fork_point)
        return self._welcome(fork)

    def _promote(self, command: c.Promote) -> c.Result:
        end = self.ends.get(command.log)
        if end is not None and end.kind == forks.LOST:
            return c.Promotion(False)
        fork = self.live(command.log)
        if not fork.promotable:
            raise NotPromotable(
                f"log {fork.name!r} is a {fork.kind} that was not made to be promoted: use cfork(promotable=True)"
            )
        if fork.parent is not None and command.into not in (NONE, fork.parent.id):
            raise ConditionFailed(
                f"log {fork.name!r} would be promoted into {fork.parent.name!r} by now, which is not what was asked "
                "for: look again"
            )
        if command.expected_own not in (NONE, fork.own):
            return c.Promotion(False)
        if command.expected_tail not in (NONE, reach(fork).tail):
            return c.Promotion(False)
        return c.Promotion(True, forks.promote(self, fork))

    def _squash(self, command: c.Squash) -> c.Result:
        log = self.live(command.log)
        if log.kind == "root":
            raise InvalidArgument(f"log {log.name!r} is a root and cannot be squashed: use drop()")
        return c.Ended(forks.squash(self, log, forks.SQUASHED, command.cascade_severed))

    def _drop(self, command: c.Drop) -> c.Result:
        log = self.live(command.log)
        if log.kind != "root":
            raise InvalidArgument(f"log {log.name!r} is a fork and cannot be dropped: use squash()")
        living = len(forks.subtree(log)) - 1 + len(forks.severed_below(log))
        if living and not command.cascade:
            raise ConditionFailed(
                f"log {log.name!r} has {living} living forks: squash them first, or drop with cascade=True"
            )
        return c.Ended(forks.squash(self, log, forks.DROPPED, command.cascade))

    def _renew(self, command: c.Renew) -> c.Result:
        log = self.live(command.log)
        if log.lease_us == NONE and log.ttl_us == NONE:
            raise InvalidArgument(f"log {log.name!r} has neither a lease nor a time to live: there is nothing to renew")
        before = log.deadline()
        if log.lease_us != NONE:
            log.lease_expires = command.now + log.lease_us
        if log.ttl_us != NONE:
            log.expires = command.now + log.ttl_us
        deadline = log.deadline()
        if deadline < before:  # a clock was set back; otherwise the old entry leads to the new one when its time comes
            heapq.heappush(self.deadlines, (deadline, log.id))
        return c.Done(deadline)

    def _expire(self, command: c.Expire) -> c.Result:
        log = self.live(command.log)
        deadline = log.deadline()
        if deadline == NONE or deadline > command.now:
            return c.Ended([])
        return c.Ended(forks.squash(self, log, forks.EXPIRED, cascade_severed=False))

    def _trim(self, command: c.Trim) -> c.Result:
        log = self.live(command.log)
        at = reach(log)
        if command.before > at.tail:
            raise OutOfRange(f"log {log.name!r} ends at {at.tail} and cannot be trimmed to {command.before}")
        if command.before > at.readable:
            raise forks.blocked_by(log, at.holder, f"a trim to {command.before}")
        log.start = max(log.start, command.before)
        return c.Done(log.start)

    def _retain(self, command: c.Retain) -> c.Result:
        log = self.live(command.log)
        readable = reach(log).readable
        oldest = command.now - log.retain_age_us if log.retain_age_us != NONE else None
        surplus = 0
        if log.retain_bytes != NONE:
            surplus = log.own_size - log.view.index.own_before(log.start)[1] - log.retain_bytes
        for run in log.view.index.runs(log.start, readable):
            expired = oldest is not None and run.greatest < oldest
            if not expired and (surplus <= 0 or surplus < run.size):
                break
            surplus -= run.size
            log.start = run.start + run.rows
        return c.Done(log.start)

    def _commit(self, command: c.Commit) -> c.Result:
        return c.Done(consumers.commit(self.live(command.log), command.consumer, command.position, command.now))

    def _forget_consumer(self, command: c.ForgetConsumer) -> c.Result:
        return c.Done(consumers.forget(self.live(command.log), command.consumer))

    def _settle_client(self, command: c.Settle) -> c.Result:
        return c.Done(self.windows.settle(command.client, command.floor, self.applied))

    def _again(self, command: c.Again) -> c.Result:
        if not command.request:
            kind = type(command.command).__name__.lower()
            raise InvalidArgument(f"cannot repeat {kind}: only a command that carries a request id can be sent again")
        self.windows.check_new(command.request, command.since, self.applied)
        inner = command.command
        result = self._doors[type(inner)](inner)
        if type(inner) not in _NOTED:
            self._remember(command.request, result)
        return result

    def _upload(self, command: c.Upload) -> c.Result:
        log = self.live(command.log)
        if command.ttl_us <= 0:
            raise InvalidArgument(f"an upload cannot last for {command.ttl_us} microseconds: give it some time")
        return c.Done(self.space.upload(command, log.tree.root.id))

    def _discard(self, command: c.Discard) -> c.Result:
        if not 0 < command.epoch <= self.space.newest_epoch:
            raise InvalidArgument(f"there never was an upload {command.epoch}")
        self.space.uploads.end(command.log, command.epoch)  # the log may be gone: its uploads are to end all the same
        return c.Done()

    def _admit(self, command: c.Admit) -> c.Result:
        return c.Done(self.space.admit(command.now))

    def _retire(self, command: c.Retire) -> c.Result:
        self.space.retire(command.epoch)
        return c.Done()

    def _register(self, command: c.Register) -> c.Result:
        self.space.register(command)
        return c.Done()

    def _pack(self, command: c.Pack) -> c.Result:
        return c.Collected(self.space.pack(command), [])

    def _relocate(self, command: c.Relocate) -> c.Result:
        self.space.relocate(command)
        return c.Done()

    def _collect(self, command: c.Collect) -> c.Result:
        return c.Collected(*self.space.collect(list(self.logs.values()), command.now))

    def _forget(self, command: c.Forget) -> c.Result:
        self.space.forget(command.objects)
        return c.Done()

    def _create_token(self, command: c.CreateToken) -> c.Result:
        self.tokens.create(command)
        return c.Done()

    def _revoke_token(self, command: c.RevokeToken) -> c.Result:
        self.tokens.revoke(command.name)
        return c.Done()


def repeat(outcome: Outcome) -> c.Appended:
    """What an append that was applied before answers now."""
    return c.Appended(outcome.log, outcome.first, outcome.count, NONE, outcome.withheld)
