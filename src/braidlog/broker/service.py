"""What a server does for its connections, whoever carries it out: the seam between `server` and what stands behind it.

Everything is called on the loop's thread, and answers on it, at once or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from braidlog.broker.conversation import Pieces
from braidlog.errors import BraidError
from braidlog.wire.messages import Answer, Ending, Parts, Request

Reply = Callable[[Answer | BraidError, Pieces | None], None]
Push = Callable[[Parts | Ending, Pieces | None], None]


class Caller:
    """Who asks: a client, over one connection."""

    __slots__ = ("client", "floor", "name", "pause", "settled")

    def __init__(self, client: bytes, floor: int, name: str) -> None:
        self.client = client
        self.name = name
        self.floor = floor
        self.pause: Callable[[float], None] = lambda _: None  # listen to it again after so many seconds
        self.settled = -1  # the floor that the forest was told; -1 before the first


class Feed(Protocol):
    """A subscription on its way."""

    def start(self) -> None:
        """Begin to push."""

    def more(self, credit: int) -> None:
        """So many more bytes may be pushed."""

    def close(self) -> None:
        """Nobody listens any more."""


class Service(Protocol):
    role: str
    objects: str | None  # the folder of the objects, if they are files

    @property
    def seen(self) -> int:
        """The commit index that answers given now are true for."""

    def handle(self, caller: Caller, request: Request, body: memoryview, reply: Reply) -> None:
        """Carry out any request but Hello, Watch and Subscribe."""

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        """Reply once anything about the log may have changed since; returns how to stop waiting."""

    def subscribe(
        self,
        log: int,
        position: int,
        credit: int,
        push: Push,
        ready: Callable[[], bool],
        accepted: Callable[[int], None],
    ) -> Feed:
        """Push records from a position on, once started, while there is credit and the listener is ready. `accepted` is
        told first how far the log can be read."""

    def left(self, caller: Caller) -> None:
        """A connection is gone."""

    def close(self) -> None:
        """Let go of everything; nothing is asked for any more."""
