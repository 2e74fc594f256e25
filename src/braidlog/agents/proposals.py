"""What a proposal is, and how its events make it so. PURE.

    validating --> waiting --> approving --> promoted
        |            |  |          |
        +--> failed <---|----------+
        |            |  +--> rejected, expired, superseded
        +--> withdrawn

`validating`: its validators run. `waiting`: a person decides. `approving`: it was decided for, and is carried out.
The others are ends. A decision is an event first and carried out then, so an end may still have to be tidied up after.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import Struct, structs

from braidlog import limits
from braidlog.agents.policy import Rule
from braidlog.agents.verdict import Finding

End = Literal["promoted", "rejected", "failed", "expired", "superseded", "withdrawn"]
State = Literal["validating", "waiting", "approving"] | End
OPEN: Final = ("validating", "waiting", "approving")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Excerpt(Struct, frozen=True):
    """A record, as much of it as can be shown."""

    position: int
    key: str | None
    value: str


class Summary(Struct, frozen=True, kw_only=True):
    """What a fork would bring into its parent, when it was proposed."""

    fork_point: int
    own: int
    own_bytes: int
    inherited: int  # records that the parent got since the fork point
    records: list[Excerpt] = []  # the first of its own


class Proposal(Struct, frozen=True, kw_only=True):
    """Records of a fork that somebody wants in its parent, and what became of that.

    Times are microseconds since 1970.
    """

    id: str
    state: State = "validating"
    fork: str
    fork_id: int
    parent: str
    parent_id: int
    agent: str
    title: str = ""
    note: str = ""
    own: int  # how many records of its own the fork had: they and no others are meant
    runs: list[tuple[int, int]] = []  # where those stand on it, until it has ended: from, up to
    direct: bool = False  # the fork itself is promotable, and promoted
    rule: Rule = Rule()  # what the policy said when it was proposed: that holds, whatever desk carries it out
    summary: Summary
    proposed_us: int
    expires_us: int | None = None
    findings: list[Finding] = []  # of the validators when it was proposed
    reviewer: str | None = None
    reviewer_note: str = ""
    decided_us: int | None = None
    rechecks: list[Finding] = []  # of the validators on the fork that was to be promoted
    reason: str = ""  # why it ended as it did
    claimed_by: str = ""  # the desk that works on it,
    claimed_until_us: int = 0  # and how long others leave it to that one
    attempts: int = 0  # to carry it out
    fresh: str | None = None  # the promotable fork that it is carried out on
    fresh_id: int | None = None
    parent_epoch: int = 0  # of the parent, when that one was made
    rechecked: bool = False
    tidied: bool = False  # nothing is left to be squashed

    @property
    def open(self) -> bool:
        """Whether it is still to be decided, or carried out."""
        return self.state in OPEN

    @property
    def replaceable(self) -> bool:
        """Whether another proposal of the same fork may take its place: not if it may be promoted at any moment."""
        return self.state == "waiting" or (self.state == "validating" and self.rule.promotion == "review")

    @property
    def proposed(self) -> datetime:
        """When it was proposed."""
        return moment_of(self.proposed_us)

    @property
    def expires(self) -> datetime | None:
        """When it stops waiting for a person."""
        return None if self.expires_us is None else moment_of(self.expires_us)

    @property
    def passed(self) -> bool:
        """Whether no validator had anything against it."""
        return all(finding.passed for finding in [*self.findings, *self.rechecks])


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened to a proposal. The nonce makes each one differ from all others."""

    id: str
    time_us: int
    nonce: str


class Proposed(Event, frozen=True, kw_only=True, tag="proposed"):
    proposal: Proposal


class Checked(Event, frozen=True, kw_only=True, tag="checked"):
    """The validators ran on what was proposed, and nobody objected."""

    findings: list[Finding]


class Approved(Event, frozen=True, kw_only=True, tag="approved"):
    reviewer: str
    note: str
    desk: str
    until_us: int


class Claimed(Event, frozen=True, kw_only=True, tag="claimed"):
    """A desk goes on with what was begun, or lets go of it (`until_us` is 0). What was checked is checked again."""

    desk: str
    until_us: int


class Opened(Event, frozen=True, kw_only=True, tag="opened"):
    """There is a fresh fork to carry it out on."""

    fresh: str
    fresh_id: int
    parent_epoch: int


class Lost(Event, frozen=True, kw_only=True, tag="lost"):
    """The fresh fork ended undecided, and another is to be made."""

    reason: str


class Rechecked(Event, frozen=True, kw_only=True, tag="rechecked"):
    """The validators ran on the fork that is to be promoted, and nobody objected."""

    findings: list[Finding]


class Ended(Event, frozen=True, kw_only=True, tag="ended"):
    """How it ended, and by whom if a person decided it."""

    state: End
    reason: str = ""
    reviewer: str | None = None
    findings: list[Finding] | None = None  # of the validators that were against it


class Tidied(Event, frozen=True, kw_only=True, tag="tidied"):
    """What was to be squashed is squashed."""


AnyEvent = Proposed | Checked | Approved | Claimed | Opened | Lost | Rechecked | Ended | Tidied

_decoder: Final[msgspec.json.Decoder[AnyEvent]] = msgspec.json.Decoder(AnyEvent)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> AnyEvent:
    """An event, from the bytes of its record."""
    return _decoder.decode(data)


def apply(known: dict[str, Proposal], event: AnyEvent) -> None:
    """Let an event happen. One that does not fit the state is without effect: another was there first."""
    if isinstance(event, Proposed):
        known.setdefault(event.id, event.proposal)
        return
    before = known.get(event.id)
    if before is not None:
        known[event.id] = _after(before, event)


def _after(before: Proposal, event: AnyEvent) -> Proposal:
    match event:
        case Checked() if before.state == "validating":
            if before.direct:
                return structs.replace(before, state="approving", findings=event.findings, rechecked=True)
            state: State = "waiting" if before.rule.promotion == "review" else "approving"
            return structs.replace(before, state=state, findings=event.findings)
        case Approved() if before.state == "waiting":
            return structs.replace(
                before,
                state="approving",
                reviewer=event.reviewer,
                reviewer_note=event.note,
                decided_us=event.time_us,
                claimed_by=event.desk,
                claimed_until_us=event.until_us,
            )
        case Claimed() if before.state in ("validating", "approving"):
            rechecked = before.rechecked and before.claimed_by == event.desk
            return structs.replace(before, claimed_by=event.desk, claimed_until_us=event.until_us, rechecked=rechecked)
        case Opened() if before.state == "approving" and before.fresh_id is None:
            return structs.replace(
                before, fresh=event.fresh, fresh_id=event.fresh_id, parent_epoch=event.parent_epoch, rechecked=False
            )
        case Lost() if before.state == "approving":
            return structs.replace(before, fresh_id=None, rechecked=False, attempts=before.attempts + 1)
        case Rechecked() if before.state == "approving":
            return structs.replace(before, rechecks=event.findings, rechecked=True)
        case Ended() if before.open or event.state == "promoted":
            return _ended(before, event)
        case Tidied() if not before.open:
            return structs.replace(before, tidied=True)
    return before


def _ended(before: Proposal, event: Ended) -> Proposal:
    after = structs.replace(
        before,
        state=event.state,
        reason=event.reason,
        reviewer=event.reviewer or before.reviewer,
        decided_us=event.time_us,
        runs=[],  # nobody copies it any more, and there may be many
    )
    if event.findings is None:
        return after
    if before.state == "validating":
        return structs.replace(after, findings=event.findings)
    return structs.replace(after, rechecks=event.findings)


def moment_of(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def shown(data: bytes) -> str:
    """Text that can be shown, of bytes that may be anything."""
    text = data[: 4 * limits.SUMMARY_CHARS_MAX].decode("utf-8", "backslashreplace")
    return text if len(text) <= limits.SUMMARY_CHARS_MAX else f"{text[: limits.SUMMARY_CHARS_MAX]}..."
