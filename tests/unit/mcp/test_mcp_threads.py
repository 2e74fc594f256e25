"""Threads of calls: what goes on counts, though nobody waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from braidlog.mcp.threads import Threads

DEADLINE_S = 30


def test_what_was_cancelled_counts_until_it_has_ended() -> None:
    async def work() -> None:
        threads = Threads(1)
        begun, over, after = threading.Event(), threading.Event(), threading.Event()

        def stubborn() -> None:
            begun.set()
            assert over.wait(DEADLINE_S)

        first = asyncio.ensure_future(threads.run(stubborn))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(threads.run(after.set))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not after.is_set()
        over.set()
        async with asyncio.timeout(DEADLINE_S):
            await second
        assert after.is_set()

    asyncio.run(work())


def test_what_is_cancelled_while_it_waits_never_begins_and_takes_no_place() -> None:
    async def work() -> None:
        threads = Threads(1)
        begun, over = threading.Event(), threading.Event()

        def first() -> bool:
            begun.set()
            return over.wait(DEADLINE_S)

        running = asyncio.ensure_future(threads.run(first))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        never = threading.Event()
        waiting = asyncio.ensure_future(threads.run(never.set))
        for _ in range(100):
            await asyncio.sleep(0)
        waiting.cancel()
        over.set()
        async with asyncio.timeout(DEADLINE_S):
            assert await running
            with pytest.raises(ValueError, match="ours"):
                await threads.run(_raises)
            assert await threads.run(lambda: 7) == 7
        assert not never.is_set()

    asyncio.run(work())


def _raises() -> None:
    raise ValueError("ours")
