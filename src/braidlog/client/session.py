"""What all handles of one open braid share."""

from __future__ import annotations

import getpass
import itertools
import os

from braidlog import limits
from braidlog.client.arguments import Moment
from braidlog.client.backend import Backend
from braidlog.client.ticket import Outstanding
from braidlog.embedded.clock import Clock


class Session:
    """The backend, the clock it goes by, the numbering of requests, and the bound on what is submitted."""

    def __init__(self, backend: Backend, clock: Clock, client: bytes | None = None) -> None:
        self.backend = backend
        self.now_us = clock.now_us  # the same clock that tells when a lease is over
        self.outstanding = Outstanding()
        self.owner = owner_here()
        self._client = client or os.urandom(limits.CLIENT_ID_BYTES)
        self._numbers = itertools.count(1)

    def or_now(self, timestamp: Moment | None) -> Moment:
        return self.now_us() if timestamp is None else timestamp

    def next_request(self) -> bytes:
        """A fresh request id."""
        return self._client + next(self._numbers).to_bytes(8, "big")


def owner_here() -> str:
    """Whom new logs and forks belong to: BRAIDLOG_OWNER, or the user of the operating system."""
    given = os.environ.get("BRAIDLOG_OWNER")
    if given:
        return given.encode(errors="replace").decode()[: limits.OWNER_CHARS_MAX]
    try:
        return getpass.getuser()[: limits.OWNER_CHARS_MAX]
    except (KeyError, OSError):
        return ""
