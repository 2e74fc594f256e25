"""`braid cluster`: several processes on this machine, to develop and to test with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog import limits
from braidlog.cli import exit_codes
from braidlog.cli.call import Call, Verb, VerbGroup, pass_call
from braidlog.cli.describing import moment_text
from braidlog.cli.failures import Refused
from braidlog.cli.output import Json, console, say, write_json, write_line
from braidlog.cli.parameters import Whole

if TYPE_CHECKING:
    from braidlog.testing.cluster import Cluster, Member

_NEEDS = "a cluster keeps its logs and its state in a directory"


@click.group(cls=VerbGroup)
def cluster() -> None:
    """Run several processes on this machine: for the metadata, brokers, and an etcd if there is more than one."""


@cluster.command(cls=Verb)
@click.option(
    "--brokers",
    type=Whole(0, limits.CLUSTER_BROKERS_MAX),
    default=limits.CLUSTER_BROKERS_DEFAULT,
    show_default=True,
    help="How many brokers; without any, the metadata process serves clients.",
)
@click.option(
    "--objects",
    metavar="URL",
    help="The object store that a new directory keeps its objects in, as s3://BUCKET/PREFIX, gs:// or az://.",
)
@click.option(
    "--metadata",
    type=Whole(1, limits.CLUSTER_METADATA_PROCESSES_MAX),
    help="How many metadata processes, an odd number: of several one leads, and they keep the logs in an etcd. "
    "[default: 1, or as the last time]",
)
@click.option(
    "--etcd",
    type=click.Choice(["1", "3"]),
    help="How many members the etcd of several metadata processes has. [default: 1, or as the last time]",
)
@click.option(
    "--tokens",
    is_flag=True,
    help="Ask everybody for a token: DIR/cluster/admin.token is made, and broker.token for the brokers.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="The token that brokers show, where tokens were made otherwise. [default: that of --tokens, once given]",
)
@pass_call
def up(
    call: Call,
    brokers: int,
    objects: str | None,
    metadata: int | None,
    etcd: str | None,
    tokens: bool,
    token_file: str | None,
) -> None:
    """Start a cluster on a directory, and print the URL that clients open. It goes on in the background.

    What its processes tell stands in DIR/cluster, in a file for each. If one of them does not start, none is left.
    """
    from braidlog.testing.cluster import Cluster, StartFailed

    try:
        started = Cluster.start(
            call.require_folder(_NEEDS),
            brokers,
            objects=objects,
            metadata=metadata,
            etcd=None if etcd is None else int(etcd),
            tokens=tokens,
            token_file=token_file or call.token_file or "",
        )
    except StartFailed as error:
        raise Refused(str(error), error.status if error.status in exit_codes.MEANINGS else exit_codes.FAILED) from error
    if call.json:
        write_json({"url": started.url, "processes": _told(started)})
    else:
        write_line(started.url)
        if tokens:
            say(f"everybody needs a token: {started.admin_token_file} is the first")


@cluster.command(cls=Verb)
@pass_call
@click.pass_context
def status(context: click.Context, call: Call) -> None:
    """Show each process of the cluster: whether it is up, where it listens, since when, and who leads.

    Ends with status 9 if one of them is not up.
    """
    from braidlog.testing.cluster import Cluster

    found = Cluster.find(call.require_folder(_NEEDS))
    leader = found.leader()
    if call.json:
        write_json({"url": found.url, "leader": leader, "processes": _told(found)})
    else:
        _draw(list(found.processes.values()), None if found.shape is None else leader or "nobody")
    whole = all(one.state == "up" for one in found.processes.values())
    context.exit(exit_codes.OK if whole else exit_codes.UNAVAILABLE)


@cluster.command(cls=Verb)
@pass_call
def down(call: Call) -> None:
    """End the cluster: gracefully, and what has not ended after a while is killed. The logs stay."""
    from braidlog.testing.cluster import Cluster

    found = Cluster.find(call.require_folder(_NEEDS))
    killed = found.close()
    if call.json:
        write_json({"ended": list(found.processes), "killed": list(killed)})
        return
    say(f"{', '.join(found.processes)}: ended")
    if killed:
        say(f"had to be killed, which loses nothing that was acknowledged: {', '.join(killed)}")


def _told(found: Cluster) -> list[Json]:
    return [
        {
            "name": one.name,
            "role": one.role,
            "pid": one.pid,
            "address": one.address,
            "state": one.state,
            "since": moment_text(one.since),
            "log": str(one.log),
        }
        for one in found.processes.values()
    ]


def _draw(members: list[Member], leader: str | None) -> None:
    """`leader` is who leads if there are several who might."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("name", "role", "pid", "address", "state", "since"):
        table.add_column(title)
    for one in members:
        style = None if one.state == "up" else "bold red"
        since = moment_text(one.since) or ""
        table.add_row(one.name, one.role, str(one.pid), one.address, one.state, since, style=style)
    console().print(table)
    if leader is not None:
        write_line(f"{leader} leads")
