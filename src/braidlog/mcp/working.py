"""The tools that change something: forks, what is written on them, and how they end. Never a root."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from braidlog import Log, Record, limits
from braidlog.agents.names import AGENT_LABEL, is_system
from braidlog.agents.policy import Rule
from braidlog.errors import AlreadyExists, BraidError, ConditionFailed, InvalidArgument, NotFound, NotPermitted
from braidlog.mcp import schemas, showing
from braidlog.mcp.house import Work
from braidlog.mcp.looking import told_of
from braidlog.mcp.models import AppendedOut, ForkName, ForkOut, LogName, RecordIn, SquashedOut

REQUEST_LABEL = "braidlog.request"  # of a fork: which request made it, so that the same one does not make another
PURPOSE_LABEL = "purpose"
_NOWHERE: Final = 2**62  # a tail that no log has

RequestKey = Annotated[
    str | None,
    Field(
        description="any text of yours: the same key again does not do it twice", max_length=limits.MCP_KEY_CHARS_MAX
    ),
]


def create_fork(
    work: Work,
    log: LogName,
    name: Annotated[str | None, Field(description="how its name is to end; made up if left out")] = None,
    kind: Annotated[
        Literal["live", "severed"],
        Field(description="live: goes on receiving what the log gets; severed: a snapshot that gets nothing more"),
    ] = "live",
    promotable: Annotated[
        bool, Field(description="holds the log until it is decided: only where the policy promotes by validators alone")
    ] = False,
    at: Annotated[int | None, Field(description="severed: share the positions below this", ge=0)] = None,
    at_time: Annotated[
        str | None, Field(description="severed: share what was there before this time, ISO 8601")
    ] = None,
    ttl_s: Annotated[float | None, Field(description="squash it after so many seconds", gt=0)] = None,
    purpose: Annotated[str, Field(description="what for", max_length=limits.MCP_PURPOSE_CHARS_MAX)] = "",
    request_key: RequestKey = None,
) -> ForkOut:
    """Fork a log: a view of your own that costs nothing, on which you may write without anybody else seeing it. It ends
    by itself after its time to live. The same name or request_key again answers the same fork."""
    found = work.log(log)
    decides = work.house.policy.rule(log)
    root, rule = work.limits_for(found)
    if kind == "live" and (at is not None or at_time is not None):
        raise InvalidArgument("a live fork begins at the tail: at and at_time are for kind = 'severed'")
    if kind == "severed" and promotable:
        raise InvalidArgument("a severed fork cannot be promoted: leave promotable out, or make a live one")
    if promotable and not decides.promotable:
        raise NotPermitted(
            f"the policy for {log!r} is promotion = {decides.promotion!r}, so agents do not hold it: make a fork that "
            "is not promotable" + (", and `propose_promotion` of it" if decides.promotion == "review" else "")
        )
    if promotable and found.info().kind != "root":
        work.own_fork(log, "hold")  # what it is promoted into is written to
    full = _full_name(work, log, rule, name, request_key)
    labels = {AGENT_LABEL: work.caller.name}
    if request_key is not None:
        labels[REQUEST_LABEL] = request_key
    if purpose:
        labels[PURPOSE_LABEL] = purpose
    shared = _position(found, at, at_time)
    with work.house.budgets.making(work.caller.name):
        existing = _existing(work, full, log, kind, promotable, request_key, shared)
        if existing is not None:
            return ForkOut(fork=told_of(work, existing), created=False)
        _check_number(work, root, rule)
        work.check()
        ttl = min(ttl_s or rule.fork_ttl, rule.fork_ttl)
        if kind == "severed":
            made = found.sfork(full, at=shared, ttl=ttl, labels=labels)
        else:
            lease = _lease(work, log, decides) if promotable else None
            made = found.cfork(full, promotable=promotable, ttl=ttl, lease=lease, labels=labels)
        if promotable:
            work.house.holding.begun(work.caller.name, log, full)
    work.about(made)
    note = None
    if promotable:
        note = f"{log} cannot be read beyond the fork point until this is decided: propose or squash it soon"
    return ForkOut(fork=told_of(work, made), created=True, note=note)


def _full_name(work: Work, log: str, rule: Rule, name: str | None, request_key: str | None) -> str:
    prefix = rule.fork_prefix(log, work.caller.name)
    if name is None:
        name = secrets.token_hex(4)
        if request_key is not None:
            name = hashlib.sha256(request_key.encode()).hexdigest()[:12]
    full = name if name.startswith(prefix) else prefix + name
    if is_system(full):
        raise NotPermitted(f"{full!r} would be a system log: choose another name")
    return full


def _existing(
    work: Work, full: str, log: str, kind: str, promotable: bool, request_key: str | None, shared: int | None
) -> Log | None:
    """The fork that the same request made before."""
    try:
        found = work.caller.braid.log(full)
    except (NotFound, NotPermitted):  # a service says of no name that it is free, if the token does not cover it
        return None
    info = found.info()
    same = (
        info.labels.get(AGENT_LABEL) == work.caller.name
        and info.parent == log
        and info.kind == ("cfork" if kind == "live" else "sfork")
        and info.promotable == promotable
        and info.labels.get(REQUEST_LABEL) == request_key
        and shared in (None, info.fork_point)
    )
    if not same:
        raise AlreadyExists(f"{full!r} is there already, and is not what this request makes: choose another name")
    return found


def _check_number(work: Work, root: str, rule: Rule) -> None:
    agent = work.caller.name
    mine: list[str] = []
    for log in work.caller.braid.logs():
        try:
            if not is_system(log.name) and log.info().labels.get(AGENT_LABEL) == agent:
                mine += [log.name] if log.lineage()[-1].name == root else []
        except BraidError:
            continue  # it ended meanwhile, or is not for this caller
    if len(mine) >= rule.forks:
        named = ", ".join(sorted(mine)[:5])
        raise ConditionFailed(
            f"{agent!r} has {len(mine)} forks of {root!r}, and may have {rule.forks}: "
            + (f"squash one first ({named})" if mine else "the policy lets agents make none")
        )


def _lease(work: Work, log: str, rule: Rule) -> float:
    """How long the agent may hold a log, which depends on how long it has."""
    agent = work.caller.name
    ages = {hold.fork: hold.age for hold in work.house.desk.holds() if (hold.agent, hold.log) == (agent, log)}
    return min(work.house.holding.grant(agent, log, ages, rule.hold), limits.HOLD_LEASE_MAX_S)


def _position(log: Log, at: int | None, at_time: str | None) -> int | None:
    if at is not None and at_time is not None:
        raise InvalidArgument("give at or at_time, not both")
    return at if at_time is None else log.position_at(showing.micros_of("at_time", at_time))


def append_records(
    work: Work,
    fork: ForkName,
    records: Annotated[
        list[RecordIn], Field(min_length=1, max_length=limits.MCP_APPEND_RECORDS_MAX, description="as one atomic batch")
    ],
    schema: Annotated[
        dict[str, Any] | Literal["inferred"] | None,
        Field(description="a JSON schema that all must satisfy, or 'inferred': the one that the log's history shows"),
    ] = None,
    expected_tail: Annotated[int | None, Field(description="only if the first will stand there", ge=0)] = None,
    request_key: RequestKey = None,
) -> AppendedOut:
    """Append records to a fork that you made. Nobody sees them but who reads the fork."""
    log, _ = work.own_fork(fork, "append to")
    taken = [_record(number, record) for number, record in enumerate(records)]
    size = sum(record.size for record in taken)
    if size > limits.MCP_APPEND_BYTES_MAX:
        raise InvalidArgument(
            f"{size:,} bytes are too many for one call: append {limits.MCP_APPEND_BYTES_MAX:,} at most"
        )
    root, rule = work.limits_for(log)
    writer = None if request_key is None else _writer(work.caller.name, request_key)
    budgets = work.house.budgets
    if schema is not None:
        schemas.check(taken, schemas.inferred(log) if schema == "inferred" else schemas.given(schema))
    with budgets.writing(log) as info:
        known, done = (False, None) if writer is None else _done_before(log, writer)
        left = rule.fork_bytes - info.own_bytes
        if not known:
            work.check()
            left = budgets.spend(work.caller.name, info, root, size, rule)
            once = None if writer is None else 1
            done = log.append_many(taken, expected_tail=expected_tail, writer=writer, sequence=once)
    if done is None:
        raise ConditionFailed(f"{fork!r} is held by an undecided fork of it: its records stand when that is decided")
    return AppendedOut(fork=fork, first=done.start, count=len(done), bytes_left=left)


def _writer(agent: str, request_key: str) -> str:
    """What an append with that key is known by. What is too long is cut, and what was cut still counts."""
    text = f"{agent}/{request_key}"
    if len(text) <= limits.WRITER_CHARS_MAX:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: limits.WRITER_CHARS_MAX - len(digest) - 1]}#{digest}"


def _done_before(log: Log, writer: str) -> tuple[bool, range | None]:
    """Whether that writer has appended already, and where. A repeated append is known before anybody looks where it is
    to stand, or at its records, so an empty one that can stand nowhere finds out, and changes nothing."""
    try:
        return True, log.append_many([b""], expected_tail=_NOWHERE, writer=writer, sequence=1)
    except ConditionFailed:
        return False, None


def _record(number: int, given: RecordIn) -> Record:
    value = given.value
    if given.base64:
        if not isinstance(value, str):
            raise InvalidArgument(f"record {number}: base64 is a text")
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidArgument(f"record {number} is not base64: {error}") from None
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
    else:
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Record(
        data,
        None if given.key is None else given.key.encode("utf-8", "surrogatepass"),
        tuple((name, text.encode("utf-8", "surrogatepass")) for name, text in (given.headers or {}).items()),
        0 if given.time is None else showing.micros_of(f"time of record {number}", given.time),
    )


def squash_fork(work: Work, fork: ForkName) -> SquashedOut:
    """End a fork that you made, with what is on it and live forks of it. It cannot be undone."""
    log, _ = work.own_fork(fork, "squash")
    log.squash()
    work.house.holding.ended(fork)
    return SquashedOut(fork=fork, squashed=True)
