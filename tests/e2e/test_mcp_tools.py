"""The tools of `braid mcp`: what agents see, what they may do on forks of their own, and what they are refused."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

import braidlog
from braidlog import limits
from braidlog.agents import Audit, Desk, Policy, Registry
from braidlog.agents.names import AGENT_LABEL
from braidlog.mcp.catalog import TOOLS
from braidlog.mcp.holding import Holding
from tests.e2e.agent_clients import AUTO, DEADLINE_S, VALIDATOR, Agent, agent_in, house_of, with_agent


@pytest.fixture
def braid(tmp_path: Path) -> Iterator[braidlog.Braid]:
    """A directory with a log of JSON, one of text, and one of bytes."""
    with braidlog.open(tmp_path / "logs") as opened:
        opened.create("orders").append_many(
            [
                braidlog.Record(
                    json.dumps({"item": f"i{n % 3}", "n": n, "by": {"id": n % 5}}).encode(),
                    key=b"k%d" % (n % 4),
                    timestamp=1_700_000_000_000_000 + n * 1_000_000,
                )
                for n in range(100)
            ]
        )
        opened.create("notes").append_many([b"first", "zweitens: für".encode()])
        opened.create("bytes").append(b"\xff\xfe", key=b"\xfd", headers={"h": b"\xfc"})
        yield opened


def names(listing: Any) -> list[str]:
    return [log["name"] for log in listing["logs"]]


def positions(answer: Any) -> list[int]:
    return [record["position"] for record in answer["records"]]


# --- looking ---------------------------------------------------------------------------------------------------------


def test_tools_say_what_they_do_to_the_world(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert list(tools) == [tool.name for tool in TOOLS]
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.output_schema is not None
            assert tool.description
        changing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
        assert changing == {"create_fork", "append_records", "squash_fork", "propose_promotion"}
        destroying = {name for name, tool in tools.items() if tool.annotations.destructive_hint}
        assert destroying == {"squash_fork", "propose_promotion"}

    with_agent(braid, look)


def test_logs_are_listed_with_forks_lineage_and_holds(braid: braidlog.Braid) -> None:
    orders = braid.log("orders")
    live, snapshot = orders.cfork("orders.live"), orders.sfork("orders.then", at=40, ttl=3600)
    live.append(b"own")
    live.cfork("orders.below")
    holding = braid.log("notes").cfork("notes.try", promotable=True)
    braid.log("notes").append(b"hidden")

    async def look(agent: Agent) -> None:
        logs = {log["name"]: log for log in (await agent.call("list_logs"))["logs"]}
        assert (logs["orders.live"]["ahead"], logs["orders.live"]["behind"]) == (1, 0)
        assert (logs["orders.then"]["ahead"], logs["orders.then"]["behind"]) == (0, 60)
        assert logs["orders.then"]["expires"].endswith("Z")
        assert logs["orders.below"]["parent"] == "orders.live"
        assert (logs["notes"]["tail"], logs["notes"]["readable_tail"]) == (3, 2)
        [hold] = logs["notes"]["held_by"]
        assert hold["fork"] == "notes.try"
        assert hold["age_s"] >= 0
        assert "lease_expires" in hold
        assert "mine" not in logs["orders"]
        assert names(await agent.call("list_logs", forks_of="orders.live")) == ["orders.live", "orders.below"]
        assert names(await agent.call("list_logs", pattern="note*")) == ["notes", "notes.try"]
        first = await agent.call("list_logs", limit=4)
        rest = await agent.call("list_logs", limit=4, cursor=first["cursor"])
        assert names(first) + names(rest) == list(logs)
        assert "cursor" not in rest
        assert "hidden" in (await agent.call("read_records", log="notes"))["note"]

    with_agent(braid, look)
    del snapshot, holding


def test_a_log_is_described(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        told = await agent.call("describe_log", log="orders")
        assert (told["format"], told["records"], told["sampled"]) == ("json", 100, 100)
        assert told["json_schema"]["properties"]["item"]["enum"] == ["i0", "i1", "i2"]
        assert told["first_time"] == "2023-11-14T22:13:20.000000Z"
        assert told["keys"]["distinct"] == 4
        assert positions({"records": told["sample"]}) == [0, 49, 99]
        assert (await agent.call("describe_log", log="notes"))["format"] == "text"
        assert (await agent.call("describe_log", log="bytes"))["format"] == "binary"

    with_agent(braid, look)


def test_records_are_read_by_position_time_and_from_the_end(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        async def read(**arguments: Any) -> list[int]:
            return positions(await agent.call("read_records", log="orders", **arguments))

        assert await read(start=10, stop=13) == [10, 11, 12]
        assert await read(last=2) == [98, 99]
        assert await read(since="2023-11-14T22:14:55Z") == [95, 96, 97, 98, 99]
        assert await read(since="2023-11-14T22:13:25", until="2023-11-14T22:13:27Z") == [5, 6]
        assert await read(limit=3) == [0, 1, 2]
        assert await read(sample=True, limit=4) == [0, 33, 66, 99]
        assert await read(start=100) == []
        assert "ends at 100" in await agent.refused("read_records", log="orders", start=101)
        assert "exchange" in await agent.refused("read_records", log="orders", start=5, stop=3)
        assert "not a time" in await agent.refused("read_records", log="orders", since="yesterday")
        assert "`list_logs`" in await agent.refused("read_records", log="nothing")

    with_agent(braid, look)


def test_values_come_as_what_they_are_and_long_ones_cut(braid: braidlog.Braid) -> None:
    braid.create("long").append_many(["ü".encode() * 5_000, b"short"])

    async def look(agent: Agent) -> None:
        [first] = (await agent.call("read_records", log="orders", limit=1))["records"]
        assert (first["encoding"], first["value"]["n"], first["key"]) == ("json", 0, "k0")
        assert (await agent.call("read_records", log="notes"))["records"][1]["value"] == "zweitens: für"
        [raw] = (await agent.call("read_records", log="bytes"))["records"]
        assert (raw["encoding"], raw["value"], raw["key"], raw["headers"]) == ("base64", "//4=", "/Q==", {"h": "/A=="})
        cut = await agent.call("read_records", log="long", max_bytes=1_001)
        assert cut["records"][0]["value"] == "ü" * 500
        assert cut["records"][0]["cut"] == 10_000
        rest = await agent.call("read_records", log="long", cursor=cut["cursor"])
        assert rest["records"][0]["value"] == "short"

    with_agent(braid, look)


def test_a_cursor_goes_on_where_the_answer_ended_and_only_there(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        seen, cursor = [], None
        while True:
            answer = await agent.call("read_records", log="orders", start=5, stop=50, limit=20, cursor=cursor)
            seen += positions(answer)
            cursor = answer.get("cursor")
            if cursor is None:
                break
        assert seen == list(range(5, 50))
        first = (await agent.call("read_records", log="orders", limit=1))["cursor"]
        assert "another log" in await agent.refused("read_records", log="notes", cursor=first)
        assert "not from 'search_records'" in await agent.refused("search_records", log="orders", key="k", cursor=first)
        for forged in ("", "x", "AAAA", first + "?", "é", "lKxyZWFkX3JlY29yZHMB_w"):
            assert "cursor" in await agent.refused("read_records", log="orders", cursor=forged)

    with_agent(braid, look)


def test_records_are_searched_by_key_text_and_field(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        async def search(**arguments: Any) -> list[int]:
            return positions(await agent.call("search_records", log="orders", limit=1000, **arguments))

        assert await search(key="k3") == list(range(3, 100, 4))
        assert await search(contains='"n": 77') == [77]
        assert await search(field="by.id", equals=2, key="k0") == [12, 32, 52, 72, 92]
        assert await search(field="by.id", equals="2") == []
        assert await search(field="n", equals=1, start=2) == []
        assert await search(key="none") == []
        page = await agent.call("search_records", log="orders", key="k0", limit=2)
        assert positions(page) == [0, 4]
        page = await agent.call("search_records", log="orders", key="k0", limit=2, cursor=page["cursor"])
        assert positions(page) == [8, 12]
        assert "what to search for" in await agent.refused("search_records", log="orders")
        assert "go together" in await agent.refused("search_records", log="orders", field="n")

    with_agent(braid, look)


def test_reading_can_wait_for_what_comes(braid: braidlog.Braid) -> None:
    orders = braid.log("orders")

    async def look(agent: Agent) -> None:
        waiting = asyncio.ensure_future(
            agent.call("read_records", log="orders", start=100, wait_s=limits.MCP_WAIT_MAX_S)
        )
        await agent.call("list_logs")  # while it waits, others are answered
        orders.append(b'"new"')
        assert positions(await waiting) == [100]

    with_agent(braid, look)


def queries_under_way() -> int:
    """Processes that carry out a query for this one."""
    tasks = [Path(f"/proc/self/task/{thread.native_id}/children") for thread in threading.enumerate()]
    pids = {pid for task in tasks if task.exists() for pid in task.read_text().split()}
    lines = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    return sum(b"sql_process" in line.read_bytes() for line in lines if line.exists())


def test_a_query_that_is_not_wanted_any_more_is_ended(braid: braidlog.Braid) -> None:
    sql = "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))"

    async def look(agent: Agent) -> None:
        query = asyncio.ensure_future(
            agent.call("query_sql", log="orders", sql=sql, time_s=limits.SQL_TIME_MAX_S)  # longer than the test
        )
        while not queries_under_way():
            await agent.call("list_logs")
        query.cancel()
        while queries_under_way():
            await agent.call("list_logs")

    with_agent(braid, look)
    outcomes = {entry.tool: entry.outcome for entry in Audit(braid).read()}
    assert outcomes == {"query_sql": "Cancelled", "list_logs": "ok"}


def test_what_a_fork_adds_is_shown_in_pages(braid: braidlog.Braid) -> None:
    fork = braid.log("orders").cfork("orders.x")
    for n in range(5):
        fork.append(b"own %d" % n)
        braid.log("orders").append(b"theirs %d" % n)

    async def look(agent: Agent) -> None:
        first = await agent.call("diff_fork", fork="orders.x", limit=3)
        assert (first["own"], first["arrived"], first["fork_point"]) == (5, 5, 100)
        assert [record["value"] for record in first["records"]] == ["own 0", "own 1", "own 2"]
        rest = await agent.call("diff_fork", fork="orders.x", limit=3, cursor=first["cursor"])
        assert [record["value"] for record in rest["records"]] == ["own 3", "own 4"]
        assert "cursor" not in rest
        both = await agent.call("diff_fork", fork="orders.x", with_parent=True)
        assert [record["own"] for record in both["records"]] == [True, False] * 5
        assert "is a root" in await agent.refused("diff_fork", fork="orders")

    with_agent(braid, look)


# --- forks of one's own ----------------------------------------------------------------------------------------------


def test_a_fork_is_made_once_for_a_name_or_a_key(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        first = await agent.call("create_fork", log="orders", name="try", purpose="to see")
        again = await agent.call("create_fork", log="orders", name="try")
        assert (first["created"], again["created"]) == (True, False)
        assert first["fork"]["name"] == again["fork"]["name"] == "orders.tester.try"
        assert first["fork"]["labels"] == {"purpose": "to see"}
        keyed = [await agent.fork(request_key="step 1") for _ in range(3)]
        assert len(set(keyed)) == 1
        assert len({await agent.fork() for _ in range(3)}) == 3
        assert "not what this request makes" in await agent.refused(
            "create_fork", log="orders", name="try", kind="severed"
        )

    with_agent(braid, work)


def test_a_snapshot_is_made_at_a_position_or_a_time(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        at = await agent.call("create_fork", log="orders", kind="severed", at=7)
        then = await agent.call("create_fork", log="orders", kind="severed", at_time="2023-11-14T22:13:30Z")
        assert (at["fork"]["tail"], then["fork"]["tail"]) == (7, 10)
        name = at["fork"]["name"]
        again = await agent.call("create_fork", log="orders", name=name, kind="severed", at=7)
        assert (again["fork"]["name"], again["created"]) == (name, False)
        assert "choose another" in await agent.refused("create_fork", log="orders", name=name, kind="severed", at=8)
        assert "severed" in await agent.refused("create_fork", log="orders", at=7)
        assert "not both" in await agent.refused(
            "create_fork", log="orders", kind="severed", at=7, at_time="2023-11-14T22:13:30Z"
        )

    with_agent(braid, work)


def test_agents_write_on_forks_that_they_made_and_nowhere_else(braid: braidlog.Braid) -> None:
    braid.log("orders").cfork("orders.somebody")
    braid.log("orders").cfork("orders.other", labels={AGENT_LABEL: "other"})
    one = [{"value": "x"}]

    async def work(agent: Agent) -> None:
        assert "agents do not append to roots" in await agent.refused("append_records", fork="orders", records=one)
        assert "agents do not squash roots" in await agent.refused("squash_fork", fork="orders")
        for fork in ("orders.somebody", "orders.other"):
            for tool, more in (("append_records", {"records": one}), ("squash_fork", {}), ("propose_promotion", {})):
                title = {"title": "mine now"} if tool == "propose_promotion" else {}
                assert "you are 'tester'" in await agent.refused(tool, fork=fork, **more, **title)
        for log in ("braidlog.audit", "braidlog.proposals", "braidlog.registry"):
            for tool, arguments in (
                ("read_records", {"log": log}),
                ("describe_log", {"log": log}),
                ("create_fork", {"log": log}),
                ("append_records", {"fork": log, "records": one}),
                ("query_sql", {"log": log, "sql": "SELECT 1"}),
            ):
                assert "system log" in await agent.refused(tool, **arguments)
        assert not any(name.startswith("braidlog.") for name in names(await agent.call("list_logs")))

    with_agent(braid, work)
    assert braid.log("orders").info().own == 100


def test_records_are_appended_as_they_are_given_and_once(braid: braidlog.Braid) -> None:
    records = [
        {"value": {"n": 1, "t": "ü"}, "key": "k", "headers": {"h": "1"}, "time": "2026-01-31T12:00:00Z"},
        {"value": "plain"},
        {"value": "//4=", "base64": True},
        {"value": [1, None]},
    ]

    async def work(agent: Agent) -> None:
        fork = await agent.fork(name="try")
        for _ in range(2):
            done = await agent.call("append_records", fork=fork, records=records, request_key="once")
            assert (done["first"], done["count"]) == (100, 4)
        assert "not base64" in await agent.refused(
            "append_records", fork=fork, records=[{"value": "?", "base64": True}]
        )
        late = await agent.refused("append_records", fork=fork, records=records, expected_tail=7)
        assert "ends at 104, not at 7" in late

    with_agent(braid, work)
    written = braid.log("orders.tester.try").read(100)
    assert [record.value for record in written] == ['{"n":1,"t":"ü"}'.encode(), b"plain", b"\xff\xfe", b"[1,null]"]
    assert (written[0].key, written[0].headers) == (b"k", (("h", b"1"),))
    assert written[0].time.isoformat() == "2026-01-31T12:00:00+00:00"


def test_records_can_be_held_to_a_schema(braid: braidlog.Braid) -> None:
    good, bad = {"value": {"item": "i9", "n": 5, "by": {"id": 1}}}, {"value": {"item": 9, "n": 5, "by": {"id": 1}}}

    async def work(agent: Agent) -> None:
        fork = await agent.fork()

        async def refused(schema: Any, *records: Any) -> str:
            return await agent.refused("append_records", fork=fork, records=list(records), schema=schema)

        await agent.call("append_records", fork=fork, records=[good], schema="inferred")
        assert "record 1, item: 9 is not of type 'string'" in await refused("inferred", good, bad)
        assert "is not JSON" in await refused("inferred", {"value": "text"})
        given = {"type": "object", "required": ["n"], "properties": {"n": {"maximum": 3}}}
        assert "5 is greater than the maximum of 3" in await refused(given, good)
        await agent.call("append_records", fork=fork, records=[bad])
        assert "no JSON schema" in await refused({"type": "nonsense"}, good)
        for hostile in (
            {"$ref": "http://127.0.0.1:1/schema"},
            {"properties": {"n": {"pattern": "(a+)+$"}}},
            {"allOf": [{"patternProperties": {"(a+)+$": {}}}]},
            {"$ref": "#"},
        ):
            assert "not checked here" in await refused(hostile, good)
        assert "no JSON" in await agent.refused(
            "append_records", fork=await agent.fork("notes"), records=[good], schema="inferred"
        )

    with_agent(braid, work)


def test_forks_have_a_time_a_number_and_a_budget(braid: braidlog.Braid) -> None:
    policy = """
    [default]
    fork_ttl = "1h"
    forks = 2
    fork_bytes = 1000
    fork_bytes_per_s = 50
    [[log]]
    pattern = "bytes"
    forks = 0
    """

    async def work(agent: Agent) -> None:
        made = await agent.call("create_fork", log="orders", ttl_s=10_000_000)
        fork = made["fork"]["name"]
        info = braid.log(fork).info()
        assert info.expires is not None
        assert (info.expires - info.created).total_seconds() == 3600
        short = braid.log(await agent.fork(ttl_s=60)).info()
        assert short.expires is not None
        assert (short.expires - short.created).total_seconds() == 60
        assert "may have 2: squash one first" in await agent.refused("create_fork", log="orders")
        assert "make none" in await agent.refused("create_fork", log="bytes")
        await agent.fork("notes")  # another log, another number
        await agent.call("squash_fork", fork=short.name)
        await agent.fork()

        async def append(size: int) -> Any:
            return await agent.call("append_records", fork=fork, records=[{"value": "x" * size}])

        async def refused(size: int) -> str:
            return await agent.refused("append_records", fork=fork, records=[{"value": "x" * size}])

        assert "too many: append at most 500" in await refused(501)
        assert (await append(450))["bytes_left"] == 550
        assert "wait" in await refused(400)
        assert "do not fit" in await refused(900)
        assert braid.log(fork).info().own == 1

    with_agent(braid, work, policy)


def test_forks_of_forks_count_with_the_log_that_they_go_back_to(braid: braidlog.Braid) -> None:
    policy = '[[log]]\npattern = "orders"\nforks = 3\nfork_bytes = 10\n'

    async def work(agent: Agent) -> None:
        fork = await agent.fork()
        below = await agent.fork(fork)
        lowest = await agent.fork(below, kind="severed")
        for log in ("orders", fork, below, lowest):
            assert "3 forks of 'orders', and may have 3" in await agent.refused("create_fork", log=log)
        assert "do not fit" in await agent.refused("append_records", fork=lowest, records=[{"value": "x" * 11}])
        await agent.fork("notes")

    with_agent(braid, work, policy)


def test_only_where_validators_decide_may_an_agent_hold_a_log(braid: braidlog.Braid) -> None:
    policy = (
        '[[log]]\npattern = "notes"\npromotion = "auto"\nhold = "30s"\n[[log]]\npattern = "bytes"\npromotion = "never"'
    )

    async def work(agent: Agent) -> None:
        assert "promotion = 'review'" in await agent.refused("create_fork", log="orders", promotable=True)
        assert "promotion = 'never'" in await agent.refused("create_fork", log="bytes", promotable=True)
        made = await agent.call("create_fork", log="notes", promotable=True)
        info = braid.log(made["fork"]["name"]).info()
        assert info.lease_expires is not None
        assert (info.lease_expires - info.created).total_seconds() == 30
        assert "until this is decided" in made["note"]
        assert "cannot be promoted" in await agent.refused("create_fork", log="notes", kind="severed", promotable=True)

    with_agent(braid, work, policy)


def test_an_agent_cannot_hold_a_log_for_ever(braid: braidlog.Braid) -> None:
    house = house_of(braid, policy='default.promotion = "auto"')
    now = 1000.0
    house.holding = Holding(lambda: now)

    async def work() -> None:
        nonlocal now
        async with asyncio.timeout(DEADLINE_S), agent_in(house) as agent:
            for lease_s in (60, 30):
                fork = await agent.fork("notes", promotable=True, name="again")
                info = braid.log(fork).info()
                assert info.lease_expires is not None
                assert (info.lease_expires - info.created).total_seconds() == lease_s
                now += 30
                await agent.call("squash_fork", fork=fork)
            assert "wait 75 s" in await agent.refused("create_fork", log="notes", promotable=True)
            await agent.fork("notes")  # which holds nothing
            await agent.fork("bytes", promotable=True)
            now += 75
            await agent.fork("notes", promotable=True)

    asyncio.run(work())


# --- which tools there are -------------------------------------------------------------------------------------------


def test_a_server_to_read_only_has_no_tool_that_changes_anything(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        tools = (await agent.client.list_tools()).tools
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert len(tools) == 8
        assert "--read-only" in await agent.refused("create_fork", log="orders")
        await agent.call("query_sql", log="orders", sql="SELECT 1")

    with_agent(braid, work, read_only=True)


def test_tools_can_be_allowed_or_left_out(braid: braidlog.Braid) -> None:
    async def few(agent: Agent) -> None:
        listed = [tool.name for tool in (await agent.client.list_tools()).tools]
        assert listed == ["list_logs", "read_records"]
        assert "left it out with --tools" in await agent.refused("query_sql", log="orders", sql="SELECT 1")
        assert "did you mean 'read_records'" in await agent.refused("read_record", log="orders")

    async def most(agent: Agent) -> None:
        assert len((await agent.client.list_tools()).tools) == len(TOOLS) - 1
        assert "left it out with --tools" in await agent.refused("squash_fork", fork="x")

    with_agent(braid, few, tools=("list_logs, read_records",))
    with_agent(braid, most, tools=("-squash_fork",))


# --- resources and prompts -------------------------------------------------------------------------------------------


def test_a_log_is_a_resource_and_its_tail_can_be_listened_to(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        client = agent.client
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["log://{log}", "log://{log}/tail"]
        told = json.loads((await client.read_resource("log://orders")).contents[0].text)
        assert told["format"] == "json"
        async with client.listen(resource_subscriptions=["log://orders/tail"]) as changes:
            n = 0
            while True:  # until the watcher has begun to watch
                braid.log("orders").append(b"%d" % n)
                try:
                    async with asyncio.timeout(1):
                        event = await anext(changes)
                        break
                except TimeoutError:
                    n += 1
            assert event.uri == "log://orders/tail"
        tail = json.loads((await client.read_resource("log://orders/tail")).contents[0].text)
        assert tail["records"][-1]["value"] == str(n)
        for uri in ("log://nothing/tail", "log://braidlog.audit", "log://braidlog.audit/tail"):
            with pytest.raises(MCPError, match=r"list_logs"):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="system log"):
            async with client.listen(resource_subscriptions=["log://braidlog.audit/tail"]):
                pass

    with_agent(braid, look)


def test_the_prompts_name_tools_that_there_are(braid: braidlog.Braid) -> None:
    async def look(agent: Agent) -> None:
        prompts = (await agent.client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["analyse", "test", "write"]
        for prompt in prompts:
            arguments = {argument.name: "orders" for argument in prompt.arguments or []}
            told = await agent.client.get_prompt(prompt.name, arguments)
            named = {tool.name for tool in TOOLS if tool.name in told.model_dump_json()}
            assert "create_fork" in named
            assert len(named) >= 4

    with_agent(braid, look)


# --- what is proposed ------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(braid: braidlog.Braid, tmp_path: Path) -> braidlog.Braid:
    """The same, with a validator before orders."""
    (tmp_path / "checks.py").write_text(VALIDATOR)
    Registry(braid).add("no-negatives", f"{tmp_path / 'checks.py'}:no_negatives", logs="orders")
    return braid


def test_what_validators_pass_is_promoted_and_what_they_refuse_is_not(guarded: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        bad = await agent.fork(promotable=True)
        await agent.call("append_records", fork=bad, records=[{"value": {"n": -1}}])
        [verdict] = (await agent.call("run_validator", fork=bad, validator="no-negatives"))["verdicts"]
        assert (verdict["passed"], verdict["reasons"]) == (False, ["n is negative at 100"])
        assert "registered are: no-negatives" in await agent.refused("run_validator", fork=bad, validator="os:system")
        failed = await agent.call("propose_promotion", fork=bad, title="a mistake")
        assert failed["state"] == "failed"
        assert "negative" in json.dumps(failed["verdicts"])
        await agent.call("squash_fork", fork=bad)

        good = await agent.fork(promotable=True)
        await agent.call("append_records", fork=good, records=[{"value": {"n": 1}}], schema={"type": "object"})
        assert all(v["passed"] for v in (await agent.call("run_validator", fork=good))["verdicts"])
        done = await agent.call("propose_promotion", fork=good, title="restock", note="demand grows")
        assert done["state"] == "promoted"
        assert good not in names(await agent.call("list_logs"))
        mine = (await agent.call("list_proposals"))["proposals"]
        assert [one["state"] for one in mine] == ["promoted", "failed"]

    with_agent(guarded, work, AUTO)
    assert guarded.log("orders").read(100)[0].value == b'{"n":1}'
    assert guarded.log("orders").tail() == 101


def test_what_a_person_decides_about_waits_and_holds_up_nobody(guarded: braidlog.Braid) -> None:
    orders = guarded.log("orders")

    async def work(agent: Agent) -> None:
        proposals = []
        for n in range(2):
            fork = await agent.fork()
            await agent.call("append_records", fork=fork, records=[{"value": {"n": n}}])
            proposals.append(await agent.call("propose_promotion", fork=fork, title=f"number {n}"))
        assert [one["state"] for one in proposals] == ["waiting", "waiting"]
        assert orders.append(b'{"n": 7}') == 100  # production goes on
        desk = Desk(guarded, Policy.default())
        approved = await asyncio.to_thread(desk.approve, proposals[0]["id"], "ann", "well done")
        assert approved.state == "promoted"
        await asyncio.to_thread(desk.reject, proposals[1]["id"], "ann", "twice is too often")
        told = {one["id"]: one for one in (await agent.call("list_proposals"))["proposals"]}
        assert (told[proposals[0]["id"]]["state"], told[proposals[0]["id"]]["reviewer"]) == ("promoted", "ann")
        assert (told[proposals[1]["id"]]["state"], told[proposals[1]["id"]]["reason"]) == (
            "rejected",
            "twice is too often",
        )
        assert "no proposal" in await agent.refused("list_proposals", id="nothing")

    with_agent(guarded, work)
    assert [record.value for record in orders.read(100)] == [b'{"n": 7}', b'{"n":0}']


# --- several agents, and what is entered -----------------------------------------------------------------------------


def test_agents_do_not_see_each_others_proposals_nor_write_on_each_others_forks(braid: braidlog.Braid) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            agent_in(house_of(braid, "ann")) as ann,
            agent_in(house_of(braid, "bob")) as bob,
        ):
            fork = await ann.fork(name="x")
            await ann.call("append_records", fork=fork, records=[{"value": "hers"}])
            assert "made by 'ann', and you are 'bob'" in await bob.refused("squash_fork", fork=fork)
            await ann.call("propose_promotion", fork=fork, title="hers")
            assert (await bob.call("list_proposals"))["proposals"] == []
            assert await bob.fork(name="x") == "orders.bob.x"
            below = await bob.fork(fork, name="y")  # to build on another's work is no trouble
            assert (await bob.call("read_records", log=below, last=1))["records"][0]["value"] == "hers"

    asyncio.run(run())


def test_nobody_holds_a_fork_of_somebody_else(braid: braidlog.Braid) -> None:
    policy = 'default.promotion = "auto"'  # for forks of forks too

    async def run() -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            agent_in(house_of(braid, "ann", policy)) as ann,
            agent_in(house_of(braid, "bob", policy)) as bob,
        ):
            fork = await ann.fork(name="x")
            assert "made by 'ann', and you are 'bob'" in await bob.refused("create_fork", log=fork, promotable=True)
            await ann.call("create_fork", log=fork, promotable=True)  # it is hers to hold

    asyncio.run(run())


def test_many_calls_at_once_are_all_answered(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        forks = await asyncio.gather(*(agent.fork() for _ in range(8)))
        assert len(set(forks)) == 8
        await asyncio.gather(
            *(agent.call("append_records", fork=fork, records=[{"value": f"{n}"}]) for fork in forks for n in range(10))
        )
        for fork in forks:
            written = await agent.call("diff_fork", fork=fork)
            assert sorted(int(record["value"]) for record in written["records"]) == list(range(10))

    with_agent(braid, work)


def test_the_number_of_forks_holds_when_they_are_made_at_once(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        made = await asyncio.gather(*(agent.fork() for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(one, str) for one in made) == 3

    with_agent(braid, work, "[default]\nforks = 3\n")


def test_every_call_is_entered_with_how_it_ended(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        fork = await agent.fork(name="x")
        await agent.call("append_records", fork=fork, records=[{"value": "braid_" + "s" * 43}])
        await agent.refused("append_records", fork="orders", records=[{"value": "x"}])
        await agent.refused("read_records", log="orders", limit=-1)
        await agent.refused("no_such_tool")
        await agent.client.read_resource("log://orders/tail")

    with_agent(braid, work)
    entries = list(Audit(braid).read(agent="tester"))
    assert [(entry.tool, entry.outcome) for entry in entries] == [
        ("create_fork", "ok"),
        ("append_records", "ok"),
        ("append_records", "NotPermitted"),
        ("read_records", "InvalidArgument"),
        ("no_such_tool", "Disabled"),
        ("resources/read", "ok"),
    ]
    assert (entries[1].log, entries[1].lineage) == ("orders.tester.x", ["orders.tester.x", "orders"])
    assert "s" * 43 not in str(entries)
    assert all(entry.seconds > 0 for entry in entries)


def test_a_change_that_cannot_be_entered_is_told(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        await agent.fork()
        braid.drop("braidlog.audit")
        assert "audit log" in await agent.refused("create_fork", log="orders")

    with_agent(braid, work)
