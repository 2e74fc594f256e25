"""How many files a server's process may have open, each connection being one."""

from __future__ import annotations

import contextlib
import resource
import sys

from braidlog import limits


def allow_more() -> None:
    """Take as many as the system lets us have: what it grants at first is meant for other programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # as macOS does, if the hard limit is none at all
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_max() -> int:
    """What may be connections: some have to be left for logs, snapshots and objects, or nothing can be written."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft - limits.SERVER_FILES_KEPT, soft // 2)
