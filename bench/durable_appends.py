"""Records per second that cannot be lost any more, beside Redis Streams and SQLite, all on the same disk."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import braidlog
from bench import harness, redis_server
from bench.harness import Figure, Options

RECORD_BYTES: Final = 100
BATCHES: Final = (1, 100, 1_000, 10_000)
SYNC: Final = "braidlog, append_many"
PIPELINED: Final = "braidlog, submit"
REDIS: Final = "Redis Streams, pipeline"
SQLITE: Final = "SQLite, executemany"


def measure(options: Options) -> Figure:
    """Durable appends of 100-byte records in batches of 1 to 10,000, beside Redis Streams and SQLite."""
    figure = Figure(
        "durable_appends",
        f"Durable appends of {RECORD_BYTES}-byte records",
        "records per batch",
        "records/s",
        durability={
            SYNC: "each batch is synced before the next one is begun",
            PIPELINED: "batches are queued and share syncs; the clock stops when the last one is synced",
            REDIS: "appendonly yes, appendfsync always: a pipeline is answered after its commands were synced",
            SQLITE: "journal_mode=WAL, synchronous=FULL: each transaction is synced by its commit",
        },
    )
    rounds = options.pick(7, 2)
    budget_s = 0.4 if not options.quick else 0.15
    values = [os.urandom(RECORD_BYTES) for _ in range(max(BATCHES))]
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server.running(options))
        if isinstance(redis, str):
            figure.notes.append(f"Redis Streams was not measured: {redis}")
        lines = {name: figure.line(name) for name in (SYNC, PIPELINED, REDIS, SQLITE)}
        taken: dict[str, list[float]] = {}
        for size in BATCHES:
            batch = values[:size]
            variants: dict[str, Callable[[], float]] = {
                SYNC: partial(_braidlog, options, batch, budget_s),
                PIPELINED: partial(_pipelined, options, batch, budget_s),
                SQLITE: partial(_sqlite, options, batch, budget_s),
            }
            if not isinstance(redis, str):
                variants[REDIS] = partial(redis.appends, batch, budget_s)
            large = size * RECORD_BYTES > 64 * 1024
            taken = harness.interleave(
                variants, rounds, before=(lambda: harness.warm_memory(256 * harness.MIB)) if large else None
            )
            for name, rates in taken.items():
                lines[name].add(size, rates)
    figure.lines = [line for line in figure.lines if line.points]
    for name, bound in ((REDIS, 10), (SQLITE, 5)):
        if name in taken:
            for ours in (SYNC, PIPELINED):
                ratio = harness.paired(taken[ours], taken[name])
                if ours == SYNC:
                    figure.at_least(f"{ours} over {name}, batches of {max(BATCHES):,}", ratio, bound)
                else:
                    figure.numbers[f"{ours} over {name}, batches of {max(BATCHES):,}"] = ratio
    return figure


def rate(step: Callable[[], None], records: int, budget_s: float) -> float:
    """Records per second while `step` is repeated until the time is up, at least twice."""
    done = 0
    begun = time.perf_counter()
    while done < 2 or time.perf_counter() - begun < budget_s:
        step()
        done += 1
    return done * records / (time.perf_counter() - begun)


def _braidlog(options: Options, batch: list[bytes], budget_s: float) -> float:
    with harness.folder(options) as path, braidlog.open(path) as braid:
        log = braid.create("records")
        if len(batch) == 1:
            return rate(lambda: _ignore(log.append(batch[0])), 1, budget_s)
        return rate(lambda: _ignore(log.append_many(batch)), len(batch), budget_s)


def _pipelined(options: Options, batch: list[bytes], budget_s: float) -> float:
    with harness.folder(options) as path, braidlog.open(path) as braid:
        log = braid.create("records")
        tickets = []
        begun = time.perf_counter()
        while time.perf_counter() - begun < budget_s:
            tickets.append(log.submit(batch))
        for ticket in tickets:
            ticket.durable()
        return len(tickets) * len(batch) / (time.perf_counter() - begun)


def _sqlite(options: Options, batch: list[bytes], budget_s: float) -> float:
    rows = [(value,) for value in batch]
    with harness.folder(options) as path, _database(path) as database:

        def commit() -> None:
            database.execute("BEGIN")
            database.executemany("INSERT INTO log (timestamp, value) VALUES (0, ?)", rows)
            database.execute("COMMIT")

        return rate(commit, len(batch), budget_s)


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(path / "log.db", isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(
            "CREATE TABLE log (position INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, value BLOB NOT NULL)"
        )
        yield database
    finally:
        database.close()


def _ignore(_: object) -> None:
    """Its position is not wanted."""


if __name__ == "__main__":
    harness.main(measure)
