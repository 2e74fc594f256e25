"""`braid ls`: all logs, with their forks below them."""

from __future__ import annotations

import click

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.describing import info_json
from braidlog.cli.output import console, say, write_json
from braidlog.cli.tree import draw, gather
from braidlog.forest.names import is_system


@click.command(cls=Verb)
@click.option("--all", "everything", is_flag=True, help="Also system logs, whose names begin with braidlog.")
@pass_call
def ls(call: Call, everything: bool) -> None:
    """Draw all logs and their forks.

    \b
    ● a log    ○ a cFork    ◎ a promotable cFork    ✂ an sFork
    """
    with call.open_reading() as braid:
        if call.json:
            write_json([info_json(log.info()) for log in braid.logs() if everything or not is_system(log.name)])
            return
        found = gather(braid)
    if not everything:
        found = [leaf for leaf in found if not is_system(leaf.info.name)]
    if not found:
        if not call.served and call.folder() is None:
            say("memory:// begins empty in each call: name a directory")
            return
        say("there are no logs yet: `braid create NAME` makes one")
        return
    if hidden := draw(found, console()):
        say(f"{hidden:,} forks lie too deep to be drawn: --json lists them all")
