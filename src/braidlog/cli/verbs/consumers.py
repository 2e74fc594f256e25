"""`braid consumers`: how far those who follow a log got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.describing import moment_text
from braidlog.cli.output import console, say, write_json

if TYPE_CHECKING:
    from braidlog import Consumer


@click.command(cls=Verb)
@log_argument("log", required=False)
@click.option("--forget", metavar="NAME", help="Forget how far this consumer of LOG got.")
@pass_call
def consumers(call: Call, log: str | None, forget: str | None) -> None:
    """Print the consumers of LOG, or of all logs: where each stands and how many records it has yet to see."""
    if forget is not None:
        _forget(call, log, forget)
        return
    with call.open_reading() as braid:
        logs = [braid.log(log)] if log is not None else list(braid.logs())
        found = [(one.name, consumer) for one in logs for consumer in one.consumers()]
    if call.json:
        write_json(
            [
                {
                    "log": name,
                    "consumer": consumer.name,
                    "position": consumer.position,
                    "lag": consumer.lag,
                    "updated": moment_text(consumer.updated),
                }
                for name, consumer in found
            ]
        )
    elif found:
        _draw(found)
    else:
        say("there are no consumers yet: `braid tail LOG --consumer NAME` makes one")


def _draw(found: list[tuple[str, Consumer]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("log", "consumer", "position", "lag", "updated"):
        table.add_column(title, justify="right" if title in ("position", "lag") else "left")
    for name, consumer in found:
        updated = moment_text(consumer.updated) or ""
        table.add_row(name, Text(consumer.name), str(consumer.position), str(consumer.lag), updated)
    console().print(table)


def _forget(call: Call, log: str | None, name: str) -> None:
    if log is None:
        raise click.UsageError("--forget needs LOG: every log has its own consumers")
    with call.open_writing() as braid:
        braid.log(log).forget_consumer(name)
    if call.json:
        write_json({"log": log, "consumer": name, "forgotten": True})
    else:
        say(f"{name} is forgotten")
