"""`braid token`: who may do what at a service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from braidlog.cli.call import Call, Verb, VerbGroup, pass_call
from braidlog.cli.describing import moment_text
from braidlog.cli.output import console, say, write_json, write_line
from braidlog.cli.parameters import duration

if TYPE_CHECKING:
    from braidlog.client.tokens import TokenFacts

_ADMIN = "admin"


@click.group(cls=VerbGroup)
def token() -> None:
    """Make, list and revoke the tokens that clients show to a service.

    A directory can be given them without a service running; from the first one on its service lets nobody in over TCP
    without one.
    """


@token.command(cls=Verb)
@click.argument("name", required=False)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="VERB:PATTERN",
    help="What it allows: read, consume, append, fork, promote, squash, own or admin, on logs of such names; or "
    "broker. May be repeated.",
)
@click.option("--admin", is_flag=True, help="The same as --scope 'admin:*'. NAME is then admin, unless it is given.")
@click.option("--expires", type=duration, metavar="DURATION", help="How long it is good: 12h, 30d. [default: for ever]")
@pass_call
def create(call: Call, name: str | None, scopes: tuple[str, ...], admin: bool, expires: float | None) -> None:
    """Print a new token, which is kept nowhere else.

    NAME is who its bearer is: forks made with it belong to that name.
    """
    from braidlog.client.tokens import create_token

    wanted = [*scopes, *(["admin:*"] if admin else [])]
    if name is None and not admin:
        raise click.UsageError("whose token? Give NAME, or --admin")
    if not wanted:
        raise click.UsageError("what may it do? Give --scope, for instance --scope 'read:orders*', or --admin")
    new = call.is_new()
    with call.open_writing(create=True) as braid:
        made = create_token(braid, name or _ADMIN, wanted, expires)
    if new:
        say(f"{call.require_url()} is new: there were no logs")
    if call.json:
        write_json({"name": name or _ADMIN, "scopes": list(wanted), "token": made})
    else:
        write_line(made)
        say("keep it: it is shown this once")


@token.command("list", cls=Verb)
@pass_call
def list_(call: Call) -> None:
    """Print the tokens there are: names, scopes and when they expire."""
    from braidlog.client.tokens import list_tokens

    with call.open_reading() as braid:
        found = list_tokens(braid)
    if call.json:
        write_json(
            [
                {
                    "name": one.name,
                    "scopes": list(one.scopes),
                    "created": _moment(one.created),
                    "expires": _moment(one.expires),
                }
                for one in found
            ]
        )
    elif found:
        _draw(found)
    else:
        say("there are no tokens: `braid token create --admin` makes the first")


@token.command(cls=Verb)
@click.argument("name")
@pass_call
def revoke(call: Call, name: str) -> None:
    """Make the token NAME worthless. Whoever is connected with it is shown the door within a second."""
    from braidlog.client.tokens import revoke_token

    with call.open_writing() as braid:
        revoke_token(braid, name)
    if call.json:
        write_json({"name": name, "revoked": True})
    else:
        say(f"{name} is revoked")


def _draw(found: list[TokenFacts]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("name", "scopes", "created", "expires"):
        table.add_column(title)
    for one in found:
        table.add_row(one.name, Text(" ".join(one.scopes)), _moment(one.created), _moment(one.expires) or "never")
    console().print(table)


def _moment(micros: int | None) -> str | None:
    return None if micros is None else moment_text(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))
