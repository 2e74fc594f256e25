"""What one client sent over one connection stands in the order in which it was sent."""

from __future__ import annotations

from sim.world import Violated


class Order:
    def __init__(self) -> None:
        self.pairs = 0

    def sent(self, who: str, log: str, positions: list[int | None]) -> None:
        """Appends to one log, sent one behind the other; None is where a position is not known."""
        told = [position for position in positions if position is not None]
        self.pairs += len(told) > 1
        if told != sorted(told):
            raise Violated(f"{who} sent appends to {log} one behind the other, and they stand at {told}")
