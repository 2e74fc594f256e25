"""The reference of the agents' tools says what the code does: each tool, what it may change, what it takes."""

from __future__ import annotations

import inspect

from braidlog import limits
from braidlog.mcp.catalog import TOOLS, Tool
from tests.tidy.sources import ROOT

TEXT = (ROOT / "docs" / "agents" / "mcp.md").read_text()


def row(tool: Tool) -> str:
    """What the table has to say of a tool. Those arguments are set in italics that can be left out."""
    parameters = list(inspect.signature(tool.call).parameters.values())[1:]
    taken = ", ".join(p.name if p.default is p.empty else f"*{p.name}*" for p in parameters)
    effect = "destroys" if tool.destroys else "changes" if tool.changes else "reads"
    words = " ".join((tool.call.__doc__ or "").split())
    return f"| `{tool.name}` | {effect} | {words} | {taken} |"


def test_every_tool_is_there_as_it_is() -> None:
    table = [line for line in TEXT.splitlines() if line.startswith("| `") and line.count("|") == 5]
    assert table == [row(tool) for tool in TOOLS]


def test_the_bounds_are_those_of_the_code() -> None:
    for said in (
        f"{limits.SQL_RECORDS_MAX:,} records or {limits.SQL_READ_BYTES_MAX // limits.MIB} MiB",
        f"{limits.SQL_MEMORY_BYTES // limits.MIB} MiB",
        f"{limits.SQL_TIME_S:g} s unless more is asked for, {limits.SQL_TIME_MAX_S:g} s at most",
        f"{limits.SQL_ROWS_MAX:,} rows or {limits.SQL_ANSWER_BYTES_MAX // limits.KIB} KiB",
        f"a cell is cut to {limits.SQL_CELL_CHARS_MAX:,} characters",
        f"kept for {limits.SQL_SPARK_IDLE_S:g} s after the last one",
        f"takes {limits.SQL_SPARK_MEMORY_BYTES // limits.MIB // 1024} GiB of memory",
        f"bounded by {limits.SQL_SPARK_DISK_BYTES_MAX // limits.MIB:,} MiB",
        f"{limits.MCP_RECORDS_MAX:,} records or {limits.MCP_ANSWER_BYTES_MAX // limits.KIB} KiB",
        f"{limits.MCP_SCAN_RECORDS_MAX:,} records or {limits.MCP_SCAN_BYTES_MAX // limits.MIB} MiB",
        f"{limits.MCP_APPEND_RECORDS_MAX:,} records and {limits.MCP_APPEND_BYTES_MAX // limits.MIB} MiB",
        f"{limits.MCP_CALL_S:g} s for a call, {limits.MCP_LONG_CALL_S:g} s for one that runs a query or validators",
        f"{limits.MCP_APPEND_BURST_S:g} s worth of it at once",
    ):
        assert said in " ".join(TEXT.split()), said
