"""How fast the forks of a tree may be written: a bucket for each tree that fills with time. PURE.

Whoever takes more than there is has to pause until the debt is paid, but no longer than what they took lately is worth:
who wrote a byte does not wait for the megabytes of others. Nobody ever pauses for longer than a bound, and no debt is
larger than that. Roots are never slowed, nor are publications: their bytes pass no server.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from braidlog import limits


class Pace:
    def __init__(
        self,
        bytes_per_s: float = limits.FORK_BYTES_PER_S,
        burst: float = limits.FORK_BURST_BYTES,
        trees: int = limits.FORK_ROOTS_KEPT_LOGS,
        writers: int = limits.FORK_WRITERS_KEPT,
        pause_max_s: float = limits.FORK_PAUSE_MAX_S,
    ) -> None:
        self._rate = bytes_per_s
        self._burst = burst
        self._trees_max = trees
        self._writers_max = writers
        self._pause_max_s = pause_max_s
        self._buckets: OrderedDict[int, tuple[float, float]] = OrderedDict()  # root -> (bytes left, as of when)
        # What each writer has to answer for itself, the latest last: it melts at an even share of its tree's rate.
        self._own: OrderedDict[tuple[int, bytes], tuple[float, float]] = OrderedDict()
        self._writers: Counter[int] = Counter()  # of those, by root

    def take(self, root: int, client: bytes, size: int, now: float) -> float:
        """Seconds for which the client is to pause after these bytes; 0 while they are within what there was."""
        left, then = self._buckets.pop(root, (self._burst, now))
        left = min(left + (now - then) * self._rate, self._burst) - size
        left = max(left, -self._rate * self._pause_max_s)
        self._buckets[root] = (left, now)
        if len(self._buckets) > self._trees_max:  # the one that was quiet longest has a full bucket by now, or nearly
            self._buckets.popitem(last=False)
        return min(max(-left, 0.0), self._answers_for(root, client, size, now)) / self._rate

    def _answers_for(self, root: int, client: bytes, size: int, now: float) -> float:
        """Bytes that the tree has to wait for on this client's account, as many as write it at the same time."""
        own, then = self._own.pop((root, client), (0.0, -1.0))
        if then < 0:
            self._writers[root] += 1
        else:
            own = max(own - (now - then) * self._rate / self._writers[root], 0.0)
        self._own[root, client] = (own + size, now)
        lately = now - self._burst / self._rate - self._pause_max_s
        while len(self._own) > self._writers_max or next(iter(self._own.values()))[1] < lately:
            (gone, _), _ = self._own.popitem(last=False)
            self._writers[gone] -= 1
            if not self._writers[gone]:
                del self._writers[gone]
        return (own + size) * self._writers[root]
