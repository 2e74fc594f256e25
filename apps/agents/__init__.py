"""Agents that work on live logs through the tools of `braid mcp`. Each is one command: `python -m apps.agents.NAME`."""
