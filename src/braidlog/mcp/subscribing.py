"""`resources/subscribe` for clients of protocols before 2026-07-28, which ask once and are told as long as they are
connected. Over stdin and stdout only: over HTTP nobody knows when such a client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol

import anyio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from braidlog.mcp.resources import tail_of

_log = logging.getLogger("braidlog.mcp")
_STATE: Final = "braidlog.subscriptions"  # of a connection: the tasks that tell its client, by URI

Context = ServerRequestContext[Any, Any]


class Listening(Protocol):
    """Watches a log for whoever calls now, entered as such: `tell` is called with its URI when it has grown. The event
    happens when it cannot be watched any more."""

    def __call__(
        self, method: str, uri: str, tell: Callable[[str], Awaitable[None]]
    ) -> AbstractAsyncContextManager[anyio.Event]: ...


def register(server: MCPServer[Any], listening: Listening) -> None:
    """Offer it."""

    async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        uri = str(params.uri)
        if tail_of(uri) is None:
            raise MCPError(INVALID_PARAMS, f"{uri[:300]!r} does not change: subscribe to log://NAME/tail")
        connection = ctx.session._connection
        tasks = _tasks(connection)
        if uri not in tasks:
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(_tell(listening(ctx.method, uri, connection.send_resource_updated), begun))
            tasks[uri] = task
            task.add_done_callback(partial(_ended, tasks, uri, begun))
            try:
                await begun
            except BaseException:
                task.cancel()
                raise
        return EmptyResult()

    async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        await _end(_tasks(ctx.session._connection), str(params.uri))
        return EmptyResult()

    inner = server._lowlevel_server  # the only way to a method that later protocols do without
    inner.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    inner.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)


async def _tell(watched: AbstractAsyncContextManager[anyio.Event], begun: asyncio.Future[None]) -> None:
    """Until it is cancelled, or there is nothing to be told any more."""
    async with watched as over:
        if not begun.done():
            begun.set_result(None)
        await over.wait()


def _ended(
    tasks: dict[str, asyncio.Task[None]], uri: str, begun: asyncio.Future[None], task: asyncio.Task[None]
) -> None:
    """However it ended: the client may subscribe again, and what stood in the way of the beginning is for who asked."""
    if tasks.get(uri) is task:
        del tasks[uri]
    error = None if task.cancelled() else task.exception()
    if not begun.done():
        begun.set_exception(error or MCPError(INTERNAL_ERROR, f"{uri[:300]!r} was unsubscribed before it began"))
    elif error is not None:
        _log.info("a client is not told of %s any more: %s", uri, error)


def _tasks(connection: Connection) -> dict[str, asyncio.Task[None]]:
    """Those of a connection; they end with it."""
    if _STATE not in connection.state:
        connection.state[_STATE] = {}
        connection.exit_stack.push_async_callback(_end_all, connection.state[_STATE])
    tasks: dict[str, asyncio.Task[None]] = connection.state[_STATE]
    return tasks


async def _end_all(tasks: dict[str, asyncio.Task[None]]) -> None:
    for uri in list(tasks):
        await _end(tasks, uri)


async def _end(tasks: dict[str, asyncio.Task[None]], uri: str) -> None:
    task = tasks.pop(uri, None)
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
