"""The same names as `braidlog`, awaited.

    async with await braidlog.aio.open("orders.braid") as braid:
        orders = await braid.create("orders")
        await asyncio.gather(*(orders.append(b"%d" % n) for n in range(1000)))   # a few syncs, not a thousand
        async for record in await orders.subscribe():
            ...

What a call takes, returns and raises is written at its namesake. The loop is never blocked: appends are queued and
answered by the group commit, waits are woken by changes, and what reads or writes the disk runs in a few threads that
the braid owns. A braid belongs to the loop that it was opened in.

Cancelling is safe. A cancelled wait leaves nothing behind. A cancelled append, or any other change, may still happen,
just as if its answer had been lost; `writer` and `sequence` make it safe to repeat.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TypeVar, overload

import pyarrow as pa

from braidlog import limits
from braidlog.client import appends, arguments, braid, log, opening
from braidlog.client.appends import Ack
from braidlog.client.arguments import Headers, Moment, Value
from braidlog.client.backend import Following
from braidlog.client.bridge import Bridge
from braidlog.client.cursor import Start, cursor_at
from braidlog.client.subscription import to_commit
from braidlog.client.ticket import Receipt, undecided
from braidlog.client.waiting import Deadline, nothing_yet, patience
from braidlog.facts import (
    Ancestor,
    Consumer,
    Diff,
    EndOfLog,
    Info,
    Outcome,
    Plan,
    Retention,
    Upload,
    UploadedObject,
)
from braidlog.objects.batch import Batch
from braidlog.record import Record

__all__ = ["Braid", "Log", "Subscription", "Ticket", "open"]

T = TypeVar("T")


async def open(
    url_or_path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    serve: bool = True,
    timeout: float | timedelta | None = None,
    linger: float | timedelta = 0.0,
    objects: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Braid:
    """`braidlog.open`, awaited."""
    opener = ThreadPoolExecutor(1, "braidlog-open")
    opened = opener.submit(
        opening.open,
        url_or_path,
        read_only=read_only,
        serve=serve,
        timeout=timeout,
        linger=linger,
        objects=objects,
        tls_ca=tls_ca,
        token=token,
        token_file=token_file,
    )
    opener.shutdown(wait=False)
    try:
        return Braid(await asyncio.wrap_future(opened))
    except asyncio.CancelledError:
        opened.add_done_callback(_close_unclaimed)
        raise


def _close_unclaimed(opened: Future[braid.Braid]) -> None:
    """Nobody waits for it any more, and nobody else could close it."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


class Braid:
    """`braidlog.Braid`, awaited: an asynchronous context manager around an open braid, which is closed with it."""

    def __init__(self, braid: braid.Braid) -> None:
        self._braid = braid
        self._bridge = Bridge(braid._session)
        self._closing: asyncio.Future[None] | None = None
        self.url = braid.url
        self.read_only = braid.read_only

    def __repr__(self) -> str:
        return repr(self._braid).replace("braidlog.", "braidlog.aio.", 1)

    async def create(
        self,
        name: str,
        *,
        discipline: str = "eager",
        retention: Retention | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Log:
        """`braidlog.Braid.create`, awaited."""
        call = partial(self._braid.create, name, discipline=discipline, retention=retention, labels=labels)
        return Log(self._bridge, await self._bridge.run(call))

    async def log(self, name: str) -> Log:
        """`braidlog.Braid.log`, awaited."""
        return Log(self._bridge, await self._bridge.look(lambda: self._braid.log(name)))

    async def logs(self) -> AsyncIterator[Log]:
        """`braidlog.Braid.logs` as an asynchronous iterator."""
        for found in await self._bridge.look(lambda: list(self._braid.logs())):
            yield Log(self._bridge, found)

    async def drop(self, name: str, *, cascade: bool = False) -> None:
        """`braidlog.Braid.drop`, awaited."""
        await self._bridge.run(partial(self._braid.drop, name, cascade=cascade))

    async def resolve(self, request_id: str) -> Outcome:
        """`braidlog.Braid.resolve`, awaited."""
        return await self._bridge.look(lambda: self._braid.resolve(request_id))

    async def close(self) -> None:
        """`braidlog.Braid.close`, awaited. What was queued before is carried out."""
        if self._closing is None:
            self._closing = self._bridge.loop.run_in_executor(self._bridge.pool, self._braid.close)
            self._closing.add_done_callback(lambda _: self._bridge.pool.shutdown(wait=False))
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Braid:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __contains__(self, name: object) -> bool:
        """Python cannot await it, and somebody may have to be asked, so that the loop would stand still."""
        raise TypeError(f"`in` cannot be awaited: `await braid.log({name!r})` is NotFound if there is none")


class Log:
    """`braidlog.Log`, awaited."""

    __slots__ = ("_bridge", "_log")

    __iter__ = None  # follow it with `async for record in await log.subscribe()`

    def __init__(self, bridge: Bridge, log: log.Log) -> None:
        self._bridge = bridge
        self._log = log

    @property
    def name(self) -> str:
        """`braidlog.Log.name`."""
        return self._log.name

    @property
    def id(self) -> int:
        """`braidlog.Log.id`."""
        return self._log.id

    def __repr__(self) -> str:
        return repr(self._log).replace("braidlog.", "braidlog.aio.", 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and other._log == self._log

    def __hash__(self) -> int:
        return hash(self._log)

    # --- writing -------------------------------------------------------------------------------------------------

    async def append(
        self,
        value: Value,
        *,
        key: Value | None = None,
        headers: Headers | None = None,
        timestamp: Moment | None = None,
        ack: Ack = "ordered",
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> int | None:
        """`braidlog.Log.append`, awaited. Appends that wait together are committed together."""
        batch = arguments.one_record(value, key, headers, self._bridge.session.or_now(timestamp))
        positions = await self._append(batch, ack, expected_tail, writer, sequence, wait)
        return None if positions is None else positions.start

    async def append_many(
        self,
        values: Iterable[Value | Record],
        *,
        timestamp: Moment | None = None,
        ack: Ack = "ordered",
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> range | None:
        """`braidlog.Log.append_many`, awaited."""
        batch = arguments.many_records(values, self._bridge.session.or_now(timestamp))
        if not batch.count:
            return appends.nothing(await self.info(), expected_tail)
        return await self._append(batch, ack, expected_tail, writer, sequence, wait)

    async def submit(
        self,
        value: Value | Record | Iterable[Value | Record],
        *,
        key: Value | None = None,
        headers: Headers | None = None,
        timestamp: Moment | None = None,
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        timeout: float | None = None,
    ) -> Ticket:
        """`braidlog.Log.submit`, awaited: at once while there is room for it."""
        bridge = self._bridge
        batch, single = appends.submission(value, key, headers, bridge.session.or_now(timestamp))
        command = appends.command(bridge.session, self.id, batch, expected_tail, writer, sequence)
        pending, done = await bridge.queue(command, batch, arguments.seconds("timeout", timeout))
        return Ticket(bridge, Receipt(bridge.backend, pending, command.request, single=single), done)

    async def upload(self, *, ttl: float | timedelta = limits.UPLOAD_TTL_S) -> Upload:
        """`braidlog.Log.upload`, awaited."""
        return await self._bridge.run(partial(self._log.upload, ttl=ttl))

    async def publish(
        self,
        objects: Iterable[UploadedObject],
        *,
        uploads: Iterable[Upload] = (),
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> range | None:
        """`braidlog.Log.publish`, awaited."""
        call = partial(
            self._log.publish,
            list(objects),
            uploads=list(uploads),
            expected_tail=expected_tail,
            writer=writer,
            sequence=sequence,
        )
        return await self._bridge.patiently(self.id, lambda: self._bridge.run(call), patience(wait))

    async def discard(self, upload: Upload) -> None:
        """`braidlog.Log.discard`, awaited."""
        await self._bridge.run(partial(self._log.discard, upload))

    async def _append(
        self,
        batch: Batch,
        ack: Ack,
        expected_tail: int | None,
        writer: str | None,
        sequence: int | None,
        wait: float | None,
    ) -> range | None:
        arguments.acknowledgement(ack)
        bridge = self._bridge
        command = appends.command(bridge.session, self.id, batch, expected_tail, writer, sequence)
        answer = await bridge.patiently(self.id, lambda: bridge.commit(command, batch), patience(wait))
        return appends.positions(answer, ack)

    # --- reading -------------------------------------------------------------------------------------------------

    async def tail(self) -> int:
        """`braidlog.Log.tail`, awaited."""
        return await self._bridge.look(self._log.tail)

    async def info(self) -> Info:
        """`braidlog.Log.info`, awaited."""
        return await self._bridge.look(self._log.info)

    async def read(
        self,
        start: int,
        stop: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
    ) -> list[Record]:
        """`braidlog.Log.read`, awaited."""
        arguments.read(start, stop, max_records, max_bytes)
        bridge = self._bridge
        call = partial(bridge.backend.read, self.id, start, stop, max_records, max_bytes)
        return await bridge.patiently(self.id, lambda: bridge.run(call), patience(wait), nothing_yet(start, stop))

    async def read_arrow(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """`braidlog.Log.read_arrow`, awaited."""
        return await self._bridge.run(lambda: self._log.read_arrow(start, stop))

    @overload
    async def __getitem__(self, index: int) -> Record: ...
    @overload
    async def __getitem__(self, index: slice) -> list[Record]: ...
    async def __getitem__(self, index: int | slice) -> Record | list[Record]:
        """`await log[i]` and `await log[i:j]`, as for `braidlog.Log`."""
        return await self._bridge.run(lambda: self._log[index])

    async def position_at(self, time: Moment) -> int:
        """`braidlog.Log.position_at`, awaited."""
        return await self._bridge.run(lambda: self._log.position_at(time))

    async def plan(self, start: int = 0, stop: int | None = None) -> Plan:
        """`braidlog.Log.plan`, awaited."""
        return await self._bridge.run(lambda: self._log.plan(start, stop))

    async def subscribe(self, start: Start = 0, *, follow: bool = True, consumer: str | None = None) -> Subscription:
        """`braidlog.Log.subscribe`, awaited: what comes is an asynchronous iterator."""
        bridge = self._bridge
        name = None if consumer is None else arguments.consumer(consumer)
        cursor = await bridge.run(partial(cursor_at, bridge.backend, self.id, start, follow=follow, consumer=name))
        return Subscription(bridge, cursor, None if name is None else partial(self._log.commit, name))

    async def commit(self, consumer: str, position: int) -> int:
        """`braidlog.Log.commit`, awaited."""
        return await self._bridge.run(lambda: self._log.commit(consumer, position))

    async def consumers(self) -> list[Consumer]:
        """`braidlog.Log.consumers`, awaited."""
        return await self._bridge.run(self._log.consumers)

    async def forget_consumer(self, name: str) -> None:
        """`braidlog.Log.forget_consumer`, awaited."""
        await self._bridge.run(lambda: self._log.forget_consumer(name))

    async def trim(self, before: int) -> int:
        """`braidlog.Log.trim`, awaited."""
        return await self._bridge.run(lambda: self._log.trim(before))

    # --- forking -------------------------------------------------------------------------------------------------

    async def cfork(
        self,
        name: str | None = None,
        *,
        promotable: bool = False,
        ttl: float | timedelta | None = None,
        lease: float | timedelta | None = limits.LEASE_DEFAULT_S,
        labels: Mapping[str, str] | None = None,
        dedicated: bool = False,
        wait: float | None = None,
    ) -> Log:
        """`braidlog.Log.cfork`, awaited."""
        call = partial(
            self._log.cfork, name, promotable=promotable, ttl=ttl, lease=lease, labels=labels, dedicated=dedicated
        )
        return await self._forked(call, wait)

    async def sfork(
        self,
        name: str | None = None,
        *,
        at: int | None = None,
        ttl: float | timedelta | None = None,
        labels: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> Log:
        """`braidlog.Log.sfork`, awaited."""
        return await self._forked(partial(self._log.sfork, name, at=at, ttl=ttl, labels=labels), wait)

    async def _forked(self, call: Callable[[], log.Log], wait: float | None) -> Log:
        bridge = self._bridge
        return Log(bridge, await bridge.patiently(self.id, lambda: bridge.run(call), patience(wait)))

    async def promote(
        self, *, expected_own: int | None = None, expected_tail: int | None = None, into: Log | None = None
    ) -> bool:
        """`braidlog.Log.promote`, awaited."""
        parent = None if into is None else into._log
        call = partial(self._log.promote, expected_own=expected_own, expected_tail=expected_tail, into=parent)
        return await self._bridge.run(call)

    async def squash(self, *, cascade_severed: bool = False) -> None:
        """`braidlog.Log.squash`, awaited."""
        await self._bridge.run(partial(self._log.squash, cascade_severed=cascade_severed))

    async def renew(self) -> None:
        """`braidlog.Log.renew`, awaited."""
        await self._bridge.run(self._log.renew)

    async def diff(self, *, start: int | None = None, max_records: int | None = None) -> Diff:
        """`braidlog.Log.diff`, awaited."""
        return await self._bridge.run(partial(self._log.diff, start=start, max_records=max_records))

    async def lineage(self) -> list[Ancestor]:
        """`braidlog.Log.lineage`, awaited."""
        return await self._bridge.look(self._log.lineage)


class Ticket:
    """`braidlog.Ticket`, awaited."""

    __slots__ = ("_bridge", "_done", "_receipt")

    def __init__(self, bridge: Bridge, receipt: Receipt, done: asyncio.Future[None]) -> None:
        self._bridge = bridge
        self._receipt = receipt
        self._done = done

    @property
    def request_id(self) -> str:
        """`braidlog.Ticket.request_id`."""
        return self._receipt.request_id

    @property
    def done(self) -> bool:
        """`braidlog.Ticket.done`."""
        return self._receipt.pending.done

    async def durable(self, timeout: float | None = None) -> None:
        """`braidlog.Ticket.durable`, awaited."""
        await asyncio.wait([self._done], timeout=arguments.seconds("timeout", timeout))
        if not self.done:
            raise self._receipt.not_durable(timeout)
        self._receipt.pending.result()

    async def position(self, timeout: float | None = None) -> int | range:
        """`braidlog.Ticket.position`, awaited."""
        deadline = Deadline(arguments.seconds("timeout", timeout))
        await self.durable(timeout)
        found = await self._bridge.patiently(self._receipt.log, self._look, deadline, undecided)
        if found is None:
            raise self._receipt.not_decided(timeout)
        return found

    async def _look(self) -> int | range | None:
        return await self._bridge.look(self._receipt.position)


class Subscription:
    """`braidlog.Subscription` as an asynchronous iterator. For one task at a time, except `close`."""

    def __init__(self, bridge: Bridge, cursor: Following, commit: Callable[[int], int] | None) -> None:
        self._bridge = bridge
        self._cursor = cursor
        self._commit = commit
        self._fetch: asyncio.Future[int | None] | None = None

    @property
    def position(self) -> int:
        """`braidlog.Subscription.position`."""
        return self._cursor.position

    @property
    def end(self) -> EndOfLog | None:
        """`braidlog.Subscription.end`."""
        return self._cursor.end

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        await self._fill(Deadline(None))
        if not self._cursor.ahead:
            raise StopAsyncIteration
        return self._cursor.ahead.popleft()

    async def poll(self, timeout: float | None = 0.0) -> list[Record]:
        """`braidlog.Subscription.poll`, awaited."""
        await self._fill(Deadline(arguments.seconds("timeout", timeout)))
        return self._cursor.take()

    async def _fill(self, deadline: Deadline) -> None:
        bridge, cursor = self._bridge, self._cursor
        while cursor.waits:
            seen = await self._fetched(deadline)
            if seen is None:
                return
            if deadline.passed:
                if await bridge.look(partial(cursor.catch_up, deadline.left)):
                    await self._fetched(deadline)
                return
            while True:
                await bridge.changed(seen, deadline.left, cursor.watched, cursor.idle)
                seen = bridge.backend.version
                if deadline.passed or not cursor.idle():
                    break

    async def _fetched(self, deadline: Deadline) -> int | None:
        """Fetch ahead. One that was begun and then cancelled goes on, and the next call takes what it brings."""
        if self._fetch is None:
            self._fetch = asyncio.ensure_future(self._bridge.run(partial(self._cursor.fetch, deadline.left)))
        seen = await asyncio.shield(self._fetch)
        self._fetch = None
        return seen

    async def commit(self, position: int | None = None) -> int:
        """`braidlog.Subscription.commit`, awaited."""
        return await self._bridge.run(partial(to_commit(self._commit), self.position if position is None else position))

    async def close(self) -> None:
        """`braidlog.Subscription.close`, awaited: a waiting task is told at once."""
        self._cursor.close()
        self._bridge.changes.wake()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
