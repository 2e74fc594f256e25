"""How far a stream got, as Spark keeps it in its checkpoint: a position in each log, by name and number.

PURE. Spark compares offsets as text, so the same offset is always the same text. The number binds it to a log: a name
can be given to another log one day, whose positions mean other records.

What a batch reads follows from its two offsets alone: of each log that is in both, the positions between them. A log
that is in the second one only was found, or is what a promoted fork goes on as: the next batch reads it from there on.
It says then of which forks, as nothing else tells whether a log that the options do not name was meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from braidlog.errors import InvalidArgument

_VERSION: Final = 1


class At(NamedTuple):
    """A log by its number, the first position of it that was not read yet, and the forks that go on as this log."""

    id: int
    position: int
    forks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "position": self.position} | ({"forks": list(self.forks)} if self.forks else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> At:
        return cls(int(found["id"]), int(found["position"]), tuple(str(name) for name in found.get("forks", ())))


@dataclass(frozen=True)
class Offset:
    """`initial` marks where a query began: its first batch reads nothing, and only writes down where that is.

    Otherwise "the end of the log" would be another place if that batch had to be done again.
    """

    logs: Mapping[str, At]
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        logs = {name: at.to_json() for name, at in sorted(self.logs.items())}
        return {"version": _VERSION, "logs": logs} | ({"initial": True} if self.initial else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offset:
        """InvalidArgument for what is none of ours."""
        try:
            if found["version"] != _VERSION:
                raise InvalidArgument(f"the checkpoint has offsets of version {found['version']}: a newer braidlog's")
            logs = {str(name): At.from_json(at) for name, at in found["logs"].items()}
            return cls(logs, bool(found.get("initial", False)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(
                f"the checkpoint has an offset that braidlog never wrote, {str(found)[:200]}: is it another source's?"
            ) from None

    def pinned(self) -> Offset:
        """The same, as the first batch leaves it."""
        return Offset(self.logs)


def between(start: Offset, end: Offset) -> Iterator[tuple[str, At, int]]:
    """What a batch reads: a log, where it begins in it, and where it ends."""
    if start.initial:
        return
    for name, to in sorted(end.logs.items()):
        at = start.logs.get(name)
        if at is not None and at.id == to.id and at.position < to.position:
            yield name, at, to.position


def shares(wanted: Mapping[str, int], limit: int, turn: Sequence[str] = ()) -> dict[str, int]:
    """A limit shared out in proportion to what is wanted; all of it is used if there is so much to want.

    Whoever wants something gets one: a short log would wait for ever behind a long one that grows as fast as it is
    read. If there is not enough for that, the first of `turn`, which names all of them, get one each.
    """
    waiting = {name for name, count in wanted.items() if count}
    if len(waiting) > limit:
        given = dict.fromkeys(wanted, 0)
        return given | dict.fromkeys([name for name in turn or sorted(waiting) if name in waiting][:limit], 1)
    given = _proportional(wanted, limit)
    if all(given[name] for name in waiting):
        return given
    rest = _proportional({name: count - 1 for name, count in wanted.items() if count}, limit - len(waiting))
    return {name: rest[name] + 1 if name in waiting else 0 for name in wanted}


def turn_of(start: Offset) -> list[str]:
    """All logs by name, beginning with the one whose turn it is.

    That moves on by one with each record that is read. So while there are more logs waiting than a batch may have
    records, it is the next ones each time, and after as many batches as there are logs each of them was among them.
    """
    names = sorted(start.logs)
    first = sum(at.position for at in start.logs.values()) % max(len(names), 1)
    return names[first:] + names[:first]


def _proportional(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    given = {name: limit * count // total for name, count in wanted.items()}
    left = limit - sum(given.values())
    for name in sorted(wanted, key=lambda name: (-(limit * wanted[name] % total), name))[:left]:
        given[name] += 1
    return given
