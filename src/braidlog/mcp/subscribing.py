"""`resources/subscribe` for clients of protocols before 2026-07-28, which ask once and are told as long as they are
connected. Over stdin and stdout only: over HTTP nobody knows when such a client has gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from braidlog.mcp.resources import tail_of

_STATE: Final = "braidlog.subscriptions"  # of a connection: the tasks that tell its client, by URI

Context = ServerRequestContext[Any, Any]


class Listening(Protocol):
    """Watches a log for whoever calls now, entered as such: `tell` is called with its URI when it has grown."""

    def __call__(
        self, method: str, uri: str, tell: Callable[[str], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]: ...


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
            tasks[uri] = asyncio.create_task(_tell(listening(ctx.method, uri, connection.send_resource_updated), begun))
            try:
                await begun
            except BaseException:
                await _end(tasks, uri)
                raise
        return EmptyResult()

    async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        await _end(_tasks(ctx.session._connection), str(params.uri))
        return EmptyResult()

    inner = server._lowlevel_server  # the only way to a method that later protocols do without
    inner.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    inner.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)


async def _tell(watched: AbstractAsyncContextManager[None], begun: asyncio.Future[None]) -> None:
    """Until it is cancelled. What stands in the way of the beginning is for whoever asked."""
    try:
        async with watched:
            begun.set_result(None)
            await asyncio.Event().wait()
    except Exception as error:
        if begun.done():
            raise
        begun.set_exception(error)


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
