"""All that clients were told of a tree of logs can be explained by one log that was asked one thing at a time."""

from __future__ import annotations

from braidlog.testing.linearizability import Recorder, check
from sim.world import Violated


class Linearity:
    """Says nothing if no explanation was found and no contradiction either; `undecided` counts those."""

    def __init__(self) -> None:
        self.undecided = 0

    def finish(self, recorder: Recorder) -> None:
        verdict = check(recorder.history(), steps=2_000)
        if verdict.linearizable is False:
            raise Violated(str(verdict))
        self.undecided += verdict.linearizable is None
