"""NATS JetStream: one nats-server with a stream in files that is synced after every write, driven by nats-py.

There are two ways to append much: publishing without waiting, where every message is a write of its own to the server,
and atomic batches, which the server stores and syncs as one, up to 1,000 messages. nats-py has no
call for the latter; they are ordinary messages with three headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.peers import servers
from bench.peers.driver import DEADLINE_S, Driver, Seen, Workload, filler, stamped
from bench.peers.servers import Unavailable

NAME: Final = "NATS JetStream"
VERSION: Final = "2.15.2"
BATCHES: Final = "batches"
_MODULE: Final = f"github.com/nats-io/nats-server/v2@v{VERSION}"
_BATCH_RECORDS_MAX: Final = 1_000  # the server takes no more in an atomic batch,
_BATCHES_MAX: Final = 50  # nor more of them at a time
_BUILD_S: Final = 900.0
_START_S: Final = 20.0


def install() -> str:
    """Build the server with Go, into the cache; where that fails, one on the path will do if it can sync always."""
    _client_library()
    return servers.run([str(_program()), "--version"], NAME, 10.0).strip()


def _program() -> Path:
    try:
        return servers.installed(f"nats-server-{VERSION}", _build) / "nats-server"
    except Unavailable:
        found = shutil.which("nats-server")
        if found is None:
            raise
        return Path(found)


def _build(folder: Path) -> None:
    servers.run(["go", "install", _MODULE], f"building {_MODULE}", _BUILD_S, {"GOBIN": str(folder)})


@contextlib.contextmanager
def serving(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A server with its data in the folder, at the address that comes back."""
    [port] = servers.free_ports(1)
    settings = {
        "listen": f"127.0.0.1:{port}",
        "jetstream": {"store_dir": str(folder / "data"), "sync_interval": "always", "max_mem": 1 << 28},
    }
    config = folder / "nats.conf"
    config.write_text(json.dumps(settings))
    program = str(_program())
    servers.run([program, "-t", "-c", str(config)], "this nats-server has no `sync_interval: always`", 10.0)
    with servers.running(NAME, [program, "-c", str(config)], cores, folder) as server:

        def ready() -> bool:
            return "Server is ready" in server.messages.read_text(errors="replace")

        server.wait_until(ready, _START_S)
        yield f"127.0.0.1:{port}"


class JetStream(Driver):
    """A stream with one subject is a log. Everything runs on an event loop of the driver's own."""

    def __init__(self, address: str, variant: str = "") -> None:
        super().__init__(address, variant)
        self._runner = asyncio.Runner()
        self._open: Any = None

    @property
    def label(self) -> str:
        return f"{NAME}, atomic batches" if self.variant == BATCHES else NAME

    @property
    def durability(self) -> str:
        synced = "one server, stream in files, sync_interval: always: "
        if self.variant == BATCHES:
            return synced + "an atomic batch is acknowledged after it was synced as one"
        return synced + "each message is synced by itself before it is acknowledged"

    def create(self, log: str) -> None:
        self._run(self._create(log))

    def delete(self, log: str) -> None:
        self._run(self._delete(log))

    def length(self, log: str) -> int:
        return int(self._run(self._length(log)))

    def append_all(self, log: str, work: Workload) -> float:
        publish = self._publish_batches if self.variant == BATCHES else self._publish_all
        return float(self._run(publish(log, work)))

    def fill(self, log: str, work: Workload) -> None:
        self._run(self._publish_batches(log, work))

    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        taken: list[float] = self._run(self._publish_each(log, count, record_bytes, pause_s))
        return taken

    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        """`chunk` makes no difference: the server pushes, and the client hands over one message at a time."""
        del chunk
        self._run(self._follow(log, seen))

    def close(self) -> None:
        if self._open is not None:
            self._run(self._open.close())
        self._runner.close()

    def _run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return self._runner.run(awaited())

    async def _connection(self) -> Any:
        if self._open is None:
            self._open = await _connect(self.address)
        return self._open

    async def _create(self, log: str) -> None:
        stream = (await self._connection()).jetstream(timeout=DEADLINE_S)
        await stream.add_stream(name=log, subjects=[log], storage="file", allow_atomic=True)

    async def _delete(self, log: str) -> None:
        await (await self._connection()).jetstream(timeout=DEADLINE_S).delete_stream(log)

    async def _length(self, log: str) -> int:
        info = await (await self._connection()).jetstream(timeout=DEADLINE_S).stream_info(log)
        return int(info.state.messages)

    async def _publish_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        publish = (await self._connection()).jetstream(timeout=DEADLINE_S).publish
        rest = filler(record_bytes)
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            await publish(log, stamped(rest))
            taken.append(time.perf_counter() - begun)
            if pause_s:
                await asyncio.sleep(pause_s)
        return taken

    async def _publish_all(self, log: str, work: Workload) -> float:
        """Message by message; the client waits when as many bytes are under way as may be."""
        messages = work.batches_in_flight * work.batch_records
        connection = await self._connection()
        publish = connection.jetstream(timeout=DEADLINE_S, publish_async_max_pending=messages).publish_async
        answers = []
        begun = time.perf_counter()
        for batch in work.batches():
            for value in batch:
                answers.append(await publish(log, value, wait_stall=DEADLINE_S))
        await asyncio.wait_for(asyncio.gather(*answers), DEADLINE_S)
        return time.perf_counter() - begun

    async def _publish_batches(self, log: str, work: Workload) -> float:
        """Batch by batch: only the last message of one is answered, when all of it is stored."""
        if work.batch_records > _BATCH_RECORDS_MAX:
            raise ValueError(f"an atomic batch has at most {_BATCH_RECORDS_MAX} messages, not {work.batch_records}")
        connection = await self._connection()
        under_way: deque[asyncio.Task[Any]] = deque()
        run = os.urandom(4).hex()
        begun = time.perf_counter()
        for number, batch in enumerate(work.batches()):
            if len(under_way) >= min(work.batches_in_flight, _BATCHES_MAX):
                _accepted(await under_way.popleft())
            name = f"{run}-{number}"
            for sequence, value in enumerate(batch[:-1], 1):
                await connection.publish(log, value, headers=_headers(name, sequence))
            last = {**_headers(name, len(batch)), "Nats-Batch-Commit": "1"}
            answer = connection.request(log, batch[-1], timeout=DEADLINE_S, headers=last)
            under_way.append(asyncio.ensure_future(answer))
            await asyncio.sleep(0)  # so that the request is sent before the next batch
        for task in under_way:
            _accepted(await task)
        return time.perf_counter() - begun

    async def _follow(self, log: str, seen: Seen) -> None:
        connection = await _connect(self.address)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def handed_over(message: Any) -> None:
            if not over.done():
                try:
                    if not seen([message.data]):
                        over.set_result(None)
                except Exception as error:
                    over.set_exception(error)

        try:
            stream = connection.jetstream(timeout=DEADLINE_S)
            await stream.subscribe(log, stream=log, cb=handed_over, ordered_consumer=True)
            await over
        finally:
            await connection.close()


def _headers(batch: str, sequence: int) -> dict[str, str]:
    return {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}


def _accepted(answer: Any) -> None:
    said = json.loads(answer.data)
    if "error" in said or "batch" not in said:
        raise RuntimeError(f"{NAME} refused a batch: {said}")


async def _connect(address: str) -> Any:
    return await _client_library().connect(f"nats://{address}", allow_reconnect=False)


def _client_library() -> Any:
    try:
        import nats
    except ImportError:
        raise Unavailable('its client is not installed (pip install "braidlog[bench]")') from None
    return nats
