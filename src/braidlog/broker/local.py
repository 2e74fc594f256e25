"""The service of a process that holds the log itself: `braid serve`, `braid metadata`, and any writer that shares its
directory.

The loop's thread does what is quick: it looks into the forest, takes appends in, and cuts what is at hand. What waits
for the disk is done by others: the committer carries out changes, a few threads fetch from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from braidlog import limits
from braidlog.broker import admission, reading
from braidlog.broker.conversation import Pieces
from braidlog.broker.crossing import Crossing
from braidlog.broker.feed import LogFeed
from braidlog.broker.pace import Pace
from braidlog.broker.policy import READ, Scopes
from braidlog.broker.policy import Log as Known
from braidlog.broker.pools import Pools
from braidlog.broker.service import Caller, Feed, Identified, Push, Reply, Service, Standing
from braidlog.broker.service import Known as Kinned
from braidlog.broker.standing import Stands, WriterStanding
from braidlog.broker.tracking import GONE, Stamp, Tracking
from braidlog.broker.turns import Turns
from braidlog.embedded.committer import Pending
from braidlog.embedded.vouching import answer_of, vouch
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, Corrupt, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.log import Log
from braidlog.forest.tails import reach
from braidlog.objects.batch import decode, to_arrow
from braidlog.wire import messages as m
from braidlog.wire.frames import Body

_log = logging.getLogger("braidlog.server")

Door: TypeAlias = Callable[[Caller, Any, Body, Reply], None]


class LocalService(Service):
    """A Writer for others. To be made on the loop's thread."""

    def __init__(
        self,
        writer: Writer,
        *,
        role: str = "serve",
        pace: Pace | None = None,
        standing: Stands | None = None,
    ) -> None:
        self.role = role
        self._pace = pace or Pace()
        self.objects = writer.folder
        self._writer = writer
        self._standing: Stands = WriterStanding(writer) if standing is None else standing
        self.registry = self._standing.registry
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turn: list[Pending] = []  # changes of this turn of the loop
        self._aside_until = 0.0  # no change is carried out on the loop's thread before
        self._cross = Crossing(self._loop)
        self._pools = Pools()
        self._tracking = Tracking()
        self._turns = Turns()
        self._waiting: deque[Pending] = deque()  # appends that the packer has to make room for
        self._unwatch = writer.watch(lambda: self._cross(self._changed))
        self._doors: dict[type[Any], Door] = {
            m.Append: self._in_turn(self._append),
            m.Execute: self._in_turn(self._execute),
            m.Read: self._read,
            m.Locate: self._locate,
            m.PlanRange: self._plan,
            m.PositionAt: self._position_at,
        }
        self._looks: dict[type[Any], Callable[[Any], m.Answer]] = {
            m.Find: lambda ask: m.Number(writer.find(ask.name)),
            m.ListLogs: self._listing,
            m.NameOf: lambda ask: m.Text(writer.name_of(ask.log)),
            m.EndOf: lambda ask: self._end_of(ask.log),
            m.Tail: lambda ask: m.Number(writer.tail(ask.log)),
            m.Describe: lambda ask: m.Described(writer.describe(ask.log)),
            m.Lineage: lambda ask: m.Ancestors(writer.lineage(ask.log)),
            m.Recall: lambda ask: m.Recalled.of(writer.outcome(ask.request, ask.request_id)),
            m.Consumers: lambda ask: m.ConsumerList(writer.consumers(ask.log)),
            m.Route: lambda _: m.Text(""),
            m.Kinship: lambda ask: self._kinship(ask.log),
            m.ListTokens: lambda _: self._tokens(),
        }

    @property
    def seen(self) -> int:
        return self._writer.forest.applied

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        try:
            look = self._looks.get(type(request))
            door = self._doors.get(type(request))
            if look is not None:
                reply(look(request), None)
            elif door is not None:
                door(caller, request, body, reply)
            else:
                raise InvalidArgument(f"{type(request).__name__} is nothing that a server of role {self.role} answers")
        except BraidError as error:
            reply(error, None)

    def trouble(self) -> str:
        return self._standing.trouble()

    def standing(self) -> Standing:
        return self._standing.standing()

    def name_of(self, log: int) -> str:
        return self._writer.name_of(log)

    def close(self) -> None:
        self._unwatch()
        self._pools.close()

    # --- changing ------------------------------------------------------------------------------------------------

    def _in_turn(self, door: Door) -> Door:
        """A change of a client, after those that it sent before."""

        def enter(caller: Caller, ask: Any, body: Body, reply: Reply) -> None:
            if not self._turns.held(caller.client):
                door(caller, ask, body, reply)
                return

            def go() -> None:
                try:
                    door(caller, ask, body, reply)
                except BraidError as error:
                    reply(error, None)

            self._turns.enter(caller.client, go)

        return enter

    def _append(self, caller: Caller, ask: m.Append, body: Body, reply: Reply) -> None:
        if ask.block:
            command, block = admission.storable(ask.command, body, caller.client)
            pending = Pending(_again(command, ask.since), command.size, block)
        else:
            command = admission.batch(ask.command, body.data, caller.client)
            if len(body.data) > limits.INLINE_BYTES_MAX:  # it should have come as a block
                columns = to_arrow([decode(body.data)])
                command = msgspec.structs.replace(command, payload=b"")
                pending = Pending(_again(command, ask.since), len(body.data), columns)
            else:
                pending = Pending(_again(command, ask.since), len(body.data) + 256)
        if ask.since == NONE:
            self._writer.check_holds(command)
        self._settle(caller)
        pending.then(partial(self._done, reply))
        if self._waiting or self._writer.crowded(command) is not None:
            self._waiting.append(pending)
            self._writer.on_full()
        else:
            self._queue(pending)
        self._slow_down(caller, command)

    def _slow_down(self, caller: Caller, command: c.Append) -> None:
        """A client that writes on forks faster than it may is listened to later."""
        with self._writer.lock:
            log = self._writer.forest.logs.get(command.log)
            if log is None or log.kind == "root":
                return
            root = self.root_of(log).id
        pause = self._pace.take(root, caller.client, command.size, self._loop.time())
        if pause > 0:
            caller.pause(pause)

    def root_of(self, log: Log) -> Log:
        """The root of the tree that it came from; itself, if that is no more."""
        while log.kind != "root":
            above = log.parent or self._writer.forest.logs.get(log.origin_id)
            if above is None:
                break
            log = above
        return log

    def _execute(self, caller: Caller, ask: m.Execute, body: Body, reply: Reply) -> None:
        del body
        command = admission.change(ask.command, caller.client, self._writer.clock.now_us())
        if ask.since == NONE and isinstance(command, c.CFork | c.SFork | c.Publish):
            self._writer.check_holds(command)
        if isinstance(command, c.Publish):
            self._vouch(caller, command, ask.since, reply)
            return
        pending = Pending(_again(command, ask.since))
        pending.then(partial(self._done, reply))
        self._change(caller, pending)

    def _vouch(self, caller: Caller, command: c.Publish, since: int, reply: Reply) -> None:
        """Have a thread look whether what it binds is there; what its client sends behind it waits for that."""

        def vouched(found: c.Publish, refusal: BraidError | None) -> None:
            pending = Pending(_again(found, since), found.weight)
            pending.then(partial(self._done, lambda answer, _: reply(answer_of(answer, refusal), None)))
            try:
                self._change(caller, pending)
            except BraidError as error:
                reply(error, None)
            self._turns.release(caller.client)

        def look() -> None:
            writer = self._writer
            aside = None if writer.aside is None else self._pools.looking
            self._cross(partial(vouched, *vouch(writer.store, command, aside)))

        self._turns.hold(caller.client)
        try:
            self._pools.vouching.submit(caller, look)
        except RuntimeError:
            self._turns.release(caller.client)
            raise Unavailable("the server is shutting down: ask another one") from None

    def _change(self, caller: Caller, pending: Pending) -> None:
        self._settle(caller)
        if any(_client_of(waiting) == caller.client for waiting in self._waiting):
            self._waiting.append(pending)  # in the order in which its client sent them
        else:
            self._queue(pending)

    def _settle(self, caller: Caller) -> None:
        settlement = caller.settlement()
        if settlement is not None:
            self._queue(Pending(settlement))

    def _queue(self, pending: Pending) -> None:
        self._writer.check_open()
        if not self._turn:
            self._loop.call_soon(self._commit_turn)
        self._turn.append(pending)

    def _commit_turn(self) -> None:
        """Hand over what came in one turn of the loop. A lone change is carried out right here while the disk is quick:
        that saves it two changes of threads, and while it lasts nobody else waits for much."""
        turn, self._turn = self._turn, []
        lone = len(turn) <= 2 and all(pending.load is None and pending.size < limits.KIB * 16 for pending in turn)
        now = self._loop.time()
        here = lone and now >= self._aside_until
        self._writer.committer.submit_all(turn, here=here)
        if here and self._loop.time() - now > limits.QUICK_COMMIT_S:
            self._aside_until = self._loop.time() + limits.COMMIT_ASIDE_S

    def _done(self, reply: Reply, pending: Pending) -> None:
        """From the thread that carried it out."""
        if threading.get_ident() == self._thread:
            self._answer(reply, pending)
        else:
            self._cross(partial(self._answer, reply, pending))

    def _answer(self, reply: Reply, pending: Pending) -> None:
        answer = pending.answer
        if answer is None or isinstance(answer, BraidError):
            reply(answer or Unavailable("there is no answer"), None)
        else:
            reply(m.Result(answer), None)

    # --- looking -------------------------------------------------------------------------------------------------

    def _listing(self, ask: m.ListLogs) -> m.Listing:
        writer = self._writer
        scopes = None if ask.scopes is None else Scopes.of(ask.principal, ask.scopes)
        with writer.lock:
            logs = writer.forest.logs.values()
            if scopes is None:
                return m.Listing([(log.id, log.name) for log in logs])
            return m.Listing([(log.id, log.name) for log in logs if scopes.allows(READ, self._known(log))])

    def _known(self, log: Log) -> Known:
        return Known(log.name, self.root_of(log).name, log.owner, log.kind != "root")

    # --- who asks ------------------------------------------------------------------------------------------------

    def kin(self, log: int, then: Kinned, *, fresh: bool = False) -> None:
        del fresh
        try:
            found = self._kinship(log)
        except BraidError as error:
            then(error)
        else:
            then(found)

    def _kinship(self, log_id: int) -> m.Kin:
        with self._writer.lock:
            log = self._writer.forest.live(log_id)
            root = self.root_of(log)
            parent = NONE if log.parent is None else log.parent.id
            return m.Kin(root.id, log.kind != "root", log.name, root.name, log.owner, parent)

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        del recently
        then(self.identities(digests))

    def identities(self, digests: list[bytes]) -> m.Identities:
        now = self._writer.clock.now_us()
        with self._writer.lock:
            tokens = self._writer.forest.tokens
            found = [tokens.by_digest.get(digest) for digest in digests]
            required = tokens.ever > 0
        known = [
            m.Identity(token.name, list(token.scopes))
            if token is not None and hmac.compare_digest(token.digest, digest) and token.valid(now)
            else None
            for token, digest in zip(found, digests, strict=True)
        ]
        return m.Identities(known, required)

    def _tokens(self) -> m.TokenList:
        with self._writer.lock:
            found = list(self._writer.forest.tokens.by_name.values())
        return m.TokenList([m.TokenInfo(t.name, list(t.scopes), t.created, t.expires) for t in found])

    def _end_of(self, log: int) -> m.Ending:
        found = self._writer.end_of(log)
        if found is None:
            return m.Ending("")
        end, into_name = found
        return m.Ending(end.kind, end.name, end.into, end.position, into_name)

    def _position_at(self, caller: Caller, ask: m.PositionAt, body: Body, reply: Reply) -> None:
        del body
        self._fetch(caller, lambda: (m.Number(self._writer.position_at(ask.log, ask.moment_us)), None), reply)

    def _plan(self, caller: Caller, ask: m.PlanRange, body: Body, reply: Reply) -> None:
        del body
        self._fetch(caller, lambda: (m.Planned(*self._writer.plan_page(ask.log, ask.start, ask.stop)), None), reply)

    # --- reading -------------------------------------------------------------------------------------------------

    def _locate(self, caller: Caller, ask: m.Locate, body: Body, reply: Reply) -> None:
        del caller, body
        reply(*reading.locate(self._writer, ask.log, ask.start, ask.stop, ask.max_bytes))

    def _read(self, caller: Caller, ask: m.Read, body: Body, reply: Reply) -> None:
        del body
        self.read(caller, ask, reply)

    def read(self, caller: Caller, ask: m.Read, reply: Reply) -> None:
        """Reply at once if what is asked for is at hand, else when it was fetched."""
        writer = self._writer
        located, payloads = reading.locate(writer, ask.log, ask.start, ask.stop, ask.max_bytes)
        if reading.at_hand(located, writer.cache):
            with contextlib.suppress(OSError, Corrupt):  # it was dropped from the cache just now: see below
                reply(*reading.assemble(located, payloads, reading.nowhere, writer.cache, arrow=ask.arrow))
                return
        self._fetch(caller, partial(self._read_now, ask, located, payloads), reply)

    def _read_now(self, ask: m.Read, located: m.Located, payloads: reading.Payloads) -> tuple[m.Answer, Pieces | None]:
        writer = self._writer
        for _ in range(limits.OBJECT_GONE_RETRIES):
            try:
                return reading.assemble(
                    located, payloads, writer.store.get, writer.cache, arrow=ask.arrow, aside=writer.aside
                )
            except FileNotFoundError as error:  # compacted meanwhile
                missing = error
            except Corrupt as error:
                raise Corrupt(f"log {located.name!r}, positions {ask.start} to {located.next}: {error}") from error
            except OSError as error:
                raise Unavailable(
                    f"log {located.name!r}, positions {ask.start} to {located.next} cannot be read now: {error}"
                ) from error
            located, payloads = reading.locate(writer, ask.log, ask.start, ask.stop, ask.max_bytes)
        raise Corrupt(
            f"log {located.name!r}, positions {ask.start} to {located.next}: an object is missing from the store: "
            f"{missing}"
        )

    def _fetch(self, caller: Caller, work: Callable[[], tuple[m.Answer, Pieces | None]], reply: Reply) -> None:
        """Do it in a thread when it is their turn, and reply."""

        def run() -> None:
            answer: m.Answer | BraidError
            body: Pieces | None = None
            try:
                answer, body = work()
            except BraidError as error:
                answer = error
            except Exception as error:
                _log.exception("a read failed")
                answer = Unavailable(f"the read failed: {error!r}")
            self._cross(partial(reply, answer, body))

        try:
            self._pools.reading.submit(caller, run)
        except RuntimeError:
            reply(Unavailable("the server is shutting down: ask another one"), None)

    # --- waiting -------------------------------------------------------------------------------------------------

    def stamp(self, log_id: int) -> Stamp:
        with self._writer.lock:
            return self._stamp(log_id)

    def _stamp(self, log_id: int) -> Stamp:
        log = self._writer.forest.logs.get(log_id)
        if log is None:
            return GONE
        at = reach(log)
        return Stamp(
            at.readable, at.tail, at.holder.id if at.holder is not None else NONE, len(log.promotables), log.epoch
        )

    def _changed(self) -> None:
        writer = self._writer
        with writer.lock:
            seen = writer.forest.applied
            stamps = [(log, self._stamp(log)) for log in self._tracking.logs()]
        for log, stamp in stamps:
            self._tracking.update(log, stamp, seen)
        while self._waiting and not self._crowded():
            pending = self._waiting.popleft()
            try:
                self._queue(pending)
            except BraidError as error:  # the log takes nothing any more
                pending.finish(error)

    def _crowded(self) -> bool:
        return self._writer.inline_bytes > limits.UNPACKED_BYTES_MAX and self._writer.committer.failure is None

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        with self._writer.lock:
            stamp, seen = self._stamp(log), self._writer.forest.applied
        if stamp == GONE or (seen > since and self._tracking.changed_since(log, since)):
            number = self._tracking.add(log, stamp, seen, lambda _: None)  # so that the next one needs not guess
            self._tracking.remove(log, number)
            reply(m.Number(seen), None)
            return lambda: None

        def fire(_: Stamp) -> None:
            self._tracking.remove(log, number)
            reply(m.Number(self.seen), None)

        number = self._tracking.add(log, stamp, seen, fire)
        return lambda: self._tracking.remove(log, number)

    def left(self, caller: Caller) -> None:
        """Nothing here is kept for it."""

    def subscribe(
        self,
        caller: Caller,
        log: int,
        position: int,
        credit: int,
        push: Push,
        ready: Callable[[], bool],
        accepted: Callable[[int], None],
    ) -> Feed:
        if position < 0:
            raise InvalidArgument(f"position must not be negative, not {position}")
        with self._writer.lock:
            self._writer.forest.live(log)
            stamp, seen = self._stamp(log), self._writer.forest.applied
        read = partial(self.read, caller)
        feed = LogFeed(read, lambda then: then(self._end_of(log)), log, position, credit, push, ready, accepted)
        number = self._tracking.add(log, stamp, seen, feed.changed)
        feed.on_close = lambda: self._tracking.remove(log, number)
        feed.changed(stamp)
        return feed


def _client_of(pending: Pending) -> bytes:
    request: bytes = getattr(pending.command, "request", b"")
    return request[: limits.CLIENT_ID_BYTES]


def _again(command: c.Command, since: int) -> c.Command:
    return command if since == NONE else c.Again(command, since)
