"""Which connection a log is asked for over: the server that the service names, or else the one at hand.

Any server serves any log, so a wrong or old answer costs time and nothing else. What is known is asked for again now
and then, and when the connection to the named one cannot be made the one at hand serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from braidlog import limits
from braidlog.client.remote.link import Address, Link
from braidlog.errors import BraidError


class Routes:
    """`ask(log)` answers the address that the service names, empty for the server itself; `open_link` connects."""

    def __init__(self, home: Link, ask: Callable[[int], str], open_link: Callable[[Address], Link]) -> None:
        self._home = home
        self._ask = ask
        self._open_link = open_link
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}
        self._known: dict[int, tuple[str, float]] = {}  # log -> (address, until when)

    def link(self, log: int) -> Link:
        """Where to ask for the log."""
        now = time.monotonic()
        known = self._known.get(log)
        if known is None or known[1] < now:
            try:
                address = self._ask(log)
            except BraidError:  # whoever asks for the log itself is told better
                address = ""
            if len(self._known) >= limits.ROUTES_KEPT_LOGS:
                self._known.clear()
            known = self._known[log] = (address, now + limits.ROUTE_S)
        return self._connected(known[0], log) if known[0] else self._home

    def links(self) -> list[Link]:
        with self._lock:
            return list(self._links.values())

    def close(self) -> None:
        for link in self.links():
            link.close()

    def _connected(self, address: str, log: int) -> Link:
        with self._lock:
            link = self._links.get(address)
            if link is None:
                link = self._links[address] = self._open_link(parse(address))
        if link.alive(limits.KNOCK_S):
            return link
        self._known[log] = ("", time.monotonic() + limits.ROUTE_RETRY_S)
        return self._home


def parse(address: str) -> Address:
    from braidlog.client.remote.opening import addresses_of

    return addresses_of(f"braid://{address}")[0]
