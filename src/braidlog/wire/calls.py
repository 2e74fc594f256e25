"""The calling half of a connection: requests go out, answers come back, and what was lost is sent again. PURE.

Whoever drives it opens connections and tells it of bytes, losses and time; it gathers what is to be sent in `out` and
what is done in `finished`. Requests that were sent over a connection that broke are sent again over the next one, in
their order. Looking and reading may be repeated freely; changes carry ids, and are sent again as such, so that they
happen once. When the time of a change that may have arrived has passed, its outcome is unknown; of one that was never
sent it is known that nothing happened. A server that refuses a change says so of the copy that it got. If one was sent
before, the refusal of a server that cannot work now tells nothing about that; nor does any refusal of a broker, since
another broker may hold the first copy still, and bind it later. Then the outcome is unknown as well.

Subscriptions are not repeated here: they end with Lost, and whoever holds one knows where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument, NotPermitted, OutcomeUnknown, Unavailable
from braidlog.forest.commands import NONE
from braidlog.wire import frames, messages
from braidlog.wire.faults import error_of, named
from braidlog.wire.frames import PREFACE, Frame, Kind, Malformed, Parser
from braidlog.wire.messages import Answer, Append, Bind, Execute, Fault, Floor, Hello, Note, Request, Subscribe, Welcome

Done = Callable[["Call", Answer | BraidError, memoryview], None]

Change: Final = Append | Execute | Bind

_NOTHING: Final = memoryview(b"")
_NUMBERS: Final = 1 << 32


class Lost(Unavailable):
    """The connection that a subscription came over is gone: subscribe again from where it was."""


class Refused(Malformed):
    """The server does not let this client in, and will not if it tries again: `error` says why."""

    def __init__(self, error: BraidError) -> None:
        super().__init__(str(error))
        self.error = error


class Call:
    """One request on its way. `done` is called once by whoever drives; for a subscription, with every push."""

    __slots__ = ("again", "body", "deadline", "done", "number", "request", "sent", "since")

    def __init__(self, number: int, request: Request, body: bytes | memoryview, deadline: float, done: Done) -> None:
        self.number = number
        self.request = request
        self.body = body
        self.deadline = deadline
        self.done = done
        self.sent = False  # it may have arrived
        self.again = False  # it was sent more than once, and more than one of them may have arrived
        self.since = NONE  # what was seen when it was first sent

    @property
    def change(self) -> bool:
        return isinstance(self.request, Change)


class Calls:
    """All calls of one client over one connection after the other.

    `siblings` are those over its other connections. What was seen over one of them is known to all: an answer over this
    one must not be older.
    """

    def __init__(
        self, client: bytes, name: str, link: bytes = b"", token: str = "", siblings: list[Calls] | None = None
    ) -> None:
        self.out: list[bytes | memoryview] = []
        self.finished: list[tuple[Call, Answer | BraidError, memoryview]] = []
        self._seen = 0  # over this one
        self._siblings = [] if siblings is None else siblings
        self._siblings.append(self)
        self.welcome: Welcome | None = None  # while connected and greeted
        self.leaving = False  # the server said goodbye
        self.on_greeted: Callable[[Welcome], None] = lambda _: None
        self._client = client
        self._name = name
        self._link = link
        self._token = token
        self._parser = Parser()
        self._preface = b""
        self._calls: dict[int, Call] = {}
        self._number = 0
        self._newest = 0  # the greatest number of a change's id
        self._settled = 0  # changes answered since the server was last told

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def seen(self) -> int:
        """The newest commit index that the client knows of."""
        return max(one._seen for one in self._siblings)

    @seen.setter
    def seen(self, seen: int) -> None:
        self._seen = max(self._seen, seen)

    @property
    def owed(self) -> bool:
        """Whether anything was sent over this connection that is still to be answered."""
        return any(call.sent and not isinstance(call.request, Subscribe) for call in self._calls.values())

    @property
    def changing(self) -> bool:
        """Whether a change is under way."""
        return any(call.change for call in self._calls.values())

    def changed_logs(self) -> set[int]:
        """Those that changes are under way of."""
        commands = [call.request.command for call in self._calls.values() if isinstance(call.request, Append | Execute)]
        return {command.log for command in commands if hasattr(command, "log")}

    # --- calling -------------------------------------------------------------------------------------------------

    def begin(self, request: Request, body: bytes | memoryview, deadline: float, done: Done) -> Call:
        if isinstance(request, Change):
            self._newest = max(self._newest, _number_of(request))
        self._number = (self._number + 1) % _NUMBERS or 1
        while self._number in self._calls:
            self._number = (self._number + 1) % _NUMBERS or 1
        call = Call(self._number, request, body, deadline, done)
        self._calls[call.number] = call
        if self.welcome is not None and not self.leaving:
            self._send(call)
        return call

    def note(self, call: Call, note: Note) -> None:
        """Tell the server something about a call that is under way."""
        if call.number in self._calls and self.welcome is not None:
            self.out.extend(frames.encode(Kind.NOTE, call.number, self.seen, messages.encode(note)))

    def forget(self, call: Call) -> None:
        """Nobody waits for it any more."""
        self._calls.pop(call.number, None)

    # --- what happens --------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """A new connection is there, on which nothing was said yet."""
        self._parser = Parser()
        self._preface = b""
        self.leaving = False
        hello = messages.encode(Hello(self._client, self._floor(), self._name, self._link, self._token))
        self.out = [PREFACE, *frames.encode(Kind.REQUEST, 0, self.seen, hello)]

    def receive(self, data: bytes) -> None:
        """Bytes arrived. Raises Malformed, after which the connection is of no use."""
        if len(self._preface) < len(PREFACE):
            wanted = len(PREFACE) - len(self._preface)
            self._preface += data[:wanted]
            data = data[wanted:]
            if len(self._preface) < len(PREFACE):
                return
            frames.check_preface(self._preface)
        for frame in self._parser.feed(data):
            self._take(frame)

    def room(self) -> memoryview | None:
        """Where the next bytes of a large frame are to be put; None: they are to be given to `receive`."""
        return self._parser.room()

    def filled(self, count: int) -> None:
        """So many bytes were put into the room. Raises Malformed, as `receive` does."""
        for frame in self._parser.filled(count):
            self._take(frame)

    def lost(self) -> None:
        """The connection is gone, or there never was one. Calls wait for the next."""
        self.welcome = None
        self.leaving = False
        self.out = []
        for call in [call for call in self._calls.values() if isinstance(call.request, Subscribe) and call.sent]:
            self._finish(call, Lost("the connection was lost"), _NOTHING)

    def expire(self, now: float, why: str) -> None:
        """Give up calls whose time has passed."""
        for call in [call for call in self._calls.values() if call.deadline <= now]:
            self._finish(call, self._given_up(call, why), _NOTHING)

    def fail(self, why: str) -> None:
        """Give up all."""
        for call in list(self._calls.values()):
            self._finish(call, self._given_up(call, why), _NOTHING)

    def refuse(self, error: BraidError) -> None:
        """Nobody lets this client in: give up all, for that reason."""
        for call in list(self._calls.values()):
            known = not (call.change and call.sent)
            self._finish(call, error if known else self._given_up(call, str(error)), _NOTHING)

    def next_deadline(self) -> float:
        return min((call.deadline for call in self._calls.values()), default=float("inf"))

    # --- inside --------------------------------------------------------------------------------------------------

    def _send(self, call: Call) -> None:
        request = call.request
        if isinstance(request, Change):
            if call.sent:
                call.again = True
                request = msgspec.structs.replace(request, since=call.since)
            else:
                call.since = self.seen
        call.sent = True
        self.out.extend(frames.encode(Kind.REQUEST, call.number, self.seen, messages.encode(request), call.body))

    def _take(self, frame: Frame) -> None:
        self.seen = frame.seen
        if frame.kind is Kind.GOODBYE:
            self.leaving = True
            return
        if frame.kind is Kind.ERROR:
            fault = messages.decode_answer(frame.head)
            if not isinstance(fault, Fault):
                raise Malformed("an error that is none")
            if frame.number == 0 and fault.kind == NotPermitted.__name__:
                raise Refused(NotPermitted(fault.message))
            if frame.number == 0:
                raise Malformed(f"the server refuses the connection: {fault.message}")
            found = self._calls.get(frame.number)
            if found is not None:
                copies = self.welcome is not None and self.welcome.role == "broker"
                self._finish(found, told_of(found, error_of(fault), copies=copies), _NOTHING)
            return
        if frame.kind not in (Kind.ANSWER, Kind.PUSH):
            raise Malformed(f"a {frame.kind.name} is nothing that a server sends")
        answer = messages.decode_answer(frame.head)
        if frame.number == 0:
            self._greeted(answer)
            return
        call = self._calls.get(frame.number)
        if call is None:
            return  # given up meanwhile
        if isinstance(call.request, Subscribe):
            last = isinstance(answer, messages.Ending)
            if last:
                del self._calls[call.number]
            self.finished.append((call, answer, frame.body.data))
        else:
            self._finish(call, answer, frame.body.data)

    def _greeted(self, answer: Answer) -> None:
        if not isinstance(answer, Welcome):
            raise Malformed("a server that does not say welcome")
        self.welcome = answer
        waiting = list(self._calls.values())
        self.on_greeted(answer)  # what it begins goes before what waited
        if self.welcome is not None:
            for call in waiting:
                self._send(call)

    def decline(self) -> None:
        """Ask nothing of the server that has just said welcome: it is not the one that was meant."""
        self.welcome = None

    def _finish(self, call: Call, answer: Answer | BraidError, body: memoryview) -> None:
        del self._calls[call.number]
        self.finished.append((call, answer, body))
        if call.change:
            self._settled += 1
            if self._settled >= limits.SETTLE_REQUESTS and self.welcome is not None:
                self._settled = 0
                self.out.extend(frames.encode(Kind.NOTE, 0, self.seen, messages.encode(Floor(self._floor()))))

    def _floor(self) -> int:
        """Of all changes with lower numbers the answers are here. It is the client's, whichever connection tells it."""
        # Those of other connections may come and go meanwhile, in other threads, and so they are copied at one stroke.
        calls = [call for one in list(self._siblings) for call in list(one._calls.values())]
        under_way = [_number_of(call.request) for call in calls if isinstance(call.request, Change)]
        return min([*under_way, self._newest + 1 if self._newest else 0])

    def _given_up(self, call: Call, why: str) -> BraidError:
        request = call.request
        if isinstance(request, Change) and call.sent:
            return OutcomeUnknown(
                f"{why}, and the request had been sent: it may or may not have happened; ask resolve() with its "
                "request id",
                request_id=_asked(call).hex(),
            )
        return Unavailable(f"{why}; nothing was changed by this call: is the service up?")


def told_of(call: Call, error: BraidError, *, copies: bool = False) -> BraidError:
    """What an error of a server says about all that was sent of a call. `copies`: others may hold one, and use it."""
    told = InvalidArgument if copies else BraidError
    if not (call.again and call.change) or (isinstance(error, told) and not isinstance(error, Unavailable)):
        return named(error, _asked(call))
    return OutcomeUnknown(
        f"it was sent before, and may have happened then, or may yet; this time: {error}; ask resolve() with its "
        "request id",
        request_id=_asked(call).hex(),
    )


def _asked(call: Call) -> bytes:
    """The id of a change. A broker's bindings are those of others, each with its own."""
    command = getattr(call.request, "command", None)
    asked: bytes = getattr(command, "request", b"")
    return asked


def _number_of(request: Append | Execute | Bind) -> int:
    """The number in the id of a change; a broker's bindings are those of others, and have none."""
    if isinstance(request, Bind):
        return 0
    asked: bytes = getattr(request.command, "request", b"")
    if len(asked) != limits.REQUEST_ID_BYTES:
        raise InvalidArgument("a change over the wire needs a request id")
    return int.from_bytes(asked[limits.CLIENT_ID_BYTES :], "big")
