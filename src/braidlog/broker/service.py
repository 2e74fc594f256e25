"""What a server does for its connections, whoever carries it out: the seam between `server` and what stands behind it.

Everything is called on the loop's thread, and answers on it, at once or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from braidlog import limits
from braidlog.broker.conversation import Pieces
from braidlog.broker.policy import Scopes
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.observe.metrics import Registry
from braidlog.wire.frames import Body
from braidlog.wire.messages import Answer, Await, Ending, Identities, Kin, Parts, Request

Reply = Callable[[Answer | BraidError, Pieces | None], None]
Push = Callable[[Parts | Ending, Pieces | None], None]
Identified = Callable[[Identities | BraidError], None]
Known = Callable[[Kin | BraidError], None]


Cell: TypeAlias = int | float | str | None


class Standing(NamedTuple):
    """What a service says of itself besides its metrics: values by name, and rows of tables by the tables' names."""

    values: dict[str, int | float | str]
    rows: dict[str, list[dict[str, Cell]]]


class Caller:
    """Who asks: a client, over one connection. `principal` is who it proved to be, `scopes` what that one may do; None
    is everything."""

    __slots__ = ("address", "client", "floor", "name", "pause", "principal", "scopes", "seen", "settled")

    def __init__(self, client: bytes, floor: int, name: str) -> None:
        self.client = client
        self.name = name
        self.floor = floor
        self.seen = 0  # the commit index that it knew of when it sent what it asks for now
        self.pause: Callable[[float], None] = lambda _: None  # listen to it again after so many seconds
        self.principal = ""
        self.scopes: Scopes | None = None
        self.address = ""
        self.settled = -1  # the floor that the forest was told; -1 before the first

    def settlement(self) -> c.Settle | None:
        """What the forest is to be told of its answers, before its first change and then now and again."""
        if self.settled >= 0 and self.floor - self.settled < limits.SETTLE_REQUESTS:
            return None
        self.settled = self.floor
        return c.Settle(self.client, self.floor)


class Feed(Protocol):
    """A subscription on its way."""

    def start(self) -> None:
        """Begin to push."""

    def more(self, credit: int) -> None:
        """So many more bytes may be pushed."""

    def close(self) -> None:
        """Nobody listens any more."""


_NO_METRICS: Final = Registry()


class Service(Protocol):
    registry: Registry = _NO_METRICS  # the metrics of what stands behind the server
    role: str
    objects: str | None  # the folder of the objects, or the URL of their store

    @property
    def seen(self) -> int:
        """The commit index that answers given now are true for."""

    def handle(self, caller: Caller, request: Request, body: Body, reply: Reply) -> None:
        """Carry out any request but Hello, Watch and Subscribe."""

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        """Reply once anything about the log may have changed since; returns how to stop waiting."""

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
        """Push records from a position on, once started, while there is credit and the listener is ready. `accepted` is
        told first how far the log can be read."""

    def wait_for(self, request: Await, reply: Reply) -> Callable[[], None]:
        """Reply once the log is another than its asker believes; returns how to stop waiting. For the metadata."""
        reply(InvalidArgument(f"only the metadata can be asked to await log number {request.log}"), None)
        return lambda: None

    def identify(self, digests: list[bytes], then: Identified, *, recently: bool = False) -> None:
        """Tell whose tokens have these digests now, and whether everybody needs one; what was true `recently` will do
        for those who are asked about again soon."""
        del recently
        then(Identities([None] * len(digests), required=False))

    def kin(self, log: int, then: Known, *, fresh: bool = False) -> None:
        """Tell whose log it is and what it came from. Unless it is to be `fresh`, who its parent is may be old."""
        del fresh
        then(Unavailable(f"nothing is known here of log number {log}"))

    def left(self, caller: Caller) -> None:
        """A connection is gone."""

    def served_by(self, dismiss: Callable[[str], None]) -> None:
        """A server serves it now, and can be told to send all its peers away: they come again, and find it changed."""
        del dismiss

    def trouble(self) -> str:
        """Why no writes can be taken now; empty if they can."""
        return ""

    def standing(self) -> Standing:
        """How things are, in bounded size and time."""
        return Standing({}, {})

    def name_of(self, log: int) -> str:
        """The name of a log that lives or lived, if it is known here; for people who read what is logged."""
        del log
        return ""

    def close(self) -> None:
        """Let go of everything; nothing is asked for any more."""
