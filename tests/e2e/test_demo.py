"""`braid demo` ends by itself with status 0, and everything it claims is so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import braidlog
from braidlog.cli import exit_codes
from braidlog.cli.demo import restock, story
from tests.e2e.test_cli import Command


def test_it_tells_the_story_in_plain_text_without_a_terminal() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "braidlog.cli.main", "demo"], capture_output=True, timeout=30, check=True
    )
    told = process.stdout.decode()
    assert process.stderr == b""
    assert "\x1b" not in told
    for part in ("held, readable up to", "its quantity is -25", "it names no sku", "Squashed", "Promoted", "median"):
        assert part in told


def test_the_figures_are_measured_and_add_up() -> None:
    told = Command("memory://").json("demo")
    assert told["read_orders"] == told["orders"] > 0
    assert (told["read_restocks"], told["read_bad"], told["caught"]) == (len(restock.CAREFUL), 0, 2)
    assert [hold["decision"] for hold in told["holds"]] == ["squash", "promote"]
    for hold in told["holds"]:
        assert 0 < hold["fork_us"] < hold["waited_ms"] * 1_000
        assert hold["decide_us"] > 0


def test_it_runs_again_and_again_in_a_directory(tmp_path: Path) -> None:
    braid = Command(tmp_path / "elsewhere")
    for _ in range(2):
        braid("--at", str(tmp_path / "logs"), "--json", "demo")
    assert not (tmp_path / "elsewhere").exists()
    with braidlog.open(tmp_path / "logs", read_only=True) as opened:
        assert [log.name for log in opened.logs()] == ["orders", "orders-2"]
        kinds = [b'"restock"' in record.value for record in opened.log("orders").read(0)]
        assert sum(kinds) == len(restock.CAREFUL)


def test_a_claim_that_does_not_hold_ends_it_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "validate", lambda _: [])
    result = Command("memory://")("demo", code=exit_codes.FAILED)
    assert "it is not so that the validator finds the bad records" in result.stderr


def test_a_writer_that_fails_ends_it_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise braidlog.errors.Unavailable("the disk is full")

    monkeypatch.setattr(braidlog.Log, "append", refuse)
    assert "the disk is full" in Command("memory://")("demo", code=exit_codes.UNAVAILABLE).stderr
