"""The agent of the demo, who restocks, and the validator who looks at what it did before anybody else can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from braidlog import Diff, Record

CARELESS: Final = (
    {"type": "restock", "sku": "anchor", "quantity": 40},
    {"type": "restock", "sku": "braid", "quantity": -25},
    {"type": "restock", "sku": "cleat", "quantity": 60},
    {"type": "restock", "item": "halyard", "amount": "a few"},
)
CAREFUL: Final = (
    {"type": "restock", "sku": "anchor", "quantity": 40},
    {"type": "restock", "sku": "braid", "quantity": 25},
    {"type": "restock", "sku": "cleat", "quantity": 60},
    {"type": "restock", "sku": "halyard", "quantity": 15},
)


def problem_with(value: bytes) -> str:
    """What is wrong with an order or a restock; empty if nothing is."""
    event = msgspec.json.decode(value)
    if not isinstance(event.get("sku"), str):
        return "it names no sku"
    quantity = event.get("quantity")
    if not isinstance(quantity, int):
        return "it has no quantity"
    return "" if quantity > 0 else f"its quantity is {quantity}"


def validate(diff: Diff) -> list[tuple[Record, str]]:
    """The fork's own records that are wrong, and why."""
    return [(record, problem) for record in diff.own if (problem := problem_with(record.value))]
