"""What can happen to a forest, and what it answers.

Every change of the forest is one of these commands, applied in the order in which they stand in the command log.
Commands carry whatever is not deterministic (the time, ids of requests, names of objects), so that applying the same
commands always gives the same state. Times are microseconds since the epoch.

`request` makes a command idempotent: one that was applied before answers what it answered then. Empty means none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from braidlog.facts import UploadedObject

NONE: Final = -1  # an integer field that was not given

if TYPE_CHECKING:
    Payload: TypeAlias = bytes | memoryview
else:  # it is decoded without a copy, and then keeps alive what it was decoded from
    Payload = memoryview


class Opened(Struct, tag="opened", array_like=True, frozen=True):
    """A writer took over, with an epoch of its own above all that were given before.

    What the writer before it stored can no longer be registered; what admitted uploaders store still can.
    """

    epoch: int
    now: int


class Create(Struct, tag="create", array_like=True, frozen=True):
    """A new root log."""

    name: str
    now: int
    discipline: str = "eager"
    retain_age_us: int = NONE
    retain_bytes: int = NONE
    labels: dict[str, str] = {}
    owner: str = ""
    request: bytes = b""


class Append(Struct, tag="append", array_like=True, frozen=True):
    """One atomic batch. Its bytes are `payload`, or, when that is empty, a block of the registered `object`."""

    log: int
    count: int
    size: int  # bytes of keys, values and headers
    least: int  # timestamps of the batch
    greatest: int
    payload: Payload = b""
    object: str = ""
    offset: int = 0
    length: int = 0
    crc: int = 0
    expected_tail: int = NONE
    writer: str = ""
    sequence: int = NONE
    request: bytes = b""
    row: int = 0  # where in the object's block it begins: appends of one log may share a block


class Upload(Struct, tag="upload", array_like=True, frozen=True):
    """An epoch for somebody who will store objects for one log and publish them. Answers the epoch."""

    log: int
    now: int
    ttl_us: int
    request: bytes = b""


class Publish(Struct, tag="publish", array_like=True, frozen=True):
    """Append the blocks of these objects, in this order, as one atomic batch, and end the uploads that they are of.

    Every object is of one of `epochs`, which are uploads of this log and live, and was never registered. Nothing looks
    into the objects: whoever sends this has made sure that they are in the store.
    """

    log: int
    objects: list[UploadedObject]
    epochs: list[int]
    now: int
    expected_tail: int = NONE
    writer: str = ""
    sequence: int = NONE
    request: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""
        return sum(block.size for uploaded in self.objects for block in uploaded.blocks)

    @property
    def weight(self) -> int:
        """About the bytes that it takes in a frame."""
        return 64 * (len(self.objects) + sum(len(uploaded.blocks) for uploaded in self.objects) + len(self.epochs))


class Discard(Struct, tag="discard", array_like=True, frozen=True):
    """End an upload of the log: its time is over, or nobody will publish it. One that ended is fine."""

    log: int
    epoch: int
    request: bytes = b""


class CFork(Struct, tag="cfork", array_like=True, frozen=True):
    """A live fork at the tail."""

    log: int
    name: str  # empty: the forest names it after its parent
    now: int
    promotable: bool = False
    ttl_us: int = NONE
    lease_us: int = NONE
    labels: dict[str, str] = {}
    owner: str = ""
    request: bytes = b""
    dedicated: bool = False  # a service should give it a broker of its own


class SFork(Struct, tag="sfork", array_like=True, frozen=True):
    """A severed fork of the first `at` positions, or of all there are."""

    log: int
    name: str
    now: int
    at: int = NONE
    ttl_us: int = NONE
    labels: dict[str, str] = {}
    owner: str = ""
    request: bytes = b""


class Promote(Struct, tag="promote", array_like=True, frozen=True):
    log: int
    expected_own: int = NONE
    expected_tail: int = NONE
    request: bytes = b""
    into: int = NONE  # the parent that it may become, if whoever asked may not decide for every log


class Squash(Struct, tag="squash", array_like=True, frozen=True):
    log: int
    cascade_severed: bool = False
    request: bytes = b""


class Drop(Struct, tag="drop", array_like=True, frozen=True):
    log: int
    cascade: bool = False
    request: bytes = b""


class Renew(Struct, tag="renew", array_like=True, frozen=True):
    log: int
    now: int
    request: bytes = b""


class Expire(Struct, tag="expire", array_like=True, frozen=True):
    """Time has run out for a fork, as somebody with a clock saw. A fork renewed meanwhile is left alone."""

    log: int
    now: int


class Trim(Struct, tag="trim", array_like=True, frozen=True):
    log: int
    before: int
    request: bytes = b""


class Retain(Struct, tag="retain", array_like=True, frozen=True):
    """Apply a log's retention as of `now`."""

    log: int
    now: int


class Commit(Struct, tag="commit", array_like=True, frozen=True):
    """A consumer has dealt with everything below `position`, or wants to begin there again."""

    log: int
    consumer: str
    position: int
    now: int
    request: bytes = b""


class ForgetConsumer(Struct, tag="forget-consumer", array_like=True, frozen=True):
    log: int
    consumer: str
    request: bytes = b""


class CreateToken(Struct, tag="create-token", array_like=True, frozen=True):
    """Whoever knows the secret with this SHA-256 is `name`, and may do what the scopes say, until it expires."""

    name: str
    digest: bytes
    scopes: list[str]
    now: int
    expires: int = NONE
    request: bytes = b""


class RevokeToken(Struct, tag="revoke-token", array_like=True, frozen=True):
    name: str
    request: bytes = b""


class Settle(Struct, tag="settle", array_like=True, frozen=True):
    """A client has its answers to all its requests below `floor`, and will never ask for them again.

    A client's first one (with floor 0) comes before its first request: from then on its outcomes are kept until it
    settles them.
    """

    client: bytes
    floor: int


class Again(Struct, tag="again", array_like=True, frozen=True):
    """A command that was sent before, first when its sender had seen the forest at `applied == since`, or later.

    It answers what it answered then. If it certainly never took effect it is applied as new; if that is not certain,
    the answer is OutcomeUnknown and nothing changes.
    """

    command: Command
    since: int

    @property
    def request(self) -> bytes:
        return b"" if isinstance(self.command, Again) else getattr(self.command, "request", b"")


class Admit(Struct, tag="admit", array_like=True, frozen=True):
    """An epoch for one more uploader of objects, beside the writer's own, until it is retired. Answers the epoch."""

    now: int
    request: bytes = b""


class Retire(Struct, tag="retire", array_like=True, frozen=True):
    """An admitted uploader is gone. What it stored and did not register never will be."""

    epoch: int
    request: bytes = b""


class Register(Struct, tag="register", array_like=True, frozen=True):
    """An object is in the store, and will be referred to."""

    object: str
    epoch: int
    size: int
    crc: int
    now: int


class PackedBlock(Struct, array_like=True, frozen=True):
    """One block of a new object that holds the records of `sources`, inline blocks of one log, in that order."""

    log: int
    offset: int
    length: int
    crc: int
    sources: list[int]
    counts: list[int]  # the rows of each source


class Pack(Struct, tag="pack", array_like=True, frozen=True):
    object: str
    blocks: list[PackedBlock]


class Move(Struct, array_like=True, frozen=True):
    """Where a block's rows stand now: from row `row` of the object's block at `offset`."""

    block: int
    offset: int
    length: int
    crc: int
    row: int


class Relocate(Struct, tag="relocate", array_like=True, frozen=True):
    """Blocks were copied into a registered object. Every log and fork follows."""

    object: str
    moves: list[Move]


class Collect(Struct, tag="collect", array_like=True, frozen=True):
    """Drop what no living log can read any more, and condemn the objects nothing refers to."""

    now: int


class Forget(Struct, tag="forget", array_like=True, frozen=True):
    """Condemned objects were deleted from the store."""

    objects: list[str]


Command = (
    Opened
    | Create
    | Append
    | Upload
    | Publish
    | Discard
    | CFork
    | SFork
    | Promote
    | Squash
    | Drop
    | Renew
    | Expire
    | Trim
    | Retain
    | Commit
    | ForgetConsumer
    | Settle
    | Again
    | Admit
    | Retire
    | Register
    | Pack
    | Relocate
    | Collect
    | Forget
    | CreateToken
    | RevokeToken
)


class Appended(Struct, tag=True, array_like=True, frozen=True):
    """The batch stands at `first`. `withheld`: a hold keeps that position from being told yet."""

    log: int
    first: int
    count: int
    block: int = NONE  # where its bytes are; NONE when the command was a repetition
    withheld: bool = False


class Opening(Struct, tag=True, array_like=True, frozen=True):
    """A log came to life."""

    log: int
    name: str


class Promotion(Struct, tag=True, array_like=True, frozen=True):
    """Whether the fork became its parent, and the logs that ended with it."""

    promoted: bool
    ended: list[int] = []


class Ended(Struct, tag=True, array_like=True, frozen=True):
    """These logs are no more."""

    logs: list[int]


class Done(Struct, tag=True, array_like=True, frozen=True):
    """Applied. `value` is the new start of a trim, the new deadline of a renewal, where a consumer stands (or stood, if
    it was forgotten), a client's floor, an epoch, or 0.
    """

    value: int = 0


class Collected(Struct, tag=True, array_like=True, frozen=True):
    """Inline blocks whose bytes may be dropped, and objects that may be deleted after the grace period."""

    blocks: list[int]
    condemned: list[str]


Result = Appended | Opening | Promotion | Ended | Done | Collected
