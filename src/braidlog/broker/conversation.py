"""One connection as its server sees it: bytes in, things to do out. PURE: no socket, no clock, no thread.

A conversation begins with the preface and a Hello. Then requests are handed on (`Do`) as they come, answers go back
under their numbers in whatever order they are ready, and subscriptions push while they have credit. It keeps count of
what is under way: a peer that sends more than it may is not listened to until some of it is done (`Pause`), one that
sends what cannot be understood is told so and dropped (`Drop`), and one that does not read what it asked for gets no
more. After its goodbye it takes no request: the peer sends those that stay unanswered again, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument
from braidlog.wire import frames, messages
from braidlog.wire.faults import fault_of
from braidlog.wire.frames import PREFACE, Body, Frame, Kind, Malformed, Parser
from braidlog.wire.messages import (
    Answer,
    Append,
    Await,
    Cancel,
    Ending,
    Hello,
    Note,
    Request,
    Subscribe,
    Watch,
    Welcome,
)

Pieces = list[bytes | memoryview]

_TLS = b"\x16\x03"  # how a greeting in TLS begins
_JOINED_BYTES_MAX = 16 * 1024  # the mean of pieces that are better joined


class Do(NamedTuple):
    """Carry out a request and give its outcome to `answer` or `refuse`."""

    number: int
    request: Request
    body: Body


class Heed(NamedTuple):
    """A note about the request of that number, or, for a Floor, about the client."""

    number: int
    note: Note


class Drop(NamedTuple):
    """Close the connection once what was written is sent."""

    reason: str


class Pause(NamedTuple):
    """Read no more from the peer, until Resume."""


class Resume(NamedTuple):
    pass


Effect = Do | Heed | Drop | Pause | Resume


class Conversation:
    """The server's half of a connection. Writes gather in `out`; whoever drives it sends and clears them."""

    def __init__(self, *, bytes_in_flight_max: int = limits.CONNECTION_IN_FLIGHT_BYTES_MAX) -> None:
        self.out: Pieces = []
        self.hello: Hello | None = None
        self.unsent = 0  # bytes in `out`
        self.seen = 0  # the newest commit index that the peer knows of
        self.requests = 0
        self.frames = 0  # that came as a whole
        self._bytes_in_flight_max = bytes_in_flight_max
        self._parser = Parser(frame_bytes_max=limits.WIRE_HELLO_BYTES_MAX)
        self._preface = b""
        self._in_flight: dict[int, int] = {}  # number -> bytes; what lasts stays until it ends, without any
        self._bytes = 0
        self.for_many = False  # the peer is a broker, and waits for all its clients
        self._lasting: dict[int, bool] = {}  # may stay for ever: subscriptions (True) and watches
        self._paused = False
        self._dropped = False
        self._ending = False

    @property
    def bytes_in_flight(self) -> int:
        """Of requests that are not answered yet, and the memory for one that is not here as a whole."""
        return self._bytes + self._parser.taken

    @property
    def arriving(self) -> int:
        """The part of that which is memory for a frame that is not here as a whole."""
        return self._parser.taken

    @property
    def expected(self) -> int:
        """The bytes that such a frame will have; 0 if there is none."""
        return 0 if self._dropped else self._parser.expected

    @property
    def midway(self) -> bool:
        """Whether the peer is in the middle of something: its greeting, or a frame."""
        return self.hello is None or self._parser.held > 0

    @property
    def idle(self) -> bool:
        """Whether nothing that was asked for is owed an answer."""
        return not self._in_flight.keys() - self._lasting.keys()

    def owes(self, number: int) -> bool:
        """Whether that request is under way."""
        return number in self._in_flight

    def receive(self, data: bytes) -> Iterator[Effect]:
        """Bytes arrived."""
        if self._dropped:
            return
        try:
            if len(self._preface) < len(PREFACE):
                wanted = len(PREFACE) - len(self._preface)
                self._preface += data[:wanted]
                data = data[wanted:]
                if self._preface.startswith(_TLS):
                    raise Malformed("this is TLS, which is not spoken on this port: write braid://, or serve with TLS")
                if not PREFACE.startswith(self._preface[: len(PREFACE) - 3]):
                    raise Malformed("this is not the braid protocol")
                if len(self._preface) < len(PREFACE):
                    return
                self._gather([PREFACE])
                frames.check_preface(self._preface)
            for frame in self._parser.feed(data):
                yield from self._take(frame)
            yield from self._restrain()
        except Malformed as error:
            yield from self._drop(f"{error}")

    def room(self) -> memoryview | None:
        """Where the next bytes of a large frame are to be put; None: they are to be given to `receive`."""
        return None if self._dropped else self._parser.room()

    def filled(self, count: int) -> Iterator[Effect]:
        """So many bytes were put into the room."""
        if self._dropped:
            return
        try:
            for frame in self._parser.filled(count):
                yield from self._take(frame)
            yield from self._restrain()
        except Malformed as error:
            yield from self._drop(f"{error}")

    def _take(self, frame: Frame) -> Iterator[Effect]:
        self.seen = max(self.seen, frame.seen)
        self.frames += 1
        if frame.kind is Kind.NOTE and self.hello is not None:
            note = messages.decode_note(frame.head)
            if isinstance(note, Cancel) and frame.number in self._lasting:
                self._forget(frame.number)
            yield Heed(frame.number, note)
            yield from self._relieve()
            return
        if frame.kind is not Kind.REQUEST:
            raise Malformed(f"a {frame.kind.name} is nothing that a client sends" + ("" if self.hello else " at first"))
        request = messages.decode_request(frame.head)
        if isinstance(request, Hello) == (self.hello is not None):
            raise Malformed("a connection begins with one hello")
        if isinstance(request, Hello):
            if len(request.client) != limits.CLIENT_ID_BYTES:
                raise Malformed(f"a client's id has {limits.CLIENT_ID_BYTES} bytes, not {len(request.client)}")
            if frame.body.data:
                raise Malformed("a hello has no body")
            self.hello = request
        if self._ending:
            return
        if frame.number in self._in_flight:
            raise Malformed(f"request {frame.number} is under way already")
        self.requests += 1
        if frame.body.data and not isinstance(request, Append):
            self._in_flight[frame.number] = 0
            kind = type(request).__name__.lower()
            self.refuse(
                frame.number, InvalidArgument(f"a {kind} has no body, and this one has {len(frame.body.data):,} B")
            )
            return
        lasting = isinstance(request, Subscribe | Watch | Await)
        size = 0 if lasting else len(frame.head) + len(frame.body.data)  # nothing of its frame is kept while it lasts
        self._in_flight[frame.number] = size
        self._bytes += size
        if lasting:
            self._lasting[frame.number] = isinstance(request, Subscribe)
        lasting_max = limits.BROKER_SUBSCRIPTIONS_MAX if self.for_many else limits.CONNECTION_SUBSCRIPTIONS_MAX
        if len(self._lasting) > lasting_max:
            self.refuse(
                frame.number, InvalidArgument("too many subscriptions and watches on one connection: close some")
            )
            return
        yield Do(frame.number, request, frame.body)
        yield from self._restrain()

    def _restrain(self) -> Iterator[Effect]:
        """A frame by itself is never kept from becoming whole: only what is under way can be waited for."""
        if not self._paused and (
            (self._bytes and self.bytes_in_flight > self._bytes_in_flight_max)
            or len(self._in_flight) - len(self._lasting) > limits.CONNECTION_REQUESTS_MAX
        ):
            self._paused = True
            yield Pause()

    def answer(self, number: int, seen: int, answer: Answer, body: Pieces | None = None) -> Iterator[Effect]:
        """A request is done. For a subscription this is its first answer, and it goes on."""
        if number not in self._in_flight:
            return  # cancelled meanwhile
        self._write(Kind.ANSWER, number, seen, answer, body)
        if isinstance(answer, Welcome):  # from now on it may send what is large
            self._parser.frame_bytes_max = limits.WIRE_FRAME_BYTES_MAX
        if not self._lasting.get(number):
            self._forget(number)
        yield from self._relieve()

    def refuse(self, number: int, error: BraidError, seen: int = 0) -> None:
        """A request failed."""
        if number in self._in_flight:
            self._write(Kind.ERROR, number, seen, fault_of(error))
            self._forget(number)

    def push(self, number: int, seen: int, answer: Answer, body: Pieces | None = None, *, last: bool = False) -> None:
        """More of a subscription."""
        if number in self._lasting:
            self._write(Kind.PUSH, number, seen, answer, body)
            if last:
                self._forget(number)

    def reject(self, error: BraidError) -> None:
        """The peer may not go on, or not even begin: it is told why, and nothing else from now on."""
        if len(self._preface) < len(PREFACE):  # it has not said a word yet, and was not answered
            self._gather([PREFACE])
        self._write(Kind.ERROR, 0, 0, fault_of(error))
        self._dropped = True

    def relieved(self) -> Iterator[Effect]:
        """To be asked after `refuse`: whether the peer may be listened to again."""
        yield from self._relieve()

    def end(self) -> None:
        """Take no more requests. What was taken is still to be answered."""
        if not self._ending and not self._dropped:
            self._ending = True
            if self.hello is not None:
                self._gather(frames.encode(Kind.GOODBYE, 0, 0, b""))

    def lost(self) -> None:
        """The connection is gone. What was taken counts until it is answered, though nobody hears the answer."""
        self._dropped = True
        self.take_out()
        self._parser = Parser()
        for number in list(self._lasting):
            self._forget(number)

    def take_out(self, bytes_max: int | None = None) -> Pieces:
        """What is to be sent, for its sender; the first bytes of it, if that is more than he wants to have at once."""
        if bytes_max is None or self.unsent <= bytes_max:
            out, self.out, self.unsent = self.out, [], 0
            return out
        self.unsent -= bytes_max
        for number, piece in enumerate(self.out):
            if bytes_max < len(piece):
                out, self.out = self.out[:number], self.out[number:]
                if bytes_max:
                    whole = memoryview(piece)
                    out.append(whole[:bytes_max])
                    self.out[0] = whole[bytes_max:]
                return out
            bytes_max -= len(piece)
        raise AssertionError("fewer bytes are there than were counted")

    def _relieve(self) -> Iterator[Effect]:
        if (
            self._paused
            and self._bytes <= self._bytes_in_flight_max // 2
            and len(self._in_flight) - len(self._lasting) <= limits.CONNECTION_REQUESTS_MAX // 2
        ):
            self._paused = False
            yield Resume()

    def _gather(self, pieces: Pieces) -> None:
        self.out.extend(pieces)
        self.unsent += sum(map(len, pieces))

    def _forget(self, number: int) -> None:
        self._bytes -= self._in_flight.pop(number, 0)
        self._lasting.pop(number, None)

    def _write(self, kind: Kind, number: int, seen: int, answer: Answer, body: Pieces | None = None) -> None:
        if self._dropped:
            return
        head = messages.encode(answer)
        size = len(head) + sum(map(len, body or []))
        if size > limits.WIRE_FRAME_BYTES_MAX:  # the peer would hang up, connect again, and ask for it again
            refusal = fault_of(
                InvalidArgument(
                    f"the answer has {size:,} bytes, and may have at most {limits.WIRE_FRAME_BYTES_MAX:,}: ask for less"
                )
            )
            if kind is Kind.PUSH:
                self._gather(frames.encode(kind, number, seen, messages.encode(Ending("failed", error=refusal))))
                self._forget(number)
            else:
                self._gather(frames.encode(Kind.ERROR, number, seen, messages.encode(refusal)))
            return
        self._gather(frames.encode(kind, number, seen, head, *_in_few(body or [])))

    def _drop(self, reason: str) -> Iterator[Effect]:
        self._write(Kind.ERROR, 0, 0, fault_of(InvalidArgument(f"the connection is closed: {reason}")))
        self._dropped = True
        yield Drop(reason)


def _in_few(pieces: Pieces) -> Pieces:
    """Small pieces are joined, which costs less than to send each; large ones are not, which would cost more."""
    if len(pieces) < 2 or sum(map(len, pieces)) > _JOINED_BYTES_MAX * len(pieces):
        return pieces
    return [b"".join(pieces)]
