"""How fast the forks of a tree may be written: a bucket for each tree that fills with time. PURE.

Whoever takes more than there is has to pause until the debt is paid. Roots are never slowed.
"""

from __future__ import annotations

from collections import OrderedDict

from braidlog import limits


class Pace:
    def __init__(
        self, bytes_per_s: float = limits.FORK_BYTES_PER_S, burst: float = limits.FORK_BURST_BYTES, trees: int = 10_000
    ) -> None:
        self._rate = bytes_per_s
        self._burst = burst
        self._trees_max = trees
        self._buckets: OrderedDict[int, tuple[float, float]] = OrderedDict()  # root -> (bytes left, as of when)

    def take(self, root: int, size: int, now: float) -> float:
        """Seconds to pause after having taken so many bytes; 0 while they are within what there was."""
        left, then = self._buckets.pop(root, (self._burst, now))
        left = min(left + (now - then) * self._rate, self._burst) - size
        self._buckets[root] = (left, now)
        if len(self._buckets) > self._trees_max:  # the one that was quiet longest has a full bucket by now, or nearly
            self._buckets.popitem(last=False)
        return max(-left / self._rate, 0.0)
