"""What options mean, and what is said of those that mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from braidlog.errors import InvalidArgument
from braidlog.spark.columns import schema
from braidlog.spark.options import EARLIEST, LATEST, Place, SourceOptions, parse
from braidlog.spark.source import BatchReader


def parsed(**options: str) -> SourceOptions:
    return parse({"url": "/logs", "log": "orders"} | options, {})


def refused(options: dict[str, str], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse(options, environment or {})
    return str(caught.value)


def test_what_only_a_stream_can_do_is_refused_for_a_batch() -> None:
    for name, value in (("maxOffsetsPerTrigger", "5"), ("maxBytesPerTrigger", "5"), ("onForkEnd", "continue")):
        with pytest.raises(InvalidArgument, match=f"{name}.* is for streams"):
            BatchReader(parsed(**{name: value}), schema(headers=False))
    BatchReader(parsed(onForkEnd="fail"), schema(headers=False))


def test_names_are_read_in_any_case_and_defaults_are_those_of_kafka() -> None:
    found = parse({"URL": "/logs", "LOG": "orders", "INCLUDEheaders": "True"}, {})
    assert found.place == Place("/logs")
    assert found.include_headers
    assert found.fail_on_data_loss
    assert found.starting is None
    assert found.ending is None
    assert found.on_fork_end == "fail"


def test_the_url_is_the_option_the_path_or_the_environment() -> None:
    assert parse({"path": "/logs", "log": "a"}, {"BRAIDLOG_URL": "braid://x"}).place.url == "/logs"
    assert parse({"log": "a"}, {"BRAIDLOG_URL": "braid://x:7411"}).place.url == "braid://x:7411"
    assert "BRAIDLOG_URL" in refused({"log": "a"})
    assert "say different ones" in refused({"url": "/a", "path": "/b", "log": "a"})


def test_memory_and_relative_paths_are_refused_with_the_reason() -> None:
    assert "one process" in refused({"url": "memory://", "log": "a"})
    assert "absolute" in refused({"url": "logs", "log": "a"})


def test_an_unknown_option_is_told_the_nearest_one() -> None:
    assert "did you mean startingOffsets?" in refused({"url": "/l", "log": "a", "startingoffset": "earliest"})
    assert "there are url, path, log" in refused({"url": "/l", "log": "a", "zzz": "1"})


def test_a_secret_is_no_option_and_is_never_repeated() -> None:
    said = refused({"url": "/l", "log": "a", "token": "hunter2"})
    assert "tokenFile" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["log", "subscribe"])
def test_logs_are_named_one_by_one_or_by_globs(name: str) -> None:
    found = parse({"url": "/l", name: "b, a ,orders-*"}, {}).selection
    assert not found.fixed
    assert [log for log in ("a", "b", "c", "orders-1", "Orders-1") if found.matches(log)] == ["a", "b", "orders-1"]
    assert parse({"url": "/l", name: "b,a"}, {}).selection.fixed


@pytest.mark.parametrize("name", ["logPattern", "subscribePattern"])
def test_a_pattern_is_for_the_whole_name(name: str) -> None:
    found = parse({"url": "/l", name: "orders-[0-9]+"}, {}).selection
    assert [log for log in ("orders-1", "orders-12", "my-orders-1", "orders-1b") if found.matches(log)] == [
        "orders-1",
        "orders-12",
    ]
    assert "regular expression" in refused({"url": "/l", name: "("})


def test_logs_have_to_be_named_and_in_one_way() -> None:
    assert "say which logs" in refused({"url": "/l"})
    assert "one of the two" in refused({"url": "/l", "log": "a", "logPattern": "b"})
    assert "names no log" in refused({"url": "/l", "log": " , "})
    assert "not allowed" in refused({"url": "/l", "log": "a/b"})


def test_offsets_are_words_or_positions_of_each_log() -> None:
    assert parsed(startingOffsets="EARLIEST").starting.of("orders", 5) == EARLIEST  # type: ignore[union-attr]
    assert parsed(endingOffsets="latest").ending.of("orders", 5) == LATEST  # type: ignore[union-attr]
    each = parsed(startingOffsets='{"orders": 23, "payments": -2}').starting
    assert each is not None
    assert (each.of("orders", LATEST), each.of("payments", LATEST), each.of("others", LATEST)) == (23, EARLIEST, LATEST)


@pytest.mark.parametrize("text", ["soon", "[1]", '{"orders": "1"}', '{"orders": -3}', '{"orders": true}', '{"a": 1.5}'])
def test_other_offsets_are_refused_with_an_example(text: str) -> None:
    assert '{"orders": 23, "payments": -2}' in refused({"url": "/l", "log": "orders", "startingOffsets": text})


def test_moments_are_milliseconds_or_iso() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in (
        str(int(moment.timestamp() * 1000)),
        "2026-01-31T12:00:00Z",
        "2026-01-31T13:00+01:00",
        "2026-01-31 12:00",
    ):
        found = parsed(startingTimestamp=text).starting
        assert found is not None
        assert found.moment == moment
    assert moment.astimezone(timezone(timedelta(hours=1))) == moment
    for text in ("yesterday", "9" * 15, "2026-13-01"):
        assert "startingTimestamp" in refused({"url": "/l", "log": "a", "startingTimestamp": text})


def test_a_range_has_one_beginning() -> None:
    both = {"url": "/l", "log": "a", "endingTimestamp": "0", "endingOffsets": "latest"}
    assert "not both" in refused(both)


@pytest.mark.parametrize(
    "name", ["minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "maxBytesPerTrigger"]
)
def test_counts_are_whole_numbers_from_one_on(name: str) -> None:
    assert parsed(**{name: " 7 "})
    for text in ("0", "-1", "1.5", "many", "1_000"):
        assert name in refused({"url": "/l", "log": "a", name: text})


def test_flags_choices_and_seconds_are_checked() -> None:
    assert not parsed(failOnDataLoss="FALSE").fail_on_data_loss
    assert parsed(onForkEnd="Continue").on_fork_end == "continue"
    assert parsed(timeout="2.5").place.timeout_s == 2.5
    assert "true or false" in refused({"url": "/l", "log": "a", "includeHeaders": "yes"})
    assert "fail or continue" in refused({"url": "/l", "log": "a", "onForkEnd": "stop"})
    assert "seconds" in refused({"url": "/l", "log": "a", "timeout": "-1"})
