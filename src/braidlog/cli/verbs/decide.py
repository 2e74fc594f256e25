"""`braid promote` and `braid squash`: how a fork ends."""

from __future__ import annotations

import click

from braidlog.cli.asking import confirm, yes_option
from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.exit_codes import CONDITION_FAILED
from braidlog.cli.failures import Refused
from braidlog.cli.output import say, write_json
from braidlog.cli.parameters import POSITION
from braidlog.cli.verdicts import finding_json, refusal, tell_findings


@click.command(cls=Verb)
@log_argument("fork")
@click.option("--expected-own", type=POSITION, help="Only if the fork has exactly so many records of its own.")
@click.option("--expected-tail", type=POSITION, help="Only if the fork ends at this position.")
@click.option("--validated", is_flag=True, help="Only if the validators that stand before its parent pass it.")
@yes_option
@pass_call
def promote(
    call: Call, fork: str, expected_own: int | None, expected_tail: int | None, validated: bool, yes: bool
) -> None:
    """Make FORK its parent: the parent's name stands for what the fork held from then on.

    Ends with status 6, and the fork is as it was, if it is not what was expected.
    """
    if validated and expected_tail is not None:
        raise click.UsageError("--validated and --expected-tail exclude each other: the parent may go on meanwhile")
    confirm(f"Promote {fork}, ending every promotable sibling of it?", yes=yes)
    if validated:
        _promote_validated(call, fork, expected_own)
        return
    with call.open_writing() as braid:
        found = braid.log(fork)
        info = found.info()
        if not found.promote(expected_own=expected_own, expected_tail=expected_tail):
            raise Refused(
                f"{fork} was not promoted: it has {info.own} records of its own and its tail is {info.tail}",
                CONDITION_FAILED,
            )
    if call.json:
        write_json({"log": fork, "promoted": True, "into": info.parent})
    else:
        say(f"{fork} is {info.parent} now")


def _promote_validated(call: Call, fork: str, expected_own: int | None) -> None:
    from braidlog.agents import promote

    with call.open_writing() as braid:
        own = braid.log(fork).info().own
        if expected_own not in (None, own):
            raise Refused(f"{fork} was not promoted: it has {own} records of its own", CONDITION_FAILED)
        done = promote(fork, braid=braid, access=call.access())
    if call.json:
        write_json(
            {
                "log": fork,
                "promoted": done.promoted,
                "into": done.parent,
                "findings": [finding_json(finding) for finding in done.findings],
            }
        )
    else:
        tell_findings(done.findings)
    if not done.promoted:
        raise Refused(f"{fork} was not promoted: {refusal(done.findings)}", CONDITION_FAILED)
    if not call.json:
        say(f"{fork} is {done.parent} now")


@click.command(cls=Verb)
@log_argument("fork")
@click.option("--cascade-severed", is_flag=True, help="Delete the severed forks taken from it as well.")
@yes_option
@pass_call
def squash(call: Call, fork: str, cascade_severed: bool, yes: bool) -> None:
    """Delete FORK and every live fork below it. Its parent goes on as if it had never been."""
    confirm(f"Squash {fork}, losing its own records and every live fork below it?", yes=yes)
    with call.open_writing() as braid:
        braid.log(fork).squash(cascade_severed=cascade_severed)
    if call.json:
        write_json({"log": fork, "squashed": True})
    else:
        say(f"{fork} is gone")
