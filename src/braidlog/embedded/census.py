"""How many logs of which kind live, which forks are undecided and which logs have consumers, kept as they change.

Whoever wants to know must not walk over a hundred thousand logs for it, least of all with the forest locked. So they
are counted once, when somebody first asks, and from then on by what each command answered.

`take` is called by the thread that commits, after the forest has changed and without its lock; the forest may be ahead
of it, never behind. That is why it asks the forest what is true now instead of believing an answer: an answer that was
given before can be given again. `holds` and `lags` are to be called with the forest's lock held, and take bounded time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from braidlog import limits
from braidlog.errors import BraidError
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.tails import reach
from braidlog.observe.catalog import KINDS_OF_LOG

K = TypeVar("K")

_US: Final = 1_000_000


class Hold(NamedTuple):
    """An undecided fork, and what it holds. `lease_left_s` is None if it has no lease."""

    log: str
    fork: str
    owner: str
    own: int
    age_s: float
    lease_left_s: float | None


class Lag(NamedTuple):
    """A consumer that has yet to see `lag` records."""

    log: str
    consumer: str
    position: int
    lag: int
    idle_s: float


class Holds(NamedTuple):
    """A look at the undecided forks, the oldest first."""

    undecided: int  # all of them
    held: int  # logs, of the forks that were examined
    overdue: int
    oldest_s: float
    oldest: list[Hold]


class Census:
    """Counts of one forest. To be made with the forest's lock held."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._lock = threading.Lock()
        self._kinds: dict[int, str] = {}
        self._undecided: dict[int, None] = {}  # in the order in which they were made
        self._consuming: dict[int, int] = {}  # logs with consumers of their own -> how many
        self.living: dict[str, int] = dict.fromkeys(KINDS_OF_LOG, 0)
        self.consumers = 0
        tables: set[int] = set()  # a fork that inherited its consumers shares the table of an older log
        for log in forest.logs.values():
            self._open(log)
            if log.consumers and id(log.consumers) not in tables:
                tables.add(id(log.consumers))
                self._count_consumers(log)

    # --- what changes --------------------------------------------------------------------------------------------

    def take(self, command: c.Command, answer: c.Result | BraidError) -> None:
        """A command was applied, and answered this."""
        door = _DOORS.get(type(answer))
        if door is not None:
            with self._lock:
                door(self, command, answer)

    def _opened(self, _: c.Command, answer: c.Opening) -> None:
        log = self._forest.logs.get(answer.log)
        if log is not None and log.id not in self._kinds:
            self._open(log)

    def _ended(self, _: c.Command, answer: c.Ended | c.Promotion) -> None:
        for log_id in answer.ended if isinstance(answer, c.Promotion) else answer.logs:
            kind = self._kinds.pop(log_id, None)
            if kind is not None:
                self.living[kind] -= 1
                self._undecided.pop(log_id, None)
                self.consumers -= self._consuming.pop(log_id, 0)

    def _done(self, command: c.Command, _: c.Done) -> None:
        if isinstance(command, c.Again):
            command = command.command
        if isinstance(command, c.Commit | c.ForgetConsumer):
            log = self._forest.logs.get(command.log)
            if log is not None and log.id in self._kinds:
                self._count_consumers(log)

    def _open(self, log: Log) -> None:
        kind = "promotable" if log.promotable else log.kind
        self._kinds[log.id] = kind
        self.living[kind] += 1
        if log.promotable:
            self._undecided[log.id] = None

    def _count_consumers(self, log: Log) -> None:
        now = len(log.consumers)
        self.consumers += now - self._consuming.pop(log.id, 0)
        if now:
            self._consuming[log.id] = now

    # --- looking -------------------------------------------------------------------------------------------------

    def holds(self, now_us: int, rows: int) -> Holds:
        """The undecided forks; of those examined, the `rows` oldest in full."""
        held: set[int] = set()
        overdue = 0
        oldest_s = 0.0
        oldest: list[Hold] = []
        for log_id in self._first(self._undecided, limits.STATUS_FORKS_EXAMINED_MAX):
            fork = self._forest.logs.get(log_id)
            if fork is None or fork.parent is None:
                continue  # it ended, and we were not told yet
            held.add(fork.parent.id)
            age_s = max(now_us - fork.created, 0) / _US
            oldest_s = max(oldest_s, age_s)
            left_s = (fork.lease_expires - now_us) / _US if fork.lease_expires != NONE else None
            if left_s is not None and left_s < 0:
                overdue += 1
            if len(oldest) < rows:
                oldest.append(Hold(fork.parent.name, fork.name, fork.owner, fork.own, age_s, left_s))
        return Holds(len(self._undecided), len(held), overdue, oldest_s, oldest)

    def lags(self, now_us: int, rows: int) -> list[Lag]:
        """The consumers furthest behind, of those examined."""
        found: list[tuple[int, Log, str, int, int]] = []
        room = limits.STATUS_CONSUMERS_EXAMINED_MAX
        for log_id in self._first(self._consuming, limits.STATUS_CONSUMERS_EXAMINED_MAX):
            log = self._forest.logs.get(log_id)
            if log is None:
                continue
            readable = reach(log).readable
            for name, (position, updated) in islice(log.consumers.items(), room):
                at = min(position, log.consumers_ceiling)
                found.append((readable - max(at, log.start), log, name, at, updated))
            room = limits.STATUS_CONSUMERS_EXAMINED_MAX - len(found)
            if room <= 0:
                break
        found.sort(key=lambda one: -one[0])
        return [
            Lag(log.name, name, position, lag, max(now_us - updated, 0) / _US)
            for lag, log, name, position, updated in found[:rows]
        ]

    def _first(self, keys: Iterable[K], most: int) -> list[K]:
        with self._lock:
            return list(islice(keys, most))


_DOORS: Final[dict[type, Callable[..., None]]] = {
    c.Opening: Census._opened,
    c.Ended: Census._ended,
    c.Promotion: Census._ended,
    c.Done: Census._done,
}
