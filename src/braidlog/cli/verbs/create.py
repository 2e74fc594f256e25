"""`braid create`: a new log, and the directory around it if there is none."""

from __future__ import annotations

import click

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.describing import info_json
from braidlog.cli.output import write_json, write_line
from braidlog.cli.parameters import duration, pair, size


@click.command(cls=Verb)
@click.argument("name")
@click.option("--label", "labels", type=pair, multiple=True, help="A label of the log; may be repeated.")
@click.option("--max-age", type=duration, help="Forget records older than this.")
@click.option(
    "--max-bytes",
    type=size,
    metavar="SIZE",
    help="Forget the oldest records above so many bytes: 1000, 10MiB.",
)
@pass_call
def create(
    call: Call, name: str, labels: tuple[tuple[str, str], ...], max_age: float | None, max_bytes: int | None
) -> None:
    """Create the log NAME.

    A directory that is not there is created too.
    """
    from braidlog import Retention

    limited = max_age is not None or max_bytes is not None
    retention = Retention(max_age=max_age, max_bytes=max_bytes) if limited else None
    with call.open_writing(create=True) as braid:
        log = braid.create(name, labels=dict(labels), retention=retention)
        if call.json:
            write_json(info_json(log.info()))
        else:
            write_line(log.name)
