"""How much is under way to all peers together: whoever asks for much waits when that is too much. PURE.

What was begun counts as the largest answer that there is, what was answered as what of it is unsent. A peer that is
owed nothing may always have one thing begun, so that those who do not read what they asked for hold nobody up.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from braidlog import limits

Who = TypeVar("Who")


class Answering(Generic[Who]):
    def __init__(self, bytes_max: int = limits.SERVER_ANSWERS_BYTES_MAX) -> None:
        self.owed: dict[Who, int] = {}  # those who are owed something
        self.waiting: dict[Who, None] = {}  # those who would have more begun
        self.bytes = 0
        self._bytes_max = bytes_max

    def tell(self, who: Who, owed: int) -> None:
        """So much is owed to that one now."""
        self.bytes += owed - self.owed.pop(who, 0)
        if owed:
            self.owed[who] = owed

    def may_begin(self, who: Who) -> bool:
        """Whether it may have one more thing begun; else it waits, until somebody looks again."""
        may = who not in self.owed or self.bytes < self._bytes_max
        if not may:
            self.waiting[who] = None
        return may

    def left(self, who: Who) -> None:
        self.tell(who, 0)
        self.waiting.pop(who, None)
