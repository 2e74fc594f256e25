"""A Redis server of our own: started on a free port in a temporary directory, and stopped at the end."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from bench import harness
from bench.harness import Options

_START_S = 10.0


class Redis:
    """A client of the server, which syncs before it answers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._streams = 0

    def appends(self, batch: list[bytes], budget_s: float) -> float:
        """Records per second appended to a new stream in pipelines of one batch."""
        self._streams += 1
        stream = f"stream-{self._streams}"
        records = 0
        begun = time.perf_counter()
        while records == 0 or time.perf_counter() - begun < budget_s:
            if len(batch) == 1:
                self._client.xadd(stream, {"v": batch[0]})
            else:
                pipeline = self._client.pipeline(transaction=False)
                for value in batch:
                    pipeline.xadd(stream, {"v": value})
                pipeline.execute()
            records += len(batch)
        took = time.perf_counter() - begun
        self._client.delete(stream)
        return records / took


@contextlib.contextmanager
def running(options: Options) -> Iterator[Redis | str]:
    """A server for the length of the context, or why there is none."""
    program = shutil.which("redis-server")
    if program is None:
        yield "there is no redis-server on this machine"
        return
    try:
        import redis
    except ImportError:
        yield 'its client is not installed (pip install "braidlog[bench]")'
        return
    with harness.folder(options) as path:
        port = _free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(path), "--save", ""]
        # Rewriting the file in the background would only slow it down here.
        command += ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = redis.Redis(port=port)
            _wait_until_ready(client, server, redis.ConnectionError)
            yield Redis(client)
            client.close()
        finally:
            server.terminate()
            server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(client: Any, server: subprocess.Popen[bytes], refused: type[Exception]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            client.ping()
            return
        except refused:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
