"""`braid` as a process of its own: pipes, terminals, signals, and other processes at the same directory."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.cli import exit_codes

DEADLINE_S = 30
BRAID = [sys.executable, "-m", "braidlog.cli.main"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a log of some length and a fork."""
    with braidlog.open(tmp_path / "logs") as opened:
        log = opened.create("orders")
        log.append_many([b"%d" % number + b"x" * 1_000 for number in range(2_000)])
        log.cfork("fork")
    return tmp_path / "logs"


def environment(place: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return kept | {"BRAIDLOG_URL": str(place), "TERM": "xterm"} | more


def start(place: Path, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([*BRAID, *args], env=environment(place), **(pipes | options))


def on_terminal(place: Path, *args: str, answer: str = "", **env: str) -> tuple[int, str]:
    """Run it where stdin, stdout and stderr are a terminal. Answers its status and all that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*BRAID, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(place, **env), close_fds=True
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # the terminal is gone with its last user
        pass
    finally:
        os.close(ours)
    return process.wait(DEADLINE_S), shown.decode()


def test_a_closed_pipe_ends_it_quietly(place: Path) -> None:
    process = start(place, "read", "orders")
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    assert first.startswith(b"0\t\t0x"), process.stderr.read()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(DEADLINE_S) == exit_codes.OK
    process.stderr.close()


def test_a_full_disk_behind_stdout_is_told(place: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = start(place, "info", "orders", stdout=full)
        _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == exit_codes.FAILED
    assert b"No space left" in told
    assert b"Traceback" not in told


def test_tail_follows_a_writer_past_a_promotion_until_interrupted(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as writer:
        log = writer.create("orders")
        log.append(b"before")
        process = start(tmp_path, "tail", "orders", "-f", "--raw")
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        log.append(b"live")
        assert process.stdout.readline() == b"live\n"
        fork = log.cfork(promotable=True)
        fork.append(b"promoted")
        fork.promote()
        assert process.stdout.readline() == b"promoted\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == exit_codes.INTERRUPTED
    assert b"Traceback" not in told


def test_tail_says_how_a_fork_ended(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as writer:
        fork = writer.create("orders").cfork("trial")
        fork.append(b"x")
        process = start(tmp_path, "tail", "trial", "-f", "--raw")
        assert process.stdout is not None
        assert process.stdout.readline() == b"x\n"
        fork.squash()
        _, told = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, told) == (exit_codes.OK, b"trial was squashed\n")


def test_a_slow_pipe_is_appended_as_it_comes(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as opened:
        opened.create("orders")
    process = start(tmp_path, "append", "orders", stdin=subprocess.PIPE)
    assert process.stdin is not None
    with process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        follower = wait_for_first_record(tmp_path)
        assert follower == b"one"
        process.stdin.write(b"two\n")
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (exit_codes.OK, b"0-1\n")


def wait_for_first_record(place: Path) -> bytes:
    with braidlog.open(place, read_only=True) as reader:
        (record,) = reader.log("orders").read(0, 1, wait=DEADLINE_S)
        return record.value


def test_another_process_is_named_as_the_writer(place: Path) -> None:
    with braidlog.open(place, serve=False):
        process = start(place, "append", "orders", "x")
        _, told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == exit_codes.LOCKED
    assert f"process {os.getpid()}".encode() in told


def test_colours_on_a_terminal_unless_no_color(place: Path) -> None:
    coloured, plain = on_terminal(place, "ls"), on_terminal(place, "ls", NO_COLOR="1")
    assert coloured[0] == plain[0] == exit_codes.OK
    assert "\x1b[36m" in coloured[1]
    assert "\x1b[3" not in plain[1]
    assert "○ fork" in plain[1]


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", exit_codes.FAILED, 2), ("y\n", exit_codes.OK, 1)])
def test_a_terminal_is_asked_before_a_fork_is_squashed(place: Path, answer: str, code: int, left: int) -> None:
    status, shown = on_terminal(place, "squash", "fork", answer=answer)
    assert status == code
    assert "Squash fork" in shown
    with braidlog.open(place, read_only=True) as opened:
        assert len(list(opened.logs())) == left


def test_an_import_shows_its_progress_on_a_terminal(place: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("line\n" * 1_000)
    status, shown = on_terminal(place, "import", "orders", str(tmp_path / "in.txt"))
    assert status == exit_codes.OK
    assert "into orders" in shown
    assert "1,000 records appended" in shown


def test_a_terminal_without_unicode_gets_ascii(place: Path) -> None:
    process = subprocess.run(
        [*BRAID, "ls"], env=environment(place, PYTHONIOENCODING="ascii"), capture_output=True, timeout=DEADLINE_S
    )
    assert process.stdout.isascii()
    assert b"o fork" in process.stdout


def test_python_m_braidlog_is_braid() -> None:
    process = subprocess.run([sys.executable, "-m", "braidlog", "--version"], capture_output=True, timeout=DEADLINE_S)
    assert process.stdout.decode() == f"braid, version {braidlog.__version__}\n"


def test_nothing_heavy_is_imported_before_a_verb_needs_it() -> None:
    heavy = "{'rich', 'csv', 'tempfile', 'pyarrow.parquet', 'braidlog.embedded.doctor'}"
    code = "import sys, braidlog; known = set(sys.modules); import braidlog.cli.main"
    code += f"; print({heavy} & set(sys.modules) - known)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=DEADLINE_S)
    assert process.stdout.decode().strip() == "set()"


def test_a_short_command_does_not_load_what_only_large_ones_need(place: Path) -> None:
    """Arrow would import pandas for a list, which takes as long as all the rest of an append."""
    pytest.importorskip("pandas")
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "braidlog.cli.main", "append", "orders", "--key", "k"],
        input=b"one\n",
        env=environment(place),
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert process.returncode == 0, process.stderr.decode()
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.decode().splitlines()}
    assert "pyarrow" in imported
    assert "pandas" not in imported
