"""Which broker serves which log. PURE: a function of who is there and what is asked for.

Any broker can serve any log; where one is served decides whom it disturbs. So forks are served by other brokers than
roots: of those that are there, some are kept for forks, warm and mostly idle. Forks of one parent share one, and with
it its cache. A fork that asks for its own gets one that serves no other, while there are enough.

Logs are spread by rendezvous hashing: when a broker comes or goes, only what it serves moves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence


def pools(brokers: Sequence[str]) -> tuple[list[str], list[str]]:
    """(for roots, for forks): disjoint when there are two brokers or more. A third is for forks, at least one."""
    there = sorted(brokers)
    if len(there) < 2:
        return there, there
    kept = max(1, len(there) // 3)
    return there[:-kept], there[-kept:]


def place(brokers: Sequence[str], root: int, parent: int | None, log: int, dedicated: Mapping[int, str]) -> str | None:
    """The broker of a log; `parent` is None for a root. `dedicated` are the forks that have a broker of their own."""
    if log in dedicated and dedicated[log] in brokers:
        return dedicated[log]
    for_roots, for_forks = pools(brokers)
    if not for_roots:
        return None
    if parent is None:
        return _highest(for_roots, root)
    free = [name for name in for_forks if name not in set(dedicated.values())]
    return _highest(free or for_forks, parent)


def dedicate(brokers: Sequence[str], log: int, dedicated: Mapping[int, str]) -> str | None:
    """A broker for this fork alone, or None if that would leave the other forks without one."""
    _, for_forks = pools(brokers)
    free = [name for name in for_forks if name not in set(dedicated.values())]
    return _highest(free, log) if len(free) > 1 else None


def _highest(brokers: Sequence[str], key: int) -> str:
    return max(brokers, key=lambda name: hashlib.blake2b(f"{key} {name}".encode(), digest_size=8).digest())
