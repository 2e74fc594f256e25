"""Records and logs in the form that agents get them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from braidlog import Info, Log, Record
from braidlog.agents.describing import format_of
from braidlog.agents.names import AGENT_LABEL
from braidlog.errors import BraidError, InvalidArgument
from braidlog.mcp.models import Encoding, HoldOut, LogOut, RecordOut
from braidlog.record import to_micros


def moment(at: datetime | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if at is None else at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_of(micros: int | None) -> str | None:
    """The same from microseconds since 1970; beyond the years 1 to 9999, the number."""
    if micros is None:
        return None
    try:
        return moment(Record(b"", timestamp=micros).time)
    except OverflowError:
        return str(micros)


def micros_of(name: str, text: str) -> int:
    """Microseconds since 1970 from ISO 8601; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
        return to_micros(found if found.tzinfo else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name} = {text[:80]!r} is not a time: write 2026-01-31T12:00:00Z") from None


class Shown(NamedTuple):
    record: RecordOut
    size: int  # about what it takes in an answer


def record(found: Record, room: int, own: bool | None = None) -> Shown:
    """One record, its value cut to so many bytes if it is longer."""
    value = found.value if len(found.value) <= room else _whole_characters(found.value[:room])
    cut = len(found.value) if len(value) < len(found.value) else None
    kind = "text" if cut is not None else format_of(value)
    encoding: Encoding
    shown: Any
    if kind == "json":
        encoding, shown = "json", msgspec.json.decode(value)
    else:
        encoding, shown = _text(value)
    headers = {name: _text(data)[1] for name, data in found.headers} or None
    told = RecordOut(
        position=found.position,
        time=moment_of(found.timestamp) or "",
        value=shown,
        encoding=encoding,
        key=None if found.key is None else _text(found.key)[1],
        headers=headers,
        own=own,
        cut=cut,
    )
    return Shown(told, len(value) + found.size - len(found.value))


def _whole_characters(data: bytes) -> bytes:
    """Without what a cut left of the last character, if it is UTF-8 before that."""
    for less in range(4):
        try:
            data[: len(data) - less].decode()
        except UnicodeDecodeError:
            continue
        return data[: len(data) - less]
    return data


def _text(data: bytes) -> tuple[Encoding, str]:
    try:
        return "text", data.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(data).decode()


def records(found: Iterable[tuple[Record, bool | None]], room: int) -> list[RecordOut]:
    """As many as there is room for, and at least one."""
    told: list[RecordOut] = []
    for one, own in found:
        shown = record(one, room, own)
        if told and shown.size > room:
            break
        told.append(shown.record)
        room = max(0, room - shown.size)
        if not room:
            break
    return told


def log(info: Info, agent: str, parent: Info | None = None, holds: list[HoldOut] | None = None) -> LogOut:
    """A log. `parent` tells how far behind a severed fork is; `holds` are those on the log itself."""
    fork = info.kind != "root"
    limited = info.readable_tail < info.tail
    made_by = info.labels.get(AGENT_LABEL)
    labels = {name: text for name, text in info.labels.items() if not name.startswith("braidlog.")}
    return LogOut(
        name=info.name,
        kind=info.kind,  # type: ignore[arg-type]
        parent=info.parent,
        fork_point=info.fork_point,
        promotable=info.promotable or None,
        start=info.start,
        tail=info.tail,
        readable_tail=info.readable_tail if limited else None,
        held_by=holds or None,
        ahead=info.own if fork else None,
        behind=_behind(info, parent) if fork else None,
        mine=(made_by == agent) if fork else None,
        agent=made_by,
        expires=moment(info.expires),
        lease_expires=moment(info.lease_expires),
        labels=labels or None,
    )


def _behind(info: Info, parent: Info | None) -> int | None:
    """A live fork has all that its parent has; a severed one what was there when it was made."""
    if info.kind == "cfork":
        return 0
    if parent is None or info.fork_point is None:
        return None
    return max(0, parent.tail - info.fork_point)


def holds(forks: Iterable[Info], now: datetime) -> dict[str, list[HoldOut]]:
    """Of each log that is held, the forks that hold it, the oldest first."""
    found: dict[str, list[HoldOut]] = {}
    for info in forks:
        if info.promotable and info.parent is not None:
            hold = HoldOut(
                fork=info.name,
                since=moment(info.created) or "",
                age_s=round((now - info.created).total_seconds(), 3),
                lease_expires=moment(info.lease_expires),
            )
            found.setdefault(info.parent, []).append(hold)
    return found


def infos(logs: Iterable[Log], wanted: Callable[[str], bool]) -> list[Info]:
    """Of all that still live and may be seen."""
    found: list[Info] = []
    for one in logs:
        if wanted(one.name):
            try:
                found.append(one.info())
            except BraidError:
                continue  # it ended meanwhile, or is not for this caller
    return found
