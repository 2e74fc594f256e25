"""What a client can show or attach without a tool: a log's description, and its end, which it can listen to."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError

from braidlog import limits
from braidlog.mcp.house import Work
from braidlog.mcp.looking import describe_log, read_records

_TAIL: Final = re.compile(r"log://([A-Za-z0-9._-]{1,249})/tail")

InThread = Callable[[Callable[[Work], Any]], Awaitable[Any]]


def tail_of(uri: str) -> str | None:
    """The log whose tail a URI names."""
    match = _TAIL.fullmatch(uri)
    return None if match is None else match[1]


def tail_uri(log: str) -> str:
    """The URI of a log's tail."""
    return f"log://{log}/tail"


def register(server: MCPServer[Any], in_thread: InThread) -> None:
    """Offer them."""

    async def carried_out(do: Callable[[Work], Any]) -> str:
        try:
            told = await in_thread(do)
        except ToolError as error:
            raise ResourceError(str(error)) from None
        return str(told.model_dump_json())

    async def description(log: str) -> str:
        """What a log or fork is, and what its records look like."""
        return await carried_out(lambda work: describe_log(work, log))

    async def tail(log: str) -> str:
        """The last records of a log or fork. Listen to it to be told when there are more."""
        return await carried_out(lambda work: read_records(work, log, last=limits.MCP_RECORDS))

    server.resource("log://{log}", mime_type="application/json")(description)
    server.resource("log://{log}/tail", mime_type="application/json")(tail)
