"""A Redis server of our own for figures of the embedded log: started in a temporary directory, stopped at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from bench import harness
from bench.harness import Options
from bench.peers import redis_streams
from bench.peers.servers import Unavailable, usable_cores


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
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(harness.folder(options))
        try:
            redis_streams.install()
            address = stack.enter_context(redis_streams.serving(path, usable_cores()))
        except Unavailable as why:
            yield str(why)
            return
        yield Redis(stack.enter_context(contextlib.closing(redis_streams.connect(address))))
