"""What is told of records by looking at them: formats, schemas, keys."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from braidlog import Record, limits
from braidlog.agents.describing import SCHEMA_KEYWORDS, Shape, checkable, describe, format_of


def records(*values: object) -> list[Record]:
    return [Record(value if isinstance(value, bytes) else json.dumps(value).encode()) for value in values]


def schema_of(*values: object) -> Any:
    return describe(records(*values)).schema


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", "empty"),
        (b'{"a": 1}', "json"),
        (b"  [1, 2]", "json"),
        (b'{"a": 1', "text"),
        (b"7", "text"),  # a number alone is as good a text
        ("für immer\n".encode(), "text"),
        (b"bell\x07", "binary"),
        (b"\xff\xfe\x00", "binary"),
        (b"Obj\x01\x04\x14avro.codec", "avro"),
        (b"\x00\x00\x00\x00\x2a\x02\x06abc", "avro"),
        (b"[" * 100_000, "text"),  # deeper than anybody nests
    ],
)
def test_a_payload_is_known_by_its_bytes(value: bytes, kind: str) -> None:
    assert format_of(value) == kind


def test_nothing_is_described_as_nothing() -> None:
    told = describe([])
    assert (told.sampled, told.format, told.schema, told.first_time, told.keys.estimate) == (
        0,
        "empty",
        None,
        None,
        None,
    )


def test_what_nine_in_ten_are_prevails_and_less_is_mixed() -> None:
    assert describe(records(*[{"a": 1}] * 9, b"text")).format == "json"
    assert describe(records(*[{"a": 1}] * 8, b"text", b"more")).format == "mixed"
    assert describe(records(*[{"a": 1}] * 8, b"text", b"more")).schema is None


def test_a_schema_has_types_and_what_is_always_there() -> None:
    found = schema_of({"id": 1, "price": 2, "tags": ["a"]}, {"id": 2, "price": 2.5, "note": None, "tags": []})
    assert found["type"] == "object"
    assert found["required"] == ["id", "price", "tags"]
    fields = found["properties"]
    assert fields["id"] == {"type": "integer", "minimum": 1, "maximum": 2}
    assert fields["price"] == {"type": "number", "minimum": 2, "maximum": 2.5}
    assert fields["note"] == {"type": "null"}
    assert fields["tags"] == {"type": "array", "items": {"type": "string"}}


def test_several_types_are_all_named() -> None:
    assert schema_of({"x": 1}, {"x": "one"}, {"x": None})["properties"]["x"]["type"] == ["integer", "null", "string"]
    assert schema_of({"x": True}, {"x": 1})["properties"]["x"]["type"] == ["boolean", "integer"]


def test_few_texts_that_come_again_are_an_enumeration_and_others_are_not() -> None:
    states = [{"state": ["open", "closed"][n % 2], "name": f"n{n}"} for n in range(20)]
    fields = schema_of(*states)["properties"]
    assert fields["state"]["enum"] == ["closed", "open"]
    assert "enum" not in fields["name"]


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5+01:00", "2026-01-31T12:00"])
def test_texts_that_are_times_are_told_to_be(text: str) -> None:
    assert schema_of({"at": text}, {"at": text})["properties"]["at"] == {"type": "string", "format": "date-time"}


def test_a_text_that_only_looks_like_a_time_is_a_text() -> None:
    assert "format" not in schema_of({"at": "2026-99-99T12:00:00Z"})["properties"]["at"]


def test_a_schema_ends_where_nobody_would_read_on() -> None:
    wide = schema_of({f"f{n}": n for n in range(10_000)})
    assert len(wide["properties"]) == limits.DESCRIBE_FIELDS_ROWS_MAX
    deep: Any = 1
    for _ in range(50):
        deep = {"in": deep}
    found, depth = schema_of(deep), 0
    while "properties" in found:
        found, depth = found["properties"]["in"], depth + 1
    assert depth == limits.DESCRIBE_DEPTH_MAX


def anything(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return {chance.choice("abcd"): anything(chance, depth + 1) for _ in range(chance.randrange(5))}
    return [None, True, chance.randrange(100), chance.random(), chance.choice(["x", "y", "2026-01-01T00:00:00Z"])][kind]


@pytest.mark.parametrize("seed", range(30))
def test_all_that_was_seen_satisfies_the_schema(seed: int) -> None:
    chance = random.Random(seed)
    values = [{"v": anything(chance)} for _ in range(chance.randrange(1, 30))]
    found = schema_of(*values)
    for schema in (found, checkable(found)):
        assert keywords_of(schema) <= set(SCHEMA_KEYWORDS)
        jsonschema.Draft202012Validator.check_schema(schema)
        for value in values:
            jsonschema.validate(value, schema)


def keywords_of(schema: dict[str, Any]) -> set[str]:
    parts = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return set(schema).union(*map(keywords_of, parts))


def test_what_is_held_against_new_records_are_types_and_fields_only() -> None:
    found = checkable(schema_of(*[{"id": n, "state": "open"} for n in range(10)]))
    jsonschema.validate({"id": 10_000, "state": "never seen"}, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": "ten", "state": "open"}, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": 1}, found)


def test_columns_have_a_type_if_all_values_agree() -> None:
    shape = Shape()
    for value in ({"i": 1, "n": 1, "s": "a", "m": 1, "o": {}}, {"i": None, "n": 1.5, "s": "b", "m": "x", "o": {}}):
        shape.add(value)
    columns = {name: field.column for name, field in shape.fields.items()}
    assert columns == {"i": "integer", "n": "number", "s": "string", "m": "json", "o": "json"}


def test_keys_are_counted_and_those_unseen_estimated() -> None:
    few = [Record(b"", key=b"k%d" % (n % 7)) for n in range(500)]
    told = describe(few, total=1_000_000).keys
    assert (told.with_key, told.distinct, told.estimate) == (500, 7, 7)
    assert told.most_frequent[0] == ("k0", 72)
    unique = [Record(b"", key=b"k%d" % n) for n in range(500)]
    estimate = describe(unique, total=1_000_000).keys.estimate
    assert estimate is not None
    assert 500 < estimate <= 1_000_000
    assert describe(unique, total=500).keys.estimate == 500


def test_sizes_and_times_are_those_of_the_sample() -> None:
    told = describe([Record(b"ab", timestamp=5), Record(b"abcd", timestamp=3)])
    assert (told.first_time, told.last_time, told.size_mean, told.size_max) == (3, 5, 3.0, 4)


def test_the_schemas_that_a_registry_knows_are_named() -> None:
    told = describe([Record(b"\x00\x00\x00\x00\x2arest"), Record(b"\x00\x00\x00\x00\x07rest")])
    assert (told.format, told.avro_schema_ids) == ("avro", [7, 42])
