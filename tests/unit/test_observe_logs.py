"""What is logged is one line for each event, whatever is in it, and can be read by machines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.observe.logs import Event, JsonLines, TextLines, configure_logging, request_text


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Whatever a test configures is as before after it."""
    logger = logging.getLogger("braidlog")
    kept = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = kept[0], kept[2]
    logger.setLevel(kept[1])


def logged(format: str, level: str, *events: tuple[int, object]) -> list[str]:
    stream = io.StringIO()
    configure_logging(format, level, stream)
    for severity, event in events:
        logging.getLogger("braidlog.test").log(severity, event)
    return stream.getvalue().splitlines()


def test_text_is_pairs_with_quotes_where_they_are_needed() -> None:
    [line] = logged("text", "info", (logging.INFO, Event("promote", log=7, name="a trial", seconds=0.25, none=None)))
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info logger=braidlog\.test event=promote log=7 "
        r'name="a trial" seconds=0\.25',
        line,
    )


def test_json_is_an_object_on_each_line() -> None:
    lines = logged("json", "info", (logging.INFO, Event("drop", log=7, client="é")), (logging.WARNING, "plain words"))
    first, second = map(json.loads, lines)
    assert {key: first[key] for key in ("level", "event", "log", "client")} == {
        "level": "info",
        "event": "drop",
        "log": 7,
        "client": "é",
    }
    assert (second["event"], second["message"]) == ("message", "plain words")
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("evil", ["a\nlevel=error", "\x1b[2J", 'quote" and \\', "\u2028", "x=y z", "\x9b31m"])
def test_a_line_stays_one_line_and_no_field_can_pretend_to_be_another(format: str, evil: str) -> None:
    [line] = logged(format, "info", (logging.INFO, Event("hello", client=evil)))
    assert line.isascii()
    assert line.isprintable()
    if format == "json":
        assert json.loads(line)["client"] == evil
    else:
        assert json.loads(line.partition(" client=")[2]) == evil


def test_a_field_is_bounded() -> None:
    [line] = logged("json", "info", (logging.INFO, Event("hello", client="x" * 100_000)))
    assert len(json.loads(line)["client"]) == limits.LOG_VALUE_CHARS_MAX + 3


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_a_trace_is_on_the_same_line(form: type[logging.Formatter]) -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        record = logging.LogRecord("braidlog", logging.ERROR, "", 0, "failed", (), (type(error), error, None))
    line = form().format(record)
    assert "RuntimeError: broken" in line
    assert "\n" not in line


def test_levels_are_those_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [(severity, Event(logging.getLevelName(severity))) for severity in (10, 20, 30, 40)]
    counts = {level: len(logged("text", level, *events)) for level in ("debug", "info", "warning", "error")}
    assert counts == {"debug": 4, "info": 3, "warning": 2, "error": 1}
    monkeypatch.setenv("BRAIDLOG_LOG_LEVEL", "ERROR")
    monkeypatch.setenv("BRAIDLOG_LOG_FORMAT", "json")
    [line] = logged("", "", *events)
    assert json.loads(line)["level"] == "error"


@pytest.mark.parametrize(("format", "level"), [("yaml", "info"), ("text", "loud")])
def test_what_is_unknown_is_refused(format: str, level: str) -> None:
    with pytest.raises(InvalidArgument, match="is unknown"):
        configure_logging(format, level)


def test_without_configuration_an_event_is_still_readable() -> None:
    assert str(Event("upkeep_failed", duty="pack", error="no room")) == 'upkeep_failed duty=pack error="no room"'


def test_a_request_is_known_by_its_id_or_by_its_place() -> None:
    assert request_text(bytes(range(16)), 3, 4) == "000102030405060708090a0b0c0d0e0f"
    assert request_text(b"", 3, 4) == "3-4"
