"""What a write of Spark may be asked for. Needs no Spark."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.spark.sink_options import SinkOptions, parse

LEAST = {"url": "braid://host:7411", "log": "orders"}


def parsed(*, streaming: bool = False, **options: str) -> SinkOptions:
    return parse({**LEAST, **options}, {}, streaming=streaming)


def test_a_place_and_a_log_are_enough() -> None:
    options = parsed()
    assert options.place.url == "braid://host:7411"
    assert options.log == "orders"
    assert options.txn is None
    assert not options.create_log
    assert options.on_fork_end == "fail"
    assert options.upload_ttl_s == limits.UPLOAD_TTL_S
    assert options.block_bytes == limits.UPLOAD_BLOCK_BYTES
    assert options.blocked_timeout_s == limits.SPARK_BLOCKED_TIMEOUT_S
    assert options.commit_timeout_s == limits.SPARK_COMMIT_TIMEOUT_S


def test_the_place_comes_from_the_path_or_the_environment_too() -> None:
    assert parse({"path": "/data/logs", "log": "x"}, {}, streaming=False).place.url == "/data/logs"
    assert parse({"log": "x"}, {"BRAIDLOG_URL": "braid://h"}, streaming=False).place.url == "braid://h"


def test_names_may_be_written_in_any_case() -> None:
    options = parsed(createlog="TRUE", TXNAPPID="etl", txnversion="7", uploadTTL="90", onforkend="Continue")
    assert options.create_log
    assert options.txn == ("spark-txn:etl", 7)
    assert options.upload_ttl_s == 90.0
    assert options.on_fork_end == "continue"


def test_what_spark_puts_into_the_options_is_none_of_our_business() -> None:
    assert parsed(streaming=True, checkpointLocation="/tmp/x").log == "orders"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"txnAppid": "etl"}, "go together"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "etl", "txnVersion": "-1"}, "txnVersion is a whole number"),
        ({"txnAppId": "etl", "txnVersion": "one"}, "txnVersion is a whole number"),
        ({"txnAppId": "e" * 300, "txnVersion": "1"}, "at most 246 characters"),
        ({"createLogs": "true"}, "did you mean createLog"),
        ({"uploadTll": "true"}, "did you mean uploadTtl"),
        ({"token": "s3cret"}, "tokenFile"),
        ({"createLog": "perhaps"}, "true or false"),
        ({"uploadTtl": "soon"}, "seconds"),
        ({"uploadTtl": "1e9"}, "seconds"),
        ({"uploadTtl": "999999999"}, "at most 604800 seconds"),
        ({"blockBytes": "67108865"}, "at most 67108864"),
        ({"blockBytes": "0"}, "from 1 on"),
        ({"onForkEnd": "explode"}, "fail or continue"),
        ({"log": ""}, "say which log"),
        ({"log": "a,b"}, "several logs"),
        ({"log": "no/name"}, "no/name"),
        ({"url": "memory://"}, "memory://"),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told) as refused:
        parsed(**given)
    assert "s3cret" not in str(refused.value)


def test_a_stream_numbers_its_batches_itself() -> None:
    with pytest.raises(InvalidArgument, match="leave them out"):
        parsed(streaming=True, txnAppId="etl", txnVersion="1")
