"""The service of a broker: everything it knows it asks the metadata for, and everything it has is a cache.

Appends are gathered, stored and bound (`gathering`); reads are located by the metadata and fetched from the store;
subscriptions follow what the metadata says of their logs; all else is passed on. A broker that dies loses nothing: what
it stored and did not bind is swept, and its clients ask another one again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from braidlog import limits
from braidlog.broker import admission, gathering, objects, reading
from braidlog.broker.conversation import Pieces
from braidlog.broker.crossing import Crossing
from braidlog.broker.feed import LogFeed
from braidlog.broker.gathering import Flush, Gathering, Item
from braidlog.broker.link import MetadataLink
from braidlog.broker.pace import Pace
from braidlog.broker.pools import Pools
from braidlog.broker.service import Caller, Feed, Identified, Known, Push, Reply, Service
from braidlog.broker.tracking import GONE, UNKNOWN, Stamp, Tracking
from braidlog.broker.turns import Turns
from braidlog.broker.watching import Watches
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.embedded.vouching import answer_of, vouch
from braidlog.errors import BraidError, Corrupt, InvalidArgument, NotPermitted, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.cache import BlockCache
from braidlog.objects.format import Columns
from braidlog.objects.locations import is_location, store_at
from braidlog.objects.store import Store, object_name
from braidlog.observe import catalog
from braidlog.observe.metrics import Registry
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Done, told_of
from braidlog.wire.faults import error_of
from braidlog.wire.frames import Body

_log = logging.getLogger("braidlog.broker")

_PASSED_ON = (
    m.Find,
    m.ListLogs,
    m.NameOf,
    m.EndOf,
    m.Tail,
    m.Describe,
    m.Lineage,
    m.Recall,
    m.Consumers,
    m.PlanRange,
    m.PositionAt,
    m.Route,
    m.Kinship,
    m.ListTokens,
)
_FOREVER_S = 1e9


class BrokerService(Service):
    """To be made on the loop's thread. `name` is what the metadata knows it by, `address` where clients find it."""

    def __init__(
        self,
        metadata: Sequence[tuple[str, int]],
        name: str,
        address: str,
        *,
        clock: Clock | None = None,
        pace: Pace | None = None,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        store: Store | None = None,
    ) -> None:
        self.role = "broker"
        self.objects: str | None = None
        self.cache: reading.Blocks = BlockCache(limits.CACHE_BYTES)
        self.registry = Registry()
        self._appends = catalog.Appends(self.registry)
        catalog.Blocks(
            self.registry,
            cached=lambda: len(self.cache),
            cached_bytes=lambda: self.cache.weight,
            hits=lambda: self.cache.hits,
            misses=lambda: self.cache.misses,
        )
        self._name = name
        self._address = address
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._cross = Crossing(self._loop)
        self._pools = Pools()
        self._tracking = Tracking()
        self._awaited: dict[int, Call] = {}
        self._feeds: dict[int, dict[int, LogFeed]] = {}
        self._turns = Turns()
        self._gathering = Gathering()
        self._going = False
        self._epoch = NONE
        self._objects_named = 0
        self._store = store  # if none is given, where the metadata says
        self._refusal: BraidError | None = None  # of the store
        self._aside: ThreadPoolExecutor | None = None  # who fetches side by side what takes long to come
        self._held: list[Flush] = []  # to be stored, once there is an epoch to store them in
        self._kin: dict[int, m.Kin] = {}
        self._pace = pace or Pace()
        self._required = True  # whether clients need a token; until that is known, they do
        self.on_ready: Callable[[], None] = lambda: None  # called whenever it has joined, or never will
        self.on_refused: Callable[[BraidError], None] = lambda _: None  # called when the metadata does not let it
        self.link = MetadataLink(metadata, os.urandom(limits.CLIENT_ID_BYTES), name, token=token, tls=tls)
        self._watches = Watches(self.link)
        self.link.on_connected = self._connected
        self.link.on_refused = lambda error: self.on_refused(error)
        self._standby: MetadataLink | None = None  # that plans can be asked of as well
        if len(metadata) > 1:
            self._standby = MetadataLink(
                metadata, os.urandom(limits.CLIENT_ID_BYTES), name, role="standby", token=token, tls=tls
            )
            self._standby.on_lost = self.link.hurry  # it may lead now
        self._readable: dict[int, int] = {}  # how far the leader showed that logs can be read
        self.planned_aside = 0  # answers of standbys

    @property
    def seen(self) -> int:
        return self.link.seen

    @property
    def ready(self) -> bool:
        """Whether it may take work: the metadata knows it."""
        return self._epoch != NONE and self.link.connected

    def trouble(self) -> str:
        if self._refusal is not None:
            return f"the objects cannot be reached from here: {self._refusal}"
        return "" if self.ready else "the metadata cannot be reached, or does not know this broker yet"

    # --- the metadata --------------------------------------------------------------------------------------------

    def _connected(self, welcome: m.Welcome) -> None:
        if welcome.objects is not None and (self._store is None or welcome.objects != self.objects):
            try:
                self._store = store_at(welcome.objects)
                self._refusal = None
                if self._aside is None and is_location(welcome.objects):
                    self._aside = ThreadPoolExecutor(limits.STORE_READERS, thread_name_prefix="braidlog-reader")
            except BraidError as error:
                _log.error("the objects cannot be reached from here: %s", error)
                self._refusal = error
        self.objects = welcome.objects
        if self._refusal is not None:  # of no use to anybody: whoever waits for it to be is told
            self.on_ready()
            return
        self.link.call(m.Join(self._name, self._address, self._epoch), self._joined)

    def _join_again(self) -> None:
        if self.link.connected and self._refusal is None:
            self.link.call(m.Join(self._name, self._address, self._epoch), self._joined)

    def _joined(self, _: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        if not isinstance(answer, m.Joined):
            _log.warning("the metadata does not let this broker join: %s", answer)
            if isinstance(answer, NotPermitted):
                self.on_refused(answer)
            else:
                self._loop.call_later(limits.RECONNECT_MAX_S, self._join_again)
            return
        if answer.epoch != self._epoch:
            self._epoch = answer.epoch
            self._objects_named = 0
        self.identify([], lambda _: self.on_ready())
        held, self._held = self._held, []
        self._carry_out(gathering.Store(flush) for flush in held)

    # --- who clients are -----------------------------------------------------------------------------------------

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        if recently and not digests and not self._required:
            then(m.Identities([], required=False))
            return

        def done(_: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
            if isinstance(answer, m.Identities) and len(answer.known) == len(digests):
                self._required = answer.required
                then(answer)
            else:
                then(answer if isinstance(answer, BraidError) else Unavailable("the metadata makes no sense"))

        self.link.call(m.Identify(digests), done)

    def kin(self, log: int, then: Known, *, fresh: bool = False) -> None:
        known = None if fresh else self._kin.get(log)
        if known is not None:
            then(known)
            return

        def done(call: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
            self._know(log, call, answer, body)
            if isinstance(answer, m.Kin | BraidError):
                then(answer)
            else:
                then(Unavailable("the metadata makes no sense"))

        self.link.call(m.Kinship(log), done)

    def name_of(self, log: int) -> str:
        known = self._kin.get(log)
        return "" if known is None else known.name

    # --- what clients ask for ------------------------------------------------------------------------------------

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        try:
            if isinstance(request, m.Append | m.Execute):
                self._turns.enter(
                    caller.client, partial(self._change, caller, request, body, reply, _since(caller, request))
                )
            elif isinstance(request, m.Read):
                self.read(caller, request, reply, behind=caller.seen > self.link.seen)
            elif isinstance(request, _PASSED_ON):
                self._pass_on(request, reply, behind=caller.seen > self.link.seen)
            else:
                raise InvalidArgument(f"a broker is not asked for {type(request).__name__}: ask the metadata")
        except BraidError as error:
            reply(error, None)

    def close(self) -> None:
        self._pools.close()
        if self._aside is not None:
            self._aside.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()
        self.link.close()
        if self._standby is not None:
            self._standby.close()

    def _pass_on(self, request: m.Request, reply: Reply, *, behind: bool = False) -> None:
        def done(_: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
            if isinstance(request, m.Tail) and isinstance(answer, m.Number) and self._standby is not None:
                self._note_readable(request.log, answer.value)
            reply(answer, [body] if body else None)

        if isinstance(request, m.PlanRange):
            self._plan(request, done, behind=behind)
        else:
            self.link.call(request, done)

    # --- changing ------------------------------------------------------------------------------------------------

    def _change(self, caller: Caller, request: m.Append | m.Execute, body: Body, reply: Reply, since: int) -> None:
        try:
            if isinstance(request, m.Append):
                self._append(caller, request, body, reply, since)
            else:
                self._execute(caller, request, reply, since)
        except BraidError as error:
            reply(error, None)

    def _execute(self, caller: Caller, ask: m.Execute, reply: Reply, since: int) -> None:
        command = admission.change(ask.command, caller.client, self._clock.now_us())
        if isinstance(command, c.Publish):
            self._vouch(caller, command, reply, since)
            return
        if isinstance(command, c.Promote | c.Squash | c.Drop | c.Trim) and command.log not in self._kin:
            self.link.call(m.Kinship(command.log), partial(self._know, command.log))  # so that it has a name
        self._settle(caller)
        self._gather(Item(command, 256, partial(_answer, reply), since=since))

    def _vouch(self, caller: Caller, command: c.Publish, reply: Reply, since: int) -> None:
        """Have a thread look whether what it binds is there; what its client sends behind it waits for that."""
        store, distant = self._store, self._aside is not None
        if store is None:
            raise Unavailable("this broker does not know yet where objects are: try again soon")

        def vouched(found: c.Publish, refusal: BraidError | None) -> None:
            def done(result: c.Result | BraidError) -> None:
                if isinstance(result, c.Appended) and result.block != NONE:
                    self._count(result.count, command.size)
                _answer(reply, answer_of(result, refusal))

            self._settle(caller)
            self._gather(Item(found, found.weight + 256, done, since=since))
            self._turns.release(caller.client)

        def look() -> None:
            self._cross(partial(vouched, *vouch(store, command, self._pools.looking if distant else None)))

        self._turns.hold(caller.client)
        try:
            self._pools.vouching.submit(caller, look)
        except RuntimeError:
            self._turns.release(caller.client)
            raise Unavailable("the broker is shutting down: ask another one") from None

    def _append(self, caller: Caller, ask: m.Append, body: Body, reply: Reply, since: int) -> None:
        columns: Columns | None = None
        if ask.block:
            command, columns = admission.storable(ask.command, body, caller.client)
        else:
            command = admission.batch(ask.command, body.data, caller.client)
        if self._gathering.bytes + command.size > limits.SERVER_IN_FLIGHT_BYTES_MAX:
            raise Unavailable("this broker has too much under way: try again later, or send more slowly")
        self._settle(caller)
        self._gather(Item(command, command.size + 256, partial(self._appended, command, reply), columns, since))
        self._slow_down(caller, command)

    def _appended(self, command: c.Append, reply: Reply, result: c.Result | BraidError) -> None:
        if isinstance(result, c.Appended) and result.block != NONE:  # not one that was there before
            self._count(command.count, command.size)
        _answer(reply, result)

    def _count(self, records: int, size: int) -> None:
        self._appends.batches.add()
        self._appends.records.add(records)
        self._appends.bytes.add(size)

    def _settle(self, caller: Caller) -> None:
        settlement = caller.settlement()
        if settlement is not None:
            self._gather(Item(settlement, 64, lambda _: None))

    def _slow_down(self, caller: Caller, command: c.Append) -> None:
        """A client that writes on forks faster than it may is listened to later."""
        kin = self._kin.get(command.log)
        if kin is None:
            self.link.call(m.Kinship(command.log), partial(self._know, command.log))
        elif kin.fork:
            pause = self._pace.take(kin.root, caller.client, command.size, self._loop.time())
            if pause > 0:
                caller.pause(pause)

    def _know(self, log: int, _: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        if isinstance(answer, m.Kin):
            if len(self._kin) >= limits.KIN_KEPT_LOGS:
                self._kin.clear()
            self._kin[log] = answer

    def _gather(self, item: Item) -> None:
        self._gathering.add(item)
        if not self._going:
            self._going = True
            self._loop.call_soon(self._go)

    def _go(self) -> None:
        self._going = False
        self._carry_out(self._gathering.go())

    def _carry_out(self, effects: Iterable[gathering.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, gathering.Bind):
                self.link.call(m.Bind(effect.flush.commands()), partial(self._bound, effect.flush))
            elif self._epoch == NONE or self._store is None:
                self._held.append(effect.flush)
            else:
                self._objects_named += 1
                name = object_name(self._epoch, self._objects_named)
                self._pools.storing.submit(self._store_now, effect.flush, self._store, name, self._epoch)

    def _store_now(self, flush: Flush, store: Store, name: str, epoch: int) -> None:
        """In a thread."""
        try:
            writer, homes = objects.lay_out(flush)
            store.put(name, writer.parts())
            registration = c.Register(name, epoch, writer.size, writer.crc, self._clock.now_us())
            places = objects.places(homes, [(block.offset, block.length, block.crc) for block in writer.blocks])
            told = partial(self._gathering.stored, flush, registration, places, None)
        except Exception as error:
            refusal = Unavailable(
                f"the batch could not be stored: {error}; free some space or mend the store, then try again"
            )
            told = partial(self._gathering.stored, flush, None, [], refusal)
        self._cross(lambda: self._carry_out(told()))

    def _bound(self, flush: Flush, call: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        results: list[c.Result | BraidError] | BraidError
        if isinstance(answer, m.Bound):
            results = [
                told_of(call, error_of(result)) if isinstance(result, m.Fault) else result for result in answer.results
            ]
        elif isinstance(answer, BraidError):
            results = answer
        else:
            results = Unavailable("the metadata gave an answer that makes no sense")
        self._carry_out(self._gathering.answered(flush, results))

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        caller: Caller,
        ask: m.Read,
        reply: Reply,
        tries: int = limits.OBJECT_GONE_RETRIES,
        *,
        behind: bool = False,
    ) -> None:
        located = partial(self._located, caller, ask, reply, tries)
        self._plan(m.Locate(ask.log, ask.start, ask.stop, ask.max_bytes), located, behind=behind)

    def _plan(self, request: m.Locate | m.PlanRange, done: Done, *, behind: bool = False) -> None:
        """Ask where records are. Those that the leader showed before stay what they are, so a standby can say it, if it
        has seen what we have: only the end of a log has to be asked of the leader, and what is asked by somebody who
        has seen more than we have (`behind`)."""
        known = self._readable.get(request.log, 0)
        standby = self._standby
        if behind or standby is None or not standby.connected or request.stop is None or request.stop > known:
            self.link.call(request, done)
            return

        def answered(call: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
            if isinstance(answer, BraidError):  # it knows too little, or is gone: the leader knows whether it is so
                self.link.call(request, done)
                return
            self.planned_aside += 1
            if isinstance(answer, m.Located):
                answer = msgspec.structs.replace(answer, readable=max(answer.readable, known))
            done(call, answer, body)

        standby.seen = self.link.seen
        standby.call(request, answered, timeout=limits.STANDBY_TIMEOUT_S)

    def _note_readable(self, log: int, readable: int) -> None:
        if len(self._readable) >= limits.KIN_KEPT_LOGS and log not in self._readable:
            self._readable.clear()
        self._readable[log] = max(readable, self._readable.get(log, 0))

    def _located(
        self,
        caller: Caller,
        ask: m.Read,
        reply: Reply,
        tries: int,
        _: Call,
        answer: m.Answer | BraidError,
        body: memoryview,
    ) -> None:
        if not isinstance(answer, m.Located):
            reply(answer if isinstance(answer, BraidError) else Unavailable("the metadata makes no sense"), None)
            return
        if self._standby is not None:
            self._note_readable(ask.log, answer.readable)
        payloads: list[bytes | memoryview] = []
        at = 0
        for piece in answer.pieces:
            if not piece.object:
                payloads.append(body[at : at + piece.length])
                at += piece.length
        if reading.at_hand(answer, self.cache):
            try:
                reply(*reading.assemble(answer, payloads, reading.nowhere, self.cache, arrow=ask.arrow))
                return
            except FileNotFoundError:  # it was, just now
                pass
            except BraidError as error:
                reply(error, None)
                return
        try:
            self._pools.reading.submit(caller, partial(self._fetch, caller, ask, reply, tries, answer, payloads))
        except RuntimeError:
            reply(Unavailable("the broker is shutting down: ask another one"), None)

    def _fetch(
        self,
        caller: Caller,
        ask: m.Read,
        reply: Reply,
        tries: int,
        located: m.Located,
        payloads: reading.Payloads,
    ) -> None:
        """In a thread."""
        again = False
        answer: m.Answer | BraidError
        body: Pieces | None = None
        try:
            answer, body = reading.assemble(
                located, payloads, self._get, self.cache, arrow=ask.arrow, aside=self._aside
            )
        except FileNotFoundError as error:  # compacted meanwhile
            again = tries > 1
            answer = Corrupt(f"log {located.name!r}: an object is missing from the store: {error}")
        except Unavailable as error:
            answer = error
        except Corrupt as error:
            answer = Corrupt(f"log {located.name!r}, positions {ask.start} to {located.next}: {error}")
        except Exception as error:
            answer = Unavailable(f"log {located.name!r} cannot be read from {ask.start} on now: {error!r}")
        if again:
            # A standby may have told what was.
            self._cross(lambda: self.read(caller, ask, reply, tries - 1, behind=True))
        else:
            self._cross(partial(reply, answer, body))

    def _get(self, name: str, offset: int, length: int) -> memoryview:
        if self._store is None:
            raise Unavailable("the metadata keeps its objects where no broker can read them")
        return self._store.get(name, offset, length)

    # --- waiting -------------------------------------------------------------------------------------------------

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        return self._watches.watch(log, since, reply)

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
        read, end_of = partial(self.read, caller), partial(self.end_of, log)
        feed = LogFeed(read, end_of, log, position, credit, push, ready, accepted)
        known = self._tracking.stamp(log) if log in self._awaited else UNKNOWN  # no older than its last change
        number = self._tracking.add(log, known, self.seen, feed.changed)
        self._feeds.setdefault(log, {})[number] = feed
        feed.on_close = partial(self._unfollow, log, number)
        feed.readable = known.readable
        self._await(log)
        return feed

    def _unfollow(self, log: int, number: int) -> None:
        """The last one who follows a log takes along what the metadata was to tell of it."""
        self._tracking.remove(log, number)
        feeds = self._feeds.get(log, {})
        feeds.pop(number, None)
        if not feeds:
            self._feeds.pop(log, None)
        if not self._tracking.waited_for(log):
            call = self._awaited.pop(log, None)
            if call is not None:
                self.link.note(call, m.Cancel())
                self.link.forget(call)

    def end_of(self, log: int, then: Callable[[m.Ending], None]) -> None:
        def done(_: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
            then(answer if isinstance(answer, m.Ending) else m.Ending(""))

        self.link.call(m.EndOf(log), done)

    def _await(self, log: int, stamp: Stamp = UNKNOWN) -> None:
        """Have the metadata tell when the log is another than it is believed to be: at once, if nothing is known."""
        if log in self._awaited or not self._tracking.waited_for(log):
            return
        self._awaited[log] = self.link.call(m.Await(log, *stamp), partial(self._stamped, log), timeout=_FOREVER_S)

    def _stamped(self, log: int, _: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        self._awaited.pop(log, None)
        if isinstance(answer, m.Stamped):
            stamp = Stamp(answer.readable, answer.tail, answer.holder, answer.held, answer.epoch)
            self._tracking.update(log, stamp, self.seen)
            if stamp != GONE:
                self._await(log, stamp)
        elif isinstance(answer, BraidError) and not isinstance(answer, Unavailable):
            for feed in list(self._feeds.get(log, {}).values()):
                feed.fail(answer)
        else:
            self._loop.call_later(limits.RECONNECT_MAX_S, self._await, log)


def _since(caller: Caller, request: m.Append | m.Execute) -> int:
    """What its client had seen when it first sent this. It may have lost patience with us by the time when this is
    bound, and have its answer from another broker: so we never say that it is new, only since when it can be there."""
    return caller.seen if request.since == NONE else request.since


def _answer(reply: Reply, result: c.Result | BraidError) -> None:
    reply(result if isinstance(result, BraidError) else m.Result(result), None)
