"""Validators in processes of their own: whatever becomes of those, there is a verdict, and the fork is as it was."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import braidlog
from braidlog import agents, limits
from braidlog.agents import Bounds, Finding, Registry, running
from braidlog.cli import exit_codes
from braidlog.client.looking import looking
from braidlog.errors import AlreadyExists, ConditionFailed, InvalidArgument, NotFound, NotPermitted, NotPromotable
from braidlog.testing.processes import ProcessId
from tests.e2e.conformance import values
from tests.e2e.test_cli import Command
from tests.e2e.test_serve import Served

CHECKS = "tests.e2e.agents_checks"
DEADLINE_S = 60
AMPLE = Bounds(timeout_s=DEADLINE_S)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    served = Served(place=tmp_path_factory.mktemp("agents") / "logs")
    yield served.url
    served.end()


@pytest.fixture(params=["directory", "service"])
def braid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[braidlog.Braid]:
    """A directory that this process writes, and a service."""
    url = request.getfixturevalue("service") if request.param == "service" else str(tmp_path / "logs")
    with braidlog.open(url) as braid:
        yield braid
        for name in [log.name for log in braid.logs() if log.info().kind == "root"]:
            braid.drop(name, cascade=True)


@pytest.fixture
def fork(braid: braidlog.Braid) -> braidlog.Log:
    """Ten in stock, five taken on the fork, and three more since."""
    orders = braid.create("orders")
    orders.append(b"10")
    fork = orders.cfork("orders.x", promotable=True)
    fork.append(b"-5")
    orders.append(b"-3")
    return fork


def test_a_validator_reads_what_production_would(braid: braidlog.Braid, fork: braidlog.Log) -> None:
    good = agents.validate(braid, fork, f"{CHECKS}:Stock", bounds=AMPLE)
    assert good.passed, good
    fork.append(b"-3")
    bad = agents.validate(braid, fork, f"{CHECKS}:Stock", bounds=AMPLE, name="stock")
    assert bad == Finding(
        validator="stock",
        verdict=agents.Verdict(False, ["the stock runs out, 2 own of 4"], [3]),
        seconds=bad.seconds,
    )
    with_more = agents.validate(braid, fork, f"{CHECKS}:Stock", parameters={"initial": 1}, bounds=AMPLE)
    assert with_more.passed
    assert (fork.info().own, values(fork.read(0))) == (2, [b"10", b"-5", b"-3", b"-3"])


def test_a_validator_changes_nothing_by_accident(braid: braidlog.Braid, fork: braidlog.Log) -> None:
    before = [log.info() for log in braid.logs()]
    assert agents.validate(braid, fork, f"{CHECKS}:meddles", bounds=AMPLE).verdict == agents.Verdict(True)
    assert [log.info() for log in braid.logs()] == before


def test_handles_to_look_at_only_let_everything_be_seen(service: str) -> None:
    with braidlog.open(service) as braid:
        log = braid.create("seen")
        log.append(b"x")
        with looking(braidlog.open(service)) as looked:
            assert looked.read_only
            assert values(looked.log("seen").read(0)) == values(looked.log("seen").subscribe(0, follow=False)) == [b"x"]
            for change in (lambda: looked.create("y"), lambda: looked.drop("seen"), lambda: looked.log("seen").trim(1)):
                with pytest.raises(NotPermitted):
                    change()
        braid.drop("seen")


FAILURES = {
    "raises": "ValueError: no luck in orders.x (agents_checks.py, line ",
    "crashes": "it crashed: ended by SIGSEGV, and its last words were: orders.x is too much",
    "exits": "it ended with status 0 and no verdict",
    "leaves": "SystemExit: enough of orders.x",
    "devours": f"it needed more than the {256 << 20:,} bytes of memory",
    "chatters": f"it printed more than {limits.VALIDATOR_PRINTED_BYTES_MAX:,} bytes",
    "rambles": "it returned ['xxx",
    "missing": "has no missing",
}


def test_every_way_to_fail_is_a_verdict_that_tells(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        orders = braid.create("orders")
        fork = orders.cfork("orders.x")
        fork.append(b"1")
        bounds = Bounds(timeout_s=DEADLINE_S, memory_bytes=256 << 20)

        def verdict(name: str) -> agents.Verdict:
            word = {"word": "luck"}
            return agents.validate(braid, fork, f"{CHECKS}:{name}", parameters=word, bounds=bounds).verdict

        with ThreadPoolExecutor(2) as two:
            found = dict(zip(FAILURES, two.map(verdict, FAILURES), strict=True))
        assert not any(said.passed for said in found.values())
        told = {name: said.reasons[0] for name, said in found.items()}
        assert {name: text for name, text in told.items() if FAILURES[name] not in text} == {}
        assert (fork.info().own, values(fork.read(0))) == (1, [b"1"])


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        fork = braid.create("orders").cfork("orders.x")
        done = agents.validate(
            braid, fork, f"{CHECKS}:hangs", parameters={"folder": str(tmp_path)}, bounds=Bounds(timeout_s=10)
        )
        assert done.verdict.reasons == ["it took longer than 10 s and was stopped"]
        assert 10 <= done.seconds < 20
        for name in ("self", "child"):
            assert ProcessId.of(int((tmp_path / name).read_text())).wait(DEADLINE_S), name
        assert fork.info().own == 0


def test_one_that_says_nothing_and_does_not_end_is_not_waited_for_once_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = running.Stop()
    looks = 0

    def has_ended(_: object) -> bool:
        nonlocal looks
        looks += 1
        stop.stop()
        return looks > 1

    monkeypatch.setattr(running._Watched, "_has_ended", has_ended)
    with braidlog.open(tmp_path / "logs") as braid:
        fork = braid.create("orders").cfork("orders.x")
        with pytest.raises(running.Stopped):
            agents.validate(braid, fork, f"{CHECKS}:falls_silent", bounds=AMPLE, stop=stop)
    assert looks == 1


def test_what_cannot_be_started_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = os.pipe
    left = 1

    def few() -> tuple[int, int]:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EMFILE, "too many are open")
        return pipe()

    with braidlog.open(tmp_path / "logs") as braid:
        fork = braid.create("orders").cfork("orders.x")
        before = os.listdir("/proc/self/fd")
        monkeypatch.setattr(os, "pipe", few)
        with pytest.raises(OSError, match="too many are open"):
            agents.validate(braid, fork, f"{CHECKS}:exits", bounds=AMPLE)
        monkeypatch.undo()
        assert os.listdir("/proc/self/fd") == before


def test_one_whose_desk_dies_does_not_live_on(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders").cfork("orders.x")
        caller = subprocess.Popen(
            [sys.executable, "-m", "braidlog", "--at", str(tmp_path / "logs"), "validate", "orders.x"]
            + ["--with", f"{CHECKS}:hangs", "--param", f"folder={tmp_path}", "--timeout", "10m"]
        )
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "self").exists():
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)
        found = {name: ProcessId.of(int((tmp_path / name).read_text())) for name in ("self", "child")}
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        for name, process in found.items():
            assert process.wait(DEADLINE_S), name


def test_secrets_are_not_left_lying_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_TOKEN", "braid_secret")
    with braidlog.open(tmp_path / "logs") as braid:
        fork = braid.create("orders").cfork("orders.x")
        assert agents.validate(braid, fork, f"{CHECKS}:token_seen", bounds=AMPLE).passed
        assert "braid_secret" not in repr(agents.Access(url="braid://x", token="braid_secret"))


def test_what_cannot_be_validated_is_refused(tmp_path: Path) -> None:
    with braidlog.open("memory://") as braid:
        fork = braid.create("orders").cfork("orders.x")
        with pytest.raises(InvalidArgument, match="cannot see memory://"):
            agents.validate(braid, fork, f"{CHECKS}:Stock")
    with braidlog.open(tmp_path / "logs") as braid:
        orders = braid.create("orders")
        with pytest.raises(InvalidArgument, match="is a root"):
            agents.validate(braid, orders, f"{CHECKS}:Stock")
        fork = orders.cfork("orders.x")
        for bounds in (Bounds(timeout_s=0), Bounds(timeout_s=1e9), Bounds(memory_bytes=1000)):
            with pytest.raises(InvalidArgument):
                agents.validate(braid, fork, f"{CHECKS}:Stock", bounds=bounds)


# --- the registry ----------------------------------------------------------------------------------------------------


def test_the_registry_is_the_same_for_everybody(braid: braidlog.Braid) -> None:
    one, other = Registry(braid), Registry(braid)
    one.add("stock", f"{CHECKS}:Stock", logs="orders*", parameters={"initial": 3}, start=7, bounds=Bounds(timeout_s=5))
    assert other.list() == one.list()
    assert [known.name for known in other.list("orders.eu")] == ["stock"]
    assert other.list("payments") == []
    with pytest.raises(AlreadyExists):
        other.add("stock", f"{CHECKS}:raises", logs="*")
    other.remove("stock")
    with pytest.raises(NotFound):
        one.get("stock")
    with pytest.raises(NotFound):
        one.remove("stock")


def test_those_who_add_at_the_same_time_do_not_lose_each_other(braid: braidlog.Braid) -> None:
    def add(number: int) -> None:
        Registry(braid).add(f"v{number}", f"{CHECKS}:Stock", logs="*")

    with ThreadPoolExecutor(8) as several:
        list(several.map(add, range(16)))
    assert len(Registry(braid).list()) == 16


@pytest.mark.parametrize(
    ("name", "spec", "logs"),
    [("a b", "m:n", "*"), ("", "m:n", "*"), ("a", "m", "*"), ("a", "m:n", ""), ("a", "m:n", "x y")],
)
def test_what_makes_no_sense_is_not_registered(tmp_path: Path, name: str, spec: str, logs: str) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        with pytest.raises(InvalidArgument):
            Registry(braid).add(name, spec, logs=logs)
        with pytest.raises(InvalidArgument, match="no file"):
            Registry(braid).add("a", "missing.py:check", logs="*")


def test_promote_promotes_what_passed_and_nothing_else(braid: braidlog.Braid, fork: braidlog.Log) -> None:
    with pytest.raises(ConditionFailed, match="no validator"):
        agents.promote(fork, braid=braid)
    Registry(braid).add("stock", f"{CHECKS}:Stock", logs="orders", bounds=AMPLE)
    fork.append(b"-9")
    refused = agents.promote(fork, braid=braid)
    assert not refused.promoted
    assert refused.findings[0].verdict.positions == [3]
    assert fork.info().own == 2
    fork.squash()
    orders = braid.log("orders")
    again = orders.cfork("orders.y", promotable=True)
    again.append(b"+2")
    assert agents.promote("orders.y", braid=braid).promoted
    assert values(orders.read(0)) == [b"10", b"-3", b"+2"]
    with pytest.raises(NotPromotable):
        agents.promote(orders.cfork("orders.z"), braid=braid)


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_validates_and_ends_with_what_was_found(tmp_path: Path) -> None:
    braid = Command(tmp_path / "logs")
    braid("create", "orders")
    braid("append", "orders", "10")
    braid("fork", "orders", "trial", "--promotable")
    braid("append", "trial", "--", "-12")
    check = ("validate", "trial", "--with", f"{CHECKS}:Stock")
    bad = braid(*check, code=exit_codes.CONDITION_FAILED)
    assert "the stock runs out" in bad.stdout
    assert "did not pass" in bad.stderr
    assert braid.json(*check, "--param", "initial=5")["passed"]
    found = json.loads(braid("--json", *check, "--from", "1", code=exit_codes.CONDITION_FAILED).stdout)
    assert found["findings"][0]["positions"] == [1]

    braid("promote", "trial", "--validated", "--yes", code=exit_codes.CONDITION_FAILED)
    path = tmp_path / "own.py"
    path.write_text("def check(fork, context):\n    return context.own == context.parameters['own']\n")
    with_file = ("validators", "add", "count", f"{os.path.relpath(path)}:check", "--log", "ord*", "--param", "own=1")
    braid(*with_file, "--timeout", "60s")
    braid(*with_file, code=exit_codes.ALREADY_EXISTS)
    (listed,) = braid.json("validators", "list", "--log", "orders")
    assert (listed["validator"], listed["parameters"], listed["logs"]) == (f"{path}:check", {"own": 1}, "ord*")
    assert braid.json("validate", "trial")["findings"][0]["validator"] == "count"
    for words in ([], ["--with", f"{CHECKS}:Stock"]):
        refused = braid("validate", "orders", *words, code=exit_codes.USAGE)
        assert "'orders' is a root: only what is on a fork" in refused.stderr
    assert "braidlog.registry" not in braid("ls").stdout
    assert "braidlog.registry" in braid("ls", "--all").stdout
    assert [log["name"] for log in braid.json("ls")] == ["orders", "trial"]
    braid("promote", "trial", "--validated", "--expected-own", "2", "--yes", code=exit_codes.CONDITION_FAILED)
    assert braid.json("promote", "trial", "--validated", "--yes")["promoted"]
    assert braid.lines("read", "orders", "--raw") == ["10", "-12"]
    braid("validators", "remove", "count")
    assert braid.json("validators", "list") == []
    braid("validators", "remove", "count", code=exit_codes.NOT_FOUND)
