"""`braid mcp` as a process: at stdin and stdout, and over HTTP, where each agent is the bearer of a token."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import braidlog
from braidlog.agents import Audit
from braidlog.client.tokens import create_token, principal_of, revoke_token
from braidlog.testing import Cluster
from tests.e2e.agent_clients import DEADLINE_S, Agent, HttpServer, agent_at, agent_over, environment
from tests.e2e.secured import Authority, Role, tls_options


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a log."""
    with braidlog.open(tmp_path / "logs") as braid:
        orders = braid.create("orders")
        orders.append_many([json.dumps({"item": f"i{n % 3}", "n": n}).encode() for n in range(50)])
        braid.create("secret").append(b"not for agents")
    return tmp_path / "logs"


def braid_mcp(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "braidlog", "mcp", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(**env),
    )


# --- stdin and stdout ------------------------------------------------------------------------------------------------


def test_an_agent_works_at_the_other_end_of_pipes(place: Path) -> None:
    async def work() -> None:
        async with agent_at("mcp", "--at", str(place), "--agent", "restocker") as agent:
            assert agent.client.server_info is not None
            assert agent.client.server_info.name == "braidlog"
            fork = await agent.fork(name="one")
            assert fork == "orders.restocker.one"
            await agent.call("append_records", fork=fork, records=[{"value": {"item": "new", "n": 1}}])
            found = await agent.call("query_sql", log=fork, sql="SELECT count(*) FROM rows WHERE item = 'new'")
            assert found["rows"] == [[1]]

    asyncio.run(work())
    with braidlog.open(place) as braid:  # which it has let go of
        assert braid.log("orders").tail() == 50
        tools = [entry.tool for entry in Audit(braid).read(agent="restocker")]
        assert tools == ["create_fork", "append_records", "query_sql"]


def test_it_works_beside_a_process_that_writes(place: Path) -> None:
    async def work() -> None:
        async with agent_at("mcp", "--at", str(place)) as agent:
            position = orders.append(b'{"item": "live", "n": 1}')
            found = await agent.call("search_records", log="orders", contains="live")
            assert [record["position"] for record in found["records"]] == [position]

    with braidlog.open(place) as braid:
        orders = braid.log("orders")
        asyncio.run(work())


def test_it_ends_with_its_stdin_and_at_a_signal(place: Path) -> None:
    command = [sys.executable, "-m", "braidlog", "mcp", "--at", str(place)]
    for how in ("eof", "signal"):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        assert process.stderr is not None
        assert process.stdin is not None
        assert b"serving agent" in process.stderr.readline()
        if how == "signal":
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) in (0, -signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode in (0, -signal.SIGTERM), out) == (True, b""), err


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--tools", "reed_records"], 1, "did you mean 'read_records'"),
        (["--tools", "read_records,-read_records"], 1, "both asked for and left out"),
        (["--read-only", "--tools", "squash_fork"], 1, "leave no tool"),
        (["--policy", "{tmp}/wrong.toml"], 1, "did you mean 'promotion'"),
        (["--policy", "{tmp}/validator.toml"], 1, "the validator 'nobody'"),
        (["--policy", "{tmp}/none.toml"], 1, "cannot be read"),
        (["--http", "8000"], 2, "not HOST:PORT"),
        (["--http", "0.0.0.0:0"], 1, "in the clear"),
        (["--http", "127.0.0.1:0", "--agent", "me"], 2, "token of its own"),
        (["--tls-cert", "x"], 2, "give both"),
        (["--agent-token-file", "x"], 1, "is for services"),
        (["--agent", "a\nb"], 1, "no name for an agent"),
    ],
)
def test_what_is_wrong_is_said_before_it_serves(
    place: Path, tmp_path: Path, options: list[str], status: int, said: str
) -> None:
    (tmp_path / "wrong.toml").write_text('[default]\npromotoin = "auto"\n')
    (tmp_path / "validator.toml").write_text('[default]\nvalidators = ["nobody"]\n')
    done = braid_mcp("--at", str(place), *(option.format(tmp=tmp_path) for option in options))
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert (done.returncode in (status, 2), done.stdout) == (True, "")


def test_no_directory_is_made_by_the_way(tmp_path: Path) -> None:
    done = braid_mcp("--at", str(tmp_path / "nothing"))
    assert done.returncode == 3
    assert not (tmp_path / "nothing").exists()


def test_without_its_libraries_it_says_what_to_install(place: Path, tmp_path: Path) -> None:
    (tmp_path / "mcp_types.py").write_text("raise ImportError('mcp_types is not here')")
    done = subprocess.run(
        [sys.executable, "-m", "braidlog", "mcp", "--at", str(place)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(PYTHONPATH=f"{tmp_path}:{':'.join(p for p in sys.path if p)}"),
    )
    assert "pip install 'braidlog[mcp]'" in done.stderr
    assert done.returncode == 1


def test_it_works_on_a_cluster(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with agent_at("mcp", "--at", url) as agent:
            fork = await agent.fork(name="try")
            await agent.call("append_records", fork=fork, records=[{"value": {"n": 3}}], request_key="once")
            found = await agent.call("query_sql", log=fork, sql="SELECT sum(n) FROM rows")
            assert found["rows"] == [[6]]
            assert (await agent.call("propose_promotion", fork=fork, title="three"))["state"] == "waiting"

    with Cluster.start(tmp_path / "cluster", brokers=2) as cluster:
        with braidlog.open(cluster.url) as braid:
            braid.create("orders").append_many([b'{"n": 1}', b'{"n": 2}'])
        asyncio.run(work(cluster.url))
        with braidlog.open(cluster.url) as braid:
            assert braid.log("orders").tail() == 2
            assert next(iter(Audit(braid).read(agent="agent"))).tool == "create_fork"


# --- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(place: Path) -> dict[str, str]:
    with braidlog.open(place) as braid:
        return {
            "admin": create_token(braid, "admin", ["admin:*"]),
            "ann": create_token(braid, "ann", ["own:orders*"]),
            "bob": create_token(braid, "bob", ["own:orders*"]),
            "looker": create_token(braid, "looker", ["read:orders"]),
        }


@pytest.fixture(params=["directory", "service"])
def server(request: pytest.FixtureRequest, place: Path, tmp_path: Path, tokens: dict[str, str]) -> Iterator[HttpServer]:
    """Over a directory that it opens itself, and over a service."""
    options, env, role = ["--at", str(place)], {}, None
    if request.param == "service":
        role = Role("serve", "--at", str(place), told=tmp_path / "serve.log")
        (tmp_path / "admin.token").write_text(tokens["admin"])
        options, env = ["--at", role.url], {"BRAIDLOG_TOKEN_FILE": str(tmp_path / "admin.token")}
    started = HttpServer("mcp", "--http", "127.0.0.1:0", *options, told=tmp_path / "mcp.log", **env)
    yield started
    assert started.end() == 0
    told = (tmp_path / "mcp.log").read_text()
    assert not any(token in told for token in tokens.values())
    if role is not None:
        role.end()


def test_from_when_it_says_that_it_listens_it_ends_in_peace(place: Path, tmp_path: Path) -> None:
    assert HttpServer("mcp", "--http", "127.0.0.1:0", "--at", str(place), told=tmp_path / "mcp.log").end() == 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_each_agent_has_what_its_token_allows(server: HttpServer, tokens: dict[str, str], mode: str) -> None:
    async def work() -> None:
        async with agent_over(server.url, tokens["ann"], mode=mode) as ann:
            fork = await ann.fork(name="hers")
            assert fork == "orders.ann.hers"
            await ann.call("append_records", fork=fork, records=[{"value": "mine"}])
            listed = await ann.call("list_logs")
            assert [log["name"] for log in listed["logs"]] == ["orders", fork]
            assert "secret" in await ann.refused("read_records", log="secret")
            async with agent_over(server.url, tokens["bob"], mode=mode) as bob:
                assert (await bob.call("read_records", log=fork, last=1))["records"][0]["value"] == "mine"
                assert "'ann'" in await bob.refused("append_records", fork=fork, records=[{"value": "not mine"}])
                assert "'ann'" in await bob.refused("squash_fork", fork=fork)
                assert (await bob.call("list_logs", mine=True))["logs"] == []
            async with agent_over(server.url, tokens["looker"], mode=mode) as looker:
                assert "fork:orders" in await looker.refused("create_fork", log="orders")
            async with agent_over(server.url, tokens["admin"], mode=mode) as admin:  # whose token could do anything
                assert "root" in await admin.refused("append_records", fork="orders", records=[{"value": "x"}])
                assert "'ann'" in await admin.refused("append_records", fork=fork, records=[{"value": "x"}])
                assert "root" in await admin.refused("squash_fork", fork="orders")
            await ann.call("squash_fork", fork=fork)

    asyncio.run(work())


def asked(url: str, **headers: str) -> int:
    """The status of a bare request."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(url, json=body, headers=accept | headers, timeout=DEADLINE_S).status_code


def test_with_a_certificate_it_can_be_reached_from_other_machines(
    place: Path, tmp_path: Path, tokens: dict[str, str]
) -> None:
    authority = Authority(tmp_path / "tls")
    pair = tls_options(authority.certificate("logs.localhost", "127.0.0.1"))
    server = HttpServer("mcp", "--http", "0.0.0.0:0", "--at", str(place), *pair, told=tmp_path / "mcp.log")
    assert server.url.startswith("https://0.0.0.0:")
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    trusts = ssl.create_default_context(cafile=authority.file)

    async def work() -> None:
        async with agent_over(url, tokens["ann"], trusts=trusts) as ann:
            fork = await ann.fork(name="hers")
            await ann.call("append_records", fork=fork, records=[{"value": "mine"}])
            found = await ann.call("read_records", log=fork, last=1)
            assert [record["value"] for record in found["records"]] == ["mine"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        async with httpx2.AsyncClient(verify=trusts) as trusting, httpx2.AsyncClient() as doubting:
            assert (await trusting.post(url, json=call)).status_code == 401
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await doubting.post(url, json=call)
            with pytest.raises(httpx2.TransportError):  # it speaks nothing else there
                await doubting.post(url.replace("https", "http"), json=call)

    try:
        asyncio.run(work())
    finally:
        assert server.end() == 0


def test_nobody_gets_in_without_a_token_that_is_good(server: HttpServer, tokens: dict[str, str]) -> None:
    assert asked(server.url) == 401
    assert asked(server.url, Authorization="Bearer wrong") == 401
    assert asked(server.url, Authorization=f"Basic {tokens['ann']}") == 401
    good = f"Bearer {tokens['ann']}"
    assert asked(server.url, Authorization=good) != 401
    assert asked(server.url, Authorization=good, Host="evil.example") == 421
    assert asked(server.url, Authorization=good, Origin="http://evil.example") == 403


def test_a_token_that_is_revoked_ends_its_bearer(server: HttpServer, tokens: dict[str, str], place: Path) -> None:
    shown = f"Bearer {tokens['ann']}"

    async def until_refused() -> None:
        async with agent_over(server.url, tokens["ann"]) as ann:
            await ann.call("list_logs")
            with braidlog.open(place) as braid:  # through whoever writes it
                revoke_token(braid, "ann")
            while True:
                await ann.call("list_logs")

    with pytest.raises(BaseException, match=r"token|401|TaskGroup"):
        asyncio.run(until_refused())
    assert asked(server.url, Authorization=shown) == 401
    assert asked(server.url, Authorization=f"Bearer {tokens['bob']}") != 401


def test_several_agents_work_side_by_side(server: HttpServer, tokens: dict[str, str], place: Path) -> None:
    async def one(name: str, number: int) -> None:
        async with agent_over(server.url, tokens[name]) as agent:
            fork = await agent.fork(name=f"n{number}")
            for n in range(5):
                await agent.call("append_records", fork=fork, records=[{"value": f"{name} {number} {n}"}])
            diff = await agent.call("diff_fork", fork=fork)
            assert [record["value"] for record in diff["records"]] == [f"{name} {number} {n}" for n in range(5)]
            await agent.call("squash_fork", fork=fork)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(one("ann", number))
                group.create_task(one("bob", number))

    asyncio.run(all_of_them())
    with braidlog.open(place) as braid:
        entries = list(Audit(braid).read())
        assert braid.log("orders").tail() == 50
    for name in ("ann", "bob"):
        changes = [entry.tool for entry in entries if entry.agent == name and entry.tool != "diff_fork"]
        assert sorted(changes) == sorted(3 * ["create_fork", *5 * ["append_records"], "squash_fork"])


def test_a_service_tells_who_its_client_is(place: Path, tmp_path: Path, tokens: dict[str, str]) -> None:
    role = Role("serve", "--at", str(place), told=tmp_path / "serve.log")
    try:
        with braidlog.open(role.url, token=tokens["ann"]) as braid:
            assert principal_of(braid) == "ann"
        with braidlog.open(place) as braid:
            assert principal_of(braid) == ""
    finally:
        role.end()


def test_at_a_service_the_agent_is_its_token_and_the_house_has_another(
    place: Path, tmp_path: Path, tokens: dict[str, str]
) -> None:
    for name in ("admin", "ann"):
        (tmp_path / f"{name}.token").write_text(tokens[name])
    role = Role("serve", "--at", str(place), told=tmp_path / "serve.log")
    try:
        house = {"BRAIDLOG_TOKEN_FILE": str(tmp_path / "admin.token")}
        agents = ["--agent-token-file", str(tmp_path / "ann.token")]

        async def work(agent: Agent) -> None:
            assert await agent.fork(name="x") == "orders.ann.x"
            assert "secret" in await agent.refused("describe_log", log="secret")

        async def run() -> None:
            async with agent_at("mcp", "--at", role.url, *agents, **house) as agent:
                await work(agent)

        asyncio.run(run())
        alone = braid_mcp("--at", role.url, BRAIDLOG_TOKEN_FILE=str(tmp_path / "ann.token"))
        assert "admin:braidlog.*" in alone.stderr
        assert alone.returncode == 11
        other = braid_mcp("--at", role.url, *agents, "--agent", "bob", **house)
        assert "the token is 'ann''s" in other.stderr
    finally:
        role.end()
