"""Values that are taken apart while they are read: each by itself, whatever stands beside it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.spark import columns, decoding
from braidlog.spark.decoding import decoded

ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("item", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("in", pa.struct([("x", pa.float64())])),
        ("few", pa.list_(pa.int64())),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
    ]
)
RIGHT: dict[bytes, dict[str, Any]] = {
    b'{"id": 1, "item": "tea", "in": {"x": 1}, "few": [1, 2], "more": {}}': {
        "id": 1,
        "item": "tea",
        "in": {"x": 1.0},
        "few": [1, 2],
    },
    b' {"id":\n4}\r\n': {"id": 4},
    b"{}": {},
    b'{"id": null}': {"id": None},
    b'{"item": "a\\nb\\u00e9}{"}': {"item": "a\nbé}{"},
    b'{"item": "\\ud83d\\ude00\\u0000"}': {"item": "\U0001f600\0"},
    b'{"in": {"x": -Inf}, "more": [Inf, -NaN]}': {"in": {"x": float("-inf")}},
    b'{"in": {"x": 123456789012345678901}, "more": {"a": 1, "a": 2}}': {"in": {"x": 123456789012345678901.0}},
    b'{"id": 6, "more": ' + b"[" * 5000 + b"]" * 5000 + b"}": {"id": 6},
    b'{"id": 7, "more": ' + b"9" * 5000 + b"}": {"id": 7},
    b'{"at": "2026-01-31T10", "wall": "2026-01-31 10:00"}': {
        "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "wall": datetime(2026, 1, 31, 10),
    },
    b'{"at": "2026-01-31T10:00:00.5+02", "day": "0999-12-31"}': {
        "at": datetime(2026, 1, 31, 8, 0, 0, 500_000, tzinfo=UTC),
        "day": date(999, 12, 31),
    },
    b'{"price": "1e3", "raw": "aGVsbG8="}': {"price": Decimal("1000.00"), "raw": b"hello"},
    b'{"price": 1.1, "in": {"x": 1.1}}': {"price": Decimal("1.10"), "in": {"x": 1.1}},
    b'{"price": 3, "in": {"x": 0.1e1}, "raw": ""}': {"price": Decimal("3.00"), "in": {"x": 1.0}, "raw": b""},
}
# What Arrow refuses, and what is read of it record by record.
PARTLY: dict[bytes, dict[str, Any]] = {
    b'{"id": "x", "item": "tea"}': {"item": "tea"},
    b'{"id": 1.5, "few": [1]}': {"few": [1]},
    b'{"id": 9999999999999999999}': {},
    b'{"in": 5, "id": 5}': {"id": 5},
    b'{"in": {"x": "1"}}': {"in": {"x": None}},
    b'{"in": {"x": "-Infinity"}}': {"in": {"x": float("-inf")}},
    b'{"in": {"x": 1e400}, "few": [1, "x"]}': {"in": {"x": float("inf")}},
    b'{"item": 5}': {"item": "5"},
    b'{"item": true}': {"item": "true"},
    b'{"item": {"a": [1, "\xc3\xa9", 2.50]}}': {"item": '{"a":[1,"é",2.5]}'},
    b'{"item": "\\ud800"}': {"item": "?"},
    b'{"id": 1, "id": 2}': {"id": 2},
    b'{"at": 1767225600}': {"at": datetime(2026, 1, 1, tzinfo=UTC)},
    b'{"at": "2026-01-31T10:00:00.123456789Z"}': {"at": datetime(2026, 1, 31, 10, 0, 0, 123_456, tzinfo=UTC)},
    b'{"at": "soon", "day": "2026-1-3"}': {"day": date(2026, 1, 3)},
    b'{"day": "2026-01-31T10:00:00Z"}': {"day": date(2026, 1, 31)},
    b'{"day": 5, "price": "a", "raw": "!!"}': {},
    b'{"wall": "2026-01-31T10:00:00Z", "id": 1}': {"id": 1},
    b'{"price": 1.256}': {"price": Decimal("1.26")},
    b'{"price": -1.255}': {"price": Decimal("-1.26")},
    b'{"price": 123456789012, "raw": 5}': {},
}
WRONG = [
    *(b"", b" ", b"tea", b"[1]", b"\xff", b"null", b"5", b'"tea"', b'{"id": 5', b'"id": 5}', b'{"item": "}', b'{"}'),
    *(b'{"in": {"x": 1}', b'{"id": 1}}', b"{", b"}", b'{"id": 01}', b'{"id": 1,}', b'{"id": Info}', b"[[[" * 5000),
    *(b'{"id": 2}{"id": 3}', b'{"id": 2}\n{"id": 3}', b'{"id": 2} {', b'{"item": "\xff"}', b'\xef\xbb\xbf{"id": 1}'),
]


def as_rows(values: list[bytes | None]) -> list[Any]:
    found = decoded(pa.array(values, pa.binary()), ORDER, "json")
    found.validate(full=True)
    rows: list[Any] = found.to_pylist()
    return rows


def expected(value: bytes | None) -> dict[str, Any] | None:
    read = RIGHT | PARTLY
    return None if value not in read else dict.fromkeys(field.name for field in ORDER) | read[value]


@settings(deadline=None)
@given(st.lists(st.sampled_from([None, *RIGHT, *PARTLY, *WRONG]), max_size=12))
def test_a_value_is_what_it_is_whatever_stands_beside_it(values: list[bytes | None]) -> None:
    assert as_rows(values) == [expected(value) for value in values]


def test_times_are_moments() -> None:
    found = as_rows([b'{"at": "2026-01-31T12:00:00.5+02:00"}', b'{"at": "2026-01-31T10:00:00.5"}', b'{"at": "soon"}'])
    assert found[0]["at"] == found[1]["at"]
    assert found[0]["at"].isoformat() == "2026-01-31T10:00:00.500000+00:00"
    assert found[2]["at"] is None


def test_what_json_has_no_kind_of_its_own_for_is_read_from_text() -> None:
    day, moment = pa.date32(), pa.timestamp("us")
    kind = pa.struct(
        [
            *(("d", day), ("b", pa.binary()), ("t", moment), ("days", pa.list_(day))),
            ("in", pa.struct([("b", pa.list_(pa.binary())), ("t", moment)])),
        ]
    )
    values = [
        b'{"d": "2026-01-31", "b": "aGVsbG8=", "t": "2026-01-31T10:00:00.5", "days": ["2026-02-01", null]}',
        b'{"in": {"b": ["YQ==", null, ""], "t": "2026-01-31"}}',
        b'{"in": null, "days": []}',
        b"{}",
    ]
    found = decoded(pa.array(values, pa.binary()), kind, "json")
    found.validate(full=True)
    nothing: dict[str, Any] = dict.fromkeys(field.name for field in kind)
    assert found.to_pylist() == [
        nothing
        | {
            "d": date(2026, 1, 31),
            "b": b"hello",
            "t": datetime(2026, 1, 31, 10, 0, 0, 500_000),
            "days": [date(2026, 2, 1), None],
        },
        nothing | {"in": {"b": [b"a", None, b""], "t": datetime(2026, 1, 31)}},
        nothing | {"days": []},
        nothing,
    ]


def test_a_type_that_cannot_be_read_is_refused_instead_of_read_as_null() -> None:
    may_be_there = T.StructType([T.StructField("x", T.DateType()), T.StructField("y", T.ArrayType(T.BinaryType()))])
    columns.check(T.StructType([T.StructField("value", may_be_there)]), "json")
    for kind in (
        T.MapType(T.StringType(), T.LongType()),
        T.VariantType(),
        T.TimeType(),
        T.DayTimeIntervalType(),
        T.NullType(),
        T.CharType(3),
    ):
        for inside in (kind, T.ArrayType(kind), T.StructType([T.StructField("deep", kind)])):
            value = T.StructType([T.StructField("x", inside)])
            with pytest.raises(InvalidArgument, match=r"cannot read .*'value\.x.*json_values"):
                columns.check(T.StructType([T.StructField("value", value)]), "json")
    always = T.StructType([T.StructField("x", T.LongType(), nullable=False)])
    with pytest.raises(InvalidArgument, match=r"'value\.x' is never null"):
        columns.check(T.StructType([T.StructField("value", always)]), "json")


def test_many_are_taken_apart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = pa.json.read_json
    calls: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> pa.Table:
        calls.append(1)
        return read(*args, **kwargs)

    monkeypatch.setattr(pa.json, "read_json", counted)
    values = [json.dumps({"id": n}).encode() for n in range(10_000)]
    values[777] = b'{"id": "many"}'
    found = as_rows(list(values))
    assert [row["id"] for row in found] == [None if n == 777 else n for n in range(10_000)]
    assert len(calls) < 12


def test_many_bad_ones_are_not_parsed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = pa.json.read_json
    parsed: list[int] = []

    def counted(lines: Any, **kwargs: Any) -> pa.Table:
        parsed.append(lines.getvalue().count(b"\n") + 1)
        return read(lines, **kwargs)

    monkeypatch.setattr(pa.json, "read_json", counted)
    values = [b'{"id": %d}' % n if n % 2 else b'{"id": "%d"}' % n for n in range(2_000)]
    assert [row["id"] for row in as_rows(list(values))] == [n if n % 2 else None for n in range(2_000)]
    assert sum(parsed) <= 5 * len(values)
    parsed.clear()
    assert as_rows([b"\xff{", b'{"id": 1'] * 1_000) == [None] * 2_000
    assert sum(parsed) <= 5 * len(values)


def stream_of(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def test_arrow_becomes_lists_of_rows() -> None:
    values = [
        stream_of(pa.table({"id": pa.array([1, 2], pa.int32()), "more": [3, 4]})),
        b"no arrow",
        None,
        stream_of(pa.table({"id": pa.array([], pa.int64())})),
        stream_of(pa.table({"other": [1]})),
        stream_of(pa.table({"id": ["x"]})),
        stream_of(pa.table({"id": [3]})),
    ]
    kind = pa.list_(pa.struct([("id", pa.int64())]))
    found = decoded(pa.array(values, pa.binary()), kind, "arrow")
    found.validate(full=True)
    assert found.to_pylist() == [[{"id": 1}, {"id": 2}], None, None, [], None, None, [{"id": 3}]]
    assert decoded(pa.array([], pa.binary()), kind, "arrow").to_pylist() == []


NUMBERS = pa.list_(pa.struct([("id", pa.int64())]))
TEXTS = pa.list_(pa.struct([("id", pa.string())]))


def taken_apart(value: bytes, kind: pa.DataType) -> Any:
    return decoded(pa.array([value], pa.binary()), kind, "arrow").to_pylist()[0]


def test_lists_of_a_column_end_where_arrow_cannot_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_ROWS_END", 5)
    three, one = (stream_of(pa.table({"id": list(range(count))})) for count in (3, 1))
    found = decoded(pa.array([three, three, one], pa.binary()), NUMBERS, "arrow").to_pylist()
    assert [rows and len(rows) for rows in found] == [3, None, 1]


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_columns_come_in_many_encodings(compression: str | None) -> None:
    texts = ["a", None, "bc" * 30]
    for column in (
        pa.array(texts).dictionary_encode(),
        pa.array(texts, pa.string_view()),
        pa.array(texts, pa.large_string()),
    ):
        assert taken_apart(stream_of(pa.table({"id": column}), compression), TEXTS) == [{"id": text} for text in texts]
    assert taken_apart(stream_of(pa.table({"id": pa.nulls(3)}), compression), NUMBERS) == [{"id": None}] * 3


def test_a_small_value_never_becomes_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_VALUE_BYTES_MAX", limits.MIB)
    long = "x" * 10_000
    zeros = pa.table({"id": pa.array([0] * limits.MIB, pa.int64())})
    assert taken_apart(stream_of(pa.table({"id": pa.nulls(10**9)})), NUMBERS) is None
    for compression in ("zstd", "lz4"):
        assert taken_apart(stream_of(zeros, compression), NUMBERS) is None
        assert len(taken_apart(stream_of(zeros[:1000], compression), NUMBERS)) == 1000
    pointing = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), [long])
    _, view, text = pa.array([long], pa.string_view()).buffers()
    views = pa.py_buffer(view.to_pybytes()[:16] * 1000)
    for column in (pointing, pa.Array.from_buffers(pa.string_view(), 1000, [None, views, text])):
        assert taken_apart(stream_of(pa.table({"id": column})), TEXTS) is None
        assert len(taken_apart(stream_of(pa.table({"id": column[:10]})), TEXTS)) == 10
    nested = pa.ListArray.from_arrays([0, 1000], pointing)
    inside = pa.list_(pa.struct([("id", pa.list_(pa.string()))]))
    assert taken_apart(stream_of(pa.table({"id": nested})), inside) is None
