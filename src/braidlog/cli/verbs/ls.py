"""`braid ls`: all logs, with their forks below them."""

from __future__ import annotations

import click

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.describing import info_json
from braidlog.cli.output import console, say, write_json
from braidlog.cli.tree import draw, gather


@click.command(cls=Verb)
@pass_call
def ls(call: Call) -> None:
    """Draw all logs and their forks.

    \b
    ● a log    ○ a cFork    ◎ a promotable cFork    ✂ an sFork
    """
    with call.open_reading() as braid:
        if call.json:
            write_json([info_json(log.info()) for log in braid.logs()])
            return
        found = gather(braid)
    if not found:
        say("there are no logs yet: `braid create NAME` makes one")
        return
    if hidden := draw(found, console()):
        say(f"{hidden:,} forks lie too deep to be drawn: --json lists them all")
