"""A stream processor that somebody wrote by hand, and others like it that each have a mistake in them.

They do what `apps.pipelines.tumbling` does in Spark: the sales of each shop in windows of 5 s of event time, with those
that are late by less than 10 s in the window they belong to, each sale once, and nothing of what is malformed. A window
is told when nothing can come to it any more.

They read what `braid tail --json` writes, and write a line of JSON for each window:

    braid tail sales --at shop.braid --json | python -m apps.agents.processors

The mistakes are ones that a log of sales in good order never shows.
"""

from __future__ import annotations

import argparse
import binascii
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

WINDOW_MS: Final = 5_000
LATEST_MS: Final = 10_000
HANDWRITTEN: Final = "handwritten"


class Sale(NamedTuple):
    """An event that makes sense."""

    id: str
    at: int  # milliseconds
    shop: str
    amount: int


class Total(NamedTuple):
    """What came of a window, for one shop."""

    begins: int
    shop: str
    sales: int
    total: int


class Tumbling:
    """The processor, and all that it remembers."""

    def __init__(self) -> None:
        self._reached = 0  # the latest time of any sale
        self._known: dict[str, int] = {}  # ids of sales, and when they were
        self._open: dict[tuple[int, str], list[int]] = defaultdict(list)

    def take(self, value: bytes) -> list[Total]:
        """The next event. What it answers are the windows that end with it."""
        sale = self.understood(value)
        if sale is None:
            return self.malformed()
        if not self.in_time(sale) or self.repeated(sale):
            return []
        self._known[sale.id] = sale.at
        self._open[self.window(sale), sale.shop].append(sale.amount)
        self._reached = max(self._reached, sale.at)
        return self._ended(self._reached - LATEST_MS)

    def understood(self, value: bytes) -> Sale | None:
        """None if it is no sale."""
        try:
            event = json.loads(value)
        except ValueError:
            return None
        if not isinstance(event, dict):
            return None
        sale = Sale(event.get("id"), event.get("at"), event.get("shop"), event.get("amount"))  # type: ignore[arg-type]
        texts = isinstance(sale.id, str) and isinstance(sale.shop, str)
        numbers = type(sale.at) is int and type(sale.amount) is int
        return sale if texts and numbers and sale.amount > 0 else None

    def malformed(self) -> list[Total]:
        return []

    def in_time(self, sale: Sale) -> bool:
        return sale.at > self._reached - LATEST_MS

    def repeated(self, sale: Sale) -> bool:
        return sale.id in self._known

    def window(self, sale: Sale) -> int:
        return sale.at // WINDOW_MS * WINDOW_MS

    def _ended(self, limit: int) -> list[Total]:
        """Windows that end before the limit, which are forgotten, and with them the sales that cannot come again."""
        ended = sorted(window for window in self._open if window[0] + WINDOW_MS <= limit)
        if ended:
            self._known = {name: at for name, at in self._known.items() if at + LATEST_MS > limit}
        amounts = [(window, self._open.pop(window)) for window in ended]
        return [Total(begins, shop, len(of), sum(of)) for (begins, shop), of in amounts]


class LateDropped(Tumbling):
    """Waits for late sales only as long as a window lasts."""

    def in_time(self, sale: Sale) -> bool:
        return sale.at > self._reached - WINDOW_MS


class LastIdOnly(Tumbling):
    """Knows a sale again only if no other came between."""

    def repeated(self, sale: Sale) -> bool:
        return next(reversed(self._known), None) == sale.id


class MalformedCrashes(Tumbling):
    """Takes for granted that every event is a sale."""

    def understood(self, value: bytes) -> Sale | None:
        event = json.loads(value)
        sale = Sale(event["id"], int(event["at"]), event["shop"], event["amount"])
        return sale if sale.amount > 0 else None


class MalformedEndsWindows(Tumbling):
    """Tells what it has so far when it does not understand an event, and begins again."""

    def malformed(self) -> list[Total]:
        return self._ended(self._reached + WINDOW_MS)


class RefundsCounted(Tumbling):
    """Counts sales of less than nothing."""

    def understood(self, value: bytes) -> Sale | None:
        try:
            event = json.loads(value)
            return Sale(str(event["id"]), int(event["at"]), str(event["shop"]), int(event["amount"]))
        except (ValueError, TypeError, KeyError):
            return None


class EdgeForgotten(Tumbling):
    """Puts a sale that comes just after its window's end into the next one."""

    def window(self, sale: Sale) -> int:
        newest = self._reached // WINDOW_MS * WINDOW_MS
        return newest if newest - 1_000 <= sale.at < newest else super().window(sale)


class EdgeBefore(Tumbling):
    """Puts a sale at the very beginning of a window into the one before."""

    def window(self, sale: Sale) -> int:
        return (sale.at - 1) // WINDOW_MS * WINDOW_MS


BUGGY: Final[Mapping[str, type[Tumbling]]] = {
    "late-dropped": LateDropped,
    "last-id-only": LastIdOnly,
    "malformed-crashes": MalformedCrashes,
    "malformed-ends-windows": MalformedEndsWindows,
    "refunds-counted": RefundsCounted,
    "edge-forgotten": EdgeForgotten,
    "edge-before": EdgeBefore,
}
PROCESSORS: Final[Mapping[str, type[Tumbling]]] = {HANDWRITTEN: Tumbling, **BUGGY}


def planted(seed: int) -> str:
    """One of those with a mistake."""
    return Random(seed).choice(sorted(BUGGY))


def values(lines: Iterable[str]) -> Iterator[bytes]:
    """The values of records, from what `braid tail --json` writes."""
    for line in lines:
        record: dict[str, Any] = json.loads(line)
        text = record.get("value")
        yield text.encode() if text is not None else binascii.a2b_base64(record["value_base64"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", choices=PROCESSORS, default=HANDWRITTEN, help=f"which one ({HANDWRITTEN})")
    processor = PROCESSORS[parser.parse_args().processor]()
    for value in values(sys.stdin):
        for total in processor.take(value):
            print(json.dumps(total._asdict()), flush=True)


if __name__ == "__main__":
    main()
