"""Networks of their own for processes on this machine, which can be cut off and joined again: Linux, for root alone.

Each island is a network namespace with one address, connected to a bridge that the rest of the machine reaches them by.
"""

from __future__ import annotations

import os
import subprocess
from types import TracebackType

from braidlog.errors import Unavailable


def possible() -> bool:
    """Whether this process may make them."""
    probe = f"bl-probe-{os.getpid()}"
    try:
        made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
    if made:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made


class Islands:
    """So many of them. `host` is where the rest of the machine is found from each."""

    def __init__(self, count: int) -> None:
        net = os.getpid() % 250 + 1
        self._tag = f"bl{net}"
        self.host = f"10.77.{net}.1"
        self.addresses = [f"10.77.{net}.{number + 10}" for number in range(count)]
        self._made = 0
        try:
            _ip("link", "add", self._tag, "type", "bridge")
            _ip("addr", "add", f"{self.host}/24", "dev", self._tag)
            _ip("link", "set", self._tag, "up")
            for number, address in enumerate(self.addresses):
                self._made = number + 1
                self._make(number, address)
        except BaseException:
            self.close()
            raise

    def _make(self, number: int, address: str) -> None:
        island, near, far = self._island(number), self._cable(number), f"{self._tag}f{number}"
        _ip("netns", "add", island)
        _ip("link", "add", near, "type", "veth", "peer", "name", far)
        _ip("link", "set", far, "netns", island)
        _ip("link", "set", near, "master", self._tag)
        _ip("link", "set", near, "up")
        _ip("-n", island, "link", "set", "lo", "up")
        _ip("-n", island, "addr", "add", f"{address}/24", "dev", far)
        _ip("-n", island, "link", "set", far, "up")

    def command(self, number: int) -> list[str]:
        """What a command begins with that runs on an island."""
        return ["ip", "netns", "exec", self._island(number)]

    def cut(self, number: int) -> None:
        """Nothing gets there or from there any more, and nobody is told."""
        _ip("link", "set", self._cable(number), "down")

    def join(self, number: int) -> None:
        _ip("link", "set", self._cable(number), "up")

    def close(self) -> None:
        for number in range(self._made):
            subprocess.run(["ip", "link", "del", self._cable(number)], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", self._island(number)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._tag], capture_output=True, check=False)

    def __enter__(self) -> Islands:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _island(self, number: int) -> str:
        return f"{self._tag}-{number}"

    def _cable(self, number: int) -> str:
        return f"{self._tag}n{number}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"ip {' '.join(words)}: {done.stderr.strip()}")
