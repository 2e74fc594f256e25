"""Processes that outlive whoever started them, known by pid and start time, so that a reused pid is never signalled.

On Linux a signal goes to a process by its pidfd, checked after it was opened, so there is no moment in between; and an
end is waited for, not polled. Elsewhere the same is done with what POSIX has.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from braidlog import limits
from braidlog.errors import Unavailable

_PIDFD: Final = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
_SAID_BYTES_MAX: Final = 64 * limits.KIB


class ProcessId(NamedTuple):
    """One process, of all that ever had this pid."""

    pid: int
    started: str  # its start time, in whatever form this system tells it, and of which boot

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        started = _looked_up(pid)
        return cls(pid, "" if started is None else started[0])

    @property
    def state(self) -> str:
        """`up`, `stopped` (it is there, and does nothing) or `down`."""
        found = _looked_up(self.pid)
        if found is None or found[0] != self.started or found[1] in "ZX":
            return "down"
        return "stopped" if found[1] in "Tt" else "up"

    @property
    def alive(self) -> bool:
        return self.state != "down"

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; False if it is no more."""
        with self._held() as fd:
            if not self.alive:
                return False
            try:
                if fd is None:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(fd, number)
            except ProcessLookupError:
                return False
            return True

    def wait(self, timeout: float) -> bool:
        """Return once it has ended; False if it has not in time."""
        deadline = time.monotonic() + timeout
        with self._held() as fd:
            if fd is not None and self.alive:
                ended = select.poll()
                ended.register(fd, select.POLLIN)
                ended.poll(max(0.0, timeout) * 1000)
        while self.alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(limits.PROCESS_POLL_S)
        return True

    def wait_until(self, state: str, timeout: float) -> None:
        """Return once it is in that state; Unavailable if it is not in time."""
        deadline = time.monotonic() + timeout
        while (found := self.state) != state:
            if found == "down" or time.monotonic() >= deadline:
                raise Unavailable(f"process {self.pid} is {found} and not {state}")
            time.sleep(limits.PROCESS_POLL_S)

    @contextlib.contextmanager
    def _held(self) -> Iterator[int | None]:
        """While this lasts nothing else gets the pid, if it is still this process's."""
        fd: int | None = None
        if _PIDFD:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(self.pid)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)


def _looked_up(pid: int) -> tuple[str, str] | None:
    """(when it was started, the letter of its state); None if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.isdir("/proc/self") else _asked(pid)
    letter, *fields = status.rpartition(")")[2].split()  # the name before it may hold anything
    return f"{boot} {fields[18]}", letter


def _asked(pid: int) -> tuple[str, str] | None:
    """The same where there is no /proc."""
    told = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = told.stdout.split()
    return (" ".join(words[1:]), words[0][0]) if len(words) > 1 else None


class Process:
    """A process that was started here, or one that was started elsewhere and is known by its id."""

    def __init__(self, id: ProcessId, child: subprocess.Popen[bytes] | None = None) -> None:
        self.id = id
        self._child = child

    @classmethod
    def start(cls, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
        """Start one in a session of its own, its stderr going to the end of a file. It outlives this process."""
        with open(log, "ab") as told:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=told,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(ProcessId.of(child.pid), child)

    def first_line(self, timeout: float) -> str | None:
        """What it says first, once; None if it ends, or the time does, without a word."""
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + timeout
        said = b""
        with self._child.stdout as pipe:
            spoken = select.poll()
            spoken.register(pipe, select.POLLIN | select.POLLHUP)
            while not said.endswith(b"\n"):
                in_time = spoken.poll(max(0.0, deadline - time.monotonic()) * 1000)
                data = os.read(pipe.fileno(), _SAID_BYTES_MAX) if in_time else b""
                if not data:
                    return None
                said += data
        return said.partition(b"\n")[0].decode("utf-8", "replace")

    def wait(self, timeout: float) -> bool:
        """Return once it has ended; False if it has not in time."""
        ended = self.id.wait(timeout)
        if ended and self._child is not None:
            self._child.wait()
        return ended

    @property
    def exit_status(self) -> int | None:
        """How it ended, if that is known here: as a status, or the negated number of the signal that ended it."""
        return None if self._child is None else self._child.poll()
