"""Agents that work on live logs through the tools of `braid mcp`. Each is one command: `python -m apps.agents.NAME`."""

import importlib.util

if any(importlib.util.find_spec(name) is None for name in ("pydantic_ai", "fastmcp", "mcp", "duckdb")):
    raise ImportError(
        "agents need pydantic-ai: pip install 'braidlog[mcp]' 'pydantic-ai-slim[mcp,openai,anthropic]'", name=__name__
    )  # with this name `python -m` prints the message alone
