"""Production, as it goes on beside agents: records that keep coming to a log, and the consumer that follows it.

Each is a thread of its own, from the beginning of its context to the end.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from apps.agents.shop import Event, Malformed, Market, Stock, encoded
from braidlog import Log
from braidlog.errors import BraidError

PERIOD_S: Final = 0.01
PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05


class Flow:
    """Appends values to a log at a rate, a few at a time, until there are no more or it is stopped."""

    def __init__(self, log: Log, values: Iterator[bytes], per_s: float = 200.0) -> None:
        self._log, self._values, self._per_s = log, values, per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self.appended = 0
        self.departures: list[tuple[float, int]] = []  # (time.monotonic, records that were appended together)
        self._error: BraidError | None = None

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(PERIOD_S):
            due = int((time.monotonic() - began) * self._per_s) - self.appended
            found = list(itertools.islice(self._values, max(0, due)))
            if len(found) < due:
                self._stop.set()
            if found:
                try:
                    self._log.append_many(found)
                except BraidError as error:
                    self._error = error
                    return
                self.appended += len(found)
                self.departures.append((time.monotonic(), len(found)))

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def stop(self) -> None:
        """What is appended is all there will be. If it could not be appended, that is raised."""
        self._stop.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what it could not be appended for, if it has ended by that."""
        if self._error is not None:
            raise self._error


def orders(log: Log, market: Market, per_s: float = 200.0) -> Flow:
    """Orders without end."""
    return Flow(log, (encoded(market.order()) for _ in itertools.count()), per_s)


class Consumer:
    """Follows a log from its beginning and keeps the stock. At what it cannot go on with it crashes, and stays down."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stop = threading.Event()
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="consumer", daemon=True)
        self.stock = Stock()
        self.position = 0  # of the event that comes next
        self.restocks: dict[int, Event] = {}  # that it saw, by position
        self.arrivals: list[tuple[float, int]] = []  # (time.monotonic, events that came together)
        self.crash: Malformed | None = None

    def _run(self) -> None:
        with self._log.subscribe(0) as events:
            while not self._stop.is_set() and self.crash is None and events.end is None:
                found = events.poll(_POLL_S)
                with self._more:
                    before = self.position
                    try:
                        for record in found:
                            event = self.stock.take(record.value)
                            self.position = record.position + 1
                            if event["kind"] == "restock":
                                self.restocks[record.position] = event
                    except Malformed as error:
                        self.crash = error
                    if self.position > before:
                        self.arrivals.append((time.monotonic(), self.position - before))
                    self._more.notify_all()

    def wait_until(self, reached: Callable[[Consumer], bool]) -> None:
        """Wait for something to come true of it. TimeoutError if it does not."""
        with self._more:
            if not self._more.wait_for(lambda: reached(self), PATIENCE_S):
                raise TimeoutError(f"the consumer is at {self.position} after {PATIENCE_S:g} s, which is not enough")

    def __enter__(self) -> Consumer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
