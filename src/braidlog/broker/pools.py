"""The threads of a server that wait for the store: to read, to store, and to look whether published objects are there.

Each has threads of its own, so that a store from which reads come slowly holds up no append. Those who read, and those
who publish, take turns: one who asks for much has what others ask for done in between.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from braidlog import limits


class FairPool:
    """So many threads. What waits for one is begun by turns of those who asked, and of each in its order."""

    def __init__(self, threads: int, name: str) -> None:
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: OrderedDict[Hashable, deque[Callable[[], object]]] = OrderedDict()  # whose turn is next, first

    def submit(self, who: Hashable, work: Callable[[], object]) -> None:
        """Do it when it is their turn. RuntimeError once the pool is closed."""
        with self._lock:
            self._threads.submit(self._next)
            self._waiting.setdefault(who, deque()).append(work)

    def _next(self) -> None:
        """Once for each that was submitted, but not for that very one."""
        with self._lock:
            who, theirs = self._waiting.popitem(last=False)
            work = theirs.popleft()
            if theirs:
                self._waiting[who] = theirs
        work()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Pools:
    """Those of one server."""

    def __init__(self) -> None:
        self.reading = FairPool(limits.FETCHERS, "braidlog-fetch")
        self.vouching = FairPool(limits.VOUCHING_THREADS, "braidlog-vouch")
        self.looking = ThreadPoolExecutor(limits.STORE_READERS, thread_name_prefix="braidlog-look")  # for who vouches
        self.storing = ThreadPoolExecutor(limits.FLUSHES_UNDER_WAY, thread_name_prefix="braidlog-store")

    def close(self) -> None:
        self.reading.close()
        self.vouching.close()
        self.looking.shutdown(wait=False, cancel_futures=True)
        self.storing.shutdown(wait=False, cancel_futures=True)
