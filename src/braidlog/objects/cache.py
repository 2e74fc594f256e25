"""Blocks read lately, kept until their bytes pass a bound.

The least recently used goes first. A value heavier than a quarter of the bound is not kept: one large read
would empty the cache of everything that is read often. Safe to use from several threads; a value may still be
in use after it was evicted, so values must not be changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BlockCache(Generic[Value]):
    """Values by block id, the weights of those kept never above `bound` bytes in sum."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.weight = 0
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, block: Hashable) -> Value | None:
        with self._lock:
            found = self._kept.get(block)
            if found is None:
                self.misses += 1
                return None
            self._kept.move_to_end(block)
            self.hits += 1
            return found[0]

    def __contains__(self, block: Hashable) -> bool:
        """Whether it is kept. It does not count as a use."""
        with self._lock:
            return block in self._kept

    def put(self, block: Hashable, value: Value, weight: int) -> None:
        """Keep the value in place of what the block had, evicting what is too much."""
        with self._lock:
            self._forget(block)
            if weight * 4 > self.bound:
                return
            self._kept[block] = (value, weight)
            self.weight += weight
            while self.weight > self.bound:
                _, (_, evicted) = self._kept.popitem(last=False)
                self.weight -= evicted

    def drop(self, blocks: Iterable[Hashable]) -> None:
        """Forget these blocks. Those that are not kept are fine."""
        with self._lock:
            for block in blocks:
                self._forget(block)

    def _forget(self, block: Hashable) -> None:
        found = self._kept.pop(block, None)
        if found is not None:
            self.weight -= found[1]
