"""The tree of logs and forks, drawn. A severed fork hangs below what it was taken from, as long as that lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from braidlog.cli.describing import hold_text, time_left
from braidlog.errors import Gone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    from braidlog import Braid, Info, Log

_DEPTH_MAX: Final = 100
_INDENT: Final = 4
_GLYPHS: Final = {"root": "●", "cfork": "○", "promotable": "◎", "sfork": "✂"}
_ASCII: Final = {"root": "*", "cfork": "o", "promotable": "?", "sfork": "x"}
_STYLES: Final = {"root": "bold", "cfork": "cyan", "promotable": "yellow", "sfork": "magenta"}


class Leaf(NamedTuple):
    """A log, and the number of the living one it hangs below."""

    info: Info
    below: int | None


def gather(braid: Braid) -> list[Leaf]:
    """All logs, parents before their forks."""
    found: list[Leaf] = []
    numbers: dict[str, int] = {}
    for log in braid.logs():
        try:
            info = log.info()
            below = _below(log, info, numbers)
        except Gone:  # it ended while we looked
            continue
        numbers[info.name] = info.id
        found.append(Leaf(info, below))
    return found


def _below(log: Log, info: Info, numbers: dict[str, int]) -> int | None:
    if info.kind == "cfork":
        return numbers.get(info.parent or "")
    if info.kind == "sfork":  # the name of what it was taken from may belong to another log by now
        source = log.lineage()[1]
        return source.id if source.living else None
    return None


class Trees(NamedTuple):
    """A tree for each log that hangs below nothing."""

    roots: list[Tree]
    width: int  # of the widest line
    hidden: int  # forks that lie too deep to be drawn


def draw(leaves: list[Leaf], screen: Console) -> int:
    """Print a tree for each log that hangs below nothing. Answers how many forks lie too deep to be drawn."""
    trees = grown(leaves, screen)
    given = screen.width
    screen.width = max(given, trees.width)  # rich would cut what does not fit, while a terminal wraps by itself
    for root in trees.roots:
        screen.print(root)
    screen.width = given
    return trees.hidden


def grown(leaves: list[Leaf], screen: Console) -> Trees:
    """The same, to be printed on that screen by whoever asks."""
    from rich.tree import Tree

    glyphs = _GLYPHS if screen.encoding.lower().startswith("utf") else _ASCII
    roots: list[Tree] = []
    nodes: dict[int, tuple[Tree, int]] = {}  # with its depth
    hidden = width = 0
    for info, below in leaves:
        label = _label(info, glyphs)
        if below is None:
            roots.append(Tree(label))
            nodes[info.id] = roots[-1], 0
            depth = 0
        else:
            parent, depth = nodes.get(below, (None, 0))
            depth += 1
            if parent is None or depth > _DEPTH_MAX:
                hidden += 1
                continue
            nodes[info.id] = parent.add(label), depth
        width = max(width, label.cell_len + depth * _INDENT)
    return Trees(roots, width, hidden)


def _label(info: Info, glyphs: dict[str, str]) -> Text:
    from rich.text import Text

    kind = "promotable" if info.promotable else info.kind
    label = Text(no_wrap=True, overflow="ignore")
    label.append(f"{glyphs[kind]} {info.name}", _STYLES[kind])
    label.append(f"  tail {info.tail}")
    if info.kind != "root":
        label.append(f"  own {info.own}, from {info.fork_point}", "dim")
    if hold := hold_text(info):
        label.append(f"  {hold}", "red")
    if info.lease_expires is not None:
        label.append(f"  lease {time_left(info.lease_expires)}", "yellow")
    if info.expires is not None:
        label.append(f"  lives {time_left(info.expires)}", "dim")
    return label
