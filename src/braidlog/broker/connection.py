"""One peer of a server: a conversation, and the socket it goes over. For the loop's thread alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from braidlog import limits
from braidlog.broker import auditing
from braidlog.broker import conversation as conv
from braidlog.broker import entry as entering
from braidlog.broker.conversation import Conversation, Pieces
from braidlog.broker.greeting import Greeting
from braidlog.broker.guarding import Gate, discreet
from braidlog.broker.measuring import Meter
from braidlog.broker.service import Caller, Feed
from braidlog.broker.status import report
from braidlog.errors import BraidError, NotPermitted, Unavailable
from braidlog.wire.messages import (
    Answer,
    Append,
    Await,
    Cancel,
    Consumers,
    Credit,
    Describe,
    Ending,
    Floor,
    Hello,
    Identity,
    Join,
    Lineage,
    ListLogs,
    Locate,
    Number,
    Parts,
    Ping,
    PlanRange,
    Read,
    Status,
    Subscribe,
    Watch,
    Welcome,
)

if TYPE_CHECKING:
    from braidlog.broker.server import Server

_log = logging.getLogger("braidlog.server")

_LARGE: Final = (Read, Locate, PlanRange, ListLogs, Describe, Lineage, Consumers, Status)  # are answered with much


class Connection(asyncio.BufferedProtocol):
    """One peer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._service = server.service
        self._conversation = Conversation()
        self._transport: asyncio.Transport | None = None
        self._caller = Caller(b"", 0, "")
        self._greeting = Greeting(server)
        self._early: list[conv.Do] = []  # what came before the welcome
        self._gate = Gate(server.service, self._carry_out_safely, lambda number, why: self._reply(number, why, None))
        self._feeds: dict[int, Feed] = {}
        self._watches: dict[int, Callable[[], None]] = {}
        self._dirty = False
        self._choked = False  # the peer does not read what it asked for
        self._paused = False  # it asked for too much at once
        self._counted = 0
        self._counted_arriving = 0
        self._large: int | None = None  # which frame is a large one that is not whole: so many came before it
        self._waits = False  # until there is room for that
        self._slowed = 0  # pauses that are not over
        self._meter = Meter(server)
        self._heard = server.now
        self._held: deque[conv.Do] = deque()  # with large answers, until there is room for those
        self._looking: set[int] = set()  # of those, what is being carried out
        self._starved: dict[int, None] = {}  # subscriptions that found no room, in turn
        self._serving = False
        self._room: memoryview | None = None  # where the rest of a large frame goes
        self._link = b""

    # --- what the loop calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own
        self._transport = transport
        self._greeting.peer = entering.peer_of(transport)
        transport.set_write_buffer_limits(high=limits.CONNECTION_UNSENT_BYTES_MAX)
        if not self._server.arrived(self):
            transport.abort()
        elif self._server.crowded:
            most = self._server.connections_max
            self._conversation.reject(
                Unavailable(f"the server has {most:,} connections, and may not have more: try again later")
            )
            self.drop("there are too many")

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        self._room = self._conversation.room()
        return self._server.scratch if self._room is None else self._room

    def buffer_updated(self, count: int) -> None:
        self._heard = self._server.now
        self._meter.received.value += count
        if self._room is None:
            self._carry_out(self._conversation.receive(bytes(self._server.scratch[:count])))
        else:
            self._room = None
            self._carry_out(self._conversation.filled(count))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._server.left(self, self._link)
        self._transport = None
        self._let_go()
        self._service.left(self._caller)
        self._conversation.lost()
        for effect in (*self._held, *self._early, *self._gate.close()):
            self._conversation.refuse(effect.number, Unavailable("the connection is gone"))
        self._held.clear()
        self._early.clear()
        self._recount()
        self._server.answering.left(self)

    def _let_go(self) -> None:
        """Nobody hears any more what is pushed."""
        feeds, self._feeds = self._feeds, {}
        watches, self._watches = self._watches, {}
        for feed in feeds.values():
            feed.close()
        for stop in watches.values():
            stop()

    def pause_writing(self) -> None:
        self._choked = True
        self._listen()

    def resume_writing(self) -> None:
        self._choked = False
        self._listen()
        self.serve_held()

    # --- what the server calls -----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self._conversation.idle

    @property
    def socket(self) -> socket.socket | None:
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def who(self) -> str:
        return self._caller.name

    @property
    def doubtful(self) -> bool:
        """Whether it is let in only as long as its token, or that there are none, allows it."""
        return self._greeting.done and not self._greeting.peer.local

    @property
    def digest(self) -> bytes:
        return self._greeting.digest

    @property
    def number(self) -> int:
        return self._meter.number

    @property
    def subscriptions(self) -> int:
        return len(self._feeds)

    @property
    def watches(self) -> int:
        return len(self._watches)

    @property
    def bytes_in_flight(self) -> int:
        return self._counted

    def stalled(self, before: float) -> bool:
        """Whether it owes the rest of something, and nothing of it came since then, though we listen."""
        listening = not (self._paused or self._slowed or self._waits)
        if self._choked:  # it does not read, and so is not read from; unless others wait for the room that it takes up
            listening = listening and bool(self._server.arriving.waiting) and self._server.arriving.comes(self)
        return listening and self._heard < before and self._conversation.midway

    def end(self) -> None:
        self._conversation.end()
        self._touch()

    def reconsider(self, good: Mapping[bytes, Identity | None], *, required: bool) -> None:
        """What is known of tokens now: whoever may not stay is told, and goes."""
        refusal = self._greeting.reconsidered(good, required=required)
        if refusal:
            self.reject(NotPermitted(refusal))

    def reject(self, error: BraidError) -> None:
        """Tell it why it may not come in, or stay, and drop it."""
        if isinstance(error, NotPermitted):
            hello = self._conversation.hello
            auditing.tell_refused(self._greeting.peer.address, "" if hello is None else hello.name, str(error))
        self._conversation.reject(error)
        self.expel(str(error))

    def expel(self, reason: str) -> None:
        """Drop it for what it does."""
        self._meter.dropped(reason, self._caller)
        self.drop(reason)

    def drop(self, reason: str) -> None:
        _log.debug("connection of %s closed: %s", self._caller.name or "a stranger", reason)
        self._send(self._conversation.take_out())
        self._let_go()
        if self._transport is not None:
            self._transport.close()
            self._server.later(limits.SHUTDOWN_GRACE_S, self.abort)  # unless it has read what it was sent by then

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Send what gathered. Of much only a part, and the rest in the next turns of the loop: a large answer would
        keep that for milliseconds, and whoever asked for little is answered in between."""
        self._dirty = False
        self._send(self._conversation.take_out(limits.SEND_BYTES))
        if self in self._server.answering.owed:
            self.count_answers()
        self._touch()
        self.serve_held()

    def _send(self, out: Pieces) -> None:
        if out and self._transport is not None and not self._transport.is_closing():
            self._meter.sent.value += sum(map(len, out))
            self._transport.writelines(out)

    # --- carrying out --------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[conv.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, conv.Do):
                self._do(effect)
            elif isinstance(effect, conv.Heed):
                self._heed(effect)
            elif isinstance(effect, conv.Drop):
                self.expel(effect.reason)
            else:
                self._paused = isinstance(effect, conv.Pause)
                self._listen()
        self._recount()
        self._touch()

    def _do(self, effect: conv.Do) -> None:
        self._server.requests += 1
        self._meter.began(effect.number, effect.request)
        if not self._greeting.done and not isinstance(effect.request, Hello):
            self._early.append(effect)
            return
        if isinstance(effect.request, Join) and self._service.role == "metadata" and self._caller.scopes is None:
            self._conversation.for_many = True
        self._turn_to(effect)

    def _turn_to(self, effect: conv.Do) -> None:
        if not isinstance(effect.request, _LARGE):
            self._begin(effect)
        elif self._held or not self._may_look():
            self._held.append(effect)
        else:
            self._look(effect)

    def _look(self, effect: conv.Do) -> None:
        self._looking.add(effect.number)
        self.count_answers()
        self._begin(effect)

    def _roomy(self) -> bool:
        """Whether the peer reads what it is sent."""
        if self._choked or self._transport is None or self._transport.is_closing():
            return False
        unsent = self._conversation.unsent + self._transport.get_write_buffer_size()
        return unsent <= limits.CONNECTION_UNSENT_BYTES_MAX

    def _may_look(self) -> bool:
        roomy = len(self._looking) < limits.CONNECTION_READ_REQUESTS_MAX and self._roomy()
        return roomy and self._server.may_answer(self)

    def count_answers(self) -> None:
        """Tell the server what is owed to this peer, as far as that is much: what is begun, and what is unsent."""
        if self._transport is None:
            self._server.answering.left(self)
            return
        unsent = self._conversation.unsent + self._transport.get_write_buffer_size()
        self._server.answering.tell(self, len(self._looking) * limits.WIRE_READ_BYTES_MAX + unsent)

    def _may_push(self, number: int) -> bool:
        roomy = self._roomy()
        if not roomy:
            self._starved[number] = None
        return roomy

    def serve_held(self) -> None:
        """Carry on with what found no room, now that there may be some."""
        if self._serving:  # this is the answer to one of them: the loop below goes on
            return
        self._serving = True
        try:
            while self._held and self._may_look():
                effect = self._held.popleft()
                self._look(effect)
            while self._starved and self._roomy():
                number = next(iter(self._starved))
                del self._starved[number]
                feed = self._feeds.get(number)
                if feed is not None:
                    feed.more(0)
        finally:
            self._serving = False

    def _begin(self, effect: conv.Do) -> None:
        if self._caller.scopes is None:
            self._carry_out_safely(effect)
        else:
            self._gate.enter(self._caller, effect)

    def _carry_out_safely(self, effect: conv.Do) -> None:
        try:
            self._carry_out_one(effect)
        except BraidError as error:
            self._reply(effect.number, error, None)
        except Exception as error:
            _log.exception("a %s failed", type(effect.request).__name__)
            self._reply(effect.number, Unavailable(f"the server failed at this: {error!r}"), None)

    def _carry_out_one(self, effect: conv.Do) -> None:
        number, request, body = effect
        reply = partial(self._reply, number)
        if isinstance(request, Hello):
            self._slowed += 1  # until it is known who that is
            self._greeting.begin(request, partial(self._identified, number, request))
            self._listen()
        elif isinstance(request, Ping):
            reply(Number(0), None)
        elif not self._conversation.owes(number):
            return  # it was cancelled while it was found out whether it may be
        elif isinstance(request, Subscribe):
            self._subscribe(number, request)
        elif isinstance(request, Watch):
            self._watch(number, self._service.watch(request.log, request.since, partial(self._watched, number)))
        elif isinstance(request, Await):
            self._watch(number, self._service.wait_for(request, partial(self._watched, number)))
        elif isinstance(request, Append) and self._server.bytes_taken > limits.SERVER_IN_FLIGHT_BYTES_MAX:
            reply(
                Unavailable(
                    f"the server has {self._server.bytes_taken:,} bytes under way and takes at most "
                    f"{limits.SERVER_IN_FLIGHT_BYTES_MAX:,}: try again later, or send more slowly"
                ),
                None,
            )
        elif isinstance(request, Status):
            reply(report(self._server), None)
        else:
            self._caller.seen = self._conversation.seen
            self._service.handle(self._caller, request, body, reply)

    def _identified(self, number: int, request: Hello, caller: Caller | BraidError, pause: float) -> None:
        """It is known who greets; or that they may not come in, which they are told after a pause."""
        if isinstance(caller, BraidError):
            self._server.later(pause, partial(self.reject, caller))
        if self._transport is None or isinstance(caller, BraidError):
            return
        self._slowed -= 1
        self._link = request.client + request.link
        if request.link:
            self._server.greeted(self, self._link)
        self._caller = caller
        caller.pause = self._pause
        service = self._service
        most = limits.CONNECTION_IN_FLIGHT_BYTES_MAX
        welcome = Welcome(self._server.name, service.role, service.objects, most, caller.principal)
        self._reply(number, welcome, None)
        early, self._early = self._early, []
        for effect in early:
            self._turn_to(effect)
        self._listen()

    def _watch(self, number: int, stop: Callable[[], None]) -> None:
        if self._conversation.owes(number):
            self._watches[number] = stop
        else:  # it was answered at once, and there is little to stop
            stop()

    def _subscribe(self, number: int, request: Subscribe) -> None:
        feed = self._service.subscribe(
            self._caller,
            request.log,
            request.position,
            request.credit,
            partial(self._push, number),
            partial(self._may_push, number),
            lambda readable: self._reply(number, Number(readable), None),
        )
        self._feeds[number] = feed
        feed.start()

    def _push(self, number: int, answer: Parts | Ending, body: Pieces | None) -> None:
        last = isinstance(answer, Ending)
        if last:
            self._feeds.pop(number, None)
        self._meter.delivered(answer)
        self._conversation.push(number, self._service.seen, answer, body, last=last)
        self._touch()

    def _watched(self, number: int, answer: Answer | BraidError, body: Pieces | None) -> None:
        self._watches.pop(number, None)
        self._reply(number, answer, body)

    def _heed(self, effect: conv.Heed) -> None:
        number, note = effect
        self._meter.heeded(number, note)
        if isinstance(note, Floor):
            self._caller.floor = max(self._caller.floor, note.floor)
        elif isinstance(note, Cancel):
            feed = self._feeds.pop(number, None)
            if feed is not None:
                feed.close()
            stop = self._watches.pop(number, None)
            if stop is not None:
                stop()
        elif isinstance(note, Credit):
            feed = self._feeds.get(number)
            if feed is not None:
                feed.more(note.bytes)

    def _reply(self, number: int, answer: Answer | BraidError, body: Pieces | None) -> None:
        self._looking.discard(number)
        if self._caller.scopes is not None:
            answer = discreet(self._caller.scopes, answer)
        self._meter.answered(number, answer, self._caller)
        if isinstance(answer, BraidError):
            self._conversation.refuse(number, answer, self._service.seen)
            effects = self._conversation.relieved()
        else:
            effects = self._conversation.answer(number, self._service.seen, answer, body)
        for effect in effects:
            assert isinstance(effect, conv.Resume)
            self._paused = False
            self._listen()
        self._recount()
        self._touch()
        if self in self._server.answering.owed:
            self.count_answers()
        if self._held:
            self.serve_held()

    def _touch(self) -> None:
        if not self._dirty and self._conversation.out:
            self._dirty = True
            self._server.flush_soon(self)

    def _listen(self) -> None:
        """Read from the peer, or not."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused or self._choked or self._slowed or self._waits:
            self._transport.pause_reading()
        else:
            self._heard = self._server.now
            self._transport.resume_reading()

    def _pause(self, seconds: float) -> None:
        """Do not listen to the peer for a while: it sends faster than it may."""
        self._slowed += 1
        self._listen()
        self._server.later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._slowed -= 1
        self._listen()

    def _recount(self) -> None:
        now = self._conversation.bytes_in_flight
        self._server.bytes_in_flight += now - self._counted
        self._counted = now
        arriving = self._conversation.arriving
        self._server.bytes_arriving += arriving - self._counted_arriving
        self._counted_arriving = arriving
        self._make_way()

    def _make_way(self) -> None:
        """Have room kept for the whole of a large frame that began, and give back that of one that is over."""
        server, conversation = self._server, self._conversation
        large = conversation.frames if conversation.expected > limits.WIRE_SMALL_FRAME_BYTES_MAX else None
        if large != self._large:
            if self._large is not None:
                server.arriving.ends(self)
            self._large = large
            if large is not None:
                server.arriving.begins(self, conversation.expected)
        if server.arriving.waiting:
            server.let_come()
        waits = self in server.arriving.waiting
        if waits != self._waits:
            self._waits = waits
            self._listen()

    def may_come(self) -> None:
        """There is room for the rest of its frame."""
        if self._waits:
            self._waits = False
            self._listen()
