"""SQL over logs: what a query sees, and that it can reach nothing else, whatever it tries."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import limits
from braidlog.agents.sql import Bounds, Query, Refused, Result
from braidlog.errors import BraidError, Timeout

DEADLINE_S = 60
NOON = "2026-01-31T12:00:00Z"


@pytest.fixture(scope="module")
def log() -> Iterator[braidlog.Log]:
    with braidlog.open("memory://") as braid:
        orders = braid.create("orders")
        orders.append_many(
            [
                braidlog.Record(
                    json.dumps(
                        {"item": f"i{n % 3}", "n": n, "moment": "2026-01-31T12:00:00Z", "in": {"x": n}}
                    ).encode(),
                    key=b"k%d" % (n % 5),
                    headers=(("source", b"till"),),
                )
                for n in range(100)
            ]
        )
        yield orders


def run(log: braidlog.Log, sql: str, **bounds: Any) -> Result:
    return Query(log, sql, 0, log.tail(), Bounds(**bounds)).run()


def rows(log: braidlog.Log, sql: str, **bounds: Any) -> list[list[Any]]:
    return run(log, sql, **bounds).rows


def test_records_and_the_fields_of_json_are_columns(log: braidlog.Log) -> None:
    found = run(log, "SELECT item, sum(n) AS total, min(moment) FROM rows GROUP BY item ORDER BY item")
    assert found.columns == [("item", "VARCHAR"), ("total", "HUGEINT"), ("min(moment)", "TIMESTAMP")]
    assert found.rows[0] == ["i0", 1683, "2026-01-31T12:00:00"]
    assert (found.records, found.truncated) == (100, False)
    assert rows(log, "SELECT key, headers[1].value, json->'in'->>'x' FROM records WHERE position = 7") == [
        ["k2", "till", "7"]
    ]


def test_a_query_is_about_its_range_and_no_more(log: braidlog.Log) -> None:
    assert Query(log, "SELECT min(position), max(position) FROM records", 10, 20).run().rows == [[10, 19]]
    assert Query(log, "SELECT count(*) FROM records", 5, 5).run().rows == [[0]]


def test_a_fork_is_queried_like_a_log(log: braidlog.Log) -> None:
    fork = log.cfork()
    fork.append(b'{"item": "mine", "n": 1000}')
    assert rows(fork, "SELECT item FROM rows WHERE n >= 99 ORDER BY n") == [["i0"], ["mine"]]
    fork.squash()


def test_payloads_of_all_kinds_can_be_queried() -> None:
    with braidlog.open("memory://") as braid:
        mixed = braid.create("mixed")
        mixed.append_many([b"\xff\x00", b"plain", b'{"a": 1}', b"", b"[1]"])
        mixed.append(b"keyed", key=b"\xfe")
        found = rows(mixed, "SELECT position, text, json IS NULL FROM records ORDER BY position")
        assert [row[1] for row in found] == [None, "plain", '{"a": 1}', "", "[1]", "keyed"]
        assert [row[2] for row in found] == [True, True, False, True, False, True]
        assert rows(mixed, "SELECT value, key FROM records WHERE position IN (0, 5) ORDER BY position") == [
            ["base64:/wA=", None],
            ["keyed", "\\xFE"],
        ]
        assert rows(mixed, "SELECT * EXCLUDE _timestamp FROM rows") == [[2, None, 1]]


def test_hostile_names_of_fields_are_only_names() -> None:
    names = ['a"; DROP VIEW records; --', "it's", "s/l~a", "A", "a", "_position", "", "nul\0l", "value"]
    with braidlog.open("memory://") as braid:
        hostile = braid.create("hostile")
        hostile.append(json.dumps({name: number for number, name in enumerate(names)}).encode())
        found = run(hostile, "SELECT * EXCLUDE (_position, _timestamp, _key) FROM rows")
        assert [name for name, _ in found.columns] == [*names[:4], "value"]
        assert found.rows == [[0, 1, 2, 3, 8]]
        assert rows(hostile, "SELECT count(*) FROM records") == [[1]]


def test_what_json_cannot_say_is_a_text(log: braidlog.Log) -> None:
    sql = "SELECT 9007199254740993, 'nan'::DOUBLE, 1.50::DECIMAL(4,2), [1, NULL], {'a': DATE '2026-01-31'}, true"
    [found] = rows(log, sql)
    assert found == ["9007199254740993", "nan", "1.50", [1, None], {"a": "2026-01-31"}, True]


def test_answers_end_where_they_were_bounded(log: braidlog.Log) -> None:
    found = run(log, "SELECT position FROM records ORDER BY 1", rows=7)
    assert (len(found.rows), found.truncated) == (7, True)
    assert not run(log, "SELECT position FROM records", rows=100).truncated
    wide = run(log, "SELECT repeat('x', 3000) FROM range(1000)", rows=1000)
    assert wide.truncated
    assert 0 < len(wide.rows) <= limits.SQL_ANSWER_BYTES_MAX // 3000
    [[cut]] = rows(log, "SELECT repeat('x', 100000)")
    assert len(cut) == limits.SQL_CELL_CHARS_MAX + 1


def test_columns_of_the_same_name_are_told_apart(log: braidlog.Log) -> None:
    found = run(log, "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS A, 5 AS a FROM range(1)")
    assert [name for name, _ in found.columns] == ["a", "a_3", "a_2", "A", "a_4"]
    assert found.rows == [[1, 2, 3, 4, 5]]


def test_a_row_that_never_fits_is_an_error_and_no_empty_answer(log: braidlog.Log) -> None:
    with pytest.raises(Refused, match=r"one row.* has 3\d\d,\d\d\d bytes, and all may have 262,144: select fewer"):
        run(log, "SELECT " + ", ".join(["repeat('x', 4000)"] * 80))
    with pytest.raises(Refused, match="one row"):
        run(log, "SELECT range(100000)")


def test_more_than_fits_is_refused_with_what_to_do(log: braidlog.Log) -> None:
    with pytest.raises(Refused, match=r"100 records.*at most 99.*Spark"):
        run(log, "SELECT 1", records=99)
    with pytest.raises(Refused, match=r"bytes.*at most 1,000.*Spark"):
        run(log, "SELECT 1", bytes=1_000)


HOSTILE = {
    "COPY records TO '{file}'": "COPY is not a query",
    "COPY (SELECT 1) TO '{file}' (FORMAT parquet)": "COPY is not a query",
    "EXPORT DATABASE '{file}'": "EXPORT is not a query",
    "ATTACH '{file}' AS other": "ATTACH is not a query",
    "INSTALL httpfs": "LOAD is not a query",
    "LOAD httpfs": "LOAD is not a query",
    "SET memory_limit = '100GB'": "SET is not a query",
    "RESET memory_limit": "SET is not a query",
    "PRAGMA database_list": "PRAGMA is not a query",
    "CALL pragma_version()": "CALL is not a query",
    "CREATE TABLE t AS SELECT 1": "CREATE is not a query",
    "CREATE SECRET (TYPE s3)": "not a query",
    "DROP VIEW records": "DROP is not a query",
    "INSERT INTO raw_records VALUES (1)": "INSERT is not a query",
    "SELECT 1; COPY records TO '{file}'": "2 statements",
    "": "1 to",
    "SELECT * FROM read_csv('{secret}')": "disabled by configuration",
    "SELECT * FROM read_text('{secret}')": "disabled by configuration",
    "SELECT * FROM read_blob('{secret}')": "disabled by configuration",
    "SELECT * FROM read_json('{secret}')": "disabled by configuration",
    "SELECT * FROM read_parquet('{secret}')": "disabled by configuration",
    "SELECT * FROM sniff_csv('{secret}')": "disabled by configuration",
    "SELECT * FROM '{secret}'": "disabled by configuration",
    "SELECT * FROM glob('/etc/*')": "disabled by configuration",
    "FROM query('SELECT * FROM read_text(''{secret}'')')": "disabled by configuration",
    "FROM query('COPY records TO ''{file}''')": "",
    "SELECT * FROM read_csv('http://127.0.0.1:1/x')": "",
    "SELECT * FROM duckdb_secrets()": "",
    "SELECT getenv('SECRET_OF_THE_TEST')": "getenv",
    "SELECT * FROM order": "",  # a variable of the program that carries it out
    "SELECT * FROM table": "",
}


@pytest.mark.parametrize("sql", HOSTILE, ids=lambda sql: sql[:40])
def test_nothing_but_the_records_can_be_reached(
    log: braidlog.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    secret, file = tmp_path / "secret.csv", tmp_path / "written"
    secret.write_text("not,for\neverybody,to see\n")
    monkeypatch.setenv("SECRET_OF_THE_TEST", "everybody")
    with pytest.raises(BraidError) as refused:
        run(log, sql.format(secret=secret, file=file))
    assert HOSTILE[sql] in str(refused.value)
    assert "everybody" not in str(refused.value)
    assert os.listdir(tmp_path) == ["secret.csv"]


def test_the_environment_of_the_process_tells_nothing(log: braidlog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_TOKEN", "everybody")
    assert "everybody" not in json.dumps(rows(log, "SELECT * FROM duckdb_settings()", rows=1000))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c WHERE a.range < b.range",
        "SELECT count(*) FROM records a, records b, records c, records d, records e, records f, records g",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000))",  # which does not listen
    ],
)
def test_what_takes_too_long_is_ended(log: braidlog.Log, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(Timeout, match=r"after 0\.3 s.*Spark"):
        run(log, sql, time_s=0.3)
    assert time.monotonic() - began < DEADLINE_S


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(1000000000)",
        "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)",
        "SELECT length(repeat('x', 3000000000))",
        "SELECT * FROM range(1000000000) ORDER BY hash(range) LIMIT 1000000",
    ],
)
def test_what_takes_too_much_memory_is_ended(log: braidlog.Log, sql: str) -> None:
    with pytest.raises(BraidError, match=r"memory|ended after|without an answer"):
        run(log, sql, time_s=5, memory_bytes=64 * limits.MIB)


def test_a_query_can_be_cancelled(log: braidlog.Log) -> None:
    query = Query(
        log,
        "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c WHERE a.range < b.range",
        0,
        1,
        Bounds(time_s=100),
    )
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            query.run()
        except BraidError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    query.cancel()
    waiting.join(DEADLINE_S)
    assert "cancelled" in str(failed[0])
    with pytest.raises(Refused, match="cancelled"):
        query.run()
