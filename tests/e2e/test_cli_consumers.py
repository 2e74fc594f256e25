"""`braid consumers`, `braid tail --consumer` and `braid fork --dedicated`."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli import exit_codes
from tests.e2e.test_cli import Command


@pytest.fixture
def braid(tmp_path: Path) -> Command:
    command = Command(tmp_path / "logs")
    command("create", "orders")
    command("append", "orders", "a", "b", "c")
    return command


def test_tail_goes_on_where_its_consumer_got_to(braid: Command) -> None:
    assert braid.lines("tail", "orders", "--consumer", "mail", "-n", "2", "--raw") == ["b", "c"]
    assert braid.lines("tail", "orders", "--consumer", "mail", "--raw") == []
    braid("append", "orders", "d", "e")
    assert braid.lines("tail", "orders", "--consumer", "mail", "-n", "1", "--raw") == ["d", "e"]
    assert braid.lines("tail", "orders", "--raw", "-n", "1") == ["e"]


def test_tail_says_when_what_comes_next_was_trimmed_away(braid: Command) -> None:
    braid("tail", "orders", "--consumer", "mail")
    braid("append", "orders", "d", "e")
    braid("trim", "orders", "5", "--yes")
    assert "commit('mail', 5)" in braid("tail", "orders", "--consumer", "mail", code=exit_codes.OUT_OF_RANGE).stderr


def test_consumers_are_listed_for_one_log_and_for_all(braid: Command) -> None:
    assert "no consumers" in braid("consumers").stderr
    braid("tail", "orders", "--consumer", "mail")
    braid("append", "orders", "d")
    braid("fork", "orders", "trial")
    braid("create", "quiet")
    head, line = braid.lines("consumers", "orders")
    assert head.split() == ["log", "consumer", "position", "lag", "updated"]
    assert line.split()[:4] == ["orders", "mail", "3", "1"]
    assert len(braid.lines("consumers")) == 3
    [one, other] = braid.json("consumers")
    assert {**one, "updated": ""} == {"log": "orders", "consumer": "mail", "position": 3, "lag": 1, "updated": ""}
    assert other["log"] == "trial"
    assert one["updated"] == other["updated"]
    assert braid.json("consumers", "quiet") == []
    braid("consumers", "nobody", code=exit_codes.NOT_FOUND)


def test_a_name_that_looks_like_markup_is_shown_as_it_is(braid: Command) -> None:
    braid("tail", "orders", "--consumer", "[red]mail[/red]")
    assert "[red]mail[/red]" in braid("consumers").stdout


def test_a_consumer_can_be_forgotten(braid: Command) -> None:
    braid("tail", "orders", "--consumer", "mail")
    assert "mail is forgotten" in braid("consumers", "orders", "--forget", "mail").stderr
    assert braid.json("consumers") == []
    braid("consumers", "orders", "--forget", "mail", code=exit_codes.NOT_FOUND)
    assert "--forget needs LOG" in braid("consumers", "--forget", "mail", code=exit_codes.USAGE).stderr
    braid("tail", "orders", "--consumer", "mail")
    answer = braid.json("consumers", "orders", "--forget", "mail")
    assert answer == {"log": "orders", "consumer": "mail", "forgotten": True}


def test_a_fork_can_ask_for_a_broker_of_its_own(braid: Command) -> None:
    assert braid.json("fork", "orders", "busy", "--dedicated")["dedicated"] is True
    assert braid.json("info", "orders")["dedicated"] is False
    assert "broker" in braid("info", "busy").stdout
    braid("fork", "orders", "--severed", "--dedicated", code=exit_codes.USAGE)
