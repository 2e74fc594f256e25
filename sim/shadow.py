"""What the log says, applied the moment it is durable: the truth that all else is measured by.

It is a forest of its own, and beside it what checkers want to know of the relations between logs: who was promoted into
whom, and whose records a log may show by now.
"""

from __future__ import annotations

from collections import Counter

from braidlog.embedded.replica import COMMANDS
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from sim.home import Frame


class Shadow:
    def __init__(self, counts: Counter[str]) -> None:
        self.forest = Forest()
        self.names: dict[int, str] = {}  # of all logs that ever lived
        self.into: dict[str, str] = {}  # a promoted fork -> what it went on as
        self.ended: set[str] = set()  # otherwise
        self._counts = counts
        self._own: dict[str, set[str]] = {}  # whose records are a log's own
        self._above: dict[str, str | None] = {}  # of a live fork, its parent

    def take(self, frame: Frame) -> list[tuple[c.Command, object]]:
        """Apply a frame; answers its commands and what they came to."""
        answers: list[tuple[c.Command, object]] = []
        for command in COMMANDS.decode(frame.payload):
            request: bytes = getattr(command, "request", b"")
            if request and self.forest.recall(request) is not None:
                self._counts["duplicates"] += 1
            answer = self.forest.apply(command)
            inner = command.command if isinstance(command, c.Again) else command
            self._relate(inner, answer)
            answers.append((inner, answer))
        return answers

    def visible(self, log: str) -> set[str]:
        """Whose records may be seen on it by now."""
        found: set[str] = set()
        at: str | None = log
        while at is not None:
            found |= self._own.get(at, set())
            at = self._above.get(at)
        return found

    def now(self, log: str) -> str | None:
        """What a log goes on as; None if it was squashed."""
        while log in self.into:
            log = self.into[log]
        return None if log in self.ended else log

    def _relate(self, command: c.Command, answer: object) -> None:
        if isinstance(answer, c.Opening) and answer.log not in self.names:
            self.names[answer.log] = answer.name
            self._own[answer.name] = {answer.name}
            self._above[answer.name] = None
            if isinstance(command, c.CFork):
                self._above[answer.name] = self.names[command.log]
            elif isinstance(command, c.SFork):
                self._own[answer.name] |= self.visible(self.names[command.log])
        elif isinstance(command, c.Promote) and isinstance(answer, c.Promotion) and answer.promoted:
            fork = self.names[command.log]
            parent = self._above[fork]
            if fork not in self.into and parent is not None:
                self._counts["promotions bound"] += 1
                self.into[fork] = parent
                self._own[parent] |= self._own[fork]
                for other, above in self._above.items():
                    if above == fork:
                        self._above[other] = parent
            self.ended |= {self.names[log] for log in answer.ended if log != command.log}
        elif isinstance(answer, c.Ended):
            self.ended |= {self.names[log] for log in answer.logs}
        elif isinstance(answer, c.Collected):
            self._counts["collections"] += bool(answer.condemned or answer.blocks)
        elif isinstance(answer, c.Appended) and answer.block != NONE:
            self._counts["publications bound" if isinstance(command, c.Publish) else "appends bound"] += 1
