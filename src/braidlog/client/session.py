"""What all handles of one open braid share."""

from __future__ import annotations

import getpass
import itertools
import os
import time

from braidlog import limits
from braidlog.client.backend import Backend
from braidlog.client.ticket import Outstanding


class Session:
    """The backend, the numbering of requests, and the bound on what is submitted."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.outstanding = Outstanding()
        self.owner = _owner()
        self._client = os.urandom(8)
        self._numbers = itertools.count(1)

    def next_request(self) -> bytes:
        """A fresh request id."""
        return self._client + next(self._numbers).to_bytes(8, "big")

    @staticmethod
    def now_us() -> int:
        return time.time_ns() // 1000


def _owner() -> str:
    """Whom new logs and forks belong to: BRAIDLOG_OWNER, or the user of the operating system."""
    given = os.environ.get("BRAIDLOG_OWNER")
    if given:
        return given[: limits.OWNER_CHARS_MAX]
    try:
        return getpass.getuser()[: limits.OWNER_CHARS_MAX]
    except (KeyError, OSError):
        return ""
