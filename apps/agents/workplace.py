"""Where an agent works: the tools of `braid mcp` over some logs, and a model that calls them.

    async with workplace(at="shop.braid", agent="restocker", policy="policy.toml") as place:
        worker = Worker(place, model, "You restock a shop.", output=Restock)
        answer = await worker.ask("Which items run out first?")
        print(answer.output, worker.calls)

The model is what `model()` makes of a name: `scripted`, or any that pydantic-ai knows (`openai:NAME`,
`anthropic:NAME`, ...), with the key and the address in the variables of its provider: `OPENAI_API_KEY` and
`OPENAI_BASE_URL` for whatever speaks OpenAI's protocol, `ANTHROPIC_API_KEY` for Anthropic.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from pydantic_ai import Agent, AgentRunResult, RunContext, UsageLimits
from pydantic_ai.mcp import CallToolFunc, MCPToolset, ToolResult
from pydantic_ai.models import Model, infer_model

from apps.agents.scripted import Script, scripted
from braidlog.mcp.opening import Place, house_for_one
from braidlog.mcp.server import build

SCRIPTED: Final = "scripted"
STEPS_MAX: Final = 200

T = TypeVar("T")


@dataclass(frozen=True)
class Made:
    """A call that an agent made of a tool."""

    tool: str
    arguments: dict[str, Any]
    began_s: float  # of time.perf_counter
    seconds: float
    failed: bool


@dataclass(frozen=True)
class Workplace:
    """The tools that an agent has. Several workers may share it, and what they call is counted together."""

    agent: str
    toolset: MCPToolset[None]
    calls: list[Made]


@asynccontextmanager
async def workplace(
    at: str | None = None,
    *,
    agent: str,
    policy: str | Path | None = None,
    mcp_url: str | None = None,
    token: str | None = None,
    apart: bool = False,
) -> AsyncIterator[Workplace]:
    """Tools over the logs at a directory or service; or those of a server that runs already (`mcp_url`, with a token).

    The server runs within this process, or, with `apart`, as a `braid mcp` of its own.
    """
    calls: list[Made] = []
    if mcp_url is not None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with _connected(agent, calls, StreamableHttpTransport(mcp_url, headers=headers)) as place:
            yield place
        return
    if at is None:
        raise ValueError("say where the logs are, or where a server is that has them: `at` or `mcp_url`")
    if apart:
        arguments = ["-m", "braidlog", "mcp", "--at", at, "--agent", agent]
        arguments += [] if policy is None else ["--policy", str(policy)]
        async with _connected(agent, calls, StdioTransport(sys.executable, arguments, env=dict(os.environ))) as place:
            yield place
        return
    with house_for_one(Place(url=at, policy_file=None if policy is None else str(policy)), agent) as house:
        async with _connected(agent, calls, build(house)) as place:
            yield place


@asynccontextmanager
async def _connected(agent: str, calls: list[Made], server: Any) -> AsyncIterator[Workplace]:
    async def noted(_: RunContext[Any], call: CallToolFunc, name: str, arguments: dict[str, Any]) -> ToolResult:
        began = time.perf_counter()
        failed = True
        try:
            result = await call(name, arguments)
            failed = False
        finally:
            calls.append(Made(name, arguments, began, time.perf_counter() - began, failed))
        return result

    toolset: MCPToolset[None] = MCPToolset(server, tool_error_behavior="failed", process_tool_call=noted)
    async with toolset:
        yield Workplace(agent, toolset, calls)


def model(name: str, script: Callable[[str], Script]) -> Model:
    """A model by its name. The script is what a scripted one does."""
    return scripted(script) if name == SCRIPTED else infer_model(name)


class Worker(Generic[T]):
    """An agent with a model, what it is told to be, the tools of its workplace, and others of its own."""

    def __init__(
        self,
        place: Workplace,
        model: Model,
        instructions: str,
        *,
        output: type[T],
        tools: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._place = place
        self._agent: Agent[None, T] = Agent(
            model,
            name=place.agent,
            instructions=instructions,
            output_type=output,
            toolsets=[place.toolset],
            tools=tools,
        )

    @property
    def calls(self) -> Sequence[Made]:
        """Of tools of the workplace, in the order in which they ended."""
        return self._place.calls

    async def ask(self, question: str) -> AgentRunResult[T]:
        """One task, from the question to the answer. `usage` of the answer counts tokens, where a real model ran."""
        return await self._agent.run(question, usage_limits=UsageLimits(request_limit=STEPS_MAX))
