"""The metadata as a service: the forest and its command log for brokers, who do the rest.

Brokers join and get an epoch to store objects under. One that stays away for longer than its lease loses it: what it
stored and never bound can never be bound, and is swept. Who is there, and so where logs are best asked for, is known
only here and only for now: it is built up again from those who join again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from braidlog import limits
from braidlog.broker import admission, placement
from braidlog.broker.local import LocalService
from braidlog.broker.service import Caller, Reply
from braidlog.broker.tracking import Stamp
from braidlog.embedded import orphans
from braidlog.embedded.committer import Pending
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.wire import messages as m
from braidlog.wire.faults import fault_of
from braidlog.wire.frames import Body

_log = logging.getLogger("braidlog.metadata")

_TIMED = (*admission.TIMED, c.Register)
_BOUND = (*_TIMED, c.Append, c.Discard, c.Promote, c.Squash, c.Drop, c.Trim, c.ForgetConsumer, c.RevokeToken, c.Settle)


class Member:
    """A broker that joined."""

    def __init__(self, name: str, address: str, epoch: int) -> None:
        self.name = name
        self.address = address
        self.epoch = epoch


class MetadataService(LocalService):
    """A Writer for brokers. To be made on the loop's thread."""

    def __init__(self, writer: Writer, *, lease_s: float = limits.BROKER_LEASE_S) -> None:
        super().__init__(writer, role="metadata")
        self._lease_s = lease_s
        self._members: dict[Caller, Member] = {}
        self._dedicated: dict[int, str] = {}  # forks with a broker of their own
        self._doors |= {m.Join: self._join, m.Bind: self._bind}
        self._looks[m.Route] = self._route
        self._looks[m.Identify] = lambda ask: self.identities(ask.digests)
        for epoch in list(writer.forest.space.admitted):
            self._loop.call_later(lease_s, self._retire, epoch)

    # --- brokers -------------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        return list(self._members.values())

    def _join(self, caller: Caller, ask: m.Join, body: Body, reply: Reply) -> None:
        del body
        if ask.epoch != NONE and ask.epoch in self._writer.forest.space.admitted:
            self._welcome(caller, ask, ask.epoch, reply)
            return
        self._members[caller] = Member(ask.name, ask.address, NONE)  # what it binds meanwhile needs no epoch, or waits
        pending = Pending(c.Admit(self._writer.clock.now_us()))
        pending.then(lambda done: self._cross(partial(self._admitted, caller, ask, reply, done)))
        self._queue(pending)

    def _admitted(self, caller: Caller, ask: m.Join, reply: Reply, pending: Pending) -> None:
        if caller not in self._members:  # it is gone again
            if isinstance(pending.answer, c.Done):
                self._loop.call_later(self._lease_s, self._retire, pending.answer.value)
            return
        if isinstance(pending.answer, c.Done):
            self._welcome(caller, ask, pending.answer.value, reply)
        else:
            reply(pending.answer if isinstance(pending.answer, BraidError) else Unavailable("no answer"), None)

    def _welcome(self, caller: Caller, ask: m.Join, epoch: int, reply: Reply) -> None:
        _log.info("broker %s joined from %s with epoch %d", ask.name, ask.address, epoch)
        self._members[caller] = Member(ask.name, ask.address, epoch)
        if any(one.name == ask.name and one.address != ask.address for one in self._members.values()):
            _log.warning("two brokers are called %s: give each a --name of its own", ask.name)
        reply(m.Joined(epoch), None)

    def left(self, caller: Caller) -> None:
        member = self._members.pop(caller, None)
        if member is not None:
            _log.info("broker %s is gone; it may come back within %g s", member.name, self._lease_s)
            there = self._places()
            self._dedicated = {log: name for log, name in self._dedicated.items() if name in there}
            self._loop.call_later(self._lease_s, self._retire, member.epoch)

    def _retire(self, epoch: int) -> None:
        """Unless its broker is here."""
        if any(member.epoch == epoch for member in self._members.values()) or self._writer.closed:
            return
        if epoch not in self._writer.forest.space.admitted:
            return
        pending = Pending(c.Retire(epoch))
        pending.then(lambda _: self._cross(partial(self._sweep, epoch)))
        try:
            self._queue(pending)
        except BraidError as error:
            _log.warning("epoch %d cannot be retired now: %s", epoch, error)

    def _sweep(self, epoch: int) -> None:
        def sweep() -> None:
            try:
                with self._writer.lock:
                    space = self._writer.forest.space
                swept = orphans.sweep_epoch(space, self._writer.store, epoch)
                _log.info("epoch %d is over; %d objects that were never bound were removed", epoch, len(swept))
            except (BraidError, OSError) as error:
                _log.warning("what epoch %d left cannot be swept now: %s", epoch, error)

        self._pools.storing.submit(sweep)

    # --- binding -------------------------------------------------------------------------------------------------

    def _bind(self, caller: Caller, ask: m.Bind, body: Body, reply: Reply) -> None:
        del body
        if caller not in self._members:
            raise InvalidArgument("only a broker that has joined may bind: join first")
        now = self._writer.clock.now_us()
        commands = [self._timed(command, ask.since, now) for command in ask.commands]
        if not commands:
            reply(m.Bound([]), None)
            return
        refusal = self._refusal(commands)
        if refusal is not None:
            for command in commands[:-1]:
                self._queue(Pending(command))
            reply(m.Bound([*(c.Done() for _ in commands[:-1]), fault_of(refusal)]), None)
            return
        pendings = [Pending(command, _size(command)) for command in commands]
        pendings[-1].then(lambda _: self._cross(partial(self._bound, pendings, reply)))
        if self._waiting or self._crowded():
            self._waiting.extend(pendings)
            self._writer.on_full()
        else:
            for pending in pendings:
                self._queue(pending)

    def _refusal(self, commands: list[c.Command]) -> BraidError | None:
        """Whoever waits for a decision may try often: what is blocked now, and is all there is, writes nothing."""
        *rest, last = commands
        asked = last.command if isinstance(last, c.Again) else last
        held = isinstance(asked, c.Append | c.Publish | c.CFork | c.SFork)
        if held and all(isinstance(command, c.Settle) for command in rest):
            assert isinstance(last, c.Append | c.Publish | c.CFork | c.SFork | c.Again)
            try:
                self._writer.check_holds(last)
            except BraidError as refusal:
                return refusal
        return None

    def _timed(self, command: c.Command, since: int, now: int) -> c.Command:
        """With our time in it, and as one sent again if it is."""
        if isinstance(command, c.Again):
            return c.Again(self._timed(command.command, NONE, now), command.since)
        if not isinstance(command, _BOUND):
            raise InvalidArgument(f"{type(command).__name__} is nothing that a broker binds")
        if isinstance(command, _TIMED):
            command = admission.timed(command, now)
        elif isinstance(command, c.Append) and command.payload:
            # It stays until it is packed, and must not keep alive all that came in with it.
            command = msgspec.structs.replace(command, payload=bytes(command.payload))
        request: bytes = getattr(command, "request", b"")
        return c.Again(command, since) if since != NONE and request else command

    @staticmethod
    def _bound(pendings: list[Pending], reply: Reply) -> None:
        results: list[c.Result | m.Fault] = []
        for pending in pendings:
            answer = pending.answer
            if answer is None:
                answer = Unavailable("there is no answer")
            results.append(fault_of(answer) if isinstance(answer, BraidError) else answer)
        reply(m.Bound(results), None)

    # --- what brokers wait for -----------------------------------------------------------------------------------

    def wait_for(self, request: m.Await, reply: Reply) -> Callable[[], None]:
        believed = Stamp(request.readable, request.tail, request.holder, request.held, request.epoch)
        with self._writer.lock:
            stamp, seen = self._stamp(request.log), self._writer.forest.applied
        if stamp != believed:
            reply(m.Stamped(*stamp), None)
            return lambda: None

        def fire(changed: Stamp) -> None:
            self._tracking.remove(request.log, number)
            reply(m.Stamped(*changed), None)

        number = self._tracking.add(request.log, stamp, seen, fire)
        return lambda: self._tracking.remove(request.log, number)

    # --- where logs are served -----------------------------------------------------------------------------------

    def _places(self) -> dict[str, str]:
        """The addresses of brokers by their names. Those that share one are told apart by where they are."""
        named: dict[str, set[str]] = {}
        for member in self._members.values():
            named.setdefault(member.name, set()).add(member.address)
        return {
            name if len(addresses) == 1 else f"{name} at {address}": address
            for name, addresses in named.items()
            for address in addresses
        }

    def _route(self, ask: m.Route) -> m.Text:
        by_name = self._places()
        with self._writer.lock:
            log = self._writer.forest.live(ask.log)
            root = self.root_of(log).id
            above = log.parent.id if log.parent is not None else log.origin_id
            parent = None if log.kind == "root" else above
            wants_own = log.dedicated
            self._dedicated = {fork: name for fork, name in self._dedicated.items() if fork in self._writer.forest.logs}
        if wants_own and ask.log not in self._dedicated:
            own = placement.dedicate(list(by_name), ask.log, self._dedicated)
            if own is not None:
                self._dedicated[ask.log] = own
        chosen = placement.place(list(by_name), root, parent, ask.log, self._dedicated)
        return m.Text(by_name[chosen] if chosen is not None else "")


def _size(command: c.Command) -> int:
    inner = command.command if isinstance(command, c.Again) else command
    if isinstance(inner, c.Publish):
        return inner.weight
    return len(inner.payload) + 256 if isinstance(inner, c.Append) else 256
