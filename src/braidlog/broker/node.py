"""One of several metadata processes: it follows the command log, and leads while it has the leadership.

A standby applies what the leader has made durable. It answers what can be answered from that, to those whose own eyes
have seen no more than it has (a session never goes back in time), and refuses the rest, naming the leader. Whoever wins
the leadership opens the command log as its only writer. When that is lost, or the log refuses a frame, it acknowledges
nothing any more, sends everybody away, and follows again. So at any moment at most one process can bind, and the others
know no more than what was bound.

What happens takes place in a thread of the node, and what is answered on the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, cast

from braidlog import limits
from braidlog.broker.conversation import Pieces
from braidlog.broker.crossing import Crossing
from braidlog.broker.local import LocalService
from braidlog.broker.metadata import MetadataService
from braidlog.broker.service import Caller, Feed, Identified, Known, Push, Reply, Service, Standing
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.embedded.follower import Follower, Source
from braidlog.embedded.upkeep import Keeper
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, Unavailable
from braidlog.metadata.home import Home
from braidlog.observe import catalog
from braidlog.observe.metrics import Family, Registry
from braidlog.wire import messages as m
from braidlog.wire.frames import Body

_log = logging.getLogger("braidlog.metadata")


class Term(Protocol):
    """Leadership, from when it was won until it is lost, which nobody learns before it is."""

    lost: threading.Event

    def left_s(self) -> float:
        """For how long surely nobody else leads, if clocks run alike; not above 0 once that is not sure any more."""

    def resign(self) -> None:
        """Let others win at once. Safe to call again, and when it is lost."""


class Rivalry(Protocol):
    """What metadata processes share: who leads, and what the leader wrote."""

    source: Source

    def win(self, stop: threading.Event) -> Term | None:
        """Wait for the leadership; None once `stop` is set."""

    def home(self, term: Term) -> Home:
        """What the winner of a term writes."""

    def leader(self) -> str:
        """Where the leader is said to be; empty if nobody leads, or it is not known."""

    def close(self) -> None:
        """Let go of it."""


class StandbyService(LocalService):
    """A Follower for others. To be made on the loop's thread."""

    def __init__(self, follower: Follower, leader: Callable[[], str]) -> None:
        super().__init__(cast(Writer, follower), role="standby", standing=_StandbyStanding(follower))
        self._follower = follower
        self._leader = leader
        self._behind: list[tuple[int, asyncio.TimerHandle, Callable[[], None]]] = []
        for change in (m.Append, m.Execute):
            del self._doors[change]

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        if type(request) not in self._looks and type(request) not in self._doors:
            reply(Unavailable(f"this is a standby: ask the leader{self._where()}"), None)
        elif lost := _out_of_touch(self._follower):
            reply(Unavailable(f"{lost}: ask another metadata process"), None)
        elif caller.seen <= self.seen:
            super().handle(caller, request, body, reply)
        else:
            self._wait(caller, partial(super().handle, caller, request, body, reply), reply)

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        if lost := _out_of_touch(self._follower):
            reply(Unavailable(f"{lost}: ask another metadata process"), None)
            return lambda: None
        return super().watch(log, since, reply)

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
        if lost := _out_of_touch(self._follower):
            raise Unavailable(f"{lost}: ask another metadata process")
        return super().subscribe(caller, log, position, credit, push, ready, accepted)

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        """A token may have been revoked since it last heard of any."""
        if lost := _out_of_touch(self._follower):
            then(Unavailable(f"{lost}: ask another metadata process who may come in"))
        else:
            super().identify(digests, then, recently=recently)

    def _wait(self, caller: Caller, then: Callable[[], None], reply: Reply) -> None:
        """Until what the caller has seen is seen here."""

        def give_up() -> None:
            self._behind.remove(entry)
            reply(Unavailable("this standby has not seen yet what you have: ask another metadata process"), None)

        entry = (caller.seen, self._loop.call_later(limits.STANDBY_PATIENCE_S, give_up), then)
        self._behind.append(entry)

    def _changed(self) -> None:
        super()._changed()
        for entry in [entry for entry in self._behind if entry[0] <= self.seen]:
            self._behind.remove(entry)
            entry[1].cancel()
            entry[2]()

    def _crowded(self) -> bool:
        return False

    def _where(self) -> str:
        leader = self._leader()
        return f", at {leader}" if leader else ", once there is one"


class LeaderService(MetadataService):
    """The metadata for as long as it leads. What it cannot answer for any more it leaves unanswered: whoever asked is
    sent away, asks the next leader again under the same number, and learns from that one what became of it.

    A process that stood still past its lease looks at the clock before it answers, so that it tells nobody what was
    true before another one led.
    """

    def __init__(self, writer: Writer, term: Term, *, lease_s: float) -> None:
        super().__init__(writer, lease_s=lease_s)
        self._term = term
        self._aside_until = math.inf  # a commit is a round trip to others, and never made on the loop's thread

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        def unless_deposed(answer: m.Answer | BraidError, body: Pieces | None) -> None:
            if self._writer.committer.failure is None and self._term.left_s() > 0:
                reply(answer, body)

        super().handle(caller, request, body, unless_deposed)

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        if self._term.left_s() > 0:
            super().identify(digests, then, recently=recently)
        else:
            then(Unavailable("another metadata process may lead by now, and may have revoked tokens: ask that one"))


def _out_of_touch(follower: Follower) -> str:
    """Why what a standby knows may be older than what it may answer from; empty if it is not."""
    silent_s, why = follower.silence()
    if silent_s <= limits.STANDBY_SILENCE_S:
        return ""
    return f"this standby has heard nothing of the command log for {silent_s:.1f} s" + (f" ({why})" if why else "")


class _StandbyStanding:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.registry = Registry()
        catalog.Standby(self.registry, applied=lambda: follower.forest.applied, silent_s=lambda: follower.silence()[0])

    def trouble(self) -> str:
        """A standby is well if it follows."""
        return str(self._follower.failure or _out_of_touch(self._follower))

    def standing(self) -> Standing:
        return Standing({"applied": self._follower.forest.applied}, {})


class _Nothing(Service):
    """Between two roles."""

    role = "starting"
    objects = None

    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def seen(self) -> int:
        return 0

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        del caller, request, body
        reply(Unavailable(self._why), None)

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        del log, since
        reply(Unavailable(self._why), None)
        return lambda: None

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
        del caller, log, position, credit, push, ready, accepted
        raise Unavailable(self._why)

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        del digests, recently
        then(Unavailable(self._why))

    def left(self, caller: Caller) -> None:
        """Nothing here is kept for it."""

    def trouble(self) -> str:
        return self._why

    def close(self) -> None:
        """There is nothing to let go of."""


class _OfCurrent(Registry):
    """The metrics of whatever service is the current one."""

    def __init__(self, current: Callable[[], Service]) -> None:
        super().__init__()
        self._current = current

    def families(self) -> Iterator[Family]:
        return self._current().registry.families()

    def collect(self) -> list[Family]:
        return self._current().registry.collect()

    def _refresh(self) -> None:
        self._current().registry._refresh()


def _sweep(writer: Writer) -> None:
    """It may take long, and nobody waits for it."""
    try:
        writer.sweep_stored()
    except (BraidError, OSError) as error:  # the next leader tries again
        _log.warning("what earlier leaders stored and never bound cannot be removed now: %s", error)


class MetadataNode(Service):
    """To be made on the loop's thread; it begins as nobody, and is a standby or the leader from then on."""

    def __init__(self, rivalry: Rivalry, *, clock: Clock | None = None, lease_s: float = limits.BROKER_LEASE_S) -> None:
        self._rivalry = rivalry
        self._clock = clock or SystemClock()
        self._lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._cross = Crossing(self._loop)
        self._current: Service = _Nothing("this metadata process is starting: try again soon")
        self._dismiss: Callable[[str], None] = lambda _: None
        self._stop = threading.Event()
        self._over = threading.Event()  # this term, or everything
        self.terms = 0  # that were won here
        self.on_role: Callable[[str], None] = lambda _: None  # called on the loop's thread
        self.registry = _OfCurrent(lambda: self._current)
        self._thread = threading.Thread(target=self._live, name="braidlog-node", daemon=True)
        self._thread.start()

    # --- the life of it ------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                self._live_once()
            except Exception as error:  # whatever it was, another one may lead meanwhile
                level = logging.WARNING if isinstance(error, BraidError | OSError) else logging.ERROR
                _log.log(level, "this metadata process begins again: %s", error, exc_info=level == logging.ERROR)
                self._be(partial(_Nothing, f"this metadata process cannot follow now: {error}"))
                self._stop.wait(limits.STANDBY_PAUSE_S)

    def _live_once(self) -> None:
        follower = Follower(self._rivalry.source, self._clock)
        try:
            self._be(partial(StandbyService, follower, self._rivalry.leader))
            term = self._rivalry.win(self._stop)
            if term is None:
                return
            try:
                self._lead(term)
            finally:
                term.resign()
        finally:
            follower.close()

    def _lead(self, term: Term) -> None:
        writer = Writer(self._rivalry.home(term), self._clock, sweep=False)
        self._over.clear()
        unwatch = writer.watch(lambda: self._over.set() if writer.committer.failure is not None else None)
        try:
            keeper = Keeper(writer)
            try:
                self.terms += 1
                _log.info("this metadata process leads now, as the writer of epoch %d", writer.forest.space.epoch)
                self._be(partial(LeaderService, writer, term, lease_s=self._lease_s))
                threading.Thread(target=_sweep, args=(writer,), name="braidlog-sweep", daemon=True).start()
                while not (self._over.is_set() or term.lost.is_set() or self._stop.is_set()):
                    self._over.wait(limits.LEADER_LOOK_S)
                if not self._stop.is_set():
                    writer.committer.fail(Unavailable("this metadata process lost the leadership: ask the new leader"))
                    _log.warning("this metadata process lost the leadership")
                    self._be(partial(_Nothing, "this metadata process lost the leadership: ask another one"))
            finally:
                keeper.stop()
        finally:
            unwatch()
            writer.close()

    def _be(self, make: Callable[[], Service]) -> None:
        """Change what is answered from, and send away whoever was answered before. Returns when that is done."""
        done = threading.Event()

        def change() -> None:
            try:
                before, self._current = self._current, make()
                self._dismiss(f"this metadata process was {before.role} and is {self._current.role} now")
                before.close()
                self.on_role(self._current.role)
            finally:
                done.set()

        self._cross(change)
        while not done.wait(limits.LEADER_LOOK_S):
            if self._loop.is_closed():
                return

    def release(self) -> None:
        """End it: what is under way is carried out, and the leadership given up. In another thread than the loop's."""
        self._stop.set()
        self._over.set()
        self._thread.join()
        self._rivalry.close()

    # --- what the server asks for --------------------------------------------------------------------------------

    def served_by(self, dismiss: Callable[[str], None]) -> None:
        self._dismiss = dismiss

    @property
    def current(self) -> Service:
        return self._current

    @property
    def role(self) -> str:  # type: ignore[override]
        return self._current.role

    @property
    def objects(self) -> str | None:  # type: ignore[override]
        return self._current.objects

    @property
    def seen(self) -> int:
        return self._current.seen

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        self._current.handle(caller, request, body, reply)

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        return self._current.watch(log, since, reply)

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
        return self._current.subscribe(caller, log, position, credit, push, ready, accepted)

    def wait_for(self, request: m.Await, reply: Reply) -> Callable[[], None]:
        if self._current.role != "metadata":
            reply(Unavailable("this metadata process does not lead: ask another one"), None)
            return lambda: None
        return self._current.wait_for(request, reply)

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        self._current.identify(digests, then, recently=recently)

    def kin(self, log: int, then: Known, *, fresh: bool = False) -> None:
        self._current.kin(log, then, fresh=fresh)

    def left(self, caller: Caller) -> None:
        self._current.left(caller)

    def trouble(self) -> str:
        return self._current.trouble()

    def standing(self) -> Standing:
        return self._current.standing()

    def name_of(self, log: int) -> str:
        return self._current.name_of(log)

    def close(self) -> None:
        self._current.close()
