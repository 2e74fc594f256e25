"""`braid append`: values from the command line, a pipe or files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.formats import FORMATS, STDIN
from braidlog.cli.formats.record_json import now
from braidlog.cli.ingest import Appended
from braidlog.cli.output import say, write_json, write_line
from braidlog.cli.parameters import POSITION, argument_bytes, duration, moment, pair
from braidlog.cli.sources import Change, Reader, append_all, gather_all, sources
from braidlog.record import Record

if TYPE_CHECKING:
    from braidlog import Log


class Terms(NamedTuple):
    """What is asked of an append that takes all or nothing."""

    ack: Literal["ordered", "durable"]
    expected_tail: int | None
    writer: str | None
    sequence: int | None
    wait: float | None

    @property
    def plain(self) -> bool:
        return self == Terms("ordered", None, None, None, None)


@click.command(cls=Verb)
@log_argument("log")
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("--file", "files", type=click.Path(), multiple=True, help="Append a file; may be repeated.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What stdin or the files are. [default: lines]")
@click.option("--key", help="The key of each record.")
@click.option("--header", "headers", type=pair, multiple=True, help="A header of each record; may be repeated.")
@click.option("--timestamp", type=moment, help="The time of each record. [default: now]")
@click.option("--writer", help="With --sequence: append once, however often this is called.")
@click.option("--sequence", type=POSITION, help="With --writer: the number of this append, ascending.")
@click.option("--expected-tail", type=POSITION, help="Only if the first record will stand at this position.")
@click.option("--wait", type=duration, help="Wait so long while a hold stands in the way.")
@click.option(
    "--ack", type=click.Choice(["ordered", "durable"]), default="ordered", help="`durable` tells no position."
)
@pass_call
def append(
    call: Call,
    log: str,
    values: tuple[str, ...],
    files: tuple[str, ...],
    form: str | None,
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    timestamp: int | None,
    writer: str | None,
    sequence: int | None,
    expected_tail: int | None,
    wait: float | None,
    ack: Literal["ordered", "durable"],
) -> None:
    """Append each VALUE to LOG, or each line of stdin if there is none, or VALUE is `-`.

    Prints the position, or the first and the last. VALUEs are one atomic batch. What comes from stdin or files is
    appended as it comes, unless --writer, --expected-tail, --wait or --ack make it one batch too.
    """
    if values and files:
        raise click.UsageError("VALUE and --file exclude each other")
    if (writer is None) != (sequence is None):
        raise click.UsageError("--writer and --sequence go together: give both or neither")
    terms = Terms(ack, expected_tail, writer, sequence, wait)
    change = _change(key, headers, timestamp)
    with call.open_writing() as braid:
        target = braid.log(log)
        if values and values != (STDIN,):
            items = [change(argument_bytes(value)) if change else argument_bytes(value) for value in values]
            done = _append_together(target, items, terms)
        else:
            found, reader = sources(files, form, "lines"), Reader(change=change)
            if terms.plain:
                done = append_all(target, found, reader)
            else:
                done = _append_together(target, gather_all(found, reader), terms)
    _tell(call, log, done, terms)


def _change(key: str | None, headers: tuple[tuple[str, str], ...], timestamp: int | None) -> Change | None:
    """What makes a record of a value, if it is to be more than that."""
    if key is None and not headers and timestamp is None:
        return None
    key_bytes = None if key is None else argument_bytes(key)
    pairs = tuple((name, argument_bytes(value)) for name, value in headers)

    def change(item: bytes | Record) -> Record:
        record = item if isinstance(item, Record) else Record(item, timestamp=now())
        return Record(
            record.value,
            record.key if key_bytes is None else key_bytes,
            record.headers + pairs,
            record.timestamp if timestamp is None else timestamp,
        )

    return change


def _append_together(log: Log, items: list[bytes | Record], terms: Terms) -> Appended:
    if not items:
        return Appended()
    stamp = 0 if isinstance(items[0], Record) else None
    taken = log.append_many(items, timestamp=stamp, **terms._asdict())
    return Appended(len(items)) if taken is None else Appended(len(items), taken.start, taken.stop - 1)


def _tell(call: Call, log: str, done: Appended, terms: Terms) -> None:
    if call.json:
        write_json({"log": log, **done.json()})
    elif done.first is not None:
        write_line(str(done.first) if done.first == done.last else f"{done.first}-{done.last}")
    elif terms.ack == "ordered" or not done.records:
        say(done.text())
