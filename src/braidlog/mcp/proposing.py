"""The tools that bring what an agent wrote before validators and people."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from braidlog import limits
from braidlog.agents.checking import Checks
from braidlog.agents.promoting import validate
from braidlog.agents.proposals import Proposal
from braidlog.agents.running import Stop
from braidlog.agents.verdict import Finding
from braidlog.client.endings import ending_of
from braidlog.errors import NotFound
from braidlog.mcp import showing
from braidlog.mcp.house import Work
from braidlog.mcp.models import ForkName, ProposalOut, ProposalsOut, VerdictOut, VerdictsOut

_NEXT: Final = {
    "waiting": "a person decides: `list_proposals` tells when that has happened. The fork stays as it is meanwhile",
    "failed": "it was not promoted: mend what the verdicts name on a fork, and propose again",
    "promoted": "it is in the parent now, and the fork is gone",
}


def run_validator(
    work: Work,
    fork: Annotated[str, Field(description="name of a fork")],
    validator: Annotated[
        str | None, Field(description="name of a registered validator; all that stand before the parent if left out")
    ] = None,
) -> VerdictsOut:
    """Run registered validators over a fork, its history, its own records and what its parent got, as they would be in
    production. Nothing is changed."""
    found = work.log(fork)
    info = found.info()
    found.read(info.readable_tail)  # who may not read a fork is not told what validators say of its records
    parent = work.parent_of(info)
    house = work.house
    checks = Checks(house.braid, access=house.access)
    stop = Stop()
    work.ended_by(stop.stop)
    if validator is None:
        findings = checks.findings(found, parent, house.policy.rule(parent).validators, stop=stop)
        return VerdictsOut(fork=found.name, verdicts=[_verdict(finding) for finding in findings])
    try:
        registered = checks.registry.get(validator)
    except NotFound:
        names = ", ".join(one.name for one in checks.registry.list()) or "none"
        raise NotFound(f"there is no validator {validator!r}; registered are: {names}") from None
    finding = validate(
        house.braid,
        found,
        registered.validator,
        parameters=registered.parameters,
        start=registered.start,
        bounds=registered.bounds,
        access=house.access,
        name=registered.name,
        stop=stop,
    )
    return VerdictsOut(fork=found.name, verdicts=[_verdict(finding)])


def propose_promotion(
    work: Work,
    fork: ForkName,
    title: Annotated[str, Field(description="what it does, in one line", max_length=limits.PROPOSAL_TITLE_CHARS_MAX)],
    note: Annotated[str, Field(description="why, for who reviews it", max_length=limits.PROPOSAL_NOTE_CHARS_MAX)] = "",
) -> ProposalOut:
    """Propose that the records of a fork you made become part of its parent. Validators run, and then, as the policy
    says, it is promoted or put before a person. Only what is on the fork now is meant: do not append to it after."""
    found, _ = work.own_fork(fork, "propose")
    stop = Stop()
    work.ended_by(stop.stop)
    done = work.house.desk.propose(found, agent=work.caller.name, title=title, note=note, stop=stop)
    ended = ending_of(work.house.braid, found.id)
    if ended is not None:
        work.house.holding.ended(found.name, promoted=ended.how == "promoted")
    return _told(done)


def list_proposals(
    work: Work,
    id: Annotated[str | None, Field(description="only this one")] = None,
    limit: Annotated[int, Field(ge=1, le=limits.MCP_LOGS_MAX)] = limits.MCP_LOGS,
) -> ProposalsOut:
    """What became of your proposals, the newest first."""
    mine = [one for one in work.house.desk.list() if one.agent == work.caller.name]
    if id is not None:
        mine = [one for one in mine if one.id == id]
        if not mine:
            raise NotFound(f"you have made no proposal {id!r}: call without id to see those you have")
    mine.sort(key=lambda one: one.proposed_us, reverse=True)
    return ProposalsOut(proposals=[_told(one) for one in mine[:limit]])


def _told(found: Proposal) -> ProposalOut:
    return ProposalOut(
        id=found.id,
        state=found.state,
        fork=found.fork,
        parent=found.parent,
        title=found.title or None,
        own=found.own,
        verdicts=[_verdict(finding) for finding in (found.rechecks or found.findings)],
        reason=found.reason or None,
        reviewer=found.reviewer,
        reviewer_note=found.reviewer_note or None,
        expires=showing.moment(found.expires) if found.open else None,
        note=_NEXT.get(found.state),
    )


def _verdict(finding: Finding) -> VerdictOut:
    return VerdictOut(
        validator=finding.validator,
        passed=finding.passed,
        reasons=finding.verdict.reasons,
        positions=finding.verdict.positions or None,
        samples=finding.verdict.samples or None,
        seconds=round(finding.seconds, 3),
    )
