"""What the records of a log look like, told from a sample: their format, a schema, times, keys, sizes. PURE.

Payloads are whatever their writers made of them, so everything here is an estimate, and says on how many records it
rests. A schema is a JSON Schema with the keywords that stand in `SCHEMA_KEYWORDS`, so that whoever checks by it needs
neither references nor regular expressions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from braidlog import limits
from braidlog.record import Record

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

SCHEMA_KEYWORDS: Final = ("type", "properties", "required", "items", "enum", "format", "minimum", "maximum")

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?")
_AVRO_FILE: Final = b"Obj\x01"
_REGISTRY_HEAD_BYTES: Final = 5  # a zero byte and the number of a schema, before what a schema registry's clients write
_PRINTABLE: Final = frozenset("\t\n\r")


class Keys(Struct, frozen=True, kw_only=True):
    """Of a sample. `estimate` is how many different keys there may be in all, None if that cannot be said."""

    with_key: int
    distinct: int
    estimate: int | None
    most_frequent: list[tuple[str, int]]


class Description(Struct, frozen=True, kw_only=True):
    """What a sample tells. `format` is "json", "text", "avro" (by its framing), "binary", "mixed" or "empty"."""

    sampled: int
    format: str
    formats: dict[str, int]  # how many records of the sample are of which
    schema: dict[str, Json] | None  # of the records that are JSON, if most are
    avro_schema_ids: list[int]  # that a schema registry knows them by
    first_time: int | None  # microseconds since 1970 UTC
    last_time: int | None
    size_mean: float
    size_max: int
    keys: Keys


def describe(records: Sequence[Record], total: int | None = None) -> Description:
    """What these records look like; `total` is how many there are where they were taken from."""
    formats: Counter[str] = Counter()
    shape = Shape()
    registered: set[int] = set()
    for record in records:
        kind = format_of(record.value)
        formats[kind] += 1
        if kind == "json":
            shape.add(msgspec.json.decode(record.value))
        elif kind == "avro" and not record.value.startswith(_AVRO_FILE):
            registered.add(int.from_bytes(record.value[1:_REGISTRY_HEAD_BYTES], "big"))
    times = [record.timestamp for record in records]
    sizes = [record.size for record in records]
    return Description(
        sampled=len(records),
        format=_prevailing(formats),
        formats=dict(formats.most_common()),
        schema=shape.schema() if _prevailing(formats) == "json" else None,
        avro_schema_ids=sorted(registered)[: limits.DESCRIBE_ENUM_ROWS_MAX],
        first_time=min(times, default=None),
        last_time=max(times, default=None),
        size_mean=sum(sizes) / len(sizes) if sizes else 0.0,
        size_max=max(sizes, default=0),
        keys=_keys(records, total),
    )


def format_of(value: bytes) -> str:
    """What one payload is: "json" (an object or an array), "text", "avro", "binary" or "empty"."""
    if not value:
        return "empty"
    if value.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return "json"
    if value.startswith(_AVRO_FILE) or (value[0] == 0 and len(value) > _REGISTRY_HEAD_BYTES):
        return "avro"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary"
    return "text" if all(char.isprintable() or char in _PRINTABLE for char in text) else "binary"


def _prevailing(formats: Counter[str]) -> str:
    """Of nine in ten, or none prevails."""
    told = {kind: count for kind, count in formats.items() if kind != "empty"}
    if not told:
        return "empty"
    kind, count = max(told.items(), key=lambda item: item[1])
    return kind if count * 10 >= sum(told.values()) * 9 else "mixed"


def _keys(records: Sequence[Record], total: int | None) -> Keys:
    counted = Counter(record.key for record in records if record.key is not None)
    with_key = sum(counted.values())
    frequent = counted.most_common(limits.DESCRIBE_KEYS_ROWS_MAX)
    return Keys(
        with_key=with_key,
        distinct=len(counted),
        estimate=_distinct_in_all(counted.values(), with_key, len(records), total),
        most_frequent=[(shown_text(key), count) for key, count in frequent],
    )


def _distinct_in_all(counts: Iterable[int], with_key: int, sampled: int, total: int | None) -> int | None:
    """The estimator of Haas and Stokes (GEE): what was seen once stands for the square root of the unseen."""
    counts = list(counts)
    if not counts or total is None:
        return None
    if total <= sampled:
        return len(counts)
    population = total * with_key / sampled
    once = sum(1 for count in counts if count == 1)
    return min(round(math.sqrt(population / with_key) * once + len(counts) - once), round(population))


def shown_text(data: bytes) -> str:
    """Bytes for people to look at, cut where they are long."""
    text = data.decode("utf-8", "backslashreplace")
    most = limits.DESCRIBE_TEXT_CHARS_MAX
    return text if len(text) <= most else text[: most - 1] + "…"


class Shape:
    """What JSON values seen so far have in common. Bounded: it looks at so many fields and so deep, and no further."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._types: Counter[str] = Counter()
        self._fields: dict[str, Shape] = {}
        self._more_fields = False  # than are looked at
        self._items: Shape | None = None
        self._texts: Counter[str] | None = Counter()  # None: too many to be an enumeration
        self._dates = 0
        self._low = math.inf
        self._high = -math.inf

    def add(self, value: object) -> None:
        """Take one more value into account."""
        kind = _type_of(value)
        self._types[kind] += 1
        if isinstance(value, dict):
            self._add_fields(value)
        elif isinstance(value, list):
            self._add_items(value)
        elif isinstance(value, str):
            self._add_text(value)
        elif kind in ("integer", "number"):
            assert isinstance(value, int | float)
            self._low, self._high = min(self._low, value), max(self._high, value)

    def _add_fields(self, value: dict[str, Any]) -> None:
        if self._depth >= limits.DESCRIBE_DEPTH_MAX:
            return
        for name, part in value.items():
            shape = self._fields.get(name)
            if shape is None:
                if len(self._fields) >= limits.DESCRIBE_FIELDS_ROWS_MAX:
                    self._more_fields = True
                    continue
                shape = self._fields[name] = Shape(self._depth + 1)
            shape.add(part)

    def _add_items(self, value: list[Any]) -> None:
        if self._depth >= limits.DESCRIBE_DEPTH_MAX:
            return
        self._items = self._items or Shape(self._depth + 1)
        for part in value[: limits.DESCRIBE_FIELDS_ROWS_MAX]:
            self._items.add(part)

    def _add_text(self, value: str) -> None:
        if _DATE_TIME.fullmatch(value) and _is_date_time(value):
            self._dates += 1
        if self._texts is not None:
            self._texts[value] += 1
            if len(self._texts) > limits.DESCRIBE_ENUM_ROWS_MAX or len(value) > limits.DESCRIBE_TEXT_CHARS_MAX:
                self._texts = None

    @property
    def fields(self) -> dict[str, Shape]:
        """Of objects, in the order in which they were first seen."""
        return self._fields

    @property
    def column(self) -> str:
        """The one type that all values but nulls have: "integer", "number", "boolean", "string", "date-time", or
        "json" for everything else."""
        told = {kind for kind in self._types if kind != "null"}
        if told == {"integer", "number"}:
            return "number"
        if len(told) != 1 or told & {"object", "array"}:
            return "json"
        [kind] = told
        return "date-time" if kind == "string" and self._all_dates else kind

    @property
    def _all_dates(self) -> bool:
        return 0 < self._dates == self._types["string"]

    def schema(self) -> dict[str, Json]:
        """A JSON Schema that all values seen so far satisfy, none that was not seen need."""
        kinds = sorted(self._types)
        if "integer" in kinds and "number" in kinds:
            kinds.remove("integer")  # which a number may be
        found: dict[str, Json] = {}
        if kinds:
            found["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
        if self._fields:
            objects = self._types["object"]
            found["properties"] = {name: shape.schema() for name, shape in self._fields.items()}
            required: list[Json] = [n for n, shape in self._fields.items() if shape.count == objects]
            if required:
                found["required"] = required
        if self._items is not None and self._items.count:
            found["items"] = self._items.schema()
        if self._all_dates:
            found["format"] = "date-time"
        elif self._enumerates:
            assert self._texts is not None
            found["enum"] = [*sorted(self._texts), *([None] if "null" in kinds else [])]
        if self._low <= self._high:
            found["minimum"], found["maximum"] = self._low, self._high
        return found

    @property
    def count(self) -> int:
        """Of values."""
        return self._types.total()

    @property
    def _enumerates(self) -> bool:
        """Few texts, each seen several times, and nothing but texts."""
        if not self._texts or set(self._types) - {"string", "null"}:
            return False
        return self._types["string"] >= limits.DESCRIBE_ENUM_REPEATS_ROWS * len(self._texts)


def checkable(schema: dict[str, Json]) -> dict[str, Json]:
    """The part of an inferred schema that new records can be held to: types and fields. What ranges and values there
    were so far is no rule for what comes."""
    kept: dict[str, Json] = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, dict):
            kept[name] = {field: checkable(part) for field, part in value.items() if isinstance(part, dict)}
        elif name == "items" and isinstance(value, dict):
            kept[name] = checkable(value)
        elif name in ("type", "required"):
            kept[name] = value
    return kept


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_date_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
