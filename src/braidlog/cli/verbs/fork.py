"""`braid fork` and `braid renew`: forks of a log, live or severed, and more time for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from braidlog import limits
from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.describing import info_json, moment_text, time_left
from braidlog.cli.output import say, write_json, write_line
from braidlog.cli.parameters import POSITION, duration, lease_term, pair

if TYPE_CHECKING:
    from braidlog import Log


@click.command(cls=Verb)
@log_argument("log")
@click.argument("name", required=False)
@click.option("--promotable", is_flag=True, help="A live fork that can be promoted; LOG is held until it is decided.")
@click.option("--severed", is_flag=True, help="A fork that gets nothing of what is appended to LOG later.")
@click.option("--at-position", type=POSITION, help="With --severed: share only the positions below this.")
@click.option("--ttl", type=duration, help="Squash the fork after this time.")
@click.option(
    "--lease",
    type=lease_term,
    help=f"With --promotable: how long it may stay undecided, or `none`. [default: {limits.LEASE_DEFAULT_S:g}s]",
)
@click.option(
    "--dedicated", is_flag=True, help="Ask a service for a broker of its own; elsewhere it is only remembered."
)
@click.option("--label", "labels", type=pair, multiple=True, help="A label of the fork; may be repeated.")
@click.option("--wait", type=duration, help="Wait so long while a hold stands in the way.")
@pass_call
def fork(
    call: Call,
    log: str,
    name: str | None,
    promotable: bool,
    severed: bool,
    at_position: int | None,
    ttl: float | None,
    lease: float | None,
    dedicated: bool,
    labels: tuple[tuple[str, str], ...],
    wait: float | None,
) -> None:
    """Fork LOG as NAME, or as a name that is made up. Nothing is copied.

    A live fork (cFork) shares all that LOG has and goes on receiving what is appended to it. A severed one (sFork)
    shares what there is now, or what was below a position.
    """
    if severed and promotable:
        raise click.UsageError("--severed and --promotable exclude each other: only a live fork can be promoted")
    if severed and dedicated:
        raise click.UsageError("--severed and --dedicated exclude each other: only a live fork has traffic of its own")
    if at_position is not None and not severed:
        raise click.UsageError("--at-position needs --severed: a live fork always begins at the tail")
    if lease is not None and not promotable:
        raise click.UsageError("--lease needs --promotable: other forks hold nobody up")
    with call.open_writing() as braid:
        source = braid.log(log)
        if severed:
            made = source.sfork(name, at=at_position, ttl=ttl, labels=dict(labels), wait=wait)
        else:
            term = limits.LEASE_DEFAULT_S if lease is None else None if math.isinf(lease) else lease
            made = source.cfork(
                name,
                promotable=promotable,
                ttl=ttl,
                lease=term,
                labels=dict(labels),
                dedicated=dedicated,
                wait=wait,
            )
        _tell_fork(call, made)


def _tell_fork(call: Call, made: Log) -> None:
    info = made.info()
    if call.json:
        write_json(info_json(info))
        return
    write_line(info.name)
    if info.lease_expires is not None:
        say(f"{info.parent} is held until {info.name} is promoted or squashed; lease {time_left(info.lease_expires)}")


@click.command(cls=Verb)
@log_argument("fork")
@pass_call
def renew(call: Call, fork: str) -> None:
    """Begin the lease of FORK, and its time to live, anew."""
    with call.open_writing() as braid:
        found = braid.log(fork)
        found.renew()
        info = found.info()
    ends = {"lease_expires": moment_text(info.lease_expires), "expires": moment_text(info.expires)}
    if call.json:
        write_json({"log": fork, **ends})
        return
    for name, moment in ends.items():
        if moment is not None:
            write_line(f"{name} {moment}")
