"""Spark goes through all values of a log, of a deep fork of it, and of the same rows as Parquet."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

import braidlog
from bench import harness
from bench.harness import MIB, Figure, Options
from bench.spark_bounds import same_rows
from bench.spark_session import describe, session
from braidlog.testing.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = "a log"
FORK: Final = "a fork of depth 5"
ALL_COLUMNS: Final = "a log, all columns"
PARQUET: Final = "Parquet, the same rows uncompressed"
BOUND: Final = "the same values again and again, from Python processes that only hand them on"
BROKER: Final = "one client through a broker, no Spark"
DEPTH: Final = 5
IN_FLIGHT: Final = 32  # batches of 1 MiB
STEP_BYTES: Final = 4 * MIB  # what the client asks the broker for at once


def measure(options: Options) -> Figure:
    """MB of values per second that Spark aggregates from a log, from a deep fork, and from Parquet."""
    figure = Figure(
        "spark_scan",
        "Spark aggregates over all bytes of all values",
        "record bytes",
        "MB/s of values",
        notes=[
            "sum(crc32(value)) over incompressible values; the log is read with schema 'value binary', Parquet has the "
            "same columns and Spark reads the one that it needs",
            "the forks have a few records of their own, at each depth",
            f"{BOUND}: what no source in Python can be faster than, in as many tasks as the log has",
            "the client reads as Arrow, 4 MiB at a time, and sums the lengths of the values: no Spark, no checksums",
        ],
        log_y=False,
    )
    lines = {name: figure.line(name) for name in (LOG, FORK, ALL_COLUMNS, PARQUET, BOUND, BROKER)}
    shapes = ((100, options.pick(10_000_000, 500_000)), (4096, options.pick(1_000_000, 50_000)))
    with harness.folder(options) as folder, session(2, folder) as spark:
        describe(figure, 2)
        for size, count in shapes:
            where = folder / f"braid-{size}"
            tip = _written(where, size, count)
            parquet = str(folder / f"parquet-{size}")
            _frame(spark, where, "root").write.option("compression", "none").parquet(parquet)
            tasks = _frame(spark, where, "root", "value binary").rdd.getNumPartitions()
            variants: dict[str, Callable[[], float]] = {
                LOG: partial(_scan, partial(_frame, spark, where, "root", "value binary"), size, count),
                FORK: partial(_scan, partial(_frame, spark, where, tip, "value binary"), size, count),
                ALL_COLUMNS: partial(_scan, partial(_frame, spark, where, "root"), size, count),
                PARQUET: partial(_scan, partial(spark.read.parquet, parquet), size, count),
                BOUND: partial(_scan, partial(same_rows, spark, size, count, tasks), size, count),
            }
            harness.interleave(variants, 1)
            taken = harness.interleave(variants, options.pick(7, 3))
            with _served(where) as log:
                taken[BROKER] = [_through_a_broker(log, size, count) for _ in range(options.pick(3, 1))]
            for name, line in lines.items():
                line.add(size, taken[name])
            figure.at_least(
                f"{LOG} over {PARQUET}, records of {size} B", harness.paired(taken[LOG], taken[PARQUET]), 0.7
            )
            figure.at_most(
                f"{FORK}, time over that of the log, records of {size} B", harness.paired(taken[LOG], taken[FORK]), 1.1
            )
            figure.numbers[f"all columns over {PARQUET}, records of {size} B"] = harness.paired(
                taken[ALL_COLUMNS], taken[PARQUET]
            )
            figure.numbers[f"{BOUND}, over {PARQUET}, records of {size} B"] = harness.paired(
                taken[BOUND], taken[PARQUET]
            )
            figure.numbers[f"{LOG} over {BOUND}, records of {size} B"] = harness.paired(taken[LOG], taken[BOUND])
            figure.numbers[f"Spark on a log over {BROKER}, records of {size} B"] = harness.paired(
                taken[LOG][: len(taken[BROKER])], taken[BROKER]
            )
    return figure


def _written(where: Path, size: int, count: int) -> str:
    """A log of so many random values, and forks of it. Answers the name of the deepest."""
    with braidlog.open(where) as braid:
        log = braid.create("root")
        each = MIB // size
        waiting: deque[braidlog.Ticket] = deque()
        for first in range(0, count, each):
            rows = min(each, count - first)
            block = os.urandom(rows * size)
            waiting.append(log.submit([block[at : at + size] for at in range(0, rows * size, size)]))
            if len(waiting) > IN_FLIGHT:
                waiting.popleft().durable()
        for ticket in waiting:
            ticket.durable()
        for _ in range(DEPTH):
            log = log.cfork()
            log.append_many([os.urandom(size) for _ in range(10)])
        return log.name


def _frame(spark: SparkSession, where: Path, log: str, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("braidlog").option("url", str(where)).option("log", log)
    return (reader if schema is None else reader.schema(schema)).load()


def _scan(frame: Callable[[], DataFrame], size: int, count: int) -> float:
    """A new frame each time: what is measured includes the planning."""
    begun = time.perf_counter()
    found = frame().selectExpr("sum(crc32(value))", "count(1)").first()
    took = time.perf_counter() - begun
    assert found is not None
    assert count <= found[1] <= count + 10 * DEPTH, f"{found[1]} of {count} records were read"
    return size * count / 1e6 / took


@contextlib.contextmanager
def _served(where: Path) -> Iterator[braidlog.Log]:
    with Cluster.start(where, brokers=1) as cluster, braidlog.open(cluster.url) as braid:
        yield braid.log("root")


def _through_a_broker(log: braidlog.Log, size: int, count: int) -> float:
    begun = time.perf_counter()
    found = 0
    step = max(1, STEP_BYTES // size)
    for start in range(0, count, step):
        found += _value_bytes(log.read_arrow(start, min(start + step, count)).column("value"))
    took = time.perf_counter() - begun
    assert found == size * count
    return found / 1e6 / took


def _value_bytes(column: pa.ChunkedArray) -> int:
    total: int = pc.sum(pc.binary_length(column)).as_py()
    return total


if __name__ == "__main__":
    harness.main(measure)
