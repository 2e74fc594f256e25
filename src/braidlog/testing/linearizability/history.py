"""What clients asked of a service, when, and what they were told: the material of the checkers.

An `Operation` is one call. It was invoked at one moment and answered at another, both nanoseconds of one monotonic
clock. What is true of each:

- `ok`: it took effect, or was looked up, at one moment between the two.
- `refused`: it changed nothing, and tells nothing.
- `unknown`: it took effect at some moment after its invocation, even after its answer, or never.

Values of appended records are unique in a history; that is what makes checking tractable. Logs are told apart by ids,
which are never used twice: if a service gives a name again, the recorder must tell the two logs apart.

A read tells of every record that could be read of `[start, stop)` at one moment. If a read was cut short by a limit of
records or bytes, its `stop` is where it was cut.

A file of a history has two lines of JSON for each call, one when it begins and one when it ends, so that the calls of
a process that was killed are known, too: they are unknown. Any number of files make one history, if their clock is the
same, as CLOCK_MONOTONIC is for the processes of one machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from braidlog.errors import InvalidArgument

Value: TypeAlias = str | int
LogId: TypeAlias = str | int
Outcome: TypeAlias = Literal["ok", "refused", "unknown"]

OBSERVATIONS: Final = frozenset({"read", "tail"})
CREATIONS: Final = frozenset({"create", "cfork", "sfork"})
VERBS: Final = frozenset({"append", "promote", "squash", "drop"}) | OBSERVATIONS | CREATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call and its answer. Which fields count depends on the verb.

    `append` has `values` and is answered with the `position` of the first, or None if that was not told. `read` has
    `start` and `stop`, and `records`. `tail` is answered with a `position`. `create`, `cfork` and `sfork` make the log
    `child`, the latter two at `position`, if that was told; `promotable` and `at` are what was asked for. `promote` is
    answered with `promoted`.
    """

    client: str
    verb: str
    log: LogId
    invoked: int
    answered: int | None = None
    outcome: Outcome = "unknown"
    values: tuple[Value, ...] = ()
    start: int = 0
    stop: int | None = None
    at: int | None = None
    promotable: bool = False
    child: LogId | None = None
    position: int | None = None
    records: tuple[tuple[int, Value], ...] = ()
    promoted: bool | None = None

    def told(self, origin: int = 0) -> str:
        """The operation in a line. Times count from `origin`, in microseconds."""
        until = f"{(self.answered - origin) / 1000:.3f}" if self.answered is not None else "..."
        return f"{self.client}: {self._call()} -> {self._answer()} [{(self.invoked - origin) / 1000:.3f} .. {until} us]"

    def _call(self) -> str:
        match self.verb:
            case "append":
                return f"append({self.log}, {_few(self.values)})"
            case "read":
                return f"read({self.log}, {self.start}, {self.stop})"
            case "cfork":
                return f"cfork({self.log}{', promotable' if self.promotable else ''})"
            case "sfork":
                return f"sfork({self.log}, at={self.at})"
        return f"{self.verb}({self.log})"

    def _answer(self) -> str:
        if self.outcome != "ok":
            return self.outcome
        match self.verb:
            case "append":
                return "no position" if self.position is None else f"position {self.position}"
            case "read":
                return _few([f"{position}: {value!r}" for position, value in self.records])
            case "tail":
                return str(self.position)
            case "create" | "cfork" | "sfork":
                return f"{self.child}" + ("" if self.position is None else f" at {self.position}")
            case "promote":
                return str(self.promoted)
        return "done"


def _few(items: Iterable[object]) -> str:
    shown = [item if isinstance(item, str) and ": " in item else repr(item) for item in items]
    if len(shown) > 8:
        shown[4:-3] = [f"... {len(shown) - 7} more ..."]
    return f"[{', '.join(shown)}]"


def verified(operations: Iterable[Operation]) -> list[Operation]:
    """The operations in the order in which they were invoked. `InvalidArgument` if they are no history."""
    found = sorted(operations, key=lambda operation: operation.invoked)
    values: set[Value] = set()
    for operation in found:
        if operation.verb not in VERBS:
            raise InvalidArgument(f"{operation.verb!r} is none of {', '.join(sorted(VERBS))}")
        if operation.outcome == "ok" and operation.answered is None:
            raise InvalidArgument(f"{operation.told()} is ok, and must say when it was answered")
        if operation.answered is not None and operation.answered < operation.invoked:
            raise InvalidArgument(f"{operation.told()} was answered before it was invoked")
        if operation.verb == "append":
            if not operation.values:
                raise InvalidArgument(f"{operation.told()} appends nothing")
            for value in operation.values:
                if value in values:
                    raise InvalidArgument(f"{value!r} is appended twice, and values must be unique: {operation.told()}")
                values.add(value)
        elif operation.outcome == "ok":
            lacking = (
                (operation.verb == "tail" and operation.position is None and "a position")
                or (operation.verb == "promote" and operation.promoted is None and "whether it was promoted")
                or (operation.verb in CREATIONS and operation.child is None and "the log that it made")
            )
            if lacking:
                raise InvalidArgument(f"{operation.told()} must say {lacking}")
    return found


def write(path: str | Path, operations: Iterable[Operation]) -> None:
    """Write a history to a file, anew."""
    with open(path, "w", encoding="utf-8") as file:
        for number, operation in enumerate(operations):
            file.write(begin_line(number, operation))
            if operation.answered is not None:
                file.write(end_line(number, operation))


def load(*paths: str | Path) -> list[Operation]:
    """The history that several recorders wrote, each to its file, in the order of invocation."""
    found = [operation for path in paths for operation in _load(Path(path))]
    return sorted(found, key=lambda operation: operation.invoked)


def begin_line(number: int, operation: Operation) -> str:
    fields = {"n": number, "client": operation.client, "verb": operation.verb, "log": operation.log}
    fields["invoked"] = operation.invoked
    asked = {
        "values": list(operation.values) or None,
        "start": operation.start or None,
        "stop": operation.stop,
        "at": operation.at,
        "promotable": operation.promotable or None,
        "child": operation.child,
    }
    return json.dumps(fields | {key: value for key, value in asked.items() if value is not None}) + "\n"


def end_line(number: int, operation: Operation) -> str:
    fields = {"n": number, "answered": operation.answered, "outcome": operation.outcome}
    answer = {
        "child": operation.child,
        "stop": operation.stop,
        "position": operation.position,
        "records": operation.records or None,
        "promoted": operation.promoted,
    }
    return json.dumps(fields | {key: value for key, value in answer.items() if value is not None}) + "\n"


def _load(path: Path) -> Iterator[Operation]:
    calls: dict[int, dict[str, object]] = {}
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break  # the process was killed while it wrote
        try:
            fields = json.loads(line)
            number = fields.pop("n")
            if "verb" in fields:
                calls[number] = fields
            else:
                calls[number] |= fields
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InvalidArgument(f"line {line_number} of {path} is no part of a history: {line.strip()}") from error
    for fields in calls.values():
        fields["values"] = tuple(fields.get("values", ()))  # type: ignore[arg-type]
        fields["records"] = tuple((position, value) for position, value in fields.get("records", ()))  # type: ignore[attr-defined]
        yield Operation(**fields)  # type: ignore[arg-type]
