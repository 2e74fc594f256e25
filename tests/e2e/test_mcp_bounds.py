"""What bounds an agent holds however it calls: again, at once, with names that collide."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import braidlog
from braidlog import limits
from tests.e2e.agent_clients import Agent, Failed, with_agent


@pytest.fixture
def braid() -> Iterator[braidlog.Braid]:
    """A log of 100 records."""
    with braidlog.open("memory://") as opened:
        opened.create("orders").append_many([b"%d" % n for n in range(100)])
        yield opened


def test_what_is_asked_for_again_costs_no_budget(braid: braidlog.Braid) -> None:
    keys = ["k" * (limits.MCP_KEY_CHARS_MAX - 1) + end for end in "ab"]

    async def work(agent: Agent) -> None:
        fork = await agent.fork()

        async def append(key: str, value: str) -> tuple[int, int]:
            done = await agent.call("append_records", fork=fork, records=[{"value": value}], request_key=key)
            return done["first"], done["bytes_left"]

        assert await append(keys[0], "x" * 300) == (100, 700)
        for _ in range(3):  # more than the rate, and in the end than the fork allows
            assert await append(keys[0], "x" * 300) == (100, 700)
        assert await append(keys[1], "y" * 200) == (101, 500)  # the keys differ where the name of a writer is cut
        assert await append(keys[0], "x" * 300) == (100, 500)

    policy = "default.fork_bytes = 1000\ndefault.fork_bytes_per_s = 50"
    with_agent(braid, work, policy, name="a" * 100)


def test_the_bytes_of_a_fork_hold_when_many_write_on_it_at_once(braid: braidlog.Braid) -> None:
    async def work(agent: Agent) -> None:
        fork = await agent.fork()

        async def append() -> bool:
            try:
                await agent.call("append_records", fork=fork, records=[{"value": "x" * 100}])
            except Failed:
                return False
            return True

        done = await asyncio.gather(*(append() for _ in range(16)))
        assert sum(done) == 3
        assert braid.log(fork).info().own_bytes <= 399

    with_agent(braid, work, "default.fork_bytes = 399")
