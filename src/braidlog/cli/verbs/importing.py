"""`braid import`: records from files or a pipe, in any format there is."""

from __future__ import annotations

import time
from typing import Final

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.formats import FORMATS, Columns
from braidlog.cli.output import say, write_json
from braidlog.cli.sources import Reader, append_all, check_readable, sources

_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in microseconds


@click.command("import", cls=Verb)
@log_argument("log")
@click.argument("files", type=click.Path(), nargs=-1)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="What the files are. [default: by name; stdin: jsonl]"
)
@click.option("--records", is_flag=True, help="JSON lines are whole records, as `export --records` writes them.")
@click.option("--value-column", help="CSV, Parquet, Arrow: the column of the value. [default: the row as JSON]")
@click.option("--key-column", help="CSV, Parquet, Arrow: the column of the key.")
@click.option(
    "--timestamp-column",
    help="CSV, Parquet, Arrow: the column of the time: ISO 8601, or microseconds since 1970.",
)
@click.option(
    "--timestamp-unit",
    "unit",
    type=click.Choice(list(_UNITS)),
    help="What times that are numbers count, since 1970. [default: us]",
)
@click.option("--create", is_flag=True, help="Create LOG if there is none.")
@pass_call
def import_(
    call: Call,
    log: str,
    files: tuple[str, ...],
    form: str | None,
    records: bool,
    value_column: str | None,
    key_column: str | None,
    timestamp_column: str | None,
    unit: str | None,
    create: bool,
) -> None:
    """Append the records in FILES, or in stdin, to LOG.

    jsonl (.jsonl .ndjson), lines (.txt), csv, parquet (.parquet .pq) and arrow (.arrow .arrows .feather .ipc). Parquet
    and Arrow files that `braid export` wrote come back as they were. At a bad line or row it stops; everything before
    it was appended.
    """
    if unit is not None and timestamp_column is None:
        raise click.UsageError("--timestamp-unit says what --timestamp-column counts: give that too")
    found = sources(files, form, "jsonl")
    reader = Reader(records, Columns(value_column, key_column, timestamp_column, _UNITS[unit or "us"]))
    if create:
        check_readable(found[0])  # before there is a log, and a directory, for nothing
    with call.open_writing(create=create) as braid:
        target = braid.create(log) if create and log not in braid else braid.log(log)
        began = time.perf_counter()
        done = append_all(target, found, reader)
        seconds = time.perf_counter() - began
    if call.json:
        write_json({"log": log, **done.json(), "seconds": round(seconds, 6)})
    else:
        say(f"{done.text()} in {seconds:.2f} s")
