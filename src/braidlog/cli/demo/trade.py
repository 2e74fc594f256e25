"""What is bought, drawn from a seed: the same seed, the same orders. PURE.

In the past that it draws, one shop sold one sku for a tenth of its price on one day. Nobody is told which: an agent has
to find it in the log.
"""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

from braidlog.cli.demo.shop import SHELF, Order, Restock, encode

SKUS: Final = ("anchor", "braid", "cleat", "halyard", "shackle")
SHOPS: Final = ("east", "north", "south", "west")
DAYS: Final = 4  # the last of which is today
_OPENING: Final = (0.4, 0.8)  # of a shelf is full in the beginning


class Mispriced(Struct, frozen=True, kw_only=True):
    """Orders that were sold for a tenth of the price."""

    shop: str
    sku: str
    day: int
    orders: int


class Trade:
    """All that customers do."""

    def __init__(self, seed: int, past: int) -> None:
        self._chance = random.Random(seed)
        self._prices = {sku: self._chance.randint(500, 5_000) for sku in SKUS}
        self._wrong = self._chance.choice(SHOPS), self._chance.choice(SKUS), self._chance.randrange(1, DAYS)
        self.opening = [
            encode(Restock(sku=sku, quantity=round(SHELF * self._chance.uniform(*_OPENING)))) for sku in SKUS
        ]
        self._found = 0
        self.past = [
            encode(self._order(number, 1 + number * (DAYS - 1) // (past + 1))) for number in range(1, past + 1)
        ]
        shop, sku, day = self._wrong
        self.planted = Mispriced(shop=shop, sku=sku, day=day, orders=self._found)

    def next(self, number: int) -> bytes:
        """An order of today."""
        return encode(self._order(number, DAYS))

    def _order(self, number: int, day: int) -> Order:
        chance = self._chance
        shop, sku = chance.choice(SHOPS), chance.choice(SKUS)
        cents = round(self._prices[sku] * chance.uniform(0.9, 1.1))
        if (shop, sku, day) == self._wrong:
            cents //= 10
            self._found += 1
        return Order(number=number, day=day, shop=shop, sku=sku, quantity=chance.randint(1, 5), cents=cents)
