"""At most one leader binds: every slot of the log has one writer, and terms only ever grow."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.forest import commands as c
from sim.home import Frame
from sim.world import Violated


class Leadership:
    def __init__(self) -> None:
        self._slots: dict[int, Frame] = {}
        self._last: Frame | None = None
        self._epoch = 0
        self.terms = 0

    def bound(self, frame: Frame, answers: Sequence[tuple[c.Command, object]]) -> None:
        there = self._slots.get(frame.sequence)
        if there is not None:
            raise Violated(f"slot {frame.sequence} was bound by term {there.term}, then again by term {frame.term}")
        if frame.sequence != len(self._slots) + 1:
            raise Violated(f"slot {frame.sequence} was bound while {len(self._slots)} were")
        self._slots[frame.sequence] = frame
        last, self._last = self._last, frame
        if last is not None and frame.term < last.term:
            raise Violated(f"slot {frame.sequence} was bound by term {frame.term}, after one by term {last.term}")
        if last is None or frame.term > last.term:
            self._begins(frame, answers)

    def _begins(self, frame: Frame, answers: Sequence[tuple[c.Command, object]]) -> None:
        """A leader's first command makes an epoch of its own, above all others."""
        self.terms += 1
        command, answer = answers[0]
        if not isinstance(command, c.Opened) or not isinstance(answer, c.Done) or command.epoch <= self._epoch:
            raise Violated(f"term {frame.term} begins with {command!r}, after epoch {self._epoch}")
        self._epoch = command.epoch
