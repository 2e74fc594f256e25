"""`braid read`: a range of a log, as far as it can be read now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog import limits
from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.describing import hold_text
from braidlog.cli.output import say
from braidlog.cli.parameters import POSITION, Whole, check_range
from braidlog.cli.rendering import Render, renderer, write_records

if TYPE_CHECKING:
    from braidlog import Log


@click.command(cls=Verb)
@log_argument("log")
@click.argument("start", type=POSITION, required=False)
@click.argument("stop", type=POSITION, required=False)
@click.option("--max", "most", type=Whole(1), help="At most so many records.")
@click.option("--raw", is_flag=True, help="The bare values, a newline after each.")
@pass_call
def read(call: Call, log: str, start: int | None, stop: int | None, most: int | None, raw: bool) -> None:
    """Print the records of LOG from START (its beginning) up to and without STOP (its end).

    A line is the position, the key and the value between tabs, with what cannot be printed escaped. --raw prints the
    bare values, --json all of each record.
    """
    check_range(start, stop)
    with call.open_reading() as braid:
        source = braid.log(log)
        _print_range(source, start, stop, most, renderer(json=call.json, raw=raw))
        if stop is None and most is None and (hold := hold_text(source.info())):
            say(f"{log} is {hold}")


def _print_range(log: Log, start: int | None, stop: int | None, most: int | None, render: Render) -> None:
    info = log.info()
    at = info.start if start is None else start
    end = info.readable_tail if stop is None else stop
    if most is not None:
        end = min(end, at + most)
    while True:
        found = log.read(
            at, max(at, end), max_records=limits.SUBSCRIBE_FETCH_RECORDS, max_bytes=limits.SUBSCRIBE_FETCH_BYTES
        )
        write_records(found, render)
        at += len(found)
        if not found or at >= min(end, log.tail()):
            return
