"""A shop whose events stand on a log, and the consumer that follows it.

An event opens a shelf, orders from it, or restocks it. `Stock` is the whole state of the consumer: what lies on each
shelf. It trusts what it reads, as consumers do, and ends with `Malformed` at an event that is none, or that puts more
on a shelf than it holds. `Rehearsal` is the same consumer as a validator: it is run over a fork before anybody sees it.

Nothing but braidlog is needed here, so that a validator starts quickly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from braidlog import Braid, Log, Record
from braidlog.agents import Registry, Verdict

LOG: Final = "shop"
SHELF_UNITS: Final = 3_000  # that fit on one
DELIVERY_UNITS: Final = 1_200
ITEMS: Final = ("anchor", "block", "cleat", "fender", "halyard", "pulley", "rope", "sail", "shackle", "winch")
SUPPLIERS: Final = ("north", "east", "south")
ORDERS_PER_MINUTE: Final = 5
REHEARSAL: Final = f"{Path(__file__)}:Rehearsal"

Event = dict[str, Any]


class Malformed(Exception):
    """An event that a consumer cannot go on with."""


class Stock:
    """What lies on each shelf. Below zero is what was ordered and is owed."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}

    def take(self, value: bytes) -> Event:
        """Count one event in, and answer it."""
        try:
            event: Event = json.loads(value)
            kind, item, count = event["kind"], event["item"], event["count"]
        except (ValueError, TypeError) as error:
            raise Malformed(f"it is no event: {error}") from None
        except KeyError as error:
            raise Malformed(f"it has no {error.args[0]}") from None
        if type(count) is not int or count <= 0:
            raise Malformed(f"its count is {count!r}")
        if kind == "opening" and item not in self.levels:
            self.levels[item] = 0
        elif kind not in ("order", "restock"):
            raise Malformed(f"its kind is {kind!r}")
        elif item not in self.levels:
            raise Malformed(f"there is no item {item!r}")
        level = self.levels[item] + (-count if kind == "order" else count)
        if level > SHELF_UNITS:
            raise Malformed(f"it would put {level:,} of {item!r} on a shelf for {SHELF_UNITS:,}")
        self.levels[item] = level
        return event


class Rehearsal:
    """A validator: the consumer, over history, what came since, and what the agent wrote, as they would follow."""

    def __init__(self) -> None:
        self._stock = Stock()
        self._verdict: Verdict | None = None

    def record(self, record: Record, own: bool) -> None:
        """It ends at the first event that it cannot go on with, as it would in production."""
        if self._verdict is not None:
            return
        try:
            self._stock.take(record.value)
        except Malformed as error:
            whose = "the agent's record" if own else "a record of the log"
            reason = f"the consumer would end at {record.position}, {whose}: {error}"
            self._verdict = Verdict(False, [reason], [record.position], [record.value.decode("utf-8", "replace")])

    def end(self) -> Verdict:
        return self._verdict or Verdict(True)


# --- drawn events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demand:
    """How much an item is wanted, beside the others, and how that changes in a thousand minutes."""

    item: str
    supplier: str
    weight: float
    trend: float

    def at(self, minute: int) -> float:
        """Its weight at a minute."""
        return max(0.05, self.weight + self.trend * minute / 1000)


class Market:
    """Where orders come from: all of it is drawn from one seed."""

    def __init__(self, seed: int, items: int = 6) -> None:
        self._rng = rng = Random(seed)
        self.demands = [
            Demand(item, rng.choice(SUPPLIERS), rng.uniform(0.5, 2.0), rng.uniform(-3.0, 6.0))
            for item in rng.sample(ITEMS, items)
        ]
        self._orders = 0

    def resume(self, log: Log) -> None:
        """Go on with what a log that is there already sells."""
        events = [json.loads(record.value) for record in log.read(0)]
        openings = [event for event in events if event["kind"] == "opening"]
        self.demands = [
            Demand(event["item"], event["supplier"], self._rng.uniform(0.5, 2.0), 0.0) for event in openings
        ]
        self._orders = ORDERS_PER_MINUTE * (1 + max(event["minute"] for event in events))

    @property
    def minute(self) -> int:
        """Of the next order."""
        return self._orders // ORDERS_PER_MINUTE

    def order(self) -> Event:
        """The next one."""
        minute = self.minute
        demand = self._rng.choices(self.demands, [one.at(minute) for one in self.demands])[0]
        self._orders += 1
        return {"kind": "order", "item": demand.item, "count": self._rng.randint(1, 9), "minute": minute}

    def history(self, orders: int) -> Iterator[Event]:
        """Shelves are opened, things are ordered, and now and then, when a shelf is low, its supplier delivers."""
        levels: dict[str, int] = {}
        for demand in self.demands:
            levels[demand.item] = self._rng.randint(600, 1500)
            yield {
                "kind": "opening",
                "item": demand.item,
                "count": levels[demand.item],
                "minute": 0,
                "supplier": demand.supplier,
            }
        for _ in range(orders):
            order = self.order()
            yield order
            item = order["item"]
            levels[item] -= order["count"]
            if levels[item] < 400 and self._rng.random() < 0.05:
                levels[item] += DELIVERY_UNITS
                yield {"kind": "restock", "item": item, "count": DELIVERY_UNITS, "minute": order["minute"]}


def encoded(event: Event) -> bytes:
    """An event as the value of a record."""
    return json.dumps(event).encode()


def opened(braid: Braid, market: Market, orders: int) -> Log:
    """The log with a history, and the rehearsal before it. One that is there is left as it is."""
    if LOG in braid:
        log = braid.log(LOG)
        market.resume(log)
    else:
        log = braid.create(LOG)
        log.append_many([encoded(event) for event in market.history(orders)])
    registry = Registry(braid)
    if not any(one.name == "rehearsal" for one in registry.list(LOG)):
        registry.add("rehearsal", REHEARSAL, logs=LOG)
    return log
