"""How the demo is shown: on a terminal as a picture that changes, elsewhere line by line. The facts are the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from braidlog.agents import Desk, is_system
from braidlog.cli.demo.agents import Restocker
from braidlog.cli.output import flush
from braidlog.cli.tree import draw, gather, grown
from braidlog.cli.verdicts import shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from braidlog.agents import Hold
    from braidlog.cli.demo.board import Line
    from braidlog.cli.demo.outcome import Attempt, Latency, Outcome
    from braidlog.cli.demo.story import Story
    from braidlog.cli.tree import Leaf

FRAMES_PER_S: Final = 4.0
_LINES: Final = 12  # of the story that the picture has, if there is room
_FRAME_LINES: Final = 10  # that it has besides those, the forks and the holds
_LATELY_S: Final = 2.0
_TONES: Final = {"plain": "", "good": "green", "bad": "red"}
_WHO: Final = {"analyst": "magenta", "tester": "cyan", "restocker": "yellow", "spark": "blue", "production": "bold"}


class Lines:
    """Each line as it comes, and the tree when there is something to see."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self.story: Story | None = None

    def told(self, line: Line) -> None:
        self._screen.print(_line(line))
        flush()

    def scene(self) -> None:
        assert self.story is not None
        draw(_forks(self.story), self._screen)
        for hold in _holds(self.story):
            self._screen.print(_hold(hold))
        flush()


class Picture:
    """All of it at this moment. It is drawn anew each time it is printed."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self.story: Story | None = None

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        story = self.story
        if story is None or story.production is None:
            return Text("")
        title = Text(f"braid demo  {story.board.seconds:.0f} s", "bold")
        title.append(f"   {story.production.log.name}, three scripted agents, seed {story.setting.seed}", "dim")
        forks = _forks(story)
        holds = [_hold(hold) for hold in _holds(story)]
        parts: list[RenderableType] = [title, Text(""), _figures(story), Text("")]
        parts += [*grown(forks, self._screen).roots, *holds, Text("")]
        room = self._screen.height - len(forks) - len(holds) - _FRAME_LINES
        parts += [_line(line) for line in story.board.lines[-max(1, min(room, _LINES)) :]]
        return Group(*parts)


def _figures(story: Story) -> RenderableType:
    from rich.table import Table

    assert story.production is not None
    now = time.perf_counter()
    alone = story.production.latency(story.alone_from, story.agents_from or now)
    lately = story.production.latency(now - _LATELY_S, now)
    since = story.production.latency(story.agents_from, story.agents_until or now) if story.agents_from else None
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("production", no_wrap=True)
    for title in ("orders/s", "append p50", "p99", "read p50, not held", "p99"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row("alone", *_row(alone))
    table.add_row("beside agents", *(_row(since) if since else ["-"] * 5))
    table.add_row(f"the last {_LATELY_S:.0f} s", *_row(lately), style="dim")
    return table


def _row(latency: Latency) -> list[str]:
    times = (latency.append_p50_us, latency.append_p99_us, latency.read_p50_us, latency.read_p99_us)
    return [f"{latency.per_s:,.0f}", *(f"{one:,.0f} µs" if one else "held" for one in times)]


def _line(line: Line) -> Text:
    from rich.text import Text

    text = Text(f"{line.at_s:5.1f} s  ", "dim", no_wrap=True, overflow="ellipsis")
    text.append(f"{line.who:<10} ", _WHO.get(line.who, "bold"))
    return text.append(shown(line.text), _TONES[line.tone])


def _forks(story: Story) -> list[Leaf]:
    return [leaf for leaf in gather(story.braid) if not is_system(leaf.info.name)]


def _holds(story: Story) -> list[Hold]:
    assert story.production is not None
    name = story.production.log.name
    return [hold for hold in Desk(story.braid, Restocker.policy(name)).holds() if hold.log == name]


def _hold(hold: Hold) -> Text:
    from rich.text import Text

    words = f"readers of {hold.log} wait for {hold.fork}: {hold.age:.1f} s of {hold.allowed:.0f} s at most"
    return Text(words, "red", no_wrap=True, overflow="ellipsis")


def summarize(screen: Console, outcome: Outcome, at: str | None) -> None:
    """What came of it, and what to try next."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="measured just now", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    alone, beside = outcome.alone, outcome.beside_agents
    table.add_row("caught", _caught(outcome.caught))
    table.add_row("promoted", _promoted(outcome.log, outcome.promoted))
    if outcome.spark is not None:
        table.add_row("Spark", f"refused the bad records, passed the good ones in {outcome.spark.seconds:.1f} s")
    for one in outcome.mispriced:
        what = f"{one.orders} orders of {one.sku} in {one.shop} on day {one.day}, a tenth of the price"
        table.add_row(f"found with {outcome.engine}", what)
    table.add_row("the consumer would", "; ".join(f"on {kind}: {words}" for kind, words in outcome.tested.items()))
    table.add_row("forks", f"{outcome.forks}, each in {outcome.fork_p50_us:,.0f} µs (median)")
    table.add_row("append, p50", f"{alone.append_p50_us:,.0f} µs alone, {beside.append_p50_us:,.0f} µs beside agents")
    table.add_row(
        "read, p50, while not held", f"{alone.read_p50_us:,.0f} µs alone, {beside.read_p50_us:,.0f} µs beside agents"
    )
    table.add_row("production read", f"{outcome.read_orders:,} orders, {outcome.read_restocks} restocks; no crash")
    screen.print()
    screen.print(table)
    screen.print()
    screen.print(Text("What to try next", "bold"))
    for command, why in next_steps(outcome, at):
        screen.print(Text(f"  {command}").append(f"   # {why}" if why else "", "dim"), soft_wrap=True)


def _caught(attempt: Attempt) -> str:
    return f"{len(attempt.reasons)} bad records on {attempt.fork}; readers waited {attempt.waited_s:.1f} s"


def _promoted(log: str, attempt: Attempt) -> str:
    at = ", ".join(map(str, attempt.positions))
    return f"{attempt.fork}, position {at} of {log}; readers waited {attempt.waited_s:.1f} s"


def next_steps(outcome: Outcome, at: str | None) -> list[tuple[str, str]]:
    """Commands that work on what the demo left, and what each is for."""
    if at is None:
        return [
            ("braid demo --at shop.braid", "the same, and it stays there to be looked at"),
            ("braid demo --seed 7", "another anomaly, other mistakes"),
            ("braid --help", "all verbs; docs/agents/mcp.md connects a real agent"),
        ]
    return [
        (f"braid ls --at {at}", "the log, and the fork that waits for a person"),
        (f"braid review show {outcome.waiting} --at {at}", "what is proposed there"),
        (f"braid review approve {outcome.waiting} --at {at}", "it is validated once more, and promoted"),
        (f"braid audit --log {outcome.log} --at {at}", "every call of the three agents"),
        (f"braid mcp --at {at} --agent me", "the server for your own agent: docs/agents/mcp.md"),
    ]
