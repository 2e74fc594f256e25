"""Which columns can be written; all of it is told before any task runs."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from braidlog.errors import InvalidArgument
from braidlog.spark.sink_columns import checked

pytestmark = pytest.mark.usefixtures("spark")


def schema(text: str) -> StructType:
    return StructType.fromDDL(text)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("value binary", ("value",)),
        ("value string", ("value",)),
        ("key string, value binary", ("key", "value")),
        ("VALUE binary, Key binary", ("value", "key")),
        (
            "timestamp timestamp, headers array<struct<key:string,value:binary>>, key binary, value string",
            ("timestamp", "headers", "key", "value"),
        ),
        ("headers array<struct<name:string,value:binary>>, value string", ("headers", "value")),
    ],
)
def test_columns_of_a_record_are_taken_in_any_order(given: str, names: tuple[str, ...]) -> None:
    assert checked(schema(given)) == names


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("key binary", "needs a column 'value'.*there are 'key'.*as_json_values"),
        ("value binary, amount double", "'amount'.*to_json"),
        ("value binary, position bigint", "'position'.*gives positions itself.*drop"),
        ("value binary, log string", "'log'.*drop"),
        ("value int", "'value' must be binary or string, and is int.*cast"),
        ("value struct<a:int>", "'value' must be binary or string.*to_json"),
        ("value binary, key bigint", "'key' must be binary or string, and is bigint"),
        ("value binary, timestamp bigint", "'timestamp' must be timestamp, and is bigint.*cast"),
        ("value binary, timestamp timestamp_ntz", "'timestamp' must be timestamp, and is timestamp_ntz"),
        ("value binary, headers string", "'headers' must be array"),
        ("value binary, headers map<string,binary>", "'headers' must be array"),
        ("value binary, headers array<struct<key:string,value:string>>", "'headers' must be array"),
        ("value binary, headers array<struct<value:binary,key:string>>", "'headers' must be array"),
        ("value binary, headers array<struct<Key:string,value:binary>>", "Key:string.*in small letters"),
        ("value binary, headers array<struct<name:string,VALUE:binary>>", "VALUE:binary.*in small letters"),
        ("value binary, Value string", "'value' is there twice"),
    ],
)
def test_what_cannot_be_written_is_named_with_what_to_do(given: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        checked(schema(given))
