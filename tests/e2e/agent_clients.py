"""Agents for the tests of `braid mcp`: clients of a server in this process, or of one that was started."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import braidlog
from braidlog.agents.policy import Policy
from braidlog.mcp.catalog import choose
from braidlog.mcp.house import Caller, House, OnlyCaller
from braidlog.mcp.server import build

DEADLINE_S = 60

AUTO = """
[[log]]
pattern = "orders"
promotion = "auto"
validators = ["no-negatives"]
"""

VALIDATOR = """
import json
from braidlog.agents import Verdict

def no_negatives(fork, context):
    bad = [r for r in fork.read(0) if json.loads(r.value).get("n", 0) < 0]
    return Verdict(not bad, [f"n is negative at {r.position}" for r in bad], [r.position for r in bad])
"""


class Failed(Exception):
    """What an agent is told when a call fails."""


class Agent:
    """A client, as an agent uses it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """The structured answer of a tool; Failed with its message if it failed."""
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise Failed(" ".join(part.text for part in result.content))
        assert result.structured_content is not None
        return result.structured_content

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """What it is told when it is refused."""
        try:
            answer = await self.call(tool, **arguments)
        except Failed as failure:
            return str(failure)
        raise AssertionError(f"{tool} was not refused, but answered {answer}")

    async def fork(self, log: str = "orders", **arguments: Any) -> str:
        made = await self.call("create_fork", log=log, **arguments)
        return str(made["fork"]["name"])


def house_of(braid: braidlog.Braid, name: str = "tester", policy: str = "") -> House:
    return House.of(braid, OnlyCaller(Caller(name, braid)), Policy.parse(policy))


@asynccontextmanager
async def agent_in(
    house: House, *, read_only: bool = False, tools: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[Agent]:
    """An agent whose server is in this process."""
    async with Client(build(house, choose(tools, read_only=read_only)), **options) as client:
        yield Agent(client)


def with_agent(
    braid: braidlog.Braid,
    do: Callable[[Agent], Awaitable[None]],
    policy: str = "",
    *,
    name: str = "tester",
    **options: Any,
) -> None:
    """Let an agent do something, within its time."""

    house = house_of(braid, name, policy)

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), agent_in(house, **options) as agent:
            await do(agent)

    asyncio.run(run())
    house.audit.close()  # as a server does when it ends: entries of calls that only read come a moment later


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BRAIDLOG_")} | more


@asynccontextmanager
async def agent_at(*options: str, **env: str) -> AsyncIterator[Agent]:
    """An agent whose server is a process at the other end of two pipes."""
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "braidlog", *options], env=environment(**env), cwd="/"
    )
    async with asyncio.timeout(DEADLINE_S), Client(parameters) as client:
        yield Agent(client)


@asynccontextmanager
async def agent_over(
    url: str, token: str | None, *, trusts: ssl.SSLContext | bool = True, **options: Any
) -> AsyncIterator[Agent]:
    """An agent that comes over HTTP with a token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S, verify=trusts) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield Agent(client)


class HttpServer:
    """`braid mcp --http` as a process."""

    def __init__(self, *options: str, told: Path, **env: str) -> None:
        with told.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "braidlog", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**env),
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("listening on "), told.read_text()
        self.url = line.removeprefix("listening on ").strip()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode
