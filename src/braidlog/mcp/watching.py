"""Logs that somebody listens to: a watcher waits for records, and says that there are some. What they are is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from mcp.server.subscriptions import ResourceUpdated, SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from braidlog import Log, limits
from braidlog.client.endings import is_closed
from braidlog.errors import Blocked, BraidError, Timeout, Unavailable
from braidlog.mcp.house import Caller
from braidlog.mcp.resources import tail_uri

Tell = Callable[[str], Awaitable[None]]  # that the resource of that URI has changed


class Watchers:
    """Of one server. Unless told otherwise they speak on its bus, which its listeners hear."""

    def __init__(self, bus: SubscriptionBus) -> None:
        self._bus = bus
        self._threads = anyio.CapacityLimiter(limits.MCP_WATCHED_LOGS_MAX)
        self._watched: Counter[str] = Counter()  # by caller

    @asynccontextmanager
    async def watching(
        self, logs: Sequence[Log], caller: Caller, tell: Tell | None = None
    ) -> AsyncIterator[anyio.Event]:
        """Watch these logs while this lasts. The event happens when none of them can be watched any more."""
        self._check(caller.name, len(logs))
        self._watched[caller.name] += len(logs)
        left = len(logs)
        over = anyio.Event()

        def leave(places: int) -> None:
            nonlocal left
            left -= places
            self._watched[caller.name] -= places
            self._watched += Counter()  # without those who watch nothing
            if not left:
                over.set()

        async def watch(log: Log) -> None:
            await self._watch(log, caller, tell or self._publish)
            leave(1)

        try:
            async with anyio.create_task_group() as group:
                for log in logs:
                    group.start_soon(watch, log)
                yield over
                group.cancel_scope.cancel()
        finally:
            leave(left)

    def _check(self, caller: str, more: int) -> None:
        if self._watched[caller] + more > limits.MCP_WATCHED_LOGS_EACH_MAX:
            raise MCPError(
                INTERNAL_ERROR,
                f"you may listen to {limits.MCP_WATCHED_LOGS_EACH_MAX} logs: stop listening to others first",
            )
        if self._watched.total() + more > limits.MCP_WATCHED_LOGS_MAX:
            raise MCPError(
                INTERNAL_ERROR, f"{limits.MCP_WATCHED_LOGS_MAX} logs are listened to already: try again later"
            )

    async def _publish(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))

    async def _watch(self, log: Log, caller: Caller, tell: Tell) -> None:
        seen = -1
        while True:
            try:
                end = await anyio.to_thread.run_sync(_grown, log, seen, limiter=self._threads, abandon_on_cancel=True)
            except (Unavailable, Timeout):  # it passes, and who listens is told of what came meanwhile
                if is_closed(caller.braid):  # but for this: its token is not good any more
                    await tell(tail_uri(log.name))
                    return
                await anyio.sleep(limits.MCP_WATCH_RETRY_S)
                continue
            except BraidError:
                await tell(tail_uri(log.name))  # who reads it now is told how it ended
                return
            if seen not in (-1, end):
                await tell(tail_uri(log.name))
                await anyio.sleep(limits.MCP_WATCH_PAUSE_S)
            seen = end


def _grown(log: Log, seen: int) -> int:
    """Where the log ends, once that is not where it was, or after a while."""
    if seen < 0:
        return log.tail()
    try:
        log.read(seen, max_records=1, wait=limits.MCP_WATCH_S)
    except Blocked:
        pass  # there is something, and a hold hides it
    return log.tail()
