"""A client process: a few logical clients that share its connections and call one thing after the other.

What is called is up to chance; what was called and answered goes into the history, and every record that was seen to
the checkers. Where a log is asked for is decided as `braidlog.client.remote.routes` does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from braidlog import limits
from braidlog.client.remote.records import records_of
from braidlog.errors import BraidError, OutcomeUnknown, Unavailable
from braidlog.facts import UploadedBlock, UploadedObject
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.batch import Batch, encode, to_arrow
from braidlog.objects.format import ObjectWriter
from braidlog.objects.store import object_name
from braidlog.testing.linearizability import Call as Recorded
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Calls, Lost
from sim.actors.link import ClientLink
from sim.store import StoreClient
from sim.world import Process

if TYPE_CHECKING:
    from sim.cluster import Cluster

MARK = b"|"  # what stands before it in a value is what the value is known by
LARGE_BYTES = (1200, 3500)
PAUSE_S = 0.02
PIPELINED_S = 0.004  # at most, between two calls of which the second does not wait for the first
DESPITE = (BraidError,)


class Client:
    """`workers` logical clients. They end when `cluster.winding_down`."""

    def __init__(self, cluster: Cluster, number: int, workers: int) -> None:
        self.host = f"c{number}"
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        self._client = number.to_bytes(limits.CLIENT_ID_BYTES, "big")
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._sequences = itertools.count(1)
        self._links: dict[str, ClientLink] = {}
        self._calls: list[Calls] = []  # over all of them
        self._routes: dict[int, tuple[ClientLink, float]] = {}
        self._home: ClientLink | None = None
        self.busy = workers
        self.process = Process(self._world, self.host)
        cluster.network.join(self.process)
        self._store = StoreClient(cluster.objects, cluster.network, self.process)
        self.process.loop.post(self._begin, workers)
        self._verbs: list[tuple[int, Callable[[str], Awaitable[Any]]]] = [
            (26, self._append),
            (8, self._append_large),
            (6, self._append_conditionally),
            (6, self._append_in_sequence),
            (6, self._append_pipelined),
            (8, self._publish),
            (15, self._read),
            (7, self._tail),
            (5, self._cfork),
            (6, self._cfork_promotable),
            (4, self._sfork),
            (9, self._promote),
            (8, self._squash),
            (2, self._trim),
            (3, self._commit),
            (3, self._follow),
        ]

    def _begin(self, workers: int) -> None:
        brokers = list(self._cluster.broker_hosts)
        self._rng.shuffle(brokers)
        self._home = self._open_link(brokers)
        for number in range(workers):
            asyncio.get_running_loop().create_task(self._work(f"{self.host}.{number}"))

    def _open_link(self, addresses: list[str]) -> ClientLink:
        link = len(self._links).to_bytes(limits.CLIENT_ID_BYTES, "big")
        return ClientLink(addresses, self._client, self.host, link, self._calls)

    async def _work(self, name: str) -> None:
        weights = [weight for weight, _ in self._verbs]
        while not self._cluster.winding_down:
            await asyncio.sleep(self._rng.random() * PAUSE_S)
            verb = self._rng.choices(self._verbs, weights)[0][1]
            try:
                await verb(name)
            except DESPITE as error:
                self._world.tell(name, f"{verb.__name__[1:]}: {type(error).__name__}: {error}")
            else:
                self._world.tell(name, verb.__name__[1:])
        self.busy -= 1

    # --- asking --------------------------------------------------------------------------------------------------

    async def link_for(self, log: int) -> ClientLink:
        assert self._home is not None
        known = self._routes.get(log)
        now = self._world.now
        if known is not None and (known[1] >= now or known[0].changing):
            return known[0]
        try:
            answer, _ = await self._home.ask(m.Route(log), limits.CALL_TIMEOUT_S)
            host = answer.value.partition(":")[0]
        except BraidError:
            host = ""
        link = self._home
        if host:
            if host not in self._links:
                others = [other for other in self._cluster.broker_hosts if other != host]
                self._links[host] = self._open_link([host, *others])
                await asyncio.sleep(limits.KNOCK_S / 4)
            if self._links[host].connected:
                link = self._links[host]
        known = self._routes.get(log)
        if known is not None and known[0].changing:  # another worker decided meanwhile
            return known[0]
        self._routes[log] = (link, now + limits.ROUTE_S)
        return link

    async def ask(self, log: int, request: m.Request, body: bytes | memoryview = b"") -> tuple[Any, memoryview]:
        link = await self.link_for(log)
        return await link.ask(request, limits.CALL_TIMEOUT_S, body)

    async def execute(self, log: int, command: c.Command) -> Any:
        answer, _ = await self.ask(log, m.Execute(command))
        return answer.result

    def _request(self) -> bytes:
        return self._client + next(self._numbers).to_bytes(8, "big")

    def _some_log(self) -> tuple[str, int]:
        return self._rng.choice(self._cluster.logs)

    # --- changing ------------------------------------------------------------------------------------------------

    async def _append(self, name: str) -> None:
        await self._append_batch(name, self._rng.choice([1, 1, 1, 2, 5]))

    async def _append_large(self, name: str) -> None:
        await self._append_batch(name, self._rng.choice([1, 2, 3]), self._rng.randrange(*LARGE_BYTES))

    async def _append_conditionally(self, name: str) -> None:
        log = self._some_log()
        answer, _ = await self.ask(log[1], m.Tail(log[1]))
        await self._append_batch(name, 1, expected_tail=answer.value, log=log)

    async def _append_in_sequence(self, name: str) -> None:
        await self._append_batch(name, 1, writer=self.host, sequence=next(self._sequences))

    async def _append_pipelined(self, name: str) -> None:
        """Two, sent one behind the other: a large one, which takes longer to be stored, and a small one."""
        log = self._some_log()
        link = await self.link_for(log[1])
        resent = link.resent
        loop = asyncio.get_running_loop()
        padding = self._rng.randrange(*LARGE_BYTES)
        large = loop.create_task(self._position(self._append_batch(name, 1, padding, log=log, link=link)))
        await asyncio.sleep(self._rng.random() * PIPELINED_S)
        small = loop.create_task(self._position(self._append_batch(name, 1, log=log, link=link)))
        positions = [await large, await small]
        if link.resent == resent:  # else they went two ways, and each on its own
            self._cluster.sent(name, log[0], positions)

    async def _publish(self, name: str) -> None:
        """Store objects past every broker and have them bound at once; or forget about them, as one who dies does."""
        log_name, log_id = self._some_log()
        ttl_us = int(self._rng.choice([0.02, 3.0, 6.0]) * 1e6)
        begun: c.Done = await self.execute(log_id, c.Upload(log_id, 0, ttl_us, self._request()))
        number = next(self._names)
        marks: list[str] = []
        stored: list[UploadedObject] = []
        for seq in range(self._rng.choice([1, 1, 2, 3])):
            made = ObjectWriter()
            batches: list[Batch] = []
            for _ in range(self._rng.choice([1, 2])):
                here = [f"{name}:{number}.{len(marks) + at}" for at in range(self._rng.choice([1, 2]))]
                marks += here
                padding = b"x" * self._rng.choice([0, 1500])
                values = [mark.encode() + MARK + padding for mark in here]
                batches.append(Batch(values, timestamps=self.process.now_us()))
                made.add(to_arrow([batches[-1]]))
            stored.append(await self._stored(object_name(begun.value, seq), made, batches))
        self._cluster.counts["uploads"] += 1
        if self._rng.random() < 0.25:
            self._cluster.counts["uploads forsaken"] += 1
            return
        self._cluster.written(log_name, marks)
        lost = stored[1:] if self._rng.random() < 0.1 else []  # of a task that another one was faster than
        marks = marks[: sum(block.count for block in stored[0].blocks)] if lost else marks
        command = c.Publish(log_id, stored[:1] if lost else stored, [begun.value], 0, request=self._request())
        with self._recorded(name, "append", log_name, values=marks) as call:
            appended: c.Appended = await self.execute(log_id, command)
            if appended.withheld or appended.first == NONE:
                call.answer(None)
            else:
                call.answer(appended.first)
                self._cluster.told(log_name, [(appended.first + at, mark) for at, mark in enumerate(marks)])
            self._cluster.counts["publications"] += 1

    async def _stored(self, name: str, made: ObjectWriter, batches: list[Batch]) -> UploadedObject:
        """Put it from a thread of this process. Unavailable if that failed: it may be there all the same."""
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

        def put() -> None:
            failure: OSError | None = None
            try:
                self._store.put(name, made.parts())
            except OSError as error:
                failure = error
            self.process.loop.post(done.set_result, failure)

        self._world.spawn(self.process, put, "uploader")
        failure = await done
        if failure is not None:
            raise Unavailable(f"object {name} cannot be stored: {failure}")
        blocks = [
            UploadedBlock(
                place.offset,
                place.length,
                place.crc,
                batch.count,
                batch.size,
                batch.least_timestamp,
                batch.greatest_timestamp,
            )
            for place, batch in zip(made.blocks, batches, strict=True)
        ]
        return UploadedObject(name, made.size, made.crc, blocks)

    @staticmethod
    async def _position(call: Awaitable[int | None]) -> int | None:
        try:
            return await call
        except BraidError:
            return None

    async def _append_batch(
        self,
        name: str,
        count: int,
        padding: int = 0,
        *,
        log: tuple[str, int] | None = None,
        link: ClientLink | None = None,
        **fields: Any,
    ) -> int | None:
        log_name, log_id = log or self._some_log()
        number = next(self._names)
        marks = [f"{name}:{number}.{at}" for at in range(count)]
        batch = Batch([mark.encode() + MARK + b"x" * padding for mark in marks], timestamps=self.process.now_us())
        self._cluster.written(log_name, marks)
        command = c.Append(
            log_id,
            count,
            batch.size,
            batch.least_timestamp,
            batch.greatest_timestamp,
            request=self._request(),
            **fields,
        )
        block = command.size > limits.WIRE_BLOCK_BYTES_MIN
        body: bytes | memoryview = memoryview(to_arrow([batch]).serialize()).cast("B") if block else encode(batch)
        with self._recorded(name, "append", log_name, values=marks) as call:
            over = link or await self.link_for(log_id)
            answer, _ = await over.ask(m.Append(command, block), limits.CALL_TIMEOUT_S, body)
            appended: c.Appended = answer.result
            if appended.withheld or appended.first == NONE:
                call.answer(None)
                self._cluster.counts["withheld"] += 1
            else:
                call.answer(appended.first)
                self._cluster.told(log_name, [(appended.first + at, mark) for at, mark in enumerate(marks)])
            self._cluster.counts["appends"] += 1
        return None if appended.withheld or appended.first == NONE else appended.first

    async def _cfork(self, name: str) -> None:
        await self._fork(name, "cfork", promotable=False)

    async def _cfork_promotable(self, name: str) -> None:
        await self._fork(name, "cfork", promotable=True)

    async def _sfork(self, name: str) -> None:
        await self._fork(name, "sfork")

    async def _fork(self, name: str, verb: str, *, promotable: bool = False) -> None:
        if len(self._cluster.logs) > self._cluster.LOGS_MAX:
            return
        log_name, log_id = self._some_log()
        child = f"f{self.host}-{next(self._names)}"
        command: c.Command
        if verb == "sfork":
            command = c.SFork(log_id, child, 0, request=self._request())
        else:
            # A hold ends by itself after a while, if nobody decides.
            lease_us = int(self._rng.choice([1.5, 4.0]) * 1e6) if promotable and self._rng.random() < 0.3 else NONE
            command = c.CFork(log_id, child, 0, promotable, lease_us=lease_us, request=self._request())
            if lease_us != NONE:
                self._cluster.may_expire(child)
        with self._recorded(name, verb, log_name, promotable=promotable, child=child) as call:
            opening: c.Opening = await self.execute(log_id, command)
            call.answer(child)
        self._cluster.born(child, opening.log, promotable=promotable)
        self._cluster.counts["forks"] += 1

    async def _promote(self, name: str) -> None:
        fork = self._cluster.some_promotable(self._rng)
        if fork is not None:
            with self._recorded(name, "promote", fork[0]) as call:
                promotion: c.Promotion = await self.execute(fork[1], c.Promote(fork[1], request=self._request()))
                call.answer(promotion.promoted)
            self._cluster.ended(fork[0])
            self._cluster.counts["promotes"] += promotion.promoted

    async def _squash(self, name: str) -> None:
        fork = self._cluster.some_fork(self._rng)
        if fork is not None:
            with self._recorded(name, "squash", fork[0]) as call:
                await self.execute(fork[1], c.Squash(fork[1], request=self._request()))
                call.answer()
            self._cluster.ended(fork[0])
            self._cluster.counts["squashes"] += 1

    async def _trim(self, name: str) -> None:
        del name
        log_name, log_id = self._some_log()
        answer, _ = await self.ask(log_id, m.Tail(log_id))
        before = self._rng.randrange(answer.value + 1)
        self._cluster.trimming(log_name)
        await self.execute(log_id, c.Trim(log_id, before, request=self._request()))
        self._cluster.counts["trims"] += 1

    async def _commit(self, name: str) -> None:
        log_name, log_id = self._some_log()
        answer, _ = await self.ask(log_id, m.Tail(log_id))
        position = self._rng.randrange(answer.value + 1)
        consumers = self._cluster.consumers
        sure = consumers.sure(log_name, name)
        consumers.commits(log_name, name)
        await self.execute(log_id, c.Commit(log_id, name, position, 0, request=self._request()))
        consumers.committed(log_name, name, position, sure=sure)
        self._cluster.counts["commits"] += 1

    # --- looking -------------------------------------------------------------------------------------------------

    async def _read(self, name: str) -> None:
        log_name, log_id = self._some_log()
        start = 0
        if self._rng.random() < 0.5:
            described, _ = await self.ask(log_id, m.Describe(log_id))
            start = self._rng.randrange(described.info.start, described.info.readable_tail + 1)
        stop = start + self._rng.randrange(1, 20) if self._rng.random() < 0.6 else None
        await self.read(name, log_name, log_id, start, stop)

    async def read(self, name: str, log_name: str, log_id: int, start: int, stop: int | None) -> list[tuple[int, str]]:
        with self._recorded(name, "read", log_name, values=start, stop=stop) as call:
            parts, body = await self.ask(log_id, m.Read(log_id, start, stop))
            shown = _marks(parts, body)
            end = parts.readable if stop is None else min(stop, parts.readable)
            call.answer(shown, stop=parts.next if parts.next < end else None)
        self._cluster.seen(log_name, shown)
        self._cluster.counts["reads"] += 1
        return shown

    async def _tail(self, name: str) -> None:
        log_name, log_id = self._some_log()
        with self._recorded(name, "tail", log_name) as call:
            answer, _ = await self.ask(log_id, m.Tail(log_id))
            call.answer(answer.value)

    async def _follow(self, name: str) -> None:
        """Subscribe, and take what is pushed for a while."""
        log_name, log_id = self._some_log()
        described, _ = await self.ask(log_id, m.Describe(log_id))
        link = await self.link_for(log_id)
        state = _Following(described.info.start)

        def pushed(call: Call, answer: m.Answer | BraidError, body: memoryview) -> None:
            if isinstance(answer, m.Number):
                call.deadline = float("inf")
            elif isinstance(answer, m.Parts):
                shown = _marks(answer, body)
                self._cluster.pushed(name, log_name, state.position, shown, answer.next)
                state.position = answer.next
                link.note(call, m.Credit(len(body)))
            elif isinstance(answer, Lost):
                state.lost = True
            else:
                state.over = True

        for _ in range(3):
            state.lost = False
            call = link.begin(m.Subscribe(log_id, state.position, 64_000), b"", limits.CALL_TIMEOUT_S, pushed)
            for _ in range(4):
                await asyncio.sleep(0.05)
                if state.lost or state.over:
                    break
            if not state.lost:
                break
            self._world.counts["resubscribed"] += 1
        link.note(call, m.Cancel())
        link.forget(call)

    def _recorded(
        self,
        name: str,
        verb: str,
        log: str,
        *,
        values: Any = None,
        stop: int | None = None,
        promotable: bool = False,
        child: str | None = None,
    ) -> Recorded:
        call = self._cluster.recorder.call(name, verb, log, values, stop, promotable=promotable, child=child)
        return _Counted(call, self._world.counts)  # type: ignore[return-value]


class _Following:
    def __init__(self, position: int) -> None:
        self.position = position
        self.lost = False
        self.over = False


class _Counted:
    """A recorded call, and how it ended."""

    def __init__(self, call: Recorded, counts: Any) -> None:
        self._call = call
        self._counts = counts

    def __enter__(self) -> Recorded:
        return self._call.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OutcomeUnknown):
            self._counts["unknown"] += 1
        elif error is not None:
            self._counts["refused"] += 1
        self._call.__exit__(kind, error, trace)


def _marks(parts: m.Parts, body: memoryview) -> list[tuple[int, str]]:
    return [(record.position, record.value.partition(MARK)[0].decode()) for record in records_of(parts, body)]
