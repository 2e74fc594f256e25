"""How logs ended, by their numbers, which outlive their names: for those who begin again after a crash."""

from __future__ import annotations

from msgspec import Struct

from braidlog.client.braid import Braid
from braidlog.client.log import Log


class Ending(Struct, frozen=True):
    """`how` is "squashed", "expired", "lost", "dropped" or "promoted"; "forgotten" if it was too long ago."""

    how: str
    into: str | None = None  # the log that a promoted one goes on as


def ending_of(braid: Braid, log_id: int) -> Ending | None:
    """How a log ended; None while it lives."""
    found = braid._session.backend.end_of(log_id)
    if found is None:
        return None
    end, into = found
    if end.name.startswith("#"):  # no log has such a name: it is the number, as its group counts
        return Ending("forgotten")
    return Ending(end.kind, into or None)


def is_closed(braid: Braid) -> bool:
    """Whether it was closed here: its calls fail, and will not stop to."""
    return braid._session.backend.closed


def handle_of(braid: Braid, log_id: int, name: str) -> Log:
    """The log of that number, whatever became of its name."""
    return Log(braid._session, log_id, name)
