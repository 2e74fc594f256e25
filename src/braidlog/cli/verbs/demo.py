"""`braid demo`: agents work on forks beside production, shown in the terminal. It ends by itself."""

from __future__ import annotations

import random
import shlex
import signal
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
import msgspec

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.output import console, write_json
from braidlog.cli.parameters import Whole

if TYPE_CHECKING:
    from braidlog import Braid
    from braidlog.agents import Access
    from braidlog.cli.demo.outcome import Outcome
    from braidlog.cli.demo.story import Setting

_SECONDS: Final = 20.0  # that the story takes as it is meant to be told, without what Spark takes
_SECONDS_UNWATCHED: Final = 5.0
_SEEDS: Final = 2**31


@click.command(cls=Verb)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 600),
    help=f"How long to take, about; Spark may take longer. [default: {_SECONDS:g} on a terminal, "
    f"else {_SECONDS_UNWATCHED:g}]",
)
@click.option("--seed", type=Whole(0, _SEEDS - 1), help="What is bought, and what goes wrong. [default: drawn]")
@click.option("--plain", is_flag=True, help="Print lines also on a terminal, and no picture that changes.")
@click.option(
    "--spark/--no-spark",
    default=None,
    help="Have a Spark job look at what is promoted, however long it takes, or not. "
    "[default: if Spark is installed and quick enough]",
)
@pass_call
def demo(call: Call, seconds: float | None, seed: int | None, plain: bool, spark: bool | None) -> None:
    """Show what forks are for, in less than a minute.

    Orders stream in. An analyst, a tester and a restocker, three scripted agents, work on forks meanwhile: a bad write
    is caught, a good one promoted, and production goes on. In a directory that is deleted afterwards, unless --at
    names one or a service (BRAIDLOG_URL does not count here).
    """
    from tempfile import TemporaryDirectory

    from braidlog.cli.demo.board import Board
    from braidlog.cli.demo.pacing import Pace
    from braidlog.cli.demo.showing import Lines, summarize
    from braidlog.cli.demo.story import Setting, Story

    screen = console()
    watched = screen.is_terminal and not call.json
    if seconds is None:
        seconds = _SECONDS if watched else _SECONDS_UNWATCHED
    if seed is None:
        seed = random.randrange(_SEEDS)
    setting = Setting(seed=seed, pace=Pace(seconds / _SECONDS), spark=spark)
    with ExitStack() as ended:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind then either
        ended.callback(signal.signal, signal.SIGTERM, before)
        kept = call.url
        if kept is None:
            call = replace(call, url=ended.enter_context(TemporaryDirectory(prefix="braidlog-demo-")))
        access = call.access()
        braid = ended.enter_context(call.open_writing(create=True))
        if call.json:
            write_json(msgspec.to_builtins(Story(braid, access, Board(), setting).run()))
            return
        if watched and not plain:
            outcome = _painted(braid, access, setting)
        else:
            lines = Lines(screen)
            lines.story = Story(braid, access, Board(lines.told, lines.scene), setting)
            outcome = lines.story.run()
    summarize(screen, outcome, None if kept is None else shlex.quote(kept))


def _painted(braid: Braid, access: Access, setting: Setting) -> Outcome:
    """As a picture that changes, and all lines of it in the end."""
    from rich.console import Console
    from rich.live import Live

    from braidlog.cli.demo.board import Board
    from braidlog.cli.demo.showing import FRAMES_PER_S, Lines, Picture
    from braidlog.cli.demo.story import Story

    screen = Console(highlight=False)
    picture = Picture(screen)
    story = picture.story = Story(braid, access, Board(), setting)
    try:
        with Live(picture, console=screen, refresh_per_second=FRAMES_PER_S, transient=True):
            return story.run()
    finally:
        lines = Lines(console())
        for line in story.board.lines:
            lines.told(line)
