"""Production: sales that keep being written to a log, and somebody who reads them. Neither knows of any agent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Final

from braidlog import Braid

BEGIN_MS: Final = 1_700_000_000_000
STEP_MS: Final = 10  # of event time, between two sales
EVERY_S: Final = 0.01
HISTORY: Final = 2_000
SHOPS: Final = ("north", "south", "west")
PATIENCE_S: Final = 30.0


def sales(rng: Random) -> Iterator[bytes]:
    """For ever, in good order: each later than the one before, none twice, and none at the edge of a window."""
    at = BEGIN_MS + rng.randrange(STEP_MS, 1_000_000, STEP_MS)
    while True:
        at += STEP_MS
        event = {
            "id": f"s{at // STEP_MS}",
            "at": at + rng.randrange(1, STEP_MS),
            "shop": rng.choice(SHOPS),
            "amount": rng.randrange(1, 100),
        }
        yield json.dumps(event, separators=(",", ":")).encode()


class LiveSales:
    """Sells as long as the context lasts. Then `written` is what was sold and `read` what the reader got of it."""

    def __init__(self, braid: Braid, seed: int, *, log: str = "sales", history: int = HISTORY) -> None:
        self.log = braid.create(log)
        self._drawn = sales(Random(seed))
        self.written = list(islice(self._drawn, history))
        self.read: list[bytes] = []
        self._trouble: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._do, args=(work,), name=f"production-{work.__name__}", daemon=True)
            for work in (self._sell, self._follow)
        ]

    def __enter__(self) -> LiveSales:
        self.log.append_many(self.written)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        if self._trouble:
            raise self._trouble[0]

    def unharmed(self) -> bool:
        """Whether the log, and its reader, have what was sold and nothing besides. Ask it afterwards."""
        kept = [record.value for record in self.log.read(0, max_records=len(self.written) + 1)]
        return self.written == kept == self.read

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._trouble.append(error)

    def _sell(self) -> None:
        while not self._over.wait(EVERY_S):
            value = next(self._drawn)
            self.log.append(value)
            self.written.append(value)

    def _follow(self) -> None:
        with self.log.subscribe(0) as records:
            while not self._over.is_set() or self._threads[0].is_alive() or len(self.read) < len(self.written):
                self.read += [record.value for record in records.poll(EVERY_S)]
