"""What anybody was told of a position is true for ever: nothing acknowledged is lost, none shows two records.

A promoted fork's positions are its parent's from then on. What was trimmed or squashed cannot be looked at any more,
but while it could be, it did not change.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.shadow import Shadow
from sim.world import Violated

Shown = Iterable[tuple[int, str]]


class Durability:
    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self._known: dict[str, dict[int, str]] = {}

    def told(self, log: str, shown: Shown) -> None:
        """Of an acknowledgement, a read, or a push."""
        known = self._known.setdefault(log, {})
        for position, value in shown:
            if known.setdefault(position, value) != value:
                raise Violated(f"position {position} of {log} shows {value}, and showed {known[position]}")

    def pushed(self, who: str, log: str, position: int, shown: list[tuple[int, str]], following: int) -> None:
        """A subscription gets everything, once, in order."""
        got = [at for at, _ in shown]
        if got != list(range(position, following)):
            raise Violated(f"{who} follows {log} from {position} on and was pushed {got}, up to {following}")
        self.told(log, shown)

    def finish(self, contents: dict[str, dict[int, str]], starts: dict[str, int]) -> None:
        """`contents` are all living logs, as they are read at the end."""
        for log, known in self._known.items():
            now = self._shadow.now(log)
            if now is None or now not in contents:
                continue
            for position, value in known.items():
                found = contents[now].get(position)
                if position >= starts[now] and found != value:
                    raise Violated(f"position {position} of {log}, now {now}, showed {value}, and shows {found}")
