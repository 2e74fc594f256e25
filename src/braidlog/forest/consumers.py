"""Consumers: how far somebody got with a log, kept with the log so that he finds it again.

A fork begins with its parent's consumers. That costs the same for any number of them: the parent's table is shared,
and whoever changes his takes a copy first. What a severed fork inherits beyond its end counts as its end.

A position never lies beyond what is readable, and what was readable once stays so, at the same position: so no decision
on a fork makes a consumer's position wrong.
"""

from __future__ import annotations

from braidlog import limits
from braidlog.errors import ConditionFailed, NotFound, OutOfRange
from braidlog.forest.forks import blocked_by
from braidlog.forest.log import FAR, Log
from braidlog.forest.names import check_consumer
from braidlog.forest.tails import reach


def inherit(log: Log, parent: Log, tail: int) -> None:
    """A new fork that ends at `tail` begins with its parent's consumers."""
    if parent.consumers:
        log.consumers = parent.consumers
        log.consumers_shared = parent.consumers_shared = True
        log.consumers_ceiling = min(parent.consumers_ceiling, tail)


def position_of(log: Log, consumer: str) -> int | None:
    """Where a consumer stands, if the log knows it."""
    known = log.consumers.get(consumer)
    return min(known[0], log.consumers_ceiling) if known is not None else None


def commit(log: Log, consumer: str, position: int, now: int) -> int:
    """Put a consumer at a position, forward or backward."""
    check_consumer(consumer)
    at = reach(log)
    if not 0 <= position <= at.tail:
        raise OutOfRange(f"log {log.name!r} ends at {at.tail}: consumer {consumer!r} cannot stand at {position}")
    if position > at.readable:
        raise blocked_by(log, at.holder, f"consumer {consumer!r} at {position}")
    if consumer not in log.consumers and len(log.consumers) >= limits.CONSUMERS_PER_LOG_MAX:
        raise ConditionFailed(
            f"log {log.name!r} has {len(log.consumers):,} consumers, which is as many as can be: forget one that is "
            "not needed any more, with forget_consumer()"
        )
    _own(log)[consumer] = (position, now)
    return position


def forget(log: Log, consumer: str) -> int:
    """Remove a consumer; answers where it stood."""
    position = position_of(log, consumer)
    if position is None:
        raise NotFound(f"log {log.name!r} has no consumer named {consumer!r}: `consumers()` lists those it has")
    del _own(log)[consumer]
    return position


def _own(log: Log) -> dict[str, tuple[int, int]]:
    """The log's consumers, shared with nobody."""
    if log.consumers_shared:
        ceiling = log.consumers_ceiling
        log.consumers = {name: (min(position, ceiling), at) for name, (position, at) in log.consumers.items()}
        log.consumers_shared = False
        log.consumers_ceiling = FAR
    return log.consumers
