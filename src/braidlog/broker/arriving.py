"""Whose large frame may come next: memory is kept for a frame as a whole before much of it is received. PURE.

Whoever would need more than there is waits, unread, until frames that came before are whole or gone; in the order in
which they began, so that nobody waits for ever. One alone may always come. Small frames need nothing kept.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from braidlog import limits

Who = TypeVar("Who")


class Arriving(Generic[Who]):
    def __init__(self, bytes_max: int = limits.SERVER_IN_FLIGHT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._coming: dict[Who, int] = {}
        self._bytes = 0  # of those
        self.waiting: dict[Who, int] = {}  # in turn

    def begins(self, who: Who, size: int) -> None:
        """A frame of that size begins; `turn` says when the rest of it may come."""
        self.waiting[who] = size

    def ends(self, who: Who) -> None:
        """It is whole, or never will be."""
        self._bytes -= self._coming.pop(who, 0)
        self.waiting.pop(who, None)

    def comes(self, who: Who) -> bool:
        return who in self._coming

    def turn(self, taken: int) -> list[Who]:
        """Those who need not wait any more, now that so many bytes are taken by what came before."""
        found: list[Who] = []
        for who, size in self.waiting.items():
            if self._coming and self._bytes + taken + size > self._bytes_max:
                break
            self._coming[who] = size
            self._bytes += size
            found.append(who)
        for who in found:
            del self.waiting[who]
        return found
