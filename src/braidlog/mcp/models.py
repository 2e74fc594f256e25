"""What the tools take and answer. What there is nothing to say of is left out: an agent's context is dear."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer

from braidlog import limits

Encoding = Literal["json", "text", "base64"]


class Told(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid")

    @model_serializer(mode="wrap")
    def _without_nothing(self, serialize: Any) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class RecordOut(Told):
    position: int
    time: str = Field(description="ISO 8601, UTC")
    value: Any = Field(description="JSON, text or base64, as `encoding` says")
    encoding: Encoding
    key: str | None = None
    headers: dict[str, str] | None = None
    own: bool | None = Field(None, description="whether it is the fork's own, not one that its parent got")
    cut: int | None = Field(None, description="the value was cut: it has so many bytes")


class RecordIn(BaseModel):
    """A record to be appended."""

    model_config = ConfigDict(extra="forbid")

    value: Any = Field(description="a text as it is, or any JSON")
    key: str | None = None
    headers: dict[str, str] | None = None
    time: str | None = Field(None, description="ISO 8601; now, if left out")
    base64: bool = Field(False, description="`value` is base64 of bytes")


class HoldOut(Told):
    """A promotable fork that is undecided: its parent can be read up to the fork point."""

    fork: str
    since: str
    age_s: float
    lease_expires: str | None = None


class LogOut(Told):
    name: str
    kind: Literal["root", "cfork", "sfork"] = Field(description="cfork: live, follows its parent; sfork: severed")
    parent: str | None = None
    fork_point: int | None = None
    promotable: bool | None = None
    start: int = Field(description="the first position there is")
    tail: int = Field(description="the next position")
    readable_tail: int | None = Field(None, description="where reading ends now, because of a hold")
    held_by: list[HoldOut] | None = None
    ahead: int | None = Field(None, description="records of its own, that its parent does not have")
    behind: int | None = Field(None, description="records of its parent that it does not have")
    mine: bool | None = Field(None, description="made by you: you may append to it and squash it")
    agent: str | None = None
    expires: str | None = None
    lease_expires: str | None = None
    labels: dict[str, str] | None = None


class LogsOut(Told):
    logs: list[LogOut]
    cursor: str | None = Field(None, description="there are more: pass it on")


class KeysOut(Told):
    with_key: int
    distinct: int
    estimate: int | None = None
    most_frequent: dict[str, int]


class DescriptionOut(Told):
    log: LogOut
    lineage: list[str]
    records: int
    bytes: int
    format: str
    formats: dict[str, int] = Field(description="of the sampled records")
    sampled: int
    json_schema: dict[str, Any] | None = Field(None, description="inferred from the sample")
    avro_schema_ids: list[int] | None = None
    first_time: str | None = None
    last_time: str | None = None
    records_per_s: float | None = Field(None, description=f"over the last {limits.DESCRIBE_RATE_S:g} s")
    bytes_per_s: float | None = None
    value_bytes_mean: float
    value_bytes_max: int
    keys: KeysOut | None = None
    sample: list[RecordOut]


class RecordsOut(Told):
    log: str
    records: list[RecordOut]
    cursor: str | None = Field(None, description="there are more: pass it on, with the same arguments")
    end: int = Field(description="where reading ends now")
    note: str | None = None


class MatchesOut(Told):
    log: str
    records: list[RecordOut]
    scanned: int
    cursor: str | None = Field(None, description="the range is not searched to its end: pass it on")


class QueryOut(Told):
    log: str
    start: int
    stop: int
    columns: dict[str, str] = Field(description="name and type, in order; a name that comes again is a_2")
    rows: list[list[Any]]
    truncated: bool | None = None
    records: int
    engine: Literal["spark"] | None = Field(None, description="if not DuckDB")


class DiffOut(Told):
    fork: str
    parent: str
    fork_point: int
    own: int
    arrived: int = Field(description="records that the parent got since, and the fork sees")
    records: list[RecordOut]
    cursor: str | None = None


class ForkOut(Told):
    fork: LogOut
    created: bool = Field(description="false: it was there already, made by the same request")
    note: str | None = None


class AppendedOut(Told):
    fork: str
    first: int
    count: int
    bytes_left: int = Field(description="that may still be written on this fork")


class SquashedOut(Told):
    fork: str
    squashed: bool


class VerdictOut(Told):
    validator: str
    passed: bool
    reasons: list[str]
    positions: list[int] | None = None
    samples: list[str] | None = None
    seconds: float


class VerdictsOut(Told):
    fork: str
    verdicts: list[VerdictOut]


class ProposalOut(Told):
    id: str
    state: str
    fork: str
    parent: str
    title: str | None = None
    own: int
    verdicts: list[VerdictOut]
    reason: str | None = None
    reviewer: str | None = None
    reviewer_note: str | None = None
    expires: str | None = None
    note: str | None = None


class ProposalsOut(Told):
    proposals: list[ProposalOut]


# What several tools take.
LogName = Annotated[str, Field(description="name of a log or fork")]
ForkName = Annotated[str, Field(description="name of a fork that you made")]
Start = Annotated[int | None, Field(description="first position", ge=0)]
Stop = Annotated[int | None, Field(description="position to end before", ge=0)]
Since = Annotated[str | None, Field(description="from this time on, ISO 8601")]
Until = Annotated[str | None, Field(description="before this time, ISO 8601")]
Last = Annotated[int | None, Field(description="only the last so many records of the range", ge=1)]
Limit = Annotated[int, Field(description="records at most", ge=1, le=limits.MCP_RECORDS_MAX)]
MaxBytes = Annotated[
    int, Field(description="bytes of values at most; longer ones are cut", ge=100, le=limits.MCP_ANSWER_BYTES_MAX)
]
Cursor = Annotated[str | None, Field(description="from the answer before")]
