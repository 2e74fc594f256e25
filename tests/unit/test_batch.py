"""The columnar form of records: nothing is lost between what was appended and what is read."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import Corrupt
from braidlog.objects.batch import (
    POSITIONED_SCHEMA,
    SCHEMA,
    Batch,
    decode,
    encode,
    records,
    records_of,
    to_arrow,
    with_positions,
)
from braidlog.record import Record

micros = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
payloads = st.binary(max_size=8)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    values = draw(st.lists(payloads, max_size=6))

    def column(of: st.SearchStrategy) -> st.SearchStrategy:
        return st.lists(of, min_size=len(values), max_size=len(values))

    return Batch(
        values,
        draw(st.none() | column(st.none() | payloads)),
        draw(st.none() | column(st.lists(st.tuples(names, payloads), max_size=3))),
        draw(micros | column(micros)),
    )


def expected(batch: Batch, position: int) -> list[Record]:
    """The records of a batch, spelled out one by one."""
    return [
        Record(
            value,
            batch.keys[row] if batch.keys is not None else None,
            tuple(batch.headers[row]) if batch.headers is not None else (),
            batch.timestamps[row] if isinstance(batch.timestamps, list) else batch.timestamps,
            position + row,
        )
        for row, value in enumerate(batch.values)
    ]


@settings(max_examples=60, deadline=None)
@given(batches())
def test_a_batch_is_what_was_encoded(batch: Batch) -> None:
    assert decode(encode(batch)) == batch


@pytest.mark.parametrize("count", [7, 8, 199, 200, 1_000])
@pytest.mark.parametrize("size", [0, 3, 3_000])
def test_columns_are_the_same_however_they_are_built(count: int, size: int) -> None:
    """Few or many, small or large: each way to build them gives what Arrow makes of the lists."""
    values = [b"%d" % row + b"x" * size for row in range(count)]
    keys = [None if row % 3 == 1 else value for row, value in enumerate(values)]
    headers = [[(f"é{row}", values[row])] * (row % 3) for row in range(count)]
    built = to_arrow([Batch(values, keys, headers, 5), Batch(values)])
    built.validate(full=True)
    assert built.column("value").equals(pa.array(values + values, pa.binary()))
    assert built.column("key").equals(pa.array([*keys, *[None] * count], pa.binary()))
    assert records(built, 0, count, 0) == expected(Batch(values, keys, headers, 5), 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(batches(), max_size=4), st.data())
def test_arrow_holds_the_records_of_all_batches_in_order(many: list[Batch], data: st.DataObject) -> None:
    arrow = to_arrow(many)
    arrow.validate(full=True)
    assert arrow.schema.equals(SCHEMA, check_metadata=True)
    assert arrow.column("headers").null_count == 0

    everything = [record for batch in many for record in expected(batch, 0)]
    first = data.draw(st.integers(0, len(everything)))
    count = data.draw(st.integers(0, len(everything) - first))
    wanted = [
        Record(r.value, r.key, r.headers, r.timestamp, 40 + row)
        for row, r in enumerate(everything[first : first + count])
    ]
    assert records(arrow, first, count, 40) == wanted


@settings(max_examples=60, deadline=None)
@given(batches(), st.data())
def test_an_inline_batch_gives_the_records_that_arrow_gives(batch: Batch, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, batch.count))
    count = data.draw(st.integers(0, batch.count - first))
    assert records_of(batch, first, count, 7) == records(to_arrow([batch]), first, count, 7)
    assert records_of(batch, 0, batch.count, 7) == expected(batch, 7)


def test_records_of_a_slice_keep_their_own_headers() -> None:
    batch = Batch([b"a", b"b", b"c"], None, [[("x", b"1"), ("y", b"2")], [], [("z", b"3")]], 5)
    arrow = to_arrow([batch]).slice(1, 2)
    assert [record.headers for record in records(arrow, 0, 2, 0)] == [(), (("z", b"3"),)]
    assert [record.headers for record in records(arrow, 1, 1, 0)] == [(("z", b"3"),)]


def test_size_counts_values_keys_and_headers_in_utf8() -> None:
    assert Batch([b"abc", b""]).size == 3
    assert Batch([b"abc", b"d"], [b"kk", None]).size == 6
    assert Batch([b"abc", b"d"], [b"kk", None], [[("ä", b"12")], []]).size == 10


def test_timestamps_span_from_the_least_to_the_greatest() -> None:
    one, many = Batch([b"a", b"b"], timestamps=9), Batch([b"a", b"b", b"c"], timestamps=[5, 2, 8])
    assert (one.least_timestamp, one.greatest_timestamp) == (9, 9)
    assert (many.least_timestamp, many.greatest_timestamp) == (2, 8)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values but 1 keys"):
        Batch([b"a", b"b"], [None])
    with pytest.raises(ValueError, match="1 values but 2 timestamps"):
        Batch([b"a"], timestamps=[1, 2])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        encode(Batch([b"abc"], timestamps=3))[:-1],
        encode(Batch([b"abc"])) + b"\0",
        b"\x94\x91\xc4\x01a\xc0\xc0\xa1x",  # a timestamp that is text
        b"\x94\x91\xc4\x01a\x92\xc0\xc0\xc0\x00",  # two keys for one value
        b"\x94\x91\xc4\x01a\xc0\x91\x91\x92\xa1\xff\xc4\x00\x00",  # a header name that is not UTF-8
    ],
)
def test_bytes_that_no_batch_encodes_to_are_corrupt(payload: bytes) -> None:
    with pytest.raises(Corrupt, match=f"batch of {len(payload)} bytes"):
        decode(payload)


def test_the_schema_is_what_spark_reads_without_a_conversion() -> None:
    assert SCHEMA.names == ["timestamp", "key", "value", "headers"]
    assert [column.nullable for column in SCHEMA] == [False, True, False, False]
    assert SCHEMA.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert str(SCHEMA.field("headers").type) == "list<element: struct<key: string, value: binary>>"
    assert SCHEMA.metadata == {b"braidlog.format": b"1"}


def test_positions_stand_before_the_columns() -> None:
    parts = [
        (3, to_arrow([Batch([b"a", b"b"], timestamps=1)])),
        (9, to_arrow([])),
        (2**40, to_arrow([Batch([b"c"])])),
    ]
    table = with_positions(parts)
    assert table.schema.equals(POSITIONED_SCHEMA, check_metadata=True)
    assert table.column_names == ["position", *SCHEMA.names]
    assert table.column("position").to_pylist() == [3, 4, 2**40]
    assert table.column("value").to_pylist() == [b"a", b"b", b"c"]


def test_no_parts_make_an_empty_table_of_the_same_schema() -> None:
    table = with_positions([])
    assert table.num_rows == 0
    assert table.schema.equals(POSITIONED_SCHEMA, check_metadata=True)


def test_numpy_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)  # importing it now raises ImportError
    batch = Batch([b"a", b"b"], [b"k", None], [[("x", b"1")], []], [1, 2])
    arrow = to_arrow([batch])
    assert records(arrow, 0, 2, 0) == expected(batch, 0)
    assert with_positions([(0, arrow)]).num_rows == 2
