"""Validate and promote, for those who decide themselves: no proposal, no person."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from braidlog import Braid, Log
from braidlog.agents.checking import Checks
from braidlog.agents.running import Access, Bounds, Job, run
from braidlog.agents.verdict import Finding
from braidlog.errors import ConditionFailed, InvalidArgument, NotPromotable


class Promotion(Struct, frozen=True, kw_only=True):
    """What became of a fork that was to be promoted, and what its validators said."""

    fork: str
    parent: str
    own: int
    promoted: bool
    findings: list[Finding]


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
) -> Finding:
    """Run one validator, `module:name` or `path/file.py:name`, over a fork, in a process of its own."""
    found = braid.log(fork) if isinstance(fork, str) else fork
    if found.info().fork_point is None:
        raise InvalidArgument(f"{found.name!r} is a root: only what is on a fork can be validated")
    job = Job(
        access=access or Access.to(braid),
        fork=found.name,
        validator=validator,
        parameters=parameters or {},
        start=start,
        bounds=bounds or Bounds(),
    )
    return run(job, name)


def promote(fork: Log | str, *, braid: Braid, access: Access | None = None, named: tuple[str, ...] = ()) -> Promotion:
    """Run the validators that stand before a fork's parent, and those named besides, and promote it if all pass.

    Exactly the records are promoted that were there when the validators began: if more are written meanwhile, or a
    sibling is promoted first, `promoted` is false. ConditionFailed if no validator stands before the parent.
    """
    found = braid.log(fork) if isinstance(fork, str) else fork
    info = found.info()
    if info.parent is None or not info.promotable:
        raise NotPromotable(f"{found.name!r} cannot be promoted: fork with promotable=True")
    checks = Checks(braid, access=access)
    if not checks.required(info.parent, named):
        raise ConditionFailed(
            f"no validator stands before {info.parent!r}: `braid validators add` puts one there, or promote without"
        )
    findings = checks.findings(found.name, info.parent, named)
    passed = all(finding.passed for finding in findings)
    return Promotion(
        fork=found.name,
        parent=info.parent,
        own=info.own,
        promoted=passed and found.promote(expected_own=info.own),
        findings=findings,
    )
