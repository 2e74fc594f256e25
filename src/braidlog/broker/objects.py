"""From the items of a flush to one Arrow object: a block for each log, and those that clients built."""

from __future__ import annotations

from collections import defaultdict

from braidlog.broker.gathering import Flush, Item, Place
from braidlog.forest import commands as c
from braidlog.objects.batch import Batch, decode, to_arrow
from braidlog.objects.format import ObjectWriter


def lay_out(flush: Flush) -> tuple[ObjectWriter, list[tuple[int, int] | None]]:
    """The object in the making, and for each item its block in it and its first row there."""
    writer = ObjectWriter()
    homes: list[tuple[int, int] | None] = [None] * len(flush.items)
    small: dict[int, list[tuple[int, Item]]] = defaultdict(list)
    for number, item in enumerate(flush.items):
        if item.columns is not None:
            homes[number] = (writer.add(item.columns), 0)
        elif isinstance(item.command, c.Append):
            small[item.command.log].append((number, item))
    for members in small.values():
        batches: list[Batch] = []
        rows: list[int] = []
        row = 0
        for _, item in members:
            assert isinstance(item.command, c.Append)
            batch = decode(item.command.payload)
            batches.append(batch)
            rows.append(row)
            row += batch.count
        block = writer.add(to_arrow(batches))
        for (number, _), first in zip(members, rows, strict=True):
            homes[number] = (block, first)
    return writer, homes


def places(homes: list[tuple[int, int] | None], blocks: list[tuple[int, int, int]]) -> list[Place | None]:
    return [None if home is None else Place(*blocks[home[0]], home[1]) for home in homes]
