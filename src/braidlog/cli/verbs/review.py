"""`braid review`: what agents propose, and what people decide about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog.cli.call import Call, Verb, VerbGroup, log_argument, pass_call
from braidlog.cli.describing import moment_text, time_left
from braidlog.cli.exit_codes import CONDITION_FAILED
from braidlog.cli.failures import Refused
from braidlog.cli.formats.record_json import to_json
from braidlog.cli.output import Json, console, say, write, write_json, write_line
from braidlog.cli.parameters import Whole
from braidlog.cli.rendering import text_line
from braidlog.cli.verdicts import finding_json, shown, tell_findings

if TYPE_CHECKING:
    from braidlog import Braid
    from braidlog.agents import Desk, Proposal

_POLICY_VARIABLE = "BRAIDLOG_POLICY"
_policy = click.option(
    "--policy",
    type=click.Path(dir_okay=False),
    envvar=_POLICY_VARIABLE,
    metavar="FILE",
    help=f"Who may decide about what. Or set {_POLICY_VARIABLE}. [default: a person about everything]",
)
_reviewer = click.option(
    "--as", "reviewer", metavar="NAME", help="Who decides. [default: BRAIDLOG_OWNER, or the user of this machine]"
)


@click.group(cls=VerbGroup)
def review() -> None:
    """Look at what agents propose to promote, and decide about it."""


@review.command("list", cls=Verb)
@click.option("--all", "everything", is_flag=True, help="Also those that are decided.")
@_policy
@pass_call
def list_(call: Call, everything: bool, policy: str | None) -> None:
    """Print the proposals that are open."""
    with call.open_reading() as braid:
        found = _desk(call, braid, policy).list(None if everything else "open")
    if call.json:
        write_json([_proposal_json(one) for one in found])
    elif found:
        _draw(found)
    else:
        say("there is nothing to review")


@review.command(cls=Verb)
@click.argument("id")
@click.option("--max", "most", type=Whole(1), default=100, show_default=True, help="At most so many records.")
@_policy
@pass_call
def show(call: Call, id: str, most: int, policy: str | None) -> None:
    """Print a proposal with what its validators said, and what the fork has from its fork point on."""
    with call.open_reading() as braid:
        details = _desk(call, braid, policy).show(id, max_records=most)
    proposal, diff = details.proposal, details.diff
    if call.json:
        entries: list[Json] = [{"own": entry.own} | to_json(entry.record) for entry in diff or ()]
        truncated = diff is not None and diff.truncated
        write_json(_proposal_json(proposal) | {"diff": None if diff is None else entries, "truncated": truncated})
        return
    for name, text in _facts(proposal).items():
        write_line(f"{name:<12} {text}")
    tell_findings(proposal.rechecks or proposal.findings)
    for entry in diff or ():
        write((b"+ " if entry.own else b"  ") + text_line(entry.record))
    if diff is not None and diff.truncated:
        say("and there is more: --max N shows it")


@review.command(cls=Verb)
@log_argument("fork")
@click.option("--agent", required=True, metavar="NAME", help="Who proposes it.")
@click.option("--title", default="", help="What it is, in a few words.")
@click.option("--note", default="", help="Why.")
@_policy
@pass_call
def propose(call: Call, fork: str, agent: str, title: str, note: str, policy: str | None) -> None:
    """Propose what FORK has of its own for its parent, as an agent would. Prints the proposal's id."""
    with call.open_writing() as braid:
        done = _desk(call, braid, policy).propose(fork, agent=agent, title=title, note=note)
    if call.json:
        write_json(_proposal_json(done))
    else:
        write_line(done.id)
        say(f"{fork} is {done.state}{f': {shown(done.reason)}' if done.reason else ''}")
    if done.state == "failed":
        raise Refused(f"proposal {done.id} failed: {shown(done.reason)}", CONDITION_FAILED)


@review.command(cls=Verb)
@click.argument("id")
@click.option("--note", default="", help="What others should know about it.")
@_reviewer
@_policy
@pass_call
def approve(call: Call, id: str, note: str, reviewer: str | None, policy: str | None) -> None:
    """Decide for a proposal: it is validated once more and, if it passes, promoted.

    Ends with status 6 if it was not promoted.
    """
    with call.open_writing() as braid:
        done = _desk(call, braid, policy).approve(id, reviewer or _caller(), note)
    if call.json:
        write_json(_proposal_json(done))
    else:
        tell_findings(done.rechecks)
    if done.state != "promoted":
        raise Refused(f"proposal {id} was not promoted: {shown(done.reason)}", CONDITION_FAILED)
    if not call.json:
        say(f"{done.own} records of {done.agent} are in {done.parent} now")


@review.command(cls=Verb)
@click.argument("id")
@click.option("--reason", required=True, help="Why, for whoever proposed it.")
@_reviewer
@_policy
@pass_call
def reject(call: Call, id: str, reason: str, reviewer: str | None, policy: str | None) -> None:
    """Decide against a proposal: its fork is squashed."""
    with call.open_writing() as braid:
        done = _desk(call, braid, policy).reject(id, reviewer or _caller(), reason)
    if call.json:
        write_json(_proposal_json(done))
    else:
        say(f"proposal {id} is rejected, and {done.fork} is gone")


@review.command(cls=Verb)
@_policy
@pass_call
def holds(call: Call, policy: str | None) -> None:
    """Print the promotable forks that are undecided: what they hold, and for how long by now."""
    with call.open_reading() as braid:
        found = _desk(call, braid, policy).holds()
    if call.json:
        write_json(
            [
                {
                    "log": one.log,
                    "fork": one.fork,
                    "owner": one.owner,
                    "agent": one.agent,
                    "proposal": one.proposal,
                    "since": moment_text(one.since),
                    "age": one.age,
                    "allowed": one.allowed,
                    "lease_expires": moment_text(one.lease_expires),
                }
                for one in found
            ]
        )
        return
    for one in found:
        lease = "no lease" if one.lease_expires is None else f"lease {time_left(one.lease_expires)}"
        write_line(f"{one.log} is held by {one.fork} for {one.age:.0f} s of {one.allowed:.0f} s, {lease}")
    if not found:
        say("nothing is held")


def _desk(call: Call, braid: Braid, policy: str | None) -> Desk:
    from braidlog.agents import Desk, Policy

    return Desk(braid, Policy.default() if policy is None else Policy.load(policy), access=call.access())


def _caller() -> str:
    from braidlog.client.session import owner_here

    return owner_here()


def _proposal_json(one: Proposal) -> dict[str, Json]:
    summary = one.summary
    return {
        "id": one.id,
        "state": one.state,
        "reason": one.reason,
        "fork": one.fork,
        "parent": one.parent,
        "agent": one.agent,
        "title": one.title,
        "note": one.note,
        "own": one.own,
        "own_bytes": summary.own_bytes,
        "inherited": summary.inherited,
        "fork_point": summary.fork_point,
        "records": [{"position": r.position, "key": r.key, "value": r.value} for r in summary.records],
        "proposed": moment_text(one.proposed),
        "expires": moment_text(one.expires),
        "reviewer": one.reviewer,
        "reviewer_note": one.reviewer_note,
        "findings": [finding_json(finding) for finding in one.findings],
        "rechecks": [finding_json(finding) for finding in one.rechecks],
    }


def _facts(one: Proposal) -> dict[str, str]:
    facts = {
        "proposal": one.id,
        "state": f"{one.state}{f': {shown(one.reason)}' if one.reason else ''}",
        "agent": shown(one.agent),
        "fork": f"{one.fork} of {one.parent}",
        "records": f"{one.own:,} own with {one.summary.own_bytes:,} bytes, {one.summary.inherited:,} inherited",
        "proposed": str(moment_text(one.proposed)),
    }
    if one.title:
        facts["title"] = shown(one.title)
    if one.note:
        facts["note"] = shown(one.note)
    if one.open and one.expires is not None:
        facts["expires"] = f"{moment_text(one.expires)}, {time_left(one.expires)}"
    if one.reviewer is not None:
        facts["reviewer"] = f"{shown(one.reviewer)}{f': {shown(one.reviewer_note)}' if one.reviewer_note else ''}"
    return facts


def _draw(found: list[Proposal]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("id", "state", "agent", "fork", "into", "own", "proposed", "title"):
        table.add_column(title)
    for one in found:
        when = str(moment_text(one.proposed))
        table.add_row(
            *(one.id, one.state, Text(shown(one.agent)), one.fork, one.parent, str(one.own), when),
            Text(shown(one.title)),
        )
    console().print(table)
