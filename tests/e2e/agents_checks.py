"""Validators that tests have run in processes of their own: good ones, and every kind of bad one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import braidlog
from braidlog.agents import Context, Verdict


class Stock:
    """A copy of a consumer: orders take from the stock, and it must not run out."""

    def __init__(self, initial: int = 0) -> None:
        self.left = initial
        self.seen: Counter[bool] = Counter()
        self.short: list[int] = []

    def record(self, record: braidlog.Record, own: bool) -> None:
        self.seen[own] += 1
        self.left += int(record.value)
        if self.left < 0:
            self.short.append(record.position)

    def end(self) -> Verdict:
        print("this goes nowhere that matters")
        reasons = [f"the stock runs out, {self.seen[True]} own of {self.seen.total()}"] if self.short else []
        return Verdict(not self.short, reasons, self.short)


def raises(fork: braidlog.Log, context: Context) -> None:
    raise ValueError(f"no {context.parameters['word']} in {fork.name}")


def crashes(fork: braidlog.Log) -> None:
    print(f"{fork.name} is too much", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(fork: braidlog.Log) -> None:
    del fork
    os._exit(0)


def falls_silent(fork: braidlog.Log) -> None:
    """Says no verdict, and does not end."""
    del fork
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2:
                os.close(int(name))
    signal.pause()


def leaves(fork: braidlog.Log) -> None:
    sys.exit(f"enough of {fork.name}")


def hangs(fork: braidlog.Log, context: Context) -> None:
    """With a child, and with signals that are ignored."""
    del fork
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    folder = Path(context.parameters["folder"])
    for name, pid in (("child", child.pid), ("self", os.getpid())):
        (folder / f"{name}.part").write_text(str(pid))
        (folder / f"{name}.part").rename(folder / name)
    while True:
        signal.pause()


def devours(fork: braidlog.Log) -> None:
    held: list[Any] = []
    while fork.name:
        held.append(bytearray(64 << 20))


def chatters(fork: braidlog.Log) -> None:
    while fork.name:
        print("x" * 65536)


def rambles(fork: braidlog.Log) -> object:
    return ["x" * (1 << 20)] * len(fork.name)


def meddles(fork: braidlog.Log) -> Verdict:
    """Tries what changes a log, by every way that it was given."""
    attempts = {
        "append": lambda: fork.append(b"1"),
        "append_many": lambda: fork.append_many([b"1"]),
        "submit": lambda: fork.submit(b"1").durable(),
        "squash": fork.squash,
        "promote": fork.promote,
        "trim": lambda: fork.trim(1),
        "cfork": lambda: fork.cfork("stray"),
        "sfork": lambda: fork.sfork("stray"),
        "commit": lambda: fork.commit("me", 0),
    }
    done: list[str] = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except braidlog.BraidError:
            continue
        done.append(name)
    return Verdict(not done, done)


def token_seen(fork: braidlog.Log) -> bool:
    del fork
    return "BRAIDLOG_TOKEN" not in os.environ and not any("braid_" in word for word in sys.argv)
