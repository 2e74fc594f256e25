"""Which tools there are, what each may do, and which of them a server has."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import ToolAnnotations

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.mcp.looking import describe_log, diff_fork, list_logs, read_records, search_records
from braidlog.mcp.proposing import list_proposals, propose_promotion, run_validator
from braidlog.mcp.querying import query_sql
from braidlog.mcp.working import append_records, create_fork, squash_fork


@dataclass(frozen=True)
class Tool:
    """A tool. Its function takes the call's `Work` first, and then what an agent gives."""

    call: Callable[..., Any]
    title: str
    changes: bool = False
    destroys: bool = False  # what it does cannot be undone
    idempotent: bool = True  # the same call again does no more
    slow: bool = False

    @property
    def name(self) -> str:
        """What agents call it."""
        return self.call.__name__

    @property
    def deadline_s(self) -> float:
        """How long it may take."""
        return limits.MCP_LONG_CALL_S if self.slow else limits.MCP_CALL_S

    @property
    def hints(self) -> ToolAnnotations:
        """What a client may tell its user before it is called."""
        return ToolAnnotations(
            title=self.title,
            read_only_hint=not self.changes,
            destructive_hint=self.destroys,
            idempotent_hint=self.idempotent,
            open_world_hint=False,
        )


TOOLS: Final = (
    Tool(list_logs, "List logs and forks"),
    Tool(describe_log, "Describe a log"),
    Tool(read_records, "Read records"),
    Tool(search_records, "Search records"),
    Tool(query_sql, "Query with SQL", slow=True),
    Tool(diff_fork, "Show what a fork adds"),
    Tool(run_validator, "Run validators", slow=True),
    Tool(list_proposals, "List your proposals"),
    Tool(create_fork, "Fork a log", changes=True, idempotent=False),
    Tool(append_records, "Append to a fork", changes=True, idempotent=False),
    Tool(squash_fork, "Squash a fork", changes=True, destroys=True),
    Tool(propose_promotion, "Propose a promotion", changes=True, destroys=True, slow=True),
)
_BY_NAME: Final = {tool.name: tool for tool in TOOLS}


@dataclass(frozen=True)
class Choice:
    """The tools that a server has, and why it has not the others."""

    tools: tuple[Tool, ...]
    missing: dict[str, str]

    def why_not(self, name: str) -> str:
        """Why a tool cannot be called; empty if it can."""
        if name in self.missing:
            return self.missing[name]
        if name in _BY_NAME:
            return ""
        near = difflib.get_close_matches(name, _BY_NAME, 1)
        return f"there is no tool {name[:80]!r}" + (f": did you mean {near[0]!r}?" if near else "")


def choose(named: Iterable[str] = (), *, read_only: bool = False) -> Choice:
    """The tools that were named (all, if none was), without those that were named with a minus before them, and, if it
    is to be read only, without those that change something."""
    names = [part.strip() for text in named for part in text.split(",") if part.strip()]
    allowed = {name for name in names if not name.startswith("-")}
    blocked = {name[1:] for name in names if name.startswith("-")}
    for name in allowed | blocked:
        if name not in _BY_NAME:
            near = difflib.get_close_matches(name, _BY_NAME, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_BY_NAME)}"
            raise InvalidArgument(f"--tools: there is no tool {name!r}: {meant}")
    if both := allowed & blocked:
        raise InvalidArgument(f"--tools: {min(both)!r} is both asked for and left out: say one")
    missing: dict[str, str] = {}
    for tool in TOOLS:
        if tool.name in blocked or (allowed and tool.name not in allowed):
            missing[tool.name] = f"{tool.name} is disabled here: the operator left it out with --tools"
        elif read_only and tool.changes:
            missing[tool.name] = f"{tool.name} is disabled here: this server is --read-only, and it changes something"
    chosen = tuple(tool for tool in TOOLS if tool.name not in missing)
    if not chosen:
        raise InvalidArgument("--tools and --read-only leave no tool: let there be one")
    return Choice(chosen, missing)
