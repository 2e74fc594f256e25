"""What happens in the demo, line by line, for whoever shows it. Safe to use from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

Tone = Literal["plain", "good", "bad"]


class Line(NamedTuple):
    """Something that somebody did."""

    at_s: float  # since the demo began
    who: str
    text: str
    tone: Tone


class Board:
    """All lines so far."""

    def __init__(self, told: Callable[[Line], None] | None = None, scene: Callable[[], None] | None = None) -> None:
        """`told` is called with each line, and `scene` when there are forks worth looking at, one at a time."""
        self._told = told
        self._scene = scene
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self.lines: list[Line] = []

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.perf_counter() - self._began

    def say(self, who: str, text: str, tone: Tone = "plain") -> None:
        """Somebody did something."""
        with self._lock:
            line = Line(self.seconds, who, text, tone)
            self.lines.append(line)
            if self._told is not None:
                self._told(line)

    def scene(self) -> None:
        """There is something to look at."""
        if self._scene is not None:
            with self._lock:
                self._scene()
