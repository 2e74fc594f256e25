"""Queries that Spark carries out by itself: what they answer, with whose rights they read, and their end."""

from __future__ import annotations

import asyncio
import contextlib
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
from braidlog.agents import Audit, sql_spark
from braidlog.agents.running import Access
from braidlog.agents.sql import Bounds, Query, Refused
from braidlog.agents.sql_spark import Spark, SparkQuery, _members
from braidlog.errors import BraidError, Timeout, Unavailable
from braidlog.mcp.house import Caller, House, OnlyCaller
from braidlog.spark.query_check import NotAllowed
from braidlog.spark.query_process import _check_types
from tests.e2e.agent_clients import Agent, agent_in
from tests.e2e.secured import Authority, serve
from tests.spark.conftest import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def engine(spark_environment: dict[str, str]) -> Iterator[Spark]:
    """Started once for all tests here."""
    before = dict(os.environ)
    os.environ.update(spark_environment, SECRET_OF_THE_TEST="everybody")
    started = Spark()
    yield started
    started.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def braid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[braidlog.Braid]:
    with braidlog.open(tmp_path_factory.mktemp("logs") / "logs.braid") as opened:
        orders = opened.create("orders")
        orders.append_many(
            [
                braidlog.Record(
                    json.dumps(
                        {"item": f"i{n % 3}", "n": n, "moment": "2026-01-31T12:00:00Z", "in": {"x": n}}
                    ).encode(),
                    key=b"k%d" % (n % 5),
                )
                for n in range(600)
            ]
        )
        orders.append(b"\xff", key=b"\xfe", headers={"h": b"x"})
        orders.append_many([b"[1]", b"{oops", b'{"item": 7, "n": "many"}'])
        yield opened


def query(engine: Spark, braid: braidlog.Braid, sql: str, access: Access | None = None, **bounds: Any) -> SparkQuery:
    log = braid.log("orders")
    taken = Bounds(**{"time_s": limits.SQL_TIME_MAX_S} | bounds)
    return SparkQuery(engine, access or Access.to(braid), log, sql, 0, log.tail(), taken)


def processes(engine: Spark) -> list[int]:
    """Those that belong to it, as the system tells."""
    driver = engine._driver
    return [] if driver is None else [driver._process.pid, *_members(driver._process.pid)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT item, count(*), sum(n), min(moment) FROM rows GROUP BY item ORDER BY item NULLS LAST",
        "SELECT position, key, text, json IS NULL FROM records WHERE position > 597 AND position <> 600 ORDER BY 1",
        "SELECT r._position, _key, n FROM rows r JOIN records ON _position = position WHERE n > 596 ORDER BY 1",
    ],
)
def test_both_engines_answer_the_same(engine: Spark, braid: braidlog.Braid, sql: str) -> None:
    log = braid.log("orders")
    found = query(engine, braid, sql).run()
    assert found.rows == Query(log, sql, 0, log.tail()).run().rows
    assert found.rows
    assert (found.records, found.truncated) == (604, False)


def test_what_is_only_in_records_and_what_json_cannot_say(engine: Spark, braid: braidlog.Braid) -> None:
    found = query(
        engine, braid, "SELECT key, value, text, headers, json FROM records WHERE position >= 600 LIMIT 2"
    ).run()
    assert found.rows == [
        ["\\xFE", "base64:/w==", None, [{"key": "h", "value": "x"}], None],
        [None, "[1]", "[1]", [], "[1]"],
    ]
    sql = (
        "SELECT 9007199254740993, double('nan'), 1.50BD, array(1, null), struct(date'2026-01-31' AS a), json:in.x::int"
    )
    found = query(engine, braid, f"{sql} FROM records WHERE position = 7").run()
    assert found.rows == [["9007199254740993", "nan", "1.50", [1, None], {"a": "2026-01-31"}, 7]]
    assert found.columns[-1] == ("x", "INT")


def test_answers_end_where_they_were_bounded(engine: Spark, braid: braidlog.Braid) -> None:
    found = query(engine, braid, "SELECT position FROM records ORDER BY 1", rows=7).run()
    assert (found.rows, found.truncated) == ([[n] for n in range(7)], True)
    found = query(engine, braid, "SELECT repeat('x', 1000000), 1 FROM range(80)").run()
    assert found.truncated
    assert len(found.rows[0][0]) == limits.SQL_CELL_CHARS_MAX + 1


@pytest.mark.parametrize(
    ("sql", "said"),
    {
        "SELECT reflect('java.lang.System', 'getenv', 'SECRET_OF_THE_TEST')": "no function 'reflect'",
        "SELECT * FROM text.`{secret}`": "no table 'text.",
        "CREATE TEMPORARY VIEW v USING text OPTIONS (path '{secret}')": "only SELECT",
        "INSERT OVERWRITE DIRECTORY '{file}' USING text SELECT text FROM records": "only SELECT",
        "SELECT '${{env:AWS_SECRET_ACCESS_KEY}}', '${{env:SECRET_OF_THE_TEST}}'": "no place in a query",
        "SELECT 1; SELECT 2": "PARSE_SYNTAX_ERROR",
        "SELECT nope FROM rows": "`nope` cannot be resolved",
        "SELECT * FROM rows WHERE n / 0 = 1": "DIVIDE_BY_ZERO",
        "SELECT make_date(12000, 1, 1)": "year 12000 is out of range",
        "SELECT map(array(1), 2)": "unhashable type",
    }.items(),
)
def test_what_is_no_query_is_refused(engine: Spark, braid: braidlog.Braid, tmp_path: Path, sql: str, said: str) -> None:
    secret, file = tmp_path / "secret.txt", tmp_path / "written"
    secret.write_text("everybody")
    with pytest.raises(Refused) as refused:
        query(engine, braid, sql.format(secret=secret, file=file)).run()
    assert said in str(refused.value)
    assert "everybody" not in str(refused.value)
    assert os.listdir(tmp_path) == ["secret.txt"]


def test_the_environment_of_the_processes_tells_nothing(engine: Spark, braid: braidlog.Braid) -> None:
    query(engine, braid, "SELECT 1").run()
    seen = []
    for pid in processes(engine):
        with contextlib.suppress(OSError):  # it has ended
            seen.append(Path(f"/proc/{pid}/environ").read_bytes())
    assert len(seen) > 2
    assert not any(b"everybody" in environment or b"AWS_" in environment for environment in seen)


def test_a_type_that_python_would_load_a_class_for_is_not_answered() -> None:
    inside = {"type": "array", "elementType": {"type": "udt", "pyClass": "antigravity.X", "sqlType": "string"}}
    with pytest.raises(NotAllowed, match="user's own"):
        _check_types({"type": "struct", "fields": [{"name": "a", "type": inside}]})
    _check_types({"type": "struct", "fields": [{"name": "udt", "type": "string"}]})


def test_what_takes_too_long_is_ended_and_the_next_is_not_kept_waiting(engine: Spark, braid: braidlog.Braid) -> None:
    hard = "SELECT count(*) FROM range(4) WHERE levenshtein(repeat('ab', 500000 + id), repeat('ba', 500000 + id)) > 1"
    with pytest.raises(Timeout, match="after 1 s"):
        query(engine, braid, hard, time_s=1.0).run()
    assert processes(engine) == []
    assert query(engine, braid, "SELECT count(*) FROM records").run().rows == [[604]]


def test_the_token_of_whoever_asks_is_what_reads(engine: Spark, braid: braidlog.Braid, tmp_path: Path) -> None:
    del braid
    site = serve(tmp_path, Authority(tmp_path / "ca"))
    try:
        with site.open() as served:
            served.create("orders").append_many([b'{"n": 1}', b'{"n": 2}'])
            access = Access(url=site.url, tls_ca=site.authority.file, token=site.token("reader", "read:orders"))
            assert query(engine, served, "SELECT sum(n) FROM rows", access).run().rows == [[3]]
            stranger = Access(url=site.url, tls_ca=site.authority.file, token=site.token("stranger", "read:others"))
            with pytest.raises(Refused, match="NotPermitted"):
                query(engine, served, "SELECT sum(n) FROM rows", stranger).run()
        assert engine._driver is not None
        assert not (engine._driver._scratch / "token").exists()
    finally:
        site.close()


def test_agents_get_spark_where_it_is_offered(
    engine: Spark, braid: braidlog.Braid, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House.of(braid, OnlyCaller(Caller("tester", braid, access=Access.to(braid))))

    async def work() -> None:
        async with asyncio.timeout(PATIENCE_S), agent_in(house) as agent:
            await ask(agent)

    async def ask(agent: Agent) -> None:
        asked = {"log": "orders", "sql": "SELECT count(*) FROM records", "time_s": 100}
        assert "braid mcp --spark" in await agent.refused("query_sql", **asked, engine="spark")
        monkeypatch.setattr(limits, "SQL_RECORDS_MAX", 603)
        assert "engine" not in await agent.call("query_sql", **asked)
        house.spark = engine
        found = await agent.call("query_sql", **asked)
        assert (found["rows"], found["engine"], found["records"]) == ([[604]], "spark", 604)
        assert "engine" not in await agent.call("query_sql", **asked, last=10)
        assert "engine" not in await agent.call("query_sql", **asked, engine="duckdb")

    asyncio.run(work())
    house.audit.flush()
    calls = [entry for entry in Audit(braid).read() if entry.tool == "query_sql"]
    assert [(entry.outcome, entry.result) for entry in calls] == [
        ("Refused", "spark"),
        ("ok", ""),
        ("ok", "spark"),
        ("ok", ""),
        ("ok", ""),
    ]


def test_one_query_waits_and_no_caller_has_two() -> None:
    busy = Spark()
    cancelled = threading.Event()
    left: list[BraidError] = []

    def ask(caller: str) -> None:
        try:
            busy.answer({}, {}, Bounds(), cancelled, caller)
        except BraidError as error:
            left.append(error)

    with busy._turn:  # as if one was carried out
        callers = [threading.Thread(target=ask, args=(caller,)) for caller in ("one", "two")]
        for caller in callers:
            caller.start()
        eventually(lambda: len(busy._callers) == 2, "both are here")
        with pytest.raises(Unavailable, match="a query of yours"):
            busy.answer({}, {}, Bounds(), threading.Event(), "one")
        with pytest.raises(Unavailable, match="queries of others"):
            busy.answer({}, {}, Bounds(), threading.Event(), "three")
        cancelled.set()
        for caller in callers:
            caller.join(PATIENCE_S)
    assert [str(error) for error in left] == ["the query was cancelled"] * 2
    assert busy._callers == []


def test_a_process_that_says_too_much_is_not_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flood.py").write_text("import os, sys\nwhile True: os.write(int(sys.argv[1]), b'x' * 65_536)\n")
    monkeypatch.setattr(sql_spark, "_MODULE", "flood")
    driver = sql_spark._Driver({"PYTHONPATH": str(tmp_path)})
    try:
        assert driver._line(time.monotonic() + PATIENCE_S) is None
        assert limits.SQL_SPARK_LINE_BYTES_MAX < len(driver._said) < 2 * limits.SQL_SPARK_LINE_BYTES_MAX
    finally:
        driver.close()


def test_a_query_that_is_cancelled_leaves_no_process(braid: braidlog.Braid) -> None:
    starting = Spark()
    asked = query(starting, braid, "SELECT 1")
    failed: list[BraidError] = []

    def wait() -> None:
        try:
            asked.run()
        except BraidError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: len(processes(starting)) > 1, "Spark starts")
    begun = processes(starting)
    asked.cancel()
    waiting.join(PATIENCE_S)
    assert "cancelled" in str(failed[0])
    eventually(lambda: not any(alive(pid) for pid in begun), "all its processes end")
    starting.close()


def test_spark_that_nobody_needs_is_let_go_of(engine: Spark, braid: braidlog.Braid) -> None:
    query(engine, braid, "SELECT count(*) FROM records").run()
    begun = processes(engine)
    assert engine._driver is not None
    scratch = engine._driver._scratch
    engine._idle_s = 0.0
    query(engine, braid, "SELECT 1").run()
    eventually(lambda: engine._driver is None, "it is let go of")
    eventually(lambda: not any(alive(pid) for pid in begun) and not scratch.exists(), "all its processes end")


def alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
