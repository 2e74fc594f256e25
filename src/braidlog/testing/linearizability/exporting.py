"""A history as records of a log, so that jobs which read logs can look at it: one JSON object for each call.

Values are JSON texts themselves: then different ones stay different, whatever a reader makes of bytes that are no text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from braidlog.testing.linearizability.history import Operation

SCHEMA: Final = (  # of the objects, in the words of SQL
    "number bigint, client string, verb string, log string, invoked bigint, answered bigint, outcome string, "
    "values array<string>, start bigint, stop bigint, at bigint, promotable boolean, child string, position bigint, "
    "records array<struct<position: bigint, value: string>>, promoted boolean"
)
CALLS_PER_APPEND: Final = 500


class _Log(Protocol):
    def append_many(self, values: Iterable[bytes]) -> object: ...


class _Record(Protocol):
    @property
    def value(self) -> bytes: ...


def export(history: Iterable[Operation], log: _Log) -> int:
    """Append a history to a log, in the order it is given in; answers how many calls it has."""
    calls = [_encoded(number, operation) for number, operation in enumerate(history)]
    for first in range(0, len(calls), CALLS_PER_APPEND):
        log.append_many(calls[first : first + CALLS_PER_APPEND])
    return len(calls)


def imported(records: Iterable[_Record]) -> Iterator[Operation]:
    """The history that records of a log tell of."""
    for record in records:
        fields = json.loads(record.value)
        del fields["number"]
        fields["values"] = tuple(json.loads(value) for value in fields["values"])
        fields["records"] = tuple((shown["position"], json.loads(shown["value"])) for shown in fields["records"])
        for name in ("log", "child"):
            fields[name] = None if fields[name] is None else json.loads(fields[name])
        yield Operation(**fields)


def _encoded(number: int, operation: Operation) -> bytes:
    fields: dict[str, Any] = {name: getattr(operation, name) for name in Operation.__slots__}
    fields["number"] = number
    fields["values"] = [json.dumps(value) for value in operation.values]
    fields["records"] = [{"position": at, "value": json.dumps(value)} for at, value in operation.records]
    for name in ("log", "child"):
        fields[name] = None if fields[name] is None else json.dumps(fields[name])
    return json.dumps(fields).encode()
