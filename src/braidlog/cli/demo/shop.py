"""What the events of the demo's shop mean, and the consumer that production runs on them. PURE.

`Copy` is that consumer once more, as a validator: it is fed a fork, and says what production would make of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from braidlog.agents import Verdict

if TYPE_CHECKING:
    from braidlog import Record

SHELF: Final = 100_000  # pieces of each sku that there is room for

_Positive = Annotated[int, Meta(gt=0)]


class Order(Struct, frozen=True, kw_only=True, tag_field="type", tag="order"):
    """Somebody bought something."""

    number: int
    day: int
    shop: str
    sku: str
    quantity: _Positive
    cents: _Positive  # for one piece


class Restock(Struct, frozen=True, kw_only=True, tag_field="type", tag="restock"):
    """Something was put on a shelf."""

    sku: str
    quantity: _Positive


encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Order | Restock).decode


class BadEvent(Exception):
    """An event that the consumer cannot live with."""


class Shop:
    """Keeps the stock, and the sales of the day. It believes what it reads: a bad event ends it."""

    def __init__(self) -> None:
        self.stock: dict[str, int] = {}
        self.day = 0
        self.sales_cents = 0  # of that day
        self.orders = 0
        self.restocks = 0
        self.late = 0
        self.duplicates = 0
        self._numbers: set[int] = set()

    def take(self, value: bytes) -> str:
        """Take an event in, and say what was made of it. Nothing is, if it is bad."""
        try:
            event = _decode(value)
        except msgspec.MsgspecError as error:
            raise BadEvent(str(error)) from None
        return self._sell(event) if isinstance(event, Order) else self._put(event)

    def _sell(self, order: Order) -> str:
        if order.number in self._numbers:
            self.duplicates += 1
            return "ignored as a duplicate"
        self._numbers.add(order.number)
        self.orders += 1
        self.stock[order.sku] = self.stock.get(order.sku, 0) - order.quantity
        if order.day < self.day:
            self.late += 1
            return f"taken as late, into the books of day {order.day}"
        if order.day > self.day:
            self.day, self.sales_cents = order.day, 0
        self.sales_cents += order.quantity * order.cents
        return "taken"

    def _put(self, restock: Restock) -> str:
        there = self.stock.get(restock.sku, 0) + restock.quantity
        if there > SHELF:
            raise BadEvent(f"{there:,} {restock.sku} would be on a shelf for {SHELF:,}")
        self.stock[restock.sku] = there
        self.restocks += 1
        return f"put on the shelf, which has {there:,} {restock.sku}"


class Copy:
    """The consumer as a validator. Its samples say what it made of each record of the fork's own."""

    def __init__(self) -> None:
        self._shop = Shop()
        self._reasons: list[str] = []
        self._positions: list[int] = []
        self._samples: list[str] = []

    def record(self, record: Record, own: bool) -> None:
        """One record of the fork, in its order."""
        try:
            said = self._shop.take(record.value)
        except BadEvent as error:
            said = f"crash: {error}"
            self._reasons.append(str(error))
            self._positions.append(record.position)
        if own:
            self._samples.append(said)

    def end(self) -> Verdict:
        """Whether production would survive it."""
        return Verdict(not self._reasons, self._reasons, self._positions, self._samples)
