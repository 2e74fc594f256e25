"""`braid diff`: what a fork has from its fork point on."""

from __future__ import annotations

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.formats.record_json import to_json
from braidlog.cli.output import say, write, write_json
from braidlog.cli.parameters import Whole
from braidlog.cli.rendering import text_line


@click.command(cls=Verb)
@log_argument("fork")
@click.option("--max", "most", type=Whole(1), help="At most so many records.")
@pass_call
def diff(call: Call, fork: str, most: int | None) -> None:
    """Print the records of FORK from its fork point on.

    Its own begin with +, those that its parent got meanwhile with a space.
    """
    with call.open_reading() as braid:
        found = braid.log(fork).diff(max_records=most)
    if call.json:
        write_json(
            {
                "log": found.log,
                "fork_point": found.fork_point,
                "own": len(found.own),
                "inherited": len(found.inherited),
                "truncated": found.truncated,
                "entries": [{"own": entry.own} | to_json(entry.record) for entry in found],
            }
        )
        return
    for entry in found:
        write((b"+ " if entry.own else b"  ") + text_line(entry.record))
    more = ", and there is more" if found.truncated else ""
    say(f"{fork} left its parent at {found.fork_point}: {len(found.own)} own, {len(found.inherited)} inherited{more}")
