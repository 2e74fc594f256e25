"""`braid tail`: the last records of a log, and with -f those that come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.describing import hold_text
from braidlog.cli.output import flush, say
from braidlog.cli.parameters import POSITION
from braidlog.cli.rendering import Render, renderer, write_records
from braidlog.errors import Blocked, Trimmed

if TYPE_CHECKING:
    from braidlog import EndOfLog, Log, Subscription


@click.command(cls=Verb)
@log_argument("log")
@click.option("-n", "--lines", "count", type=POSITION, default=10, show_default=True, help="How many records.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended, until interrupted.")
@click.option("--raw", is_flag=True, help="The bare values, a newline after each.")
@click.option("--consumer", metavar="NAME", help="Go on where this consumer got to, and remember how far it gets.")
@pass_call
def tail(call: Call, log: str, count: int, follow: bool, raw: bool, consumer: str | None) -> None:
    """Print the last records of LOG that can be read now.

    With -f, go on as more become readable; at a hold that is once it is decided.

    With --consumer, print what that consumer has not seen yet (if it is new, the last records), and remember after each
    printing that it has.
    """
    with call.open_reading() if consumer is None else call.open_writing() as braid:
        _print_tail(braid.log(log), count, follow, renderer(json=call.json, raw=raw), consumer)


def _print_tail(log: Log, count: int, follow: bool, render: Render, consumer: str | None) -> None:
    info = log.info()
    start = max(info.start, info.readable_tail - count)
    with _subscribe(log, start, follow, consumer) as subscription:
        while True:
            found = subscription.poll(None)
            write_records(found, render)
            flush()
            if found and consumer is not None:
                subscription.commit()
            if not found and subscription.end is not None:
                return _explain(log, subscription.end)


def _subscribe(log: Log, start: int, follow: bool, consumer: str | None) -> Subscription:
    try:
        return log.subscribe(start, follow=follow, consumer=consumer)
    except Blocked:  # a hold hides all there is to show: begin where reading goes on once it is decided
        return log.subscribe("tail", follow=follow, consumer=consumer)


def _explain(log: Log, end: EndOfLog) -> None:
    if end.error is not None:
        raise end.error
    if end.reason == "trimmed":
        raise Trimmed(f"log {log.name!r} was trimmed beyond {end.position}, which comes next")
    if end.reason == "held":
        say(f"{log.name} is {hold_text(log.info())}")
    elif end.reason != "caught up":
        goes_on = f" into {end.into}: go on there at {end.position}" if end.into is not None else ""
        say(f"{log.name} was {end.reason}{goes_on}")
