"""A fork's own records are seen on nothing but itself and its forks, until it is promoted: then on its parent too."""

from __future__ import annotations

from collections.abc import Iterable

from sim.shadow import Shadow
from sim.world import Violated


class Isolation:
    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self._written_to: dict[str, str] = {}

    def written(self, log: str, values: Iterable[str]) -> None:
        for value in values:
            self._written_to[value] = log

    def seen(self, log: str, shown: Iterable[tuple[int, str]]) -> None:
        """Somebody sees this now."""
        allowed = self._shadow.visible(log)
        for position, value in shown:
            author = self._written_to.get(value)
            if author is None:
                raise Violated(f"{log} shows {value} at {position}, which nobody wrote")
            if author not in allowed:
                raise Violated(f"{log} shows {value} at {position}, which was written to {author}")
