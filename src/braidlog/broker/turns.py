"""Changes of a client take effect in the order in which it sent them, also if one has to be looked into first. PURE.

While one is looked into (`hold`), what its client sends behind it waits; others are not held up. How much may wait is
bounded by what a connection may have under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Turns:
    """By client."""

    def __init__(self) -> None:
        self._behind: dict[bytes, deque[Callable[[], None]]] = {}

    def held(self, client: bytes) -> bool:
        """Whether something of this client is looked into."""
        return client in self._behind

    def enter(self, client: bytes, go: Callable[[], None]) -> None:
        """Go now, or when it is this one's turn."""
        behind = self._behind.get(client)
        if behind is None:
            go()
        else:
            behind.append(go)

    def hold(self, client: bytes) -> None:
        """The one whose turn it is takes longer: `release` ends it."""
        self._behind.setdefault(client, deque())

    def release(self, client: bytes) -> None:
        """Those behind go, up to the next that holds."""
        behind = self._behind.pop(client, deque())
        while behind:
            behind.popleft()()
            if client in self._behind:
                self._behind[client].extendleft(reversed(behind))
                return
