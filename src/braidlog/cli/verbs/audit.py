"""`braid audit`: who called what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.describing import moment_text
from braidlog.cli.output import flush, write, write_line
from braidlog.cli.parameters import duration, moment_of
from braidlog.cli.verdicts import shown

if TYPE_CHECKING:
    from braidlog.agents import Entry


def _since(text: str) -> datetime:
    """A point in time, or how long ago."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_of(text))
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=duration(text))
    except (click.BadParameter, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time or a duration: write 2026-01-31T12:00:00Z, 1h or 2d"
        ) from None


@click.command(cls=Verb)
@click.option("--agent", metavar="NAME", help="Only calls of this one.")
@click.option("--log", metavar="LOG", help="Only what concerns this log, or forks of it.")
@click.option("--since", type=_since, metavar="WHEN", help="2026-01-31T12:00:00Z, or how long ago: 1h, 2d.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@pass_call
def audit(call: Call, agent: str | None, log: str | None, since: datetime | None, follow: bool) -> None:
    """Print the calls of agents, and the decisions on what they proposed, a line each."""
    from braidlog.agents import Audit

    with call.open_reading() as braid:
        for entry in Audit(braid).read(agent=agent, log=log, since=since, follow=follow):
            if call.json:
                write(msgspec.json.encode(entry) + b"\n")
            else:
                write_line(_line(entry))
            if follow:
                flush()


def _line(entry: Entry) -> str:
    parts = [str(moment_text(entry.time)), shown(entry.agent), shown(entry.tool), entry.log or "-", entry.outcome]
    if entry.result:
        parts.append(shown(entry.result))
    if entry.message:
        parts.append(shown(entry.message))
    if entry.arguments:
        parts.append(msgspec.json.encode(entry.arguments).decode())
    return "\t".join(parts)
