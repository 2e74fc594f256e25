"""A tiny language over the forest, for stories that people read.

    create G                          a root log
    append G g0 g1 [request=r]        one batch; names a request to resolve it later
    cfork G R [promotable] [lease=9] [ttl=9]
    sfork G S [at=2]
    promote R [own=1] | squash R [cascade] | drop G [cascade] | renew R | trim G 2
    tick 5                            time passes, and what is overdue ends
    resolve r                         what became of a request
    collect                           what nobody can read any more is let go

Every command answers, and then all living logs are listed: kind, start, readable limit and tail, who holds it, and what
can be read. Records that a hold hides are only counted.
"""

from __future__ import annotations

from braidlog.errors import BraidError
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.reading import resolve
from braidlog.forest.tails import reach


class Stage:
    def __init__(self) -> None:
        self.forest = Forest()
        self.now = 0
        self.names: dict[str, int] = {}  # ended logs keep theirs, so that a story can ask for them
        self.batches: dict[int, list[str]] = {}

    def play(self, line: str) -> list[str]:
        """Carry out one line; answers what there is to see."""
        verb, *words = line.split()
        plain = [word for word in words if "=" not in word]
        named = dict(word.split("=") for word in words if "=" in word)
        return [*getattr(self, f"_{verb}")(*plain, **named), *self._logs()]

    def log(self, name: str) -> Log:
        return self.forest.by_name(name)

    def read(self, name: str) -> str:
        """All that can be read of a log, in order."""
        return " ".join(self._values(self.log(name)))

    # --- commands ------------------------------------------------------------------------------------------------

    def _create(self, name: str) -> list[str]:
        return self._apply(c.Create(name, self.now))

    def _append(self, name: str, *values: str, request: str = "") -> list[str]:
        count = len(values)
        command = c.Append(self.names[name], count, count, self.now, self.now, b"-", request=request.encode())
        result = self.forest.apply(command)
        if isinstance(result, c.Appended) and result.block != NONE:
            self.batches[result.block] = list(values)
        return [self._said(result)]

    def _cfork(self, name: str, fork: str, *flags: str, lease: str = "-1", ttl: str = "-1") -> list[str]:
        promotable = "promotable" in flags
        return self._apply(c.CFork(self.names[name], fork, self.now, promotable, int(ttl), int(lease)))

    def _sfork(self, name: str, fork: str, at: str = "-1", ttl: str = "-1") -> list[str]:
        return self._apply(c.SFork(self.names[name], fork, self.now, int(at), int(ttl)))

    def _promote(self, name: str, own: str = "-1") -> list[str]:
        return self._apply(c.Promote(self.names[name], int(own)))

    def _squash(self, name: str, cascade: str = "") -> list[str]:
        return self._apply(c.Squash(self.names[name], bool(cascade)))

    def _drop(self, name: str, cascade: str = "") -> list[str]:
        return self._apply(c.Drop(self.names[name], bool(cascade)))

    def _renew(self, name: str) -> list[str]:
        return self._apply(c.Renew(self.names[name], self.now))

    def _trim(self, name: str, before: str) -> list[str]:
        return self._apply(c.Trim(self.names[name], int(before)))

    def _tick(self, time: str) -> list[str]:
        self.now += int(time)
        said = [f"now {self.now}"]
        for log_id in self.forest.overdue(self.now):
            said += self._apply(c.Expire(log_id, self.now))
        return said

    def _resolve(self, request: str) -> list[str]:
        return [self._said(self.forest.recall(request.encode()))]

    def _collect(self) -> list[str]:
        result = self.forest.apply(c.Collect(self.now))
        assert isinstance(result, c.Collected)
        return [
            f"let go: {' '.join(value for block in result.blocks for value in self.batches.pop(block)) or 'nothing'}"
        ]

    def _apply(self, command: c.Command) -> list[str]:
        result = self.forest.apply(command)
        if isinstance(result, c.Opening):
            self.names[result.name] = result.log
        return [self._said(result)]

    # --- what is said --------------------------------------------------------------------------------------------

    def _said(self, result: object) -> str:
        match result:
            case BraidError():
                return f"{type(result).__name__}: {result}"
            case c.Appended(first=-1):
                return "lost with its log"
            case c.Appended(withheld=True):
                return "taken, position withheld"
            case c.Appended():
                return f"at {result.first}"
            case c.Opening():
                return f"log {result.name}"
            case c.Promotion():
                return f"promoted, ended {self._list(result.ended)}" if result.promoted else "not promoted"
            case c.Ended():
                return f"ended {self._list(result.logs)}"
            case c.Done():
                return f"done, {result.value}"
        return "unknown"

    def _list(self, ids: list[int]) -> str:
        known = {log_id: name for name, log_id in self.names.items()}
        return " ".join(known[log_id] for log_id in ids) or "nothing"

    def _logs(self) -> list[str]:
        rows = [self._row(log) for log in self.forest.logs.values()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
        return [
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
            for row in rows
        ]

    def _row(self, log: Log) -> tuple[str, str, str, str, str]:
        at = reach(log)
        kind = f"{log.kind} of {log.origin_name}@{log.fork_point}" if log.kind != "root" else "root"
        if log.parent is not None:
            kind = f"{'promotable' if log.promotable else 'cfork'} of {log.parent.name}@{log.fork_point}"
        extent = f"[{log.start}, {at.readable}) of {at.tail}"
        held = f"{'blocked' if at.blocked else 'held'} by {at.holder.name}" if at.holder is not None else "free"
        values = [f"{position}:{value}" for position, value in enumerate(self._values(log), log.start)]
        hidden = [f"+{at.tail - at.readable} hidden"] if at.tail > at.readable else []
        return log.name, kind, extent, held, " ".join(values + hidden)

    def _values(self, log: Log) -> list[str]:
        return [
            value
            for extent in resolve(log.view, log.start, reach(log).readable)
            for value in self.batches[extent.block][extent.row : extent.row + extent.rows]
        ]
