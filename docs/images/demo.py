"""Draws docs/images/demo.svg: what `braid demo` shows while three agents are at work. `python docs/images/demo.py`"""

from __future__ import annotations

import io
import re
import tempfile
import threading
from pathlib import Path

from rich.console import Console

import braidlog
from braidlog.agents import Access
from braidlog.cli.demo.board import Board
from braidlog.cli.demo.pacing import Pace
from braidlog.cli.demo.showing import Picture
from braidlog.cli.demo.story import Setting, Story

WIDTH = 132
SEED = 7
FRAME_S = 0.2
HELD = "readers of orders wait"


def main() -> None:
    """Run the demo once, and keep the last picture that has all three forks and a hold in it."""
    screen = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, highlight=False)
    picture = Picture(screen)
    done = threading.Event()
    kept: list[str] = []

    def paint() -> None:
        while not done.wait(FRAME_S):
            screen.print(picture)
            text = screen.export_text(clear=False)
            svg = screen.export_svg(title="braid demo", clear=True)
            if all(part in text for part in ("✂ ", "○ ", "◎ ", HELD)):
                kept[:] = [svg]

    painter = threading.Thread(target=paint)
    with tempfile.TemporaryDirectory() as folder, braidlog.open(folder) as braid:
        setting = Setting(seed=SEED, pace=Pace(), spark=False)
        picture.story = Story(braid, Access.to(braid), Board(), setting)
        painter.start()
        try:
            picture.story.run()
        finally:
            done.set()
            painter.join()
    svg = re.sub(r"@font-face \{.*?\}\n", "", kept[0], flags=re.DOTALL)  # an image loads no fonts
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")
    lines = [line.rstrip() for line in svg.splitlines() if line.strip()]
    Path(__file__).with_suffix(".svg").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
