"""`braid trim` and `braid drop`: forgetting the beginning of a log, or all of it."""

from __future__ import annotations

import click

from braidlog.cli.asking import confirm, yes_option
from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.output import say, write_json, write_line
from braidlog.cli.parameters import POSITION


@click.command(cls=Verb)
@log_argument("log")
@click.argument("before", type=POSITION)
@yes_option
@pass_call
def trim(call: Call, log: str, before: int, yes: bool) -> None:
    """Forget the positions of LOG below BEFORE. Its forks keep theirs. Prints where LOG starts then."""
    confirm(f"Trim {log}, losing what stands below position {before}?", yes=yes)
    with call.open_writing() as braid:
        start = braid.log(log).trim(before)
    if call.json:
        write_json({"log": log, "start": start})
    else:
        write_line(str(start))


@click.command(cls=Verb)
@log_argument("log")
@click.option("--cascade", is_flag=True, help="Delete its forks too, severed ones included.")
@yes_option
@pass_call
def drop(call: Call, log: str, cascade: bool, yes: bool) -> None:
    """Delete LOG. Refused while it has forks, unless --cascade."""
    confirm(f"Drop {log}{' and all its forks' if cascade else ''}, losing every record?", yes=yes)
    with call.open_writing() as braid:
        braid.drop(log, cascade=cascade)
    if call.json:
        write_json({"log": log, "dropped": True})
    else:
        say(f"{log} is gone")
