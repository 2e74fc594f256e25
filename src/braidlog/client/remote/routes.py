"""Which connection a log is asked for over: the server that the service names, or else the one at hand.

Any server serves any log, so a wrong or old answer costs time and nothing else. What is known is asked for again now
and then, and when the connection to the named one cannot be made the one at hand serves. When the named one is lost its
connection goes to another one, and comes back once it is named again: or work on forks would stay at a broker of roots.

For each log one caller asks, with nothing locked, and others wait for his answer. Nobody waits longer than he says: he
takes what is at hand, and so does then everybody, for what is sent over one connection must not be overtaken by what is
sent over another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from braidlog import limits
from braidlog.client.remote.link import Link
from braidlog.errors import BraidError

_Known = tuple[Link, float]  # the connection, until when


class Routes:
    """`ask(log, patience_s)` answers the address that the service names, empty for the server itself; `open_link`
    connects, and does not wait for it."""

    def __init__(self, home: Link, ask: Callable[[int, float], str], open_link: Callable[[str], Link]) -> None:
        self._home = home
        self._ask = ask
        self._open_link = open_link
        self._lock = threading.Lock()  # never held while anybody is asked
        self._returning = threading.Lock()
        self._links: dict[str, Link] = {}
        self._known: dict[int, _Known] = {}
        self._asked: dict[int, threading.Event] = {}  # by log: set when there is an answer

    def knows(self, log: int) -> bool:
        """Whether `link` answers without asking anybody."""
        known = self._known.get(log)
        return known is not None and known[1] >= time.monotonic()

    def link(self, log: int, patience_s: float = limits.ROUTE_ANSWER_S) -> Link:
        """Where to ask for the log. It takes not much longer than that."""
        known = self._known.get(log)
        if known is not None and known[1] >= time.monotonic():
            return known[0]
        with self._lock:
            known = self._known.get(log)
            if known is not None and (known[1] >= time.monotonic() or log in known[0].changed_logs()):
                return self._keep(log, known)
            answered = self._asked.get(log)
            mine = answered is None
            if answered is None:
                answered = self._asked[log] = threading.Event()
        if not mine:
            answered.wait(patience_s)
            return self.at_hand(log)
        try:
            link, lasts_s = self._decide(log, patience_s)
            with self._lock:
                return self._settle(log, known, link, lasts_s)
        finally:
            with self._lock:
                del self._asked[log]
            answered.set()

    def at_hand(self, log: int) -> Link:
        """The same without asking anybody."""
        with self._lock:
            return self._keep(log, self._known.get(log) or (self._home, 0.0))

    def links(self) -> list[Link]:
        return list(self._links.values())

    def close(self) -> None:
        for link in self.links():
            link.close()

    def _keep(self, log: int, known: _Known) -> Link:
        """It is used now, and so it stays for a while, also for him who asks just now."""
        now = time.monotonic()
        if known[1] < now:
            self._known[log] = (known[0], now + limits.ROUTE_RETRY_S)
        return known[0]

    def _settle(self, log: int, before: _Known | None, link: Link, lasts_s: float) -> Link:
        """What was decided, unless somebody could not wait for that: then what he took."""
        known = self._known.get(log)
        if known is not None and (known is not before or (known[0] is not link and log in known[0].changed_logs())):
            return self._keep(log, known)
        if len(self._known) >= limits.ROUTES_KEPT_LOGS:
            changed = {other: other.changed_logs() for other in [self._home, *self._links.values()]}
            self._known = {other: kept for other, kept in self._known.items() if other in changed[kept[0]]}
        self._known[log] = (link, time.monotonic() + lasts_s)
        return link

    def _decide(self, log: int, patience_s: float) -> _Known:
        deadline = time.monotonic() + patience_s
        try:
            address = self._ask(log, patience_s)
            if not address:
                return self._home, limits.ROUTE_S
            with self._lock:
                link = self._links.get(address)
                if link is None:
                    link = self._links[address] = self._open_link(address)
        except BraidError:  # whoever asks for the log itself is told better
            return self._home, limits.ROUTE_RETRY_S
        if not link.changing and self._returning.acquire(blocking=False):
            try:
                link.return_to_first()
            finally:
                self._returning.release()
        left = max(deadline - time.monotonic(), 0.0)
        return (link, limits.ROUTE_S) if link.alive(min(left, limits.KNOCK_S)) else (self._home, limits.ROUTE_RETRY_S)
