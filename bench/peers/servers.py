"""Servers as processes of our own: kept to their cores, waited for, and stopped whatever happens.

A server inherits the cores that it may use from the thread that starts it, which takes them on for that moment. So it
is kept to them before its first instruction: a server that asks how many cores there are is told how many it has.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CACHE: Final = "BRAIDLOG_BENCH_CACHE"
SERVER_CORES: Final = "BRAIDLOG_BENCH_SERVER_CORES"
CLIENT_CORES: Final = "BRAIDLOG_BENCH_CLIENT_CORES"
_PORTS: Final = range(20_000, 32_000)
_STOP_S: Final = 15.0
_POLL_S: Final = 0.05
_LOG_LINES: Final = 15


class Unavailable(Exception):
    """A system cannot be measured here. The text says why, and what would help."""


# --- cores ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """Which cores the servers have, and which the clients: producers and readers together."""

    server: frozenset[int]
    client: frozenset[int]

    @classmethod
    def chosen(cls, environment: Mapping[str, str] = os.environ) -> Placement:
        """As the environment says; otherwise the first half for the servers and the second for the clients."""
        cores = sorted(usable_cores())
        half = len(cores) // 2
        server, client = (cores[:half], cores[half:]) if half else (cores, cores)
        return cls(
            _numbers(environment[SERVER_CORES]) if SERVER_CORES in environment else frozenset(server),
            _numbers(environment[CLIENT_CORES]) if CLIENT_CORES in environment else frozenset(client),
        )

    def describe(self) -> str:
        if not hasattr(os, "sched_setaffinity"):
            return "nothing is kept to any cores: this system cannot do that"
        return (
            f"each server is kept to the cores {_shown(self.server)}, all clients to {_shown(self.client)} "
            "(sched_setaffinity, inherited by each process and thread when it starts)"
        )


def usable_cores() -> frozenset[int]:
    """All that this process may use."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def _numbers(text: str) -> frozenset[int]:
    """`0,2-3` is 0, 2 and 3, as taskset has it."""
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            found.update(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        raise Unavailable(f"{text!r} is no list of cores: write it like 0,2-3") from None
    unknown = found - usable_cores()
    if unknown or not found:
        raise Unavailable(f"{text!r} names cores that this process may not use: it has {_shown(usable_cores())}")
    return frozenset(found)


def _shown(cores: frozenset[int]) -> str:
    return ",".join(map(str, sorted(cores)))


@contextlib.contextmanager
def kept_to(cores: frozenset[int]) -> Iterator[None]:
    """This thread, and whatever it starts meanwhile, on these cores only."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# --- processes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """One process that runs, and the file it writes its messages to."""

    name: str
    process: subprocess.Popen[bytes]
    messages: Path

    def wait_until(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Ask again and again; give up when the server has ended or the time is over."""
        deadline = time.monotonic() + deadline_s
        while not ready():
            if self.process.poll() is not None:
                raise Unavailable(f"{self.name} ended with status {self.process.returncode}: {self._last_words()}")
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name} was not ready after {deadline_s:g} s: {self._last_words()}")
            time.sleep(_POLL_S)

    def _last_words(self) -> str:
        lines = self.messages.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return " | ".join(lines) or "it said nothing"


@contextlib.contextmanager
def running(name: str, command: Sequence[str], cores: frozenset[int], folder: Path) -> Iterator[Server]:
    """A server for the length of the context, kept to its cores, that writes its messages into the folder."""
    messages = folder / "messages.txt"
    with messages.open("wb") as sink, kept_to(cores):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=folder)
    try:
        yield Server(name, process, messages)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports on loopback that were free a moment ago, all different.

    None that the system gives to outgoing connections: a server that takes seconds to start would find some taken.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


# --- installing -------------------------------------------------------------------------------------------------------


def cache() -> Path:
    """Where servers are installed, so that it is done once."""
    given = os.environ.get(CACHE)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "braidlog-bench"


def installed(name: str, build: Callable[[Path], None]) -> Path:
    """A folder of the cache; if it is not there, `build` fills another one, which takes its place when it is whole."""
    final = cache() / name
    if final.is_dir():
        return final
    print(f"installing {name} into {final.parent}, once", flush=True)
    building = final.with_name(f"{name}.{os.getpid()}.unfinished")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        build(building)
        building.rename(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def run(command: Sequence[str], purpose: str, deadline_s: float, env: Mapping[str, str] | None = None) -> str:
    """What a command printed; if it fails, why it could not do what it was for."""
    given = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, env=given, check=False)
    except FileNotFoundError:
        raise Unavailable(f"{purpose} needs `{command[0]}`, which is not on the path") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{purpose}: `{command[0]}` took more than {deadline_s:g} s") from None
    if done.returncode:
        words = " | ".join((done.stdout + done.stderr).strip().splitlines()[-_LOG_LINES:])
        raise Unavailable(f"{purpose}: `{command[0]}` failed with status {done.returncode}: {words}")
    return done.stdout + done.stderr
