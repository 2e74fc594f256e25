"""`braid top`: what it shows of a service, and what it says where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.cli import exit_codes
from braidlog.cli.verbs import top
from braidlog.client.remote.backend import RemoteBackend
from tests.e2e.test_cli import Command
from tests.e2e.test_observing import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    orders = made.braid.create("orders")
    orders.append_many([b"secret"] * 20)
    orders.commit("mailer", 5)
    orders.cfork("trial", promotable=True, lease=90)
    made.clock.advance(30)
    yield made
    made.close()


def at(served: Served) -> Command:
    return Command(f"braid://127.0.0.1:{served.port}")


def test_once_shows_one_sample_for_people(served: Served) -> None:
    text = at(served)("top", "--once").stdout
    assert f"observed  serve {braidlog.__version__}, up " in text
    lines = [line.split() for line in text.splitlines()]
    assert [line[:1] for line in lines if "append" in line[:1]] == [["append"]]
    assert ["orders", "trial"] in [line[:2] for line in lines]
    assert ["orders", "mailer", "5", "15"] in [line[:4] for line in lines]
    assert "30.0 s" in text
    assert "60.0 s" in text
    assert "secret" not in text


def test_once_is_one_document_in_json(served: Served) -> None:
    found = at(served).json("top", "--once")
    assert found["role"] == "serve"
    assert found["logs"] == {"root": 1, "cfork": 0, "promotable": 1, "sfork": 0}
    assert found["rates"]["appended_records"] > 0
    assert found["now"]["connections"] == 2  # this one, too
    [hold] = found["holds"]
    assert (hold["fork"], hold["age_s"], hold["lease_left_s"]) == ("trial", 30.0, 60.0)
    append = next(one for one in found["requests"] if one["kind"] == "append")
    assert 0 < append["p50_s"] <= append["p99_s"]


def test_live_goes_on_with_what_happened_since(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            raise KeyboardInterrupt
        served.braid.log("orders").append_many([b"x"] * 7)

    monkeypatch.setattr(top.time, "sleep", pause)
    result = at(served)("top", "--json", "--interval", "3s", code=exit_codes.INTERRUPTED)
    first, *later = map(json.loads, result.stdout.splitlines())
    assert pauses == [3.0, 3.0, 3.0]
    assert first["window_s"] == first["uptime_s"]
    for found in later:
        assert found["rates"]["appended_records"] * found["window_s"] == pytest.approx(7)
        assert {one["kind"] for one in found["requests"]} == {"find", "append", "status"}
    pauses.clear()
    shown = at(served)("top", code=exit_codes.INTERRUPTED).stdout
    assert shown.count("observed  serve") == 3


def test_what_a_client_calls_itself_cannot_move_the_cursor(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["\x1b[2Jevil[bold]"])
    other = served.connect()
    shown = at(served)("top", "--once").stdout
    assert "\x1b" not in shown
    assert "evil[bold]" in shown
    other.close()


def test_trouble_is_shown(served: Served) -> None:
    served.writer.failing["pack"] = "no room"
    served.writer.committer.fail(braidlog.errors.Unavailable("the disk is gone"))
    shown = at(served)("top", "--once").stdout
    assert "cannot take writes: the disk is gone" in shown
    assert "pack fails: no room" in shown


def test_a_shared_directory_is_looked_at_through_its_holder(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid, braidlog.open(tmp_path / "logs") as other:
        braid.create("orders").append(b"of the holder's own")
        other.log("orders").append(b"through it")
        found = Command(tmp_path / "logs").json("top", "--once")
    assert found["logs"]["root"] == 1
    assert found["rates"]["appended_records"] * found["uptime_s"] == pytest.approx(2)


def test_without_a_service_it_says_so(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "alone", serve=False) as braid:
        braid.create("orders")
        told = Command(tmp_path / "alone")("top", "--once", code=exit_codes.UNAVAILABLE).stderr
    assert "there is no service at" in told
    Command(tmp_path / "nothing")("top", "--once", code=exit_codes.UNAVAILABLE)
    assert not (tmp_path / "nothing").exists()
    Command("memory://")("top", "--once", code=exit_codes.USAGE)
    Command("braid://127.0.0.1:nope")("top", "--once", code=exit_codes.USAGE)


def test_a_socket_that_was_left_behind_is_no_service(tmp_path: Path) -> None:
    (tmp_path / "SOCKET").touch()
    Command(tmp_path)("top", "--once", code=exit_codes.UNAVAILABLE)


def test_only_a_service_has_a_status() -> None:
    with braidlog.open("memory://") as braid, pytest.raises(braidlog.errors.Unavailable, match="no service"):
        top._asker(braid)
    assert callable(RemoteBackend.status)
