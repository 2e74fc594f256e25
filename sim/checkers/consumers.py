"""A consumer stands where its last commit put it, if every commit of it was answered."""

from __future__ import annotations

from sim.world import Violated


class Consumers:
    def __init__(self) -> None:
        self._stands: dict[tuple[str, str], int] = {}
        self._unsure: set[tuple[str, str]] = set()

    def commits(self, log: str, consumer: str) -> None:
        """It is about to. Until it is answered, it may happen at any time."""
        self._unsure.add((log, consumer))

    def committed(self, log: str, consumer: str, position: int, *, sure: bool) -> None:
        """It was answered. `sure`: all earlier commits were, too."""
        self._stands[log, consumer] = position
        if sure:
            self._unsure.discard((log, consumer))

    def sure(self, log: str, consumer: str) -> bool:
        return (log, consumer) not in self._unsure

    def finish(self, found: dict[str, dict[str, int]]) -> None:
        """`found` are the consumers of all living logs."""
        for (log, consumer), position in self._stands.items():
            if log in found and self.sure(log, consumer) and found[log].get(consumer) != position:
                raise Violated(f"{consumer} stands at {found[log].get(consumer)} of {log}, and committed {position}")
