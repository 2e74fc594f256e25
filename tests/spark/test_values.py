"""Values taken apart: JSON and Arrow, and what becomes of those that are neither."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import braidlog
from braidlog import Log
from braidlog.spark import BraidlogFailed, arrow_values, as_json_values, json_values, register
from braidlog.spark.values import _batches


@pytest.fixture
def orders(directory: str) -> Iterator[Log]:
    with braidlog.open(directory) as braid:
        yield braid.create("orders")


@pytest.fixture
def load(spark: SparkSession, orders: Log, directory: str) -> Callable[[], DataFrame]:
    del orders
    return spark.read.format("braidlog").options(url=directory, log="orders").load


@pytest.fixture
def df(load: Callable[[], DataFrame]) -> DataFrame:
    """Planned when it is first used."""
    return load()


def test_json_becomes_a_struct_and_the_rest_stays(orders: Log, df: DataFrame, load: Callable[[], DataFrame]) -> None:
    orders.append_many([b'{"id": 7, "item": "tea"}', b'{"id": 8}', b"not json"])
    schema = "id long, item string"
    found = json_values(df, schema)
    assert found.columns == df.columns
    assert [tuple(row) for row in found.select("position", "value.*").collect()] == [
        (0, 7, "tea"),
        (1, 8, None),
        (2, None, None),
    ]
    orders.append(b'{"other": 1}')
    reloaded = json_values(load(), schema, mode="dropmalformed")
    assert [(row.position, row.value.asDict()) for row in reloaded.collect()] == [
        (0, {"id": 7, "item": "tea"}),
        (1, {"id": 8, "item": None}),
        (3, {"id": None, "item": None}),
    ]
    with pytest.raises(Py4JJavaError, match="MALFORMED"):
        json_values(df, schema, mode="failfast").collect()
    with pytest.raises(ValueError, match="permissive"):
        json_values(df, schema, mode="lenient")  # type: ignore[arg-type]


def test_the_source_takes_values_apart_if_it_is_told_how(
    spark: SparkSession, orders: Log, directory: str, checkpoint: str
) -> None:
    orders.append_many([b'{"id": 7, "item": "tea"}', b'{"id": "many"}', b"not json"])
    orders.append(stream_of(pa.table({"id": [1, 2]})))
    schema = "id long, `item` string"
    found = spark.read.format("braidlog").options(url=directory, log="orders", valueSchema=schema).load()
    assert found.columns == ["position", "timestamp", "key", "value", "log"]
    assert [(row.position, row.value and tuple(row.value)) for row in found.select("position", "value").collect()] == [
        (0, (7, "tea")),
        (1, (None, None)),
        (2, None),
        (3, None),
    ]
    options = {"url": directory, "log": "orders", "valueSchema": "id long", "valueFormat": "arrow"}
    stream = spark.readStream.format("braidlog").options(**options, startingOffsets="earliest").load()
    writer = stream.writeStream.format("memory").queryName("taken_apart").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    ids = spark.table("taken_apart").orderBy("position").selectExpr("value.id AS ids").collect()
    assert [row.ids for row in ids] == [None, None, None, [1, 2]]


OF_EACH_TYPE = """
    SELECT true AS yes, 5Y AS tiny, 500S AS small, 5 AS n, 5L AS big, 1.5F AS f, 2.5D AS d, 1.10BD AS exact, 'tea' AS s,
        X'00FF61' AS b, DATE'2026-01-31' AS day, TIMESTAMP'2026-01-31 10:00:00.123456' AS t,
        TIMESTAMP_NTZ'2026-01-31 10:00:00.123' AS wall, ARRAY(X'61', null, X'') AS parts,
        ARRAY(NAMED_STRUCT('day', DATE'2026-02-01', 'b', X'62')) AS rows, NAMED_STRUCT('day', DATE'0999-12-31') AS deep
"""


def test_the_option_reads_each_type_as_the_function_does(spark: SparkSession, orders: Log, directory: str) -> None:
    written = spark.sql(OF_EACH_TYPE)
    orders.append_many([as_json_values(written).first().value.encode(), b"{}"])
    wrong = (b"5", b'"5"', b'"x"', b"true", b"1.255", b"[5]", b'{"day": 5}', b'[{"day": "x", "b": "YQ=="}]')
    fields = [(name.encode(), b"big" if name == "n" else b"n") for name in written.columns]
    for name, beside in fields:  # for Spark bad base64 spoils the other fields too, and "5" is a day
        those = [each for each in wrong if name not in (b"b", b"day") or not each.startswith(b'"')]
        orders.append_many([b'{"%s": 5, "%s": %s}' % (beside, name, each) for each in those])
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in written.schema)
    reading = spark.read.format("braidlog").options(url=directory, log="orders")
    by_function = [row.value for row in json_values(reading.load(), ddl).select("value").collect()]
    by_option = [row.value for row in reading.option("valueSchema", ddl).load().select("value").collect()]
    assert by_option == by_function
    assert by_option[:2] == [written.first(), Row(**dict.fromkeys(written.columns))]


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def test_arrow_becomes_rows(orders: Log, df: DataFrame) -> None:
    orders.append(stream_of(pa.table({"item": ["tea", "rice"], "id": pa.array([1, 2], pa.int32())})))
    orders.append(stream_of(pa.table({"id": pa.array([], pa.int64()), "item": pa.array([], pa.string())})))
    orders.append(
        stream_of(
            pa.table({"id": [3], "item": [None], "more": [True]}).cast(
                pa.schema([("id", pa.int64()), ("item", pa.string()), ("more", pa.bool_())])
            )
        )
    )
    found = arrow_values(df, "id long, item string")
    assert found.columns == ["log", "position", "id", "item"]
    assert [tuple(row) for row in found.collect()] == [
        ("orders", 0, 1, "tea"),
        ("orders", 0, 2, "rice"),
        ("orders", 2, 3, None),
    ]
    with pytest.raises(ValueError, match="'position' is in the values too"):
        arrow_values(df, "position long")


def test_what_is_no_arrow_is_told(orders: Log, df: DataFrame) -> None:
    orders.append(b"no arrow")
    with pytest.raises(PySparkException, match="not an Arrow IPC stream with the columns id"):
        arrow_values(df, "id long").collect()


@pytest.mark.parametrize("offsets", [(0, 2_000_000, 7), (0, -5, 7), (0, 3, 2_000_000)])
def test_arrow_that_points_beyond_its_value_is_told(offsets: tuple[int, int, int]) -> None:
    good = stream_of(pa.table({"item": ["tea", "rice"]}))
    stored = struct.pack("<3i", 0, 3, 7)
    assert good.count(stored) == 1
    shape = pa.schema([("item", pa.string())])
    with pytest.raises(BraidlogFailed, match="not an Arrow IPC stream"):
        list(_batches(pa.scalar(good.replace(stored, struct.pack("<3i", *offsets))), shape))


def test_a_session_may_be_told_of_the_format(spark: SparkSession, orders: Log, directory: str) -> None:
    orders.append(b"x")
    session = spark.newSession()
    register(session)
    assert session.read.format("braidlog").options(url=directory, log="orders").load().count() == 1
