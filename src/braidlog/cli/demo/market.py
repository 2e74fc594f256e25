"""Production: somebody who places orders without pause, and a consumer who follows the log and keeps the stock.

Each runs in a thread of its own until it is stopped, and keeps the times of what it did.
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.cli.demo.outcome import Latency
from braidlog.cli.demo.pacing import PATIENCE_S
from braidlog.cli.demo.shop import BadEvent, Shop
from braidlog.errors import BraidError

if TYPE_CHECKING:
    from braidlog import Log
    from braidlog.cli.demo.pacing import Pace
    from braidlog.cli.demo.trade import Trade

_PERIOD_S: Final = 0.003
_POLL_S: Final = 0.05
_BATCH_RECORDS: Final = 5_000


class Hold:
    """A time in which readers waited for the decision about a fork."""

    def __init__(self, fork: str, point: int, began: float) -> None:
        self.fork = fork
        self.point = point
        self.began = began
        self.ended = inf


class Orders:
    """Appends an order every few milliseconds."""

    def __init__(self, log: Log, trade: Trade, first: int) -> None:
        self._log = log
        self._trade = trade
        self._stop = threading.Event()
        self.first = first  # number of its first order
        self.began: list[float] = []  # when each was placed
        self.ended: list[float] = []  # and when it was durable
        self.error: BraidError | None = None
        self._thread = threading.Thread(target=self._run, name="demo-orders")

    def begin(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count(self.first):
            if self._stop.wait(_PERIOD_S):
                return
            value = self._trade.next(number)
            self.began.append(time.perf_counter())
            try:
                self._log.append(value)
            except BraidError as error:
                self.error = error
                return
            self.ended.append(time.perf_counter())

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()


class Consumer:
    """Follows the log from its beginning, and notes when each record came. A bad event ends it."""

    def __init__(self, log: Log) -> None:
        self._subscription = log.subscribe(0)
        self._stop = threading.Event()
        self.shop = Shop()
        self.crash = ""
        self.error: BraidError | None = None
        self.arrivals: list[float] = []  # by position: it begins with the first
        self.numbers: dict[int, int] = {}  # order -> position
        self._thread = threading.Thread(target=self._run, name="demo-consumer")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self._subscription.end is None:
                for record in self._subscription.poll(_POLL_S):
                    arrived = time.perf_counter()
                    self.shop.take(record.value)
                    self.arrivals.append(arrived)
                    self.numbers[_number(record.value)] = record.position
        except BadEvent as error:
            self.crash = str(error)
        except BraidError as error:
            self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Production:
    """Both of them, on one log, with some past in it that the consumer reads before the first order is placed."""

    def __init__(self, log: Log, trade: Trade) -> None:
        self.log = log
        self.holds: list[Hold] = []
        log.append_many(trade.opening)
        for batch in _batches(trade.past):
            log.append_many(batch)
        self.consumer = Consumer(log)
        self.orders = Orders(log, trade, len(trade.past) + 1)

    def begin(self, pace: Pace) -> None:
        """Let orders come."""
        past = self.log.tail()
        pace.until(lambda: self.read_up_to(past - 1), "the consumer reads the past", PATIENCE_S)
        self.orders.begin()

    def stop(self) -> None:
        """Both end. The consumer has read what it had to read by then, or never will."""
        self.orders.stop()
        self.consumer.stop()

    @property
    def trouble(self) -> BraidError | None:
        """What ended one of them."""
        return self.orders.error or self.consumer.error

    def placed(self, since: float = 0.0) -> int:
        """Orders that are durable, since a moment."""
        return len(self.orders.ended) - bisect_left(self.orders.ended, since)

    def read_up_to(self, position: int) -> bool:
        """Whether the consumer has had that position, or has crashed."""
        return len(self.consumer.arrivals) > position or bool(self.consumer.crash) or self.trouble is not None

    def arrived(self, position: int) -> float | None:
        """When the consumer got the record there; None if it has not."""
        return self.consumer.arrivals[position] if position < len(self.consumer.arrivals) else None

    def latency(self, since: float, until: float) -> Latency:
        """Of the orders that were placed in that time; what is told of reads leaves out orders that a fork held up."""
        began, ended = self.orders.began, self.orders.ended
        first, last = bisect_left(began, since), min(bisect_right(began, until), len(ended))
        appends = [ended[n] - began[n] for n in range(first, last)]
        reads: list[float] = []
        for n in range(first, last):
            position = self.consumer.numbers.get(self.orders.first + n)
            if position is not None and not self._held(began[n], ended[n]):
                reads.append(self.consumer.arrivals[position] - began[n])
        return Latency(
            orders=len(appends),
            per_s=len(appends) / max(1e-9, until - since),
            append_p50_us=_quantile(appends, 0.5) * 1e6,
            append_p99_us=_quantile(appends, 0.99) * 1e6,
            read_p50_us=_quantile(reads, 0.5) * 1e6,
            read_p99_us=_quantile(reads, 0.99) * 1e6,
        )

    def _held(self, began: float, ended: float) -> bool:
        return any(began <= hold.ended and ended >= hold.began for hold in self.holds)


def _number(value: bytes) -> int:
    """Of an order; 0 for what is none."""
    return msgspec.json.decode(value, type=_Numbered).number


class _Numbered(msgspec.Struct):
    number: int = 0


def _batches(values: list[bytes]) -> Iterable[list[bytes]]:
    return (values[at : at + _BATCH_RECORDS] for at in range(0, len(values), _BATCH_RECORDS))


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0
