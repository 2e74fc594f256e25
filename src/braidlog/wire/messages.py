"""What is said over the wire: the heads of frames, as msgpack arrays that begin with the name of the message.

Every request has one kind of answer, named beside it. A field may be added at the end of a message, with a default;
none is ever removed or gets another meaning.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from braidlog.facts import Ancestor, Consumer, Info, Outcome, Plan
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.wire.frames import Malformed

# --- requests ----------------------------------------------------------------------------------------------------


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """The first request of a connection. `client` are the first eight bytes of the ids of its requests.

    The client has all answers to its requests with numbers below `floor`, and will not ask for them again.
    """

    client: bytes
    floor: int = 0
    name: str = ""  # for people: a program and a process
    link: bytes = b""  # one at a time has a connection: a newer one ends the older. Empty: any number have
    token: str = ""  # who the client is. It travels nowhere else

    def __repr__(self) -> str:
        """Without what is secret."""
        shown = "a token" if self.token else "no token"
        return f"Hello({self.client.hex()}, {self.floor}, {self.name!r}, {self.link.hex()}, {shown})"


class Append(Struct, tag="append", array_like=True, frozen=True):
    """One atomic batch. The body is the batch as msgpack, or, with `block`, as an Arrow record batch message.

    `since` is not NONE when this is not the first time that it is sent: what the sender had seen when it first was.
    Answer: Result.
    """

    command: c.Append
    block: bool = False
    since: int = NONE


class Execute(Struct, tag="execute", array_like=True, frozen=True):
    """Any other change. The server's clock counts: times in the command are replaced. Answer: Result."""

    command: c.Command
    since: int = NONE


class Find(Struct, tag="find", array_like=True, frozen=True):
    """The number of the log of that name. Answer: Number."""

    name: str


class ListLogs(Struct, tag="list", array_like=True, frozen=True):
    """All living logs; with `scopes`, those of which they let `principal` read. Answer: Listing."""

    principal: str = ""
    scopes: list[str] | None = None


class NameOf(Struct, tag="name", array_like=True, frozen=True):
    """Answer: Text."""

    log: int


class EndOf(Struct, tag="end", array_like=True, frozen=True):
    """How a log ended. Answer: Ending."""

    log: int


class Tail(Struct, tag="tail", array_like=True, frozen=True):
    """The first position that cannot be read now. Answer: Number."""

    log: int


class Describe(Struct, tag="describe", array_like=True, frozen=True):
    """Answer: Described."""

    log: int


class Lineage(Struct, tag="lineage", array_like=True, frozen=True):
    """Answer: Ancestors."""

    log: int


class Recall(Struct, tag="recall", array_like=True, frozen=True):
    """What became of a request. Answer: Recalled."""

    request: bytes
    request_id: str


class Consumers(Struct, tag="consumers", array_like=True, frozen=True):
    """Answer: ConsumerList."""

    log: int


class Read(Struct, tag="read", array_like=True, frozen=True):
    """Records from `start` on, up to `stop` or as far as can be read now, of about `max_bytes` at most, but one at
    least. Answer: Parts; the body holds their bytes. With `arrow` all of them are Arrow record batch messages."""

    log: int
    start: int
    stop: int | None = None
    max_bytes: int = 0
    arrow: bool = False


class Locate(Struct, tag="locate", array_like=True, frozen=True):
    """Where the records of such a read are, for a broker that fetches them. Answer: Located; the body holds the bytes
    of what is in no object yet."""

    log: int
    start: int
    stop: int | None = None
    max_bytes: int = 0


class PlanRange(Struct, tag="plan", array_like=True, frozen=True):
    """Where the bytes of a range are, or of as much of it as an answer holds. Answer: Planned."""

    log: int
    start: int
    stop: int | None = None


class PositionAt(Struct, tag="position_at", array_like=True, frozen=True):
    """The first position whose timestamp is not before the moment. Answer: Number."""

    log: int
    moment_us: int


class Watch(Struct, tag="watch", array_like=True, frozen=True):
    """Answered when anything about the log or its relatives has changed since `since`. Answer: Number."""

    log: int
    since: int


class Subscribe(Struct, tag="subscribe", array_like=True, frozen=True):
    """Records from `position` on, pushed as they become readable. Answer: Number, how far they are now; then pushes
    follow, each Parts with a body, until one is Ending. `credit` is how many bytes may be pushed before a Credit note
    allows more."""

    log: int
    position: int
    credit: int


class Ping(Struct, tag="ping", array_like=True, frozen=True):
    """Whether the server still listens. Answer: Number, of no meaning."""


class Route(Struct, tag="route", array_like=True, frozen=True):
    """Where a log is best asked for. Answer: Text, host:port, empty for here."""

    log: int


class Join(Struct, tag="join", array_like=True, frozen=True):
    """A broker introduces itself to the metadata, and again after each loss of the connection. `epoch` is the one that
    it has been given before, if any. Answer: Joined."""

    name: str
    address: str
    epoch: int = NONE


class Bind(Struct, tag="bind", array_like=True, frozen=True):
    """Commands of a broker's clients, admitted by it, and what they need: to be applied in this order, if they can be
    together. The metadata's clock counts. For `since` see Append. Answer: Bound."""

    commands: list[c.Command]
    since: int = NONE


class Await(Struct, tag="await", array_like=True, frozen=True):
    """Answered when the log is another than its asker believes. Answer: Stamped."""

    log: int
    readable: int
    tail: int
    holder: int
    held: int
    epoch: int


class Kinship(Struct, tag="kinship", array_like=True, frozen=True):
    """Whose tree a log belongs to, and whether it is a fork. Answer: Kin."""

    log: int


class Identify(Struct, tag="identify", array_like=True, frozen=True):
    """Who those are whose tokens have these digests. Answer: Identities."""

    digests: list[bytes]


class ListTokens(Struct, tag="list_tokens", array_like=True, frozen=True):
    """All tokens, without what is secret. Answer: TokenList."""


class Status(Struct, tag="status", array_like=True, frozen=True):
    """What the server is and how it fares. Answer: StatusReport."""


Request = (
    Hello
    | Append
    | Execute
    | Find
    | ListLogs
    | NameOf
    | EndOf
    | Tail
    | Describe
    | Lineage
    | Recall
    | Consumers
    | Read
    | Locate
    | PlanRange
    | PositionAt
    | Watch
    | Subscribe
    | Ping
    | Route
    | Join
    | Bind
    | Await
    | Kinship
    | Status
    | Identify
    | ListTokens
)

# --- notes -------------------------------------------------------------------------------------------------------


class Floor(Struct, tag="floor", array_like=True, frozen=True):
    """See Hello."""

    floor: int


class Credit(Struct, tag="credit", array_like=True, frozen=True):
    """So many more bytes may be pushed for the subscription of this number."""

    bytes: int


class Cancel(Struct, tag="cancel", array_like=True, frozen=True):
    """Nobody waits any more for the watch or subscription of this number."""


Note = Floor | Credit | Cancel

# --- answers -----------------------------------------------------------------------------------------------------


class Welcome(Struct, tag="welcome", array_like=True, frozen=True):
    """Who answers, and what it takes. `objects` is the folder of the objects, or the URL of their store. `principal` is
    who the client proved to be, by its token or its certificate; empty if by neither."""

    server: str
    role: str
    objects: str | None
    outstanding_bytes_max: int
    principal: str = ""


class Result(Struct, tag="result", array_like=True, frozen=True):
    result: c.Result


class Number(Struct, tag="number", array_like=True, frozen=True):
    value: int


class Text(Struct, tag="text", array_like=True, frozen=True):
    value: str


class Listing(Struct, tag="listing", array_like=True, frozen=True):
    logs: list[tuple[int, str]]


class Ending(Struct, tag="ending", array_like=True, frozen=True):
    """How a log ended, and the name it goes on under; `kind` is empty while it lives.

    Pushed, it ends a subscription: `kind` is a reason of EndOfLog, and after "failed" `error` says what failed."""

    kind: str
    name: str = ""
    into: int = NONE
    position: int = 0
    into_name: str = ""
    error: Fault | None = None


class Described(Struct, tag="described", array_like=True, frozen=True):
    info: Info


class Ancestors(Struct, tag="ancestors", array_like=True, frozen=True):
    steps: list[Ancestor]


class Recalled(Struct, tag="recalled", array_like=True, frozen=True):
    """An Outcome, its range of positions as two numbers."""

    request_id: str
    what: str
    log: str | None
    first: int
    count: int
    withheld: bool
    promoted: bool | None

    @classmethod
    def of(cls, outcome: Outcome) -> Recalled:
        at = outcome.positions
        first, count = (NONE, 0) if at is None else (at.start, len(at))
        return cls(outcome.request_id, outcome.what, outcome.log, first, count, outcome.withheld, outcome.promoted)

    def outcome(self) -> Outcome:
        positions = None if self.first == NONE else range(self.first, self.first + self.count)
        return Outcome(
            request_id=self.request_id,
            what=self.what,
            log=self.log,
            positions=positions,
            withheld=self.withheld,
            promoted=self.promoted,
        )


class ConsumerList(Struct, tag="consumer_list", array_like=True, frozen=True):
    consumers: list[Consumer]


class Part(NamedTuple):
    """`rows` records from `position` on, in the next `length` bytes of the body: a batch as msgpack, or with `arrow`
    an Arrow record batch message. `own`: they were appended to this very log, not inherited."""

    position: int
    rows: int
    length: int
    arrow: bool
    own: bool


class Parts(Struct, tag="parts", array_like=True, frozen=True):
    """In order, without gaps. `next` is where the following read goes on; there was more to be read if it is below
    `readable`. `fork_point` and `name` are the log's."""

    parts: list[Part]
    next: int
    readable: int
    fork_point: int = 0
    name: str = ""


class Piece(NamedTuple):
    """`rows` records from `position` on: those from `row` on of the block at `offset` of `object`. Where that is empty
    they stand in no object yet, and the next `length` bytes of the body are the batch; `whole`: all of it."""

    position: int
    rows: int
    row: int
    whole: bool
    own: bool
    object: str
    offset: int
    length: int
    crc: int


class Located(Struct, tag="located", array_like=True, frozen=True):
    """Pieces in order, without gaps; for the rest see Parts."""

    pieces: list[Piece]
    next: int
    readable: int
    fork_point: int
    name: str


class Planned(Struct, tag="planned", array_like=True, frozen=True):
    """`end` is how far the range can be planned that was asked for: if the plan stops before, ask for what is behind.
    -1: this is all of it."""

    plan: Plan
    end: int = NONE


class StatusReport(Struct, tag="status_report", array_like=True, frozen=True):
    """Free of form: numbers and texts by name, for people and their tools."""

    values: dict[str, int | float | str]
    rows: dict[str, list[dict[str, int | float | str | None]]] = {}


class Joined(Struct, tag="joined", array_like=True, frozen=True):
    """The epoch that the broker stores objects under."""

    epoch: int


class Bound(Struct, tag="bound", array_like=True, frozen=True):
    """What each command came to."""

    results: list[c.Result | Fault]


class Stamped(Struct, tag="stamped", array_like=True, frozen=True):
    """What is to be known of a log by those who wait for it; `readable` is -1 once it is no more."""

    readable: int
    tail: int
    holder: int
    held: int
    epoch: int


class Kin(Struct, tag="kin", array_like=True, frozen=True):
    """The root of the log's tree; a severed fork counts to the tree that it came from, while that lives."""

    root: int
    fork: bool
    name: str = ""
    root_name: str = ""
    owner: str = ""
    parent: int = NONE  # of a live fork


class Identity(Struct, array_like=True, frozen=True):
    """Who has a token that is valid now, and what it allows."""

    name: str
    scopes: list[str]


class Identities(Struct, tag="identities", array_like=True, frozen=True):
    """In the order in which they were asked for. `required`: there are tokens, and nobody comes in without."""

    known: list[Identity | None]
    required: bool


class TokenInfo(Struct, array_like=True, frozen=True):
    """Times are microseconds since 1970; `expires` is -1 for never."""

    name: str
    scopes: list[str]
    created: int
    expires: int


class TokenList(Struct, tag="token_list", array_like=True, frozen=True):
    tokens: list[TokenInfo]


class Fault(Struct, tag="fault", array_like=True, frozen=True):
    """An error of braidlog.errors by the name of its class, with what its constructor takes besides the message."""

    kind: str
    message: str
    details: dict[str, int | str | None] = {}


Answer = (
    Welcome
    | Result
    | Number
    | Text
    | Listing
    | Ending
    | Described
    | Ancestors
    | Recalled
    | ConsumerList
    | Parts
    | Located
    | Planned
    | StatusReport
    | Joined
    | Bound
    | Stamped
    | Kin
    | Identities
    | TokenList
    | Fault
)

T = TypeVar("T")

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_notes: Final[msgspec.msgpack.Decoder[Note]] = msgspec.msgpack.Decoder(Note)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)

encode = _encoder.encode


def decode_request(head: memoryview) -> Request:
    """Raises Malformed, like the others."""
    return _decode(_requests, head)


def decode_note(head: memoryview) -> Note:
    return _decode(_notes, head)


def decode_answer(head: memoryview) -> Answer:
    return _decode(_answers, head)


def _decode(decoder: msgspec.msgpack.Decoder[T], head: memoryview) -> T:
    try:
        return decoder.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"a message that cannot be understood: {error}") from error
