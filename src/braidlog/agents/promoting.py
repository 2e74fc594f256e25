"""Validate and promote, for those who decide themselves: no proposal, no person."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from braidlog import Braid, Info, Log
from braidlog.agents.checking import Checks
from braidlog.agents.running import Access, Bounds, Job, Stop, run
from braidlog.agents.verdict import Finding
from braidlog.client.endings import handle_of
from braidlog.errors import ConditionFailed, InvalidArgument, NotPromotable
from braidlog.facts import Ancestor


class Promotion(Struct, frozen=True, kw_only=True):
    """What became of a fork that was to be promoted, and what its validators said."""

    fork: str
    parent: str
    own: int
    promoted: bool
    findings: list[Finding]


def hidden(info: Info) -> str:
    """Why validators cannot see all that would be promoted; empty if they can.

    Asked before and after they looked: a start only grows, and records that come meanwhile are other than expected.
    """
    if info.fork_point is not None and info.start > info.fork_point:
        return (
            f"{info.name!r} was trimmed beyond its fork point: what is gone from sight would be promoted unseen; write "
            "the records on a new fork"
        )
    if info.readable_tail < info.tail:
        return (
            f"{info.name!r} can be read up to {info.readable_tail} of {info.tail} only: decide first about the fork "
            f"that holds {info.limited_by!r}"
        )
    return ""


def check_fork(info: Info) -> None:
    """InvalidArgument for a root, which differs from nothing."""
    if info.fork_point is None:
        raise InvalidArgument(f"{info.name!r} is a root: only what is on a fork can be validated")


def parent_of(fork: Log, info: Info) -> Ancestor:
    """What a fork is to be promoted into, by name and number: if that is promoted itself later, the fork has another
    parent, which nobody has looked at. ConditionFailed if that happened since `info` was told."""
    above = fork.lineage()[1]
    if above.name != info.parent:
        raise ConditionFailed(
            f"{info.parent!r} was promoted just now, so {fork.name!r} has another parent: begin again if it is meant "
            "for that one"
        )
    return above


def validate(
    braid: Braid,
    fork: Log | str,
    validator: str,
    *,
    parameters: dict[str, Any] | None = None,
    start: int | None = None,
    bounds: Bounds | None = None,
    access: Access | None = None,
    name: str = "",
    stop: Stop | None = None,
) -> Finding:
    """Run one validator, `module:name` or `path/file.py:name`, over a fork, in a process of its own. It is ended, and
    Stopped is raised, when `stop` is used."""
    found = braid.log(fork) if isinstance(fork, str) else fork
    check_fork(found.info())
    job = Job(
        access=access or Access.to(braid),
        fork=found.name,
        fork_id=found.id,
        validator=validator,
        parameters=parameters or {},
        start=start,
        bounds=bounds or Bounds(),
    )
    return run(job, name, stop)


def promote(fork: Log | str, *, braid: Braid, access: Access | None = None, named: tuple[str, ...] = ()) -> Promotion:
    """Run the validators that stand before a fork's parent, and those named besides, and promote it if all pass.

    Exactly the records are promoted that were there when the validators began: if more are written meanwhile, or a
    sibling is promoted first, `promoted` is false. ConditionFailed if no validator stands before the parent, or it is
    not the parent any more when they are through.
    """
    found = braid.log(fork) if isinstance(fork, str) else fork
    info = found.info()
    if info.parent is None or not info.promotable:
        raise NotPromotable(f"{found.name!r} cannot be promoted: fork with promotable=True")
    parent = handle_of(braid, parent_of(found, info).id, info.parent)
    checks = Checks(braid, access=access)
    if not checks.required(info.parent, named):
        raise ConditionFailed(
            f"no validator stands before {info.parent!r}: `braid validators add` puts one there, or promote without"
        )
    if why := hidden(info):
        raise ConditionFailed(why)
    findings = checks.findings(found, info.parent, named)
    passed = all(finding.passed for finding in findings)
    if passed and (why := hidden(found.info())):
        raise ConditionFailed(why)
    return Promotion(
        fork=found.name,
        parent=info.parent,
        own=info.own,
        promoted=passed and found.promote(expected_own=info.own, into=parent),
        findings=findings,
    )
