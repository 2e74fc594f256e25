"""The live stream of the demo: somebody who places orders without pause, and a consumer who trusts what he reads.

Each runs in a thread of its own until it is stopped, and keeps the times of what it did.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.cli.demo.restock import problem_with
from braidlog.errors import BraidError

if TYPE_CHECKING:
    from braidlog import Log

SKUS: Final = ("anchor", "braid", "cleat", "halyard", "shackle")
_PERIOD_S: Final = 0.002
_POLL_S: Final = 0.05


class Orders:
    """Appends an order every few milliseconds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stop = threading.Event()
        self.micros: list[float] = []  # how long each append took
        self.latest = ""
        self.error: BraidError | None = None
        self._thread = threading.Thread(target=self._run, name="demo-orders", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(1)
        for number in itertools.count(1):
            if self._stop.wait(_PERIOD_S):
                return
            order = {"type": "order", "number": number, "sku": chance.choice(SKUS), "quantity": chance.randint(1, 5)}
            value = msgspec.json.encode(order)
            began = time.perf_counter()
            try:
                self._log.append(value)
            except BraidError as error:
                self.error = error
                return
            self.micros.append((time.perf_counter() - began) * 1e6)
            self.latest = value.decode()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Consumer:
    """Reads everything, counts what it is, and notes when it came."""

    def __init__(self, log: Log) -> None:
        self._subscription = log.subscribe("tail")
        self._stop = threading.Event()
        self._more = threading.Condition()
        self.kinds: dict[str, int] = {"order": 0, "restock": 0}
        self.bad = 0
        self.arrivals: list[tuple[int, float]] = []  # (position, time)
        self._thread = threading.Thread(target=self._run, name="demo-consumer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and self._subscription.end is None:
            found = self._subscription.poll(_POLL_S)
            arrived = time.perf_counter()
            with self._more:
                for record in found:
                    self.arrivals.append((record.position, arrived))
                    if problem_with(record.value):
                        self.bad += 1
                    else:
                        self.kinds[msgspec.json.decode(record.value)["type"]] += 1
                self._more.notify_all()

    def wait_until(self, reached: Callable[[], bool], timeout: float) -> None:
        """Wait for something to come true, looked at whenever records came and now and then besides."""
        with self._more:
            self._more.wait_for(reached, timeout)

    def time_of(self, position: int) -> float | None:
        """When the first record at or above a position came; None if none has."""
        return next((arrived for at, arrived in self.arrivals if at >= position), None)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
