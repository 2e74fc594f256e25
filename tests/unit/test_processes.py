"""Processes by pid and start time: whoever has the same pid later is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.errors import Unavailable
from braidlog.testing.processes import Process, ProcessId

DEADLINE_S = 20.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_process_is_up_stopped_and_down(child: subprocess.Popen[bytes]) -> None:
    known = ProcessId.of(child.pid)
    assert (known.state, known.alive) == ("up", True)
    assert known.signal(signal.SIGSTOP)
    known.wait_until("stopped", DEADLINE_S)
    assert not known.wait(0.0)
    assert known.signal(signal.SIGCONT)
    known.wait_until("up", DEADLINE_S)
    assert known.signal(signal.SIGKILL)
    assert known.wait(DEADLINE_S)
    assert (known.state, known.signal(signal.SIGTERM)) == ("down", False)  # though nobody has reaped it yet
    with pytest.raises(Unavailable, match="down"):
        known.wait_until("up", DEADLINE_S)


def test_another_process_with_the_same_pid_is_not_signalled(child: subprocess.Popen[bytes]) -> None:
    earlier = ProcessId.of(child.pid)._replace(started="long ago")
    assert earlier.state == "down"
    assert not earlier.signal(signal.SIGKILL)
    assert earlier.wait(DEADLINE_S)
    assert child.poll() is None


def test_nobody_is_known_by_the_pid_of_nobody(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    nobody = ProcessId.of(child.pid)
    assert (nobody.started, nobody.state) == ("", "down")


def test_this_process_is_up() -> None:
    assert ProcessId.of(os.getpid()).state == "up"


def test_a_process_is_heard_once_and_tells_the_rest_to_its_file(tmp_path: Path) -> None:
    code = "import sys; print('told', file=sys.stderr, flush=True); print('one\\ntwo', flush=True)"
    process = Process.start([sys.executable, "-c", code], tmp_path / "log", os.environ)
    assert process.first_line(DEADLINE_S) == "one"
    assert process.wait(DEADLINE_S)
    assert process.exit_status == 0
    assert (tmp_path / "log").read_text() == "told\n"


def test_a_process_that_ends_without_a_word(tmp_path: Path) -> None:
    process = Process.start(["sh", "-c", "exit 7"], tmp_path / "log", os.environ)
    assert process.first_line(DEADLINE_S) is None
    assert process.wait(DEADLINE_S)
    assert process.exit_status == 7


def test_a_process_that_says_nothing_in_time(tmp_path: Path) -> None:
    process = Process.start(["sleep", "600"], tmp_path / "log", os.environ)
    assert process.first_line(0.0) is None
    assert process.id.signal(signal.SIGKILL)
    assert process.wait(DEADLINE_S)
    assert process.exit_status == -signal.SIGKILL
