"""The process that carries out one SQL query. It is run as a script, and imports nothing of braidlog: it starts sooner.

On stdin come a line of JSON (the statement, the limits, the columns of `rows`) and the records as an Arrow stream; on
stdout goes one JSON object. The engine has no files, no network and no extensions, and its configuration is locked; the
process cannot write files either, nor map more memory than it was given. Whatever gets past all that is killed.
"""

from __future__ import annotations

import base64
import json
import math
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO


def main() -> None:
    """Answer, and end."""
    order = json.loads(sys.stdin.buffer.readline())
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no part of the answer
    once = threading.Lock()

    def tell(told: dict[str, Any]) -> None:
        with once:
            answer.write(json.dumps(told).encode())
            answer.flush()
            os._exit(0)  # threads of the engine that are still busy are not waited for

    try:
        tell(carry_out(order, sys.stdin.buffer, lambda: tell(_overdue(order))))
    except MemoryError:
        tell(_TOO_MUCH)


def _overdue(order: dict[str, Any]) -> dict[str, Any]:
    return {"error": "time", "message": f"the query was ended after {order['time_s']:g} s"}


_TOO_MUCH = {"error": "memory", "message": "the query needs more memory than it may have"}


def carry_out(order: dict[str, Any], source: BinaryIO, give_up: Callable[[], None]) -> dict[str, Any]:
    """The rows, or what was wrong. `give_up` is called if the engine does not end when it is asked to."""
    import duckdb
    import pyarrow as pa

    with pa.ipc.open_stream(source) as stream:
        table = stream.read_all()
    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",  # a name in a query is never a variable of this program
            "memory_limit": f"{order['memory_bytes']}B",
            "threads": str(order["threads"]),
            "temp_directory": "",
        },
    )
    connection.register("raw_records", table)
    for statement in order["views"]:
        connection.execute(statement)
    connection.execute("SET lock_configuration = true")
    _confine(order)
    _after(order["time_s"], connection.interrupt)
    _after(order["time_s"] + order["kill_s"], give_up)
    try:
        return _rows(connection, order)
    except duckdb.InterruptException:
        return _overdue(order)
    except duckdb.OutOfMemoryException:
        return _TOO_MUCH
    except duckdb.Error as error:
        return {"error": "query", "message": str(error)}


def _after(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _confine(order: dict[str, Any]) -> None:
    """What is needed is open by now: from here on nothing can be written to a file, and memory ends somewhere."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (order["address_space_bytes"], order["address_space_bytes"]))


def _rows(connection: Any, order: dict[str, Any]) -> dict[str, Any]:
    statements = connection.extract_statements(order["sql"])
    if len(statements) != 1:
        return {"error": "statement", "message": f"there are {len(statements)} statements, and one is carried out"}
    kind = statements[0].type.name
    if kind != "SELECT":
        return {"error": "statement", "message": f"{kind} is not a query: only SELECT is carried out"}
    result = connection.execute(statements[0])
    columns = [(str(about[0]), str(about[1])) for about in result.description]
    return too_wide(columns, order) or shown(columns, iter(result.fetchone, None), order)


def too_wide(columns: list[tuple[str, str]], order: dict[str, Any]) -> dict[str, Any] | None:
    """What to answer a query with too many columns; None if they are not."""
    if len(columns) <= order["columns_max"]:
        return None
    return {"error": "columns", "message": f"the query has {len(columns)} columns: at most {order['columns_max']}"}


def shown(found: list[tuple[str, str]], answered: Iterable[Sequence[Any]], order: dict[str, Any]) -> dict[str, Any]:
    """As many rows as may be answered."""
    most = order["column_chars_max"]
    names = _told_apart([_cut(name, most) for name, _ in found])
    columns = [(name, _cut(kind, most)) for name, (_, kind) in zip(names, found, strict=True)]
    rows: list[list[Any]] = []
    most = order["answer_bytes_max"]
    beside = len(json.dumps(columns))
    room = most - beside
    if room < 0:
        return {"error": "columns", "message": "the names and types of the columns are longer than an answer may be"}
    for row in answered:
        cells = [_cell(value, order["cell_chars_max"]) for value in row]
        size = len(json.dumps(cells))
        if not rows and size > room:
            told = f"one row of the answer with its columns has {size + beside:,} bytes, and all may have {most:,}"
            return {"error": "row", "message": told}
        room -= size
        if len(rows) >= order["rows_max"] or room < 0:
            return {"columns": columns, "rows": rows, "truncated": True}
        rows.append(cells)
    return {"columns": columns, "rows": rows, "truncated": False}


def _told_apart(names: list[str]) -> list[str]:
    """Names that come again get a number: `a`, `a_2`, `a_3`."""
    told: list[str] = []
    for name in names:
        number, apart = 1, name
        while apart in told or (number > 1 and apart in names):
            number += 1
            apart = f"{name}_{number}"
        told.append(apart)
    return told


def _cell(value: Any, chars_max: int) -> Any:
    """A value as JSON has it. What JSON has no word for is a text; what is long is cut."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**53) <= value <= 2**53 else str(value)  # beyond that, readers of JSON round
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = "base64:" + base64.b64encode(value[:chars_max]).decode()
    if isinstance(value, dict):
        return {str(name): _cell(part, chars_max) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_cell(part, chars_max) for part in value]
    if isinstance(value, datetime | date | time):
        text = value.isoformat()
    elif isinstance(value, Decimal | timedelta):
        text = str(value)
    else:
        text = value if isinstance(value, str) else str(value)
    return _cut(text, chars_max)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[:chars_max] + "…"


if __name__ == "__main__":
    main()
