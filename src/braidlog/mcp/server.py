"""The MCP server: tools, resources and prompts over a house.

Every call passes one door. There it gets a deadline, a thread, and an entry in the audit log, durable before the answer
if the call changes something; and whatever goes wrong becomes an error that says what to do.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, TextContent

from braidlog import Log, __version__, errors, limits
from braidlog.agents.audit import Call
from braidlog.errors import BraidError
from braidlog.mcp import prompts, resources, subscribing
from braidlog.mcp.catalog import TOOLS, Choice, Tool, choose
from braidlog.mcp.house import House, Work
from braidlog.mcp.threads import Threads
from braidlog.mcp.watching import Tell, Watchers

_log = logging.getLogger("braidlog.mcp")
_HINTS: Final[dict[type[BraidError], str]] = {
    errors.NotFound: "`list_logs` shows what there is",
    errors.Gone: "`list_logs` shows what there is",
    errors.Blocked: "a promotable fork is undecided: read below readable_tail, or wait for its decision",
    errors.Trimmed: "`describe_log` shows where it starts",
    errors.OutOfRange: "`describe_log` shows where it ends",
    errors.NotPermitted: "ask who runs this for the scope, or work on a fork of your own",
    errors.Unavailable: "try again in a moment",
    errors.OutcomeUnknown: "it may have happened: look before you do it again",
}


class Disabled(Exception):
    """A tool that this server has not."""


class Cancelled(Exception):
    """The client did not want it any more, or went away."""


class Noted:
    """What the door learns of a call while it is carried out, and enters in the end."""

    def __init__(self, entry: Call) -> None:
        self._entry = entry
        self.error: Exception | None = None

    def about(self, log: Log) -> None:
        """The log that the call is about."""
        self._entry.about(log)

    def became(self, result: str) -> None:
        """What came of it, in a word or two."""
        self._entry.result = result

    def write(self) -> None:
        """Enter it; durable on return, if the call changes something."""
        self._entry.__exit__(None if self.error is None else type(self.error), self.error, None)


_noted: ContextVar[Noted] = ContextVar("noted")


def build(
    house: House,
    choice: Choice | None = None,
    verifier: TokenVerifier | None = None,
    auth: AuthSettings | None = None,
) -> MCPServer[Any]:
    """A server with the tools that were chosen. With a verifier everybody has to show a token."""
    choice = choice or choose()
    bus = InMemorySubscriptionBus()
    door = _Door(house, choice, Watchers(bus))
    server: MCPServer[Any] = MCPServer(
        "braidlog",
        title="braidlog: logs that can be forked",
        instructions=prompts.INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        subscriptions=bus,
        middleware=[door],
        token_verifier=verifier,
        auth=auth,
    )
    for tool in choice.tools:
        server.add_tool(
            door.opened(tool), name=tool.name, title=tool.title, description=_words(tool), annotations=tool.hints
        )
    resources.register(server, door.in_thread)
    prompts.register(server)
    if verifier is None:
        subscribing.register(server, door.listening)
    return server


def _words(tool: Tool) -> str:
    return " ".join((tool.call.__doc__ or "").split())


class _Door:
    """What stands between a client and the tools."""

    def __init__(self, house: House, choice: Choice, watchers: Watchers) -> None:
        self._house = house
        self._choice = choice
        self._changing = {tool.name for tool in choice.tools if tool.changes}
        self._threads = Threads(limits.MCP_THREADS_MAX)
        self._slow = Threads(limits.MCP_SLOW_THREADS_MAX)
        self._entries = Threads(limits.MCP_THREADS_MAX)
        self._watchers = watchers

    # --- every message -----------------------------------------------------------------------------------------------

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Let a message through. Calls of tools, readings of resources and subscriptions are entered."""
        params = ctx.params or {}
        if ctx.method == "tools/call":
            name, arguments = str(params.get("name", "")), params.get("arguments") or {}
        elif ctx.method == "resources/read":
            name, arguments = ctx.method, {"uri": params.get("uri")}
        elif ctx.method == "subscriptions/listen":
            return await self._listening(ctx, call_next)
        else:
            return await call_next(ctx)
        if not isinstance(arguments, dict):
            arguments = {"arguments": arguments}
        noted = self._begin(name, arguments)
        token = _noted.set(noted)
        result: HandlerResult = None
        try:
            refusal = self._choice.why_not(name) if ctx.method == "tools/call" else ""
            if refusal:
                noted.error = Disabled(refusal)
                result = _failure(refusal)
            else:
                result = await call_next(ctx)
            noted.error = noted.error or _complaint(result)
        except BaseException as error:
            if noted.error is None:
                noted.error = error if isinstance(error, Exception) else Cancelled()
            raise
        finally:
            _noted.reset(token)
            with anyio.CancelScope(shield=True):
                untold = await self._enter(name, noted)
        if untold and name in self._changing:
            return _failure(
                f"this call could not be entered in the audit log ({untold}), and may have taken effect: look"
            )
        return result

    def _begin(self, name: str, arguments: dict[str, Any]) -> Noted:
        try:
            caller = self._house.callers.current()
        except errors.NotPermitted as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        shown = name[: limits.MCP_KEY_CHARS_MAX]
        return Noted(self._house.audit.call(caller.name, shown, arguments, changes=name in self._changing))

    async def _enter(self, name: str, noted: Noted) -> str:
        """Write it down; what went wrong with that, or nothing."""
        try:
            with anyio.fail_after(limits.MCP_CALL_S):
                await self._entries.run(noted.write)
        except (BraidError, TimeoutError) as error:
            _log.error("a call of %s could not be entered in the audit log: %s", name, error)
            return str(error) or "it takes too long"
        return ""

    async def _listening(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Watch the logs that a client listens to, as long as it does."""
        wanted = ((ctx.params or {}).get("notifications") or {}).get("resourceSubscriptions") or []
        async with self._watching(ctx.method, [str(uri) for uri in wanted]):
            return await call_next(ctx)

    @asynccontextmanager
    async def _watching(self, method: str, uris: list[str], tell: Tell | None = None) -> AsyncIterator[anyio.Event]:
        names = [name for uri in uris if (name := resources.tail_of(uri)) is not None]
        noted = self._begin(method, {"uris": uris})
        try:
            logs = await self.in_thread(lambda work: [work.log(name) for name in names], noted)
        except ToolError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._enter(method, noted)
        callers = self._house.callers
        caller = callers.current()
        with callers.listening(caller):
            async with self._watchers.watching(logs, caller, tell) as over:
                yield over

    def listening(self, method: str, uri: str, tell: Tell) -> AbstractAsyncContextManager[anyio.Event]:
        """The same for a client that is told in another way."""
        return self._watching(method, [uri], tell)

    # --- one call ----------------------------------------------------------------------------------------------------

    def opened(self, tool: Tool) -> Callable[..., Any]:
        """The tool as a function that a server can have: its parameters without the first."""
        signature = inspect.signature(tool.call, eval_str=True)
        parameters = list(signature.parameters.values())[1:]

        async def call(**given: Any) -> Any:
            return await self.in_thread(
                lambda work: tool.call(work, **given), _noted.get(), tool.deadline_s, slow=tool.slow
            )

        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": signature.return_annotation}
        call.__doc__ = tool.call.__doc__
        return call

    async def in_thread(
        self,
        do: Callable[[Work], Any],
        noted: Noted | None = None,
        deadline_s: float = limits.MCP_CALL_S,
        *,
        slow: bool = False,
    ) -> Any:
        """Carry something out for whoever calls now, within its time. ToolError, and nothing else, if it cannot be."""
        noted = noted or _noted.get()
        work: Work | None = None
        try:
            work = Work(self._house, self._house.callers.current(), noted.about, noted.became)
            with anyio.fail_after(deadline_s):
                return await (self._slow if slow else self._threads).run(partial(do, work))
        except BraidError as error:
            noted.error = error
            if isinstance(error, errors.NotPermitted) and work is not None:
                self._house.callers.doubt(work.caller)
            raise ToolError(_told(error)) from None
        except TimeoutError:
            noted.error = errors.Timeout(
                f"it did not end within {deadline_s:g} s: ask for less at a time; and if it changes something, look "
                "whether it has before you do it again"
            )
            raise ToolError(str(noted.error)) from None
        except Exception as error:
            noted.error = error  # a mistake of ours: the agent is told no more than that
            raise
        finally:
            if work is not None:
                work.end()


def _told(error: BraidError) -> str:
    hint = next((hint for kind, hint in _HINTS.items() if isinstance(error, kind)), "")
    text = str(error)[: limits.MCP_ERROR_CHARS_MAX]
    return f"{text}. {hint}" if hint and not any(f"`{tool.name}`" in text for tool in TOOLS) else text


def _failure(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


def _complaint(result: HandlerResult) -> Exception | None:
    """What a call was refused for before it came to the tool: its arguments."""
    if isinstance(result, CallToolResult) and result.is_error:
        return errors.InvalidArgument(" ".join(part.text for part in result.content if isinstance(part, TextContent)))
    if isinstance(result, dict) and result.get("isError"):
        return errors.InvalidArgument(" ".join(str(part.get("text", "")) for part in result.get("content") or []))
    return None
