"""braidlog itself as a service: `braid serve` on a directory, driven by its own client over braid://.

How the server is started stands in `COMMAND` and `serving` alone, and its address is read from what it prints.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import braidlog
from bench.peers import servers
from bench.peers.driver import Driver, Seen, Workload, filler, stamped
from bench.peers.servers import Unavailable

NAME: Final = "braidlog"
COMMAND: Final = (sys.executable, "-m", "braidlog", "serve")
_ADDRESS: Final = re.compile(r"(?:braid://)?(127\.0\.0\.1:[1-9]\d*)")
_START_S: Final = 30.0


def install() -> str:
    """Nothing is installed: it is here, or this version cannot serve yet."""
    try:
        servers.run([*COMMAND, "--help"], "braid serve", 60.0)
    except Unavailable:
        raise Unavailable("this version has no `braid serve`") from None
    return f"braidlog {braidlog.__version__}"


@contextlib.contextmanager
def serving(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A server with its data in the folder, at the address that comes back."""
    command = [*COMMAND, "--at", str(folder / "data"), "--listen", "127.0.0.1:0"]
    with servers.running(NAME, command, cores, folder) as server:

        def address() -> str:
            found = _ADDRESS.search(server.messages.read_text(errors="replace"))
            return found.group(1) if found else ""

        server.wait_until(lambda: bool(address()), _START_S)
        yield f"braid://{address()}"


class BraidService(Driver):
    """A log is a log. A path instead of a braid:// address drives the embedded log, whose readers only look."""

    label = NAME
    durability = "one server, one directory: a batch is synced before it is acknowledged; batches under way share syncs"

    def __init__(self, address: str, variant: str = "") -> None:
        super().__init__(address, variant)
        self._opened: braidlog.Braid | None = None

    @property
    def _braid(self) -> braidlog.Braid:
        if self._opened is None:
            self._opened = braidlog.open(self.address)
        return self._opened

    def create(self, log: str) -> None:
        self._braid.create(log)

    def delete(self, log: str) -> None:
        self._braid.drop(log)

    def length(self, log: str) -> int:
        return self._braid.log(log).tail()

    def append_all(self, log: str, work: Workload) -> float:
        target = self._braid.log(log)
        under_way: deque[braidlog.Ticket] = deque()
        begun = time.perf_counter()
        for batch in work.batches():
            if len(under_way) >= work.batches_in_flight:
                under_way.popleft().durable()
            under_way.append(target.submit(batch))
        for ticket in under_way:
            ticket.durable()
        return time.perf_counter() - begun

    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        target = self._braid.log(log)
        rest = filler(record_bytes)
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            target.append(stamped(rest))
            taken.append(time.perf_counter() - begun)
            if pause_s:
                time.sleep(pause_s)
        return taken

    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        """One by one to have each at once, or in chunks as they were fetched."""
        embedded = not self.address.startswith("braid://")
        with braidlog.open(self.address, read_only=embedded) as braid, braid.log(log).subscribe() as records:
            if chunk == 1:
                for record in records:
                    if not seen([record.value]):
                        return
            while True:
                if not seen([record.value for record in records.poll(None)]):
                    return

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
