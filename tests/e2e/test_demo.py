"""`braid demo` ends by itself with status 0, and everything it claims is so, by the log that it leaves."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import shlex
import signal
import statistics
import struct
import subprocess
import sys
import termios
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import braidlog
from braidlog.agents import Audit, sql
from braidlog.cli import exit_codes
from braidlog.cli.demo import questions, sparking, story
from braidlog.cli.demo.outcome import Outcome
from braidlog.cli.demo.shop import SHELF, BadEvent, Order, Restock, Shop, encode
from braidlog.cli.demo.trade import SKUS, Trade
from tests.e2e.test_cli import Command

SEED = random.SystemRandom().randrange(2**31)
PATIENCE_S = 60
COMMAND = [sys.executable, "-m", "braidlog.cli.main", "demo", "--no-spark"]
AT_ONCE = ("--no-spark", "--seconds", "0", "--seed", str(SEED))


def events_of(folder: Path, log: str = "orders") -> list[dict[str, Any]]:
    with braidlog.open(folder, read_only=True) as braid:
        return [json.loads(record.value) for record in braid.log(log).read(0)]


def too_cheap(events: list[dict[str, Any]]) -> Counter[tuple[str, str, int]]:
    """What an agent should find, the slow way."""
    orders = [event for event in events if event["type"] == "order"]
    usual = {sku: statistics.median(one["cents"] for one in orders if one["sku"] == sku) for sku in SKUS}
    return Counter((one["shop"], one["sku"], one["day"]) for one in orders if one["cents"] * 3 < usual[one["sku"]])


def test_what_it_claims_is_in_the_log_that_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparking, "START_S", 0.0)  # no Spark is that quick: the story is told without it
    monkeypatch.setattr(sparking, "why_not", lambda: "")
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders").append(b"somebody else's")
    said = Command(tmp_path / "elsewhere")("--at", str(tmp_path / "logs"), "--json", "demo", *AT_ONCE[1:])
    outcome = msgspec.json.decode(said.stdout, type=Outcome)
    assert not (tmp_path / "elsewhere").exists()
    assert (outcome.seed, outcome.log, outcome.spark) == (SEED, "orders-2", None)
    assert outcome.no_spark.startswith("it was not ready within")
    events = events_of(tmp_path / "logs", "orders-2")

    found = {(one.shop, one.sku, one.day): one.orders for one in outcome.mispriced}
    assert found == too_cheap(events), f"seed {SEED}"
    assert len(found) == 1

    (position,) = outcome.promoted.positions
    restocks = [at for at, event in enumerate(events) if event["type"] == "restock"]
    assert restocks == [*range(len(SKUS)), position], "the good record stands where it was told, and no bad one does"
    assert outcome.promoted.state == "promoted"
    assert outcome.caught.state == "failed"
    assert len(outcome.caught.reasons) == 2
    assert f"on a shelf for {SHELF:,}" in outcome.caught.reasons[0]

    numbers = [event["number"] for event in events if event["type"] == "order"]
    assert numbers == list(range(1, len(numbers) + 1)), "nothing that the tester injected got out"
    assert outcome.tested["duplicate"] == "ignored as a duplicate"
    assert outcome.tested["late"].startswith("taken as late")
    assert outcome.tested["malformed"].startswith("crash: ")

    assert (outcome.read_orders, outcome.read_restocks) == (len(numbers), len(restocks))
    assert outcome.alone.orders >= 100
    assert outcome.beside_agents.orders > 0
    for latency in (outcome.alone, outcome.beside_agents):
        assert 0 < latency.append_p50_us <= latency.append_p99_us
        assert 0 < latency.read_p50_us <= latency.read_p99_us
    for attempt in (outcome.caught, outcome.promoted):
        assert 0 < outcome.fork_p50_us < attempt.waited_s * 1e6
    assert outcome.forks == 5

    assert _living(tmp_path / "logs") == {"orders", "orders-2", "orders-2.restocker.idea"}
    with braidlog.open(tmp_path / "logs", read_only=True) as braid:
        assert [record.value for record in braid.log("orders").read(0)] == [b"somebody else's"]
        called = Counter((entry.agent, entry.tool) for entry in Audit(braid).read(log="orders-2"))
        asked = [entry.arguments["sql"] for entry in Audit(braid).read(log="orders-2") if entry.tool == "query_sql"]
    assert sorted(asked) == sorted([questions.MISPRICED, questions.STOCK, questions.STOCK])
    assert called["tester", "read_records"] == 1
    assert called["tester", "run_validator"] >= 1, "once more if a hold hid some of the fork"
    assert called["restocker", "propose"] == 3
    assert called["restocker", "create_fork"] == 3


def test_both_engines_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trade = Trade(SEED, 2_000)
    with braidlog.open("memory://") as braid:
        log = braid.create("orders")
        log.append_many([*trade.opening, *trade.past])
        asked = questions.mispriced(log), questions.stock(log)
        monkeypatch.setattr(sql, "available", lambda: False)
        assert (questions.mispriced(log), questions.stock(log)) == asked, f"seed {SEED}"
        shop = Shop()
        for record in log.read(0):
            shop.take(record.value)
    assert asked == (([trade.planted], 2_000 + len(SKUS)), shop.stock)


def test_a_seed_is_one_trade_and_others_are_others() -> None:
    assert Trade(SEED, 500).past == Trade(SEED, 500).past != Trade(SEED + 1, 500).past
    assert len({(one.shop, one.sku, one.day) for one in (Trade(SEED + n, 100).planted for n in range(20))}) > 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(b"{", "truncated", id="no JSON"),
        pytest.param(b'{"type":"restock","item":"cleat","amount":5}', "missing required field `sku`", id="no sku"),
        pytest.param(b'{"type":"restock","sku":"cleat","quantity":-5}', ">= 1", id="negative"),
        pytest.param(b'{"type":"refund","sku":"cleat"}', "refund", id="no such event"),
        pytest.param(encode(Restock(sku="cleat", quantity=SHELF)), "100,010 cleat would be on", id="too much"),
    ],
)
def test_the_consumer_lives_with_no_bad_event_and_takes_nothing_of_it(value: bytes, said: str) -> None:
    shop = Shop()
    shop.take(encode(Restock(sku="cleat", quantity=10)))
    with pytest.raises(BadEvent, match=said):
        shop.take(value)
    assert (shop.stock, shop.restocks) == ({"cleat": 10}, 1)


def test_the_books_of_a_day_are_closed_to_late_orders() -> None:
    shop = Shop()
    for number, day in ((1, 1), (2, 2), (3, 1), (2, 2)):
        shop.take(encode(Order(number=number, day=day, shop="east", sku="cleat", quantity=2, cents=100)))
    assert (shop.day, shop.sales_cents, shop.late, shop.duplicates) == (2, 200, 1, 1)
    assert shop.stock == {"cleat": -6}


def test_a_process_without_a_terminal_prints_lines_and_what_it_says_to_try_works(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    logs = tmp_path / "my logs"
    process = subprocess.run(
        [*COMMAND, *AT_ONCE[1:], "--at", str(logs)],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    text = process.stdout.decode()
    assert process.stderr == b""
    assert "\x1b" not in text
    for part in (
        f"seed {SEED}; the agents are scripted",
        "held, readable up to",
        "readers of orders wait for orders.restocker.1",
        "is caught by a copy of the consumer",
        "is promoted",
        "append p50",
        "What to try next",
    ):
        assert part in text
    assert list(scratch.iterdir()) == []
    steps = [line.partition("#")[0] for line in text.partition("What to try next")[2].splitlines() if "braid" in line]
    assert len(steps) == 5
    braid = Command(tmp_path / "elsewhere")
    for step in steps:
        verb = shlex.split(step)[1:]
        if verb[0] != "mcp":  # which serves until its input ends, and finds it empty
            braid(*verb)
    assert len([event for event in events_of(logs) if event["type"] == "restock"]) == len(SKUS) + 2


def test_on_a_terminal_it_draws_a_picture_that_changes(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "3"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    drawn = _all_of(ours).decode()
    assert process.wait(PATIENCE_S) == exit_codes.OK
    frames = [part for part in drawn.split("\x1b[1A") if "orders/s" in part]
    assert len(frames) > 3, "it is drawn over what was there"
    for part in ("beside agents", "orders.tester.try", "of 60 s at most", "three scripted agents", "What to try next"):
        assert part in drawn
    assert list(tmp_path.iterdir()) == []


def _all_of(fd: int) -> bytes:
    """What comes until the other side is closed."""
    found = b""
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # Linux tells the end of a terminal so
            data = b""
        if not data:
            os.close(fd)
            return found
        found += data


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_finds_nothing_left(tmp_path: Path, sign: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "--seconds", "60", "--at", str(tmp_path / "logs")],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = b""
    while b"production" not in line:
        line = process.stdout.readline()
    process.send_signal(sign)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == exit_codes.INTERRUPTED
    assert complaint.strip() == b""
    assert list(scratch.iterdir()) == []


def test_interrupted_at_work_the_agents_leave_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(story, "wait", interrupt)
    Command("memory://")("demo", *AT_ONCE, "--at", str(tmp_path / "logs"), code=exit_codes.INTERRUPTED)
    assert _living(tmp_path / "logs") == {"orders"}


def test_an_agent_that_fails_is_shown_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise braidlog.errors.Timeout("the query took too long")

    monkeypatch.setattr(questions, "mispriced", refuse)
    result = Command("memory://")("demo", *AT_ONCE, "--at", str(tmp_path / "logs"), code=exit_codes.FAILED)
    assert "analyst    failed: the query took too long" in result.stdout
    assert "the demo failed: the analyst: the query took too long" in result.stderr
    assert _living(tmp_path / "logs") == {"orders"}


def test_a_validator_that_lets_everything_pass_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lax.py").write_text("def anything(fork):\n    return True\n")
    monkeypatch.setattr(story, "CHECK", f"{tmp_path / 'lax.py'}:anything")
    result = Command("memory://")("demo", *AT_ONCE, "--at", str(tmp_path / "logs"), code=exit_codes.FAILED)
    assert "it is not so that the validator catches both bad records" in result.stderr


def test_a_writer_that_fails_ends_it_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    append = braidlog.Log.append

    def refuse(log: braidlog.Log, *given: Any, **options: Any) -> int | None:
        if log.name == "orders":
            raise braidlog.errors.Unavailable("the disk is full")
        return append(log, *given, **options)

    monkeypatch.setattr(braidlog.Log, "append", refuse)
    assert "the disk is full" in Command("memory://")("demo", *AT_ONCE, code=exit_codes.UNAVAILABLE).stderr


def test_memory_is_refused_as_no_validator_could_see_it() -> None:
    assert "cannot see memory://" in Command("x")("demo", "--at", "memory://", code=exit_codes.USAGE).stderr


def test_it_says_what_spark_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "no Java is found" in sparking.why_not()
    assert "no Java is found" in Command("x")("demo", "--spark", "--seconds", "0", code=exit_codes.FAILED).stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "PySpark is not installed" in sparking.why_not()


def _living(folder: Path) -> set[str]:
    with braidlog.open(folder, read_only=True) as braid:
        return {log.name for log in braid.logs() if not log.name.startswith("braidlog.")}
