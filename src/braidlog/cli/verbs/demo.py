"""`braid demo`: the story of two forks, told in the terminal. It ends by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.demo.story import Outcome, pause, tell
from braidlog.cli.output import console, write_json
from braidlog.cli.rendering import printable
from braidlog.cli.tree import draw, gather

if TYPE_CHECKING:
    from rich.console import Console

    from braidlog import Braid, Record

_HASTE: Final = 0.1  # of the pauses that a person needs to follow, when none is watching
_FRAME_S: Final = 0.1


@click.command(cls=Verb)
@pass_call
def demo(call: Call) -> None:
    """Show what forks are for, in about ten seconds.

    Orders stream in while an agent's bad writes are caught on a fork and squashed, and good ones promoted. In memory,
    unless --at names a directory or a service (BRAIDLOG_URL does not count here).
    """
    import braidlog

    with braidlog.open(call.url or "memory://") as braid:
        if call.json:
            write_json(msgspec.to_builtins(tell(braid, _Silent())))
            return
        screen = console()
        _show(screen, tell(braid, _Teller(screen)))


class _Silent:
    """Tells nothing, for those who want the numbers."""

    def chapter(self, title: str) -> None:
        del title

    def say(self, text: str) -> None:
        del text

    def tree(self, braid: Braid) -> None:
        del braid

    def problems(self, found: Sequence[tuple[Record, str]]) -> None:
        del found

    def watch(self, seconds: float, line: Callable[[], str]) -> None:
        del line
        pause(seconds * _HASTE)


class _Teller:
    """Tells it on a screen, or as plain text when there is none."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._number = 0

    def chapter(self, title: str) -> None:
        from rich.text import Text

        self._number += 1
        self._screen.print()
        self._screen.print(Text(f"{self._number}. {title}", "bold"))

    def say(self, text: str) -> None:
        from rich.text import Text

        self._screen.print(Text(f"   {text}"))

    def tree(self, braid: Braid) -> None:
        draw(gather(braid), self._screen)

    def problems(self, found: Sequence[tuple[Record, str]]) -> None:
        from rich.text import Text

        self.say("The validator looks at the fork's own records:")
        for record, problem in found:
            line = Text(f"      {record.position}  {printable(record.value)}  ")
            self._screen.print(line.append(problem, "red"))

    def watch(self, seconds: float, line: Callable[[], str]) -> None:
        if not self._screen.is_terminal:
            pause(seconds * _HASTE)
            self.say(line())
            return
        from rich.live import Live
        from rich.text import Text

        until = time.monotonic() + seconds
        with Live(console=self._screen, auto_refresh=False) as live:
            while (left := until - time.monotonic()) > 0:
                pause(min(left, _FRAME_S))
                text = Text(f"   {line()}", "green", no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)


def _show(screen: Console, outcome: Outcome) -> None:
    from rich.table import Table

    table = Table(title="measured just now", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("append, median", f"{outcome.append_p50_us:,.0f} µs")
    table.add_row("append while readers were held, median", f"{outcome.append_held_p50_us:,.0f} µs")
    for hold in outcome.holds:
        table.add_row(f"fork {hold.fork}", f"{hold.fork_us:,.0f} µs")
        table.add_row(f"{hold.decision} {hold.fork}", f"{hold.decide_us:,.0f} µs")
        table.add_row("   production waited for that decision", f"{hold.waited_ms:,.0f} ms")
        table.add_row("   and read on after it within", f"{hold.resumed_ms:,.1f} ms")
    screen.print()
    screen.print(table)
    screen.print(
        f"Production read {outcome.read_orders:,} orders and {outcome.read_restocks:,} restock records, "
        f"{outcome.read_bad} of them bad; {outcome.caught} bad ones were caught on the fork."
    )
