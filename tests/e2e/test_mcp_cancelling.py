"""Calls that nobody waits for any more: what they began is ended, and what was decided is not undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.agents import Audit, Registry
from tests.e2e.agent_clients import Agent, with_agent

POLICY = 'default.promotion = "auto"\ndefault.on_failure = "squash"'


@pytest.fixture
def braid(tmp_path: Path) -> Iterator[braidlog.Braid]:
    """A directory with a validator that never ends before its log."""
    with braidlog.open(tmp_path / "logs") as opened:
        opened.create("orders").append(b"1")
        Registry(opened).add(
            "hangs", "tests.e2e.agents_checks:hangs", logs="orders", parameters={"folder": str(tmp_path)}
        )
        yield opened


async def begun(folder: Path, agent: Agent) -> list[int]:
    """The processes of the validator, once they are there."""
    while not (folder / "self").exists():
        await agent.call("list_logs")
    return [int((folder / name).read_text()) for name in ("child", "self")]


async def ended(pids: list[int], agent: Agent) -> None:
    while any(_lives(pid) for pid in pids):
        await agent.call("list_logs")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_validator_that_nobody_waits_for_is_ended(braid: braidlog.Braid, tmp_path: Path) -> None:
    async def work(agent: Agent) -> None:
        fork = await agent.fork()
        call = asyncio.ensure_future(agent.call("run_validator", fork=fork, validator="hangs"))
        pids = await begun(tmp_path, agent)
        call.cancel()
        await ended(pids, agent)

    with_agent(braid, work)
    assert [entry.outcome for entry in Audit(braid).read() if entry.tool == "run_validator"] == ["Cancelled"]


def test_a_proposal_that_is_cancelled_before_it_is_decided_is_withdrawn(braid: braidlog.Braid, tmp_path: Path) -> None:
    async def work(agent: Agent) -> None:
        fork = await agent.fork()
        await agent.call("append_records", fork=fork, records=[{"value": "2"}])
        call = asyncio.ensure_future(agent.call("propose_promotion", fork=fork, title="more"))
        pids = await begun(tmp_path, agent)
        call.cancel()
        await ended(pids, agent)
        while (mine := (await agent.call("list_proposals"))["proposals"])[0]["state"] == "validating":
            pass
        assert [one["state"] for one in mine] == ["withdrawn"]
        assert fork in [log["name"] for log in (await agent.call("list_logs"))["logs"]]

    with_agent(braid, work, POLICY)
    assert braid.log("orders").tail() == 1
