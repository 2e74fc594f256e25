"""`braid serve`: what it says, whom it lets in, and how it ends. One process serves most of this module."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

import braidlog
from braidlog.broker import running
from braidlog.broker.service import Service
from braidlog.cli import exit_codes
from braidlog.cli.main import cli
from braidlog.config import Address
from braidlog.errors import OutcomeUnknown, Unavailable
from tests.e2e.test_cli import Command

DEADLINE_S = 30


class Served:
    """`braid serve` as a process of its own, from its first word on."""

    def __init__(self, *args: str, place: Path | str, lines: int = 1, **env: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BRAIDLOG_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "braidlog", "serve", "--at", str(place), "--listen", "127.0.0.1:0", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept | env,
        )
        assert self.process.stdout is not None
        self.said = [self.process.stdout.readline().decode().rstrip("\n") for _ in range(lines)]
        assert self.said[-1], self.end()
        self.url = self.said[0].removeprefix("listening on ")

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes, bytes]:
        """(status, the rest of stdout, stderr)"""
        self.process.send_signal(number)
        out, told = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, told


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "logs"


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    """It must have ended well, too, and have said nothing but where it listens."""
    process = Served("--http", "127.0.0.1:0", place=place, lines=2)
    yield process
    status, out, told = process.end()
    assert (status, out) == (exit_codes.OK, b""), told
    assert b"Traceback" not in told


def page(url: str, path: str, method: str = "GET") -> tuple[int, str]:
    parts = urlsplit(url)
    asking = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    asking.request(method, path)
    answer = asking.getresponse()
    return answer.status, answer.read().decode()


def run(*args: str, env: dict[str, str] | None = None) -> Result:
    """In this process, for what ends by itself."""
    return CliRunner().invoke(cli, list(args), env={"BRAIDLOG_URL": None, "BRAIDLOG_CONFIG": None} | (env or {}))


# --- serving ---------------------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_and_nothing_else(served: Served) -> None:
    first, second = served.said
    assert first.startswith("listening on braid://127.0.0.1:")
    assert second.startswith("listening on http://127.0.0.1:")


def test_what_one_client_appends_another_reads(served: Served) -> None:
    with braidlog.open(served.url) as one, braidlog.open(served.url) as other:
        one.create("shared").append(b"x")
        assert [record.value for record in other.log("shared").read(0)] == [b"x"]


def test_every_verb_works_through_the_url_and_through_the_directory(served: Served, place: Path) -> None:
    remote, local = Command(served.url), Command(place)
    assert remote.lines("create", "orders") == ["orders"]
    assert remote.lines("append", "orders", "a") == ["0"]
    assert local.lines("append", "orders", "b") == ["1"]  # through the directory's socket
    assert remote.lines("read", "orders", "--raw") == local.lines("read", "orders", "--raw") == ["a", "b"]
    assert remote.lines("tail", "orders", "--consumer", "c", "--raw") == ["a", "b"]
    told = remote.json("demo", "--at", served.url, "--no-spark", "--seconds", "0")
    assert (told["caught"]["state"], told["promoted"]["state"]) == ("failed", "promoted")


def test_the_doctor_examines_the_directory_and_not_the_service(served: Served, place: Path) -> None:
    told = Command(served.url)("doctor", code=exit_codes.USAGE).stderr
    assert "directories" in told
    assert "is a service" in told
    Command(place)("doctor")


def test_health_over_http(served: Served) -> None:
    url = served.said[1].removeprefix("listening on ")
    status, body = page(url, "/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert page(url, "/nothing")[0] == 404
    assert page(url, "/health", "POST")[0] == 405
    assert page(url, "/health", "HEAD") == (200, "")


def test_nobody_else_serves_what_is_served(served: Served, place: Path) -> None:
    result = run("serve", "--at", str(place), "--listen", "127.0.0.1:0")
    assert (result.exit_code, result.stdout) == (exit_codes.LOCKED, "")
    assert f"process {served.process.pid}" in result.stderr


def test_a_port_that_is_taken_is_told_before_anything_is_made(served: Served, tmp_path: Path) -> None:
    taken = served.url.removeprefix("braid://")
    for option in ("--listen", "--http"):
        listen = () if option == "--listen" else ("--listen", "127.0.0.1:0")
        result = run("serve", "--at", str(tmp_path / "new"), *listen, option, taken)
        assert (result.exit_code, result.stdout) == (exit_codes.UNAVAILABLE, "")
        assert f"cannot listen on {taken}: the port is taken" in result.stderr
    assert not (tmp_path / "new").exists()


# --- ending ----------------------------------------------------------------------------------------------------------


def test_ending_answers_all_that_it_took(tmp_path: Path) -> None:
    """Whatever happened was acknowledged; of the rest its client knows that it did not, or that it cannot know."""
    process = Served(place=tmp_path / "logs")
    with braidlog.open(process.url, timeout=2) as braid:
        log = braid.create("orders")
        tickets = [log.submit(b"%d" % number) for number in range(2_000)]
        tickets[100].durable(DEADLINE_S)
        status, _, told = process.end(signal.SIGINT)
        assert status == exit_codes.OK, told
        acknowledged = [number for number, ticket in enumerate(tickets) if _happened(ticket)]
    with braidlog.open(tmp_path / "logs") as again:
        kept = [int(record.value) for record in again.log("orders").subscribe(0, follow=False)]
    assert kept == acknowledged
    assert len(kept) > 100


def _happened(ticket: braidlog.Ticket) -> bool:
    try:
        ticket.durable(DEADLINE_S)
    except (Unavailable, OutcomeUnknown):  # the server is gone; what it had not read yet may be anywhere
        return False
    return True


NEVER_ENDS = """
import threading
import braidlog
from braidlog.broker import running
from braidlog.broker.local import LocalService
from braidlog.config import Address
from braidlog.errors import OutcomeUnknown, Unavailable

def release():
    print("closing", flush=True)
    threading.Event().wait()

def make(_):
    return LocalService(braidlog.open("memory://")._session.backend)

local, ready = Address("127.0.0.1", 0), lambda _: print("ready", flush=True)
running.conduct(running.run(make, "x", [local], ready=ready, release=release))
"""


def test_a_second_signal_ends_it_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", NEVER_ENDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == b"closing\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
        finally:
            process.kill()


def test_a_signal_before_it_listens_ends_it_without_a_word() -> None:
    story: list[str] = []

    async def make(_: Address) -> Service:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            story.append("given up")
        raise AssertionError

    def released() -> None:
        story.append("released")

    local = Address("127.0.0.1", 0)
    running.conduct(running.run(make, "x", [local], ready=lambda _: story.append("ready"), release=released))
    assert story == ["given up", "released"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_without_tls_it_serves_this_machine_alone(tmp_path: Path, address: str, option: str) -> None:
    result = run("serve", "--at", str(tmp_path / "logs"), option, address, *_any_port(option))
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert f"will not listen on {address}" in result.stderr
    assert "TLS" in result.stderr
    assert "--insecure" in result.stderr
    assert not (tmp_path / "logs").exists()


def _any_port(option: str) -> tuple[str, ...]:
    return ("--listen", "127.0.0.1:0") if option == "--http" else ()


def test_insecure_listens_anywhere_and_memory_is_not_kept() -> None:
    process = Served("--insecure", "--listen", "0.0.0.0:0", place="memory://")
    both = process.url.removeprefix("braid://").split(",")
    assert [where.partition(":")[0] for where in both] == ["127.0.0.1", "0.0.0.0"]
    with braidlog.open(f"braid://{both[1]}") as braid:
        braid.create("orders")
    with braidlog.open(process.url) as braid:
        assert "orders" in braid
    status, _, told = process.end()
    assert status == exit_codes.OK
    assert b"NOTHING IS KEPT" in told


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("serve",), exit_codes.USAGE, "BRAIDLOG_URL"),
        (("serve", "--at", "braid://127.0.0.1:1", "--listen", "127.0.0.1:0"), exit_codes.USAGE, "a service already"),
        (
            ("serve", "--at", "memory://", "--listen", "no..host:0"),
            exit_codes.USAGE,
            "no..host is not the name of a host",
        ),
        (("serve", "--at", "memory://", "--listen", "here"), exit_codes.USAGE, "HOST:PORT"),
        (("serve", "--at", "memory://", "--config", "nowhere.toml"), exit_codes.USAGE, "nowhere.toml"),
        (("broker", "--listen", "127.0.0.1:0"), exit_codes.USAGE, "--metadata"),
        (("broker", "--metadata", "x"), exit_codes.USAGE, "HOST:PORT"),
        (("metadata",), exit_codes.USAGE, "--at"),
    ],
)
def test_each_refusal_has_its_status_and_says_why(args: tuple[str, ...], code: int, told: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_corrupt_directory_is_not_served(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders").append(b"x")
    (snapshot,) = (tmp_path / "logs" / "snapshots").iterdir()
    damaged = bytearray(snapshot.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    snapshot.write_bytes(damaged)
    result = run("serve", "--at", str(tmp_path / "logs"), "--listen", "127.0.0.1:0")
    assert (result.exit_code, result.stdout) == (exit_codes.CORRUPT, "")
    assert "doctor" in result.stderr


def test_a_folder_of_somebody_else_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("x")
    assert run("serve", "--at", str(tmp_path), "--listen", "127.0.0.1:0").exit_code == exit_codes.USAGE


# --- settings --------------------------------------------------------------------------------------------------------


def test_what_is_set_is_shown_with_its_source_and_nothing_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "braid.toml"
    file.write_text('[serve]\nat = "logs"\nname = "till"\n[broker]\nmetadata = "127.0.0.1:7410"\n')
    env = {"BRAIDLOG_CONFIG": str(file), "BRAIDLOG_LOG_LEVEL": "error"}
    shown = run("serve", "--show-config", "--listen", "127.0.0.1:1", "--listen", "[::1]:2", env=env).stdout
    assert [line for line in shown.splitlines() if "objects" not in line][:4] == [
        "[serve]",
        f'at = "{tmp_path / "logs"}"  # {file} [serve]',
        'listen = ["127.0.0.1:1", "[::1]:2"]  # --listen',
        "# http is not set",
    ]
    assert "insecure = false  # default" in shown
    assert 'log_level = "error"  # BRAIDLOG_LOG_LEVEL' in shown
    told: dict[str, Any] = json.loads(run("broker", "--show-config", "--json", env=env).stdout)
    assert told["metadata"] == {"value": ["127.0.0.1:7410"], "source": f"{file} [broker]"}
    assert list(tmp_path.iterdir()) == [file]


def test_a_variable_that_is_no_setting_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("x")  # so that it ends by itself
    result = run("serve", "--at", str(tmp_path), "--listen", "127.0.0.1:0", env={"BRAIDLOG_LISTN": "x"})
    assert "BRAIDLOG_LISTN is set, which is no setting" in result.stderr


def test_the_lines_it_says_are_these() -> None:
    assert running.Listening("braid://a:1", None).lines == ["listening on braid://a:1"]
    assert running.Listening("braid://a:1", "http://a:2").lines[1] == "listening on http://a:2"
