"""What a process answers a query with: never more than was asked for, names and types of columns included."""

from __future__ import annotations

import json

from braidlog import limits
from braidlog.agents.sql import Bounds, bounds_of_answer
from braidlog.agents.sql_process import shown

ORDER = bounds_of_answer(Bounds())


def test_long_names_and_types_are_cut_and_told_apart() -> None:
    name = "n" * 1_000
    answer = shown([(name, "INT"), (name, "STRUCT<" * 100)], [[1, 2]], ORDER)
    cut = name[: limits.SQL_COLUMN_CHARS_MAX] + "…"
    assert [column for column, _ in answer["columns"]] == [cut, f"{cut}_2"]
    assert len(answer["columns"][1][1]) == limits.SQL_COLUMN_CHARS_MAX + 1
    assert answer["rows"] == [[1, 2]]


def test_columns_take_of_the_room_that_rows_have() -> None:
    columns = [(f"{number}{'n' * 100}", "INT") for number in range(9)]
    size = len(json.dumps(columns))
    rows = [[number] * 9 for number in range(5)]
    answer = shown(columns, rows, ORDER | {"answer_bytes_max": size + 2 * len(json.dumps(rows[0]))})
    assert (answer["rows"], answer["truncated"]) == (rows[:2], True)
    assert shown(columns, rows, ORDER | {"answer_bytes_max": size - 1})["error"] == "columns"
