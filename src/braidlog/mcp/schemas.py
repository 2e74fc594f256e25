"""Whether records are what a JSON schema says, before they are appended.

A schema that an agent gives is checked in this process. So it may not have what can take for ever (references, regular
expressions) or what would reach outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from braidlog import Log, Record, limits
from braidlog.agents.describing import checkable, describe
from braidlog.errors import ConditionFailed, InvalidArgument
from braidlog.mcp import ranges

_REFUSED: Final = {
    *("$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$id"),
    *("pattern", "patternProperties", "uniqueItems", "contains", "unevaluatedItems", "unevaluatedProperties"),
}
_COMPLAINTS_MAX: Final = 5


def inferred(log: Log) -> dict[str, Any]:
    """What the records of a fork's history have in common; InvalidArgument if they are not JSON."""
    info = log.info()
    known = info.readable_tail if info.fork_point is None else min(info.fork_point, info.readable_tail)
    told = describe(ranges.sample(log, info.start, known, limits.DESCRIBE_SAMPLE_RECORDS))
    if told.schema is None:
        raise InvalidArgument(
            f"the records of {log.name!r} are {told.format} and no JSON, so no schema can be told from them: give a "
            "schema, or append without one"
        )
    return checkable(told.schema)


def given(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that can be checked here; InvalidArgument if it is not one."""
    from jsonschema import Draft202012Validator, SchemaError

    if len(json.dumps(schema)) > limits.MCP_SCHEMA_CHARS_MAX:
        raise InvalidArgument(f"the schema has more than {limits.MCP_SCHEMA_CHARS_MAX:,} characters: make it shorter")
    for keyword in _keywords(schema):
        if keyword in _REFUSED:
            raise InvalidArgument(
                f"the schema uses {keyword!r}, which is not checked here: leave it out, or `run_validator` on the fork"
            )
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise InvalidArgument(f"this is no JSON schema: {str(getattr(error, 'message', error))[:300]}") from None
    return schema


def _keywords(schema: object) -> Iterator[str]:
    """Every name in it: fields of that name are refused too, which is simpler than to tell them apart."""
    left = [schema]
    while left:
        at = left.pop()
        if isinstance(at, dict):
            yield from at
            left.extend(at.values())
        elif isinstance(at, list):
            left.extend(at)


def check(records: list[Record], schema: dict[str, Any]) -> None:
    """ConditionFailed says which records are not what the schema says, and why."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema)
    wrong: list[str] = []
    for number, record in enumerate(records):
        try:
            value = json.loads(record.value)
        except (ValueError, RecursionError):
            wrong.append(f"record {number} is not JSON")
            continue
        for error in validator.iter_errors(value):
            where = ".".join(map(str, error.absolute_path)) or "the value"
            wrong.append(f"record {number}, {where}: {error.message[:200]}")
            break
    if wrong:
        more = f", and {len(wrong) - _COMPLAINTS_MAX} more" if len(wrong) > _COMPLAINTS_MAX else ""
        raise ConditionFailed(
            f"nothing was appended: {'; '.join(wrong[:_COMPLAINTS_MAX])}{more}. Mend the records, or append without "
            "the schema if they are meant to break it"
        )
