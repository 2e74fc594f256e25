"""Two hundred clients at once: nothing is lost, none is starved, and the memory stays where it was."""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from braidlog import aio
from tests.faults.processes import DEADLINE_S, Child
from tests.faults.service import Served

PROCESSES = 2
LOGS = 8
GROWTH_BYTES_MAX = 400 * 1024 * 1024


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def client(url: str, number: int, seconds: float) -> dict[bytes, tuple[int, int]]:
    """Appends, submits, reads what it wrote and follows a log now and again; answers where its records stand."""
    told: dict[bytes, tuple[int, int]] = {}
    home = number % LOGS
    async with await aio.open(url) as braid:
        log = await braid.log(f"log-{home}")
        until = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < until:
            turn += 1
            value = b"%d %d" % (number, turn)
            at = await log.append(value)
            told[value] = (home, at)
            tickets = [(b"%d %d.%d" % (number, turn, n), n) for n in range(3)]
            for more, ticket in [(more, await log.submit(more)) for more, _ in tickets]:
                position = await ticket.position()
                assert isinstance(position, int)
                told[more] = (home, position)
            [record] = await log.read(at, at + 1)
            assert record.value == value
            if turn % 10 == number % 10:
                async with await log.subscribe(at) as subscription:
                    async for record in subscription:
                        assert record.position == at
                        assert record.value == value
                        break
    return told


def work_of(url: str, clients: range, seconds: float, parent: Connection) -> None:
    async def all_of_them() -> dict[bytes, tuple[int, int]]:
        working = asyncio.gather(*(client(url, number, seconds) for number in clients))
        while not working.done():
            await asyncio.wait([working], timeout=DEADLINE_S / 4)
            parent.send("at work")
        return {value: place for told in working.result() for value, place in told.items()}

    parent.send(asyncio.run(all_of_them()))


def bear(folder: Path, clients: int, seconds: float) -> None:
    each = clients // PROCESSES
    with Served(folder / "site.braid") as served:
        with served.open() as braid:
            logs = [braid.create(f"log-{n}") for n in range(LOGS)]
            for log in logs:
                log.append_many([b"warm"] * 10)
        before = resident_bytes()
        children = [
            Child(lambda parent, n=n: work_of(served.url, range(n * each, (n + 1) * each), seconds, parent))  # type: ignore[misc]
            for n in range(PROCESSES)
        ]
        told: dict[bytes, tuple[int, int]] = {}
        try:
            for child in children:
                while (heard := child.hear()) == "at work":
                    pass
                assert isinstance(heard, dict)
                told.update(heard)
                assert child.wait() == 0
        finally:
            for child in children:
                child.__exit__(None, None, None)
        grown = resident_bytes() - before
        with served.open() as braid:
            found = [[record.value for record in braid.log(f"log-{n}").read(0)] for n in range(LOGS)]
        assert {value.split()[0] for value in told} == {b"%d" % n for n in range(clients)}, "somebody was starved"
        assert sum(map(len, found)) == len(told) + 10 * LOGS
        for value, (log_number, at) in told.items():
            assert found[log_number][at] == value
        assert grown < GROWTH_BYTES_MAX
        served.eventually(served.is_quiet)


def test_two_hundred_clients_at_once(tmp_path: Path) -> None:
    bear(tmp_path, 200, 3.0)


@pytest.mark.soak
def test_two_hundred_clients_for_a_minute(tmp_path: Path) -> None:
    bear(tmp_path, 200, 60.0)
