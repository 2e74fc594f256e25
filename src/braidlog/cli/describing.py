"""A log's facts in words and as JSON, the same for every verb that tells them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from braidlog.cli.output import Json

if TYPE_CHECKING:
    from braidlog import Info

_STEPS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def info_json(info: Info) -> dict[str, Json]:
    """Everything that `Log.info` tells."""
    retention = info.retention
    return {
        "name": info.name,
        "id": info.id,
        "kind": info.kind,
        "parent": info.parent,
        "fork_point": info.fork_point,
        "promotable": info.promotable,
        "dedicated": info.dedicated,
        "discipline": info.discipline,
        "start": info.start,
        "tail": info.tail,
        "readable_tail": info.readable_tail,
        "limited_by": info.limited_by,
        "own": info.own,
        "own_bytes": info.own_bytes,
        "shared_bytes": info.shared_bytes,
        "epoch": info.epoch,
        "created": moment_text(info.created),
        "expires": moment_text(info.expires),
        "lease_expires": moment_text(info.lease_expires),
        "owner": info.owner,
        "labels": dict(info.labels),
        "retention": None if retention is None else {"max_age": retention.max_age, "max_bytes": retention.max_bytes},
    }


def moment_text(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def time_left(moment: datetime) -> str:
    """How long until then, in its two largest units."""
    seconds = int((moment - datetime.now(UTC)).total_seconds())
    if seconds < 0:
        return "overdue"
    parts: list[str] = []
    for step, unit in _STEPS:
        if seconds >= step or (parts and len(parts) < 2) or step == 1:
            parts.append(f"{seconds // step}{unit}")
            seconds %= step
        if len(parts) == 2:
            break
    return " ".join(parts) + " left"


def kind_text(info: Info) -> str:
    """What a log is, in the words of the documentation."""
    names = {"root": "log", "cfork": "cFork", "sfork": "sFork"}
    return f"promotable {names[info.kind]}" if info.promotable else names[info.kind]


def hold_text(info: Info) -> str:
    """What stands in the way of reading all of it; empty if nothing does."""
    if info.limited_by is None:
        return ""
    if info.limited_by == info.name:
        return f"held, readable up to {info.readable_tail}"
    return f"blocked by the hold on {info.limited_by}, readable up to {info.readable_tail}"
