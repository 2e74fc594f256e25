"""Which connection a log is asked for over: the server that the service names, or else the one at hand.

Any server serves any log, so a wrong or old answer costs time and nothing else. What is known is asked for again now
and then, and when the connection to the named one cannot be made the one at hand serves. When the named one is lost its
connection goes to another one, and comes back once it is named again: or work on forks would stay at a broker of roots.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from braidlog import limits
from braidlog.client.remote.link import Link
from braidlog.errors import BraidError


class Routes:
    """`ask(log)` answers the address that the service names, empty for the server itself; `open_link` connects."""

    def __init__(self, home: Link, ask: Callable[[int], str], open_link: Callable[[str], Link]) -> None:
        self._home = home
        self._ask = ask
        self._open_link = open_link
        self._deciding = threading.Lock()
        self._links: dict[str, Link] = {}
        self._known: dict[int, tuple[Link, float]] = {}  # log -> (its connection, until when)

    def knows(self, log: int) -> bool:
        """Whether `link` answers without asking anybody."""
        known = self._known.get(log)
        return known is not None and known[1] >= time.monotonic()

    def link(self, log: int) -> Link:
        """Where to ask for the log."""
        known = self._known.get(log)
        if known is not None and known[1] >= time.monotonic():
            return known[0]
        with self._deciding:
            known = self._known.get(log)
            now = time.monotonic()
            if known is not None and (known[1] >= now or log in known[0].changed_logs()):
                # What was sent over one connection must not be overtaken by what is sent over another.
                self._known[log] = (known[0], max(known[1], now + limits.ROUTE_RETRY_S))
                return known[0]
            if len(self._known) >= limits.ROUTES_KEPT_LOGS:
                changed = {link: link.changed_logs() for link in [self._home, *self._links.values()]}
                self._known = {other: kept for other, kept in self._known.items() if other in changed[kept[0]]}
            link, lasts_s = self._decide(log)
            self._known[log] = (link, time.monotonic() + lasts_s)
            return link

    def links(self) -> list[Link]:
        return list(self._links.values())

    def close(self) -> None:
        for link in self.links():
            link.close()

    def _decide(self, log: int) -> tuple[Link, float]:
        try:
            address = self._ask(log)
        except BraidError:  # whoever asks for the log itself is told better
            return self._home, limits.ROUTE_RETRY_S
        if not address:
            return self._home, limits.ROUTE_S
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._open_link(address)
        elif not link.changing:
            link.return_to_first()
        return (link, limits.ROUTE_S) if link.alive(limits.KNOCK_S) else (self._home, limits.ROUTE_RETRY_S)
