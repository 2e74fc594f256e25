"""Redis Streams: one Redis server that syncs its append-only file before it answers, driven by redis-py with hiredis.

A batch is a pipeline of XADDs. redis-py's own pipelines wait for their answers before the next one is sent, so several
are kept under way with the lower calls of its connections, which are the same ones that a pipeline makes.

The server reads about 16 KiB from a connection before it syncs and answers, so one connection syncs often. A connection
for each batch under way shares syncs, as several producers would; batches may then change their order on the way.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.peers import servers
from bench.peers.driver import DEADLINE_S, Driver, Seen, Workload, filler, stamped
from bench.peers.servers import Unavailable

NAME: Final = "Redis Streams"
CONNECTIONS: Final = "connections"
_START_S: Final = 10.0


def install() -> str:
    """Nothing is installed: the server comes from the system's packages. Returns its version."""
    _client_library()
    said = servers.run(["redis-server", "--version"], "Redis Streams (the package redis-server)", 10.0)
    return f"Redis {said.partition('v=')[2].split()[0]}"


@contextlib.contextmanager
def serving(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A server with its data in the folder, at the address that comes back."""
    library = _client_library()
    [port] = servers.free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    # Rewriting the file in the background would only slow it down here.
    command += ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
    with (
        servers.running(NAME, command, cores, folder) as server,
        contextlib.closing(library.Redis(port=port)) as client,
    ):

        def ready() -> bool:
            with contextlib.suppress(library.ConnectionError):
                return bool(client.ping())
            return False

        server.wait_until(ready, _START_S)
        yield f"127.0.0.1:{port}"


class RedisStreams(Driver):
    """A stream is a log; a record is the one field of an entry."""

    durability = (
        "one server, appendonly yes, appendfsync always: a command is answered after the file it was written to was "
        "synced; commands that arrive together share a sync"
    )

    def __init__(self, address: str, variant: str = "") -> None:
        super().__init__(address, variant)
        self._client = connect(address)

    @property
    def label(self) -> str:
        return f"{NAME}, a connection per batch" if self.variant == CONNECTIONS else NAME

    def create(self, log: str) -> None:
        """A stream is there with its first entry."""

    def delete(self, log: str) -> None:
        self._client.delete(log)

    def length(self, log: str) -> int:
        return int(self._client.xlen(log))

    def append_all(self, log: str, work: Workload) -> float:
        pool = self._client.connection_pool
        wanted = work.batches_in_flight if self.variant == CONNECTIONS else 1
        connections = [pool.get_connection() for _ in range(wanted)]
        try:
            under_way: deque[tuple[Any, int]] = deque()
            begun = time.perf_counter()
            for number, batch in enumerate(work.batches()):
                if len(under_way) >= work.batches_in_flight:
                    _answers(*under_way.popleft())
                connection = connections[number % wanted]
                commands = [("XADD", log, "*", "v", value) for value in batch]
                connection.send_packed_command(connection.pack_commands(commands))
                under_way.append((connection, len(batch)))
            for connection, count in under_way:
                _answers(connection, count)
            return time.perf_counter() - begun
        finally:
            for connection in connections:
                pool.release(connection)

    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        rest = filler(record_bytes)
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            self._client.xadd(log, {"v": stamped(rest)})
            taken.append(time.perf_counter() - begun)
            if pause_s:
                time.sleep(pause_s)
        return taken

    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        with contextlib.closing(connect(self.address)) as client:
            last: bytes = b"0-0"
            while True:
                answer = client.xread({log: last}, count=chunk, block=int(DEADLINE_S * 1000))
                if not answer:
                    raise TimeoutError(f"no record came to {log} for {DEADLINE_S:g} s")
                entries = answer[0][1]
                last = entries[-1][0]
                if not seen([fields[b"v"] for _, fields in entries]):
                    return

    def close(self) -> None:
        self._client.close()


def _answers(connection: Any, count: int) -> None:
    for _ in range(count):
        connection.read_response()  # an error is raised


def connect(address: str) -> Any:
    """A client that has been answered."""
    host, _, port = address.partition(":")
    client = _client_library().Redis(host=host, port=int(port), protocol=2)
    client.ping()
    return client


def _client_library() -> Any:
    try:
        import redis
    except ImportError:
        raise Unavailable('its client is not installed (pip install "braidlog[bench]")') from None
    return redis
