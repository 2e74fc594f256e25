"""What Spark jobs that scan a whole log do to a latency-critical workload on it."""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import braidlog
from bench import harness
from bench.critical import RATE, RECORD_BYTES, chosen_seconds, critical, described
from bench.harness import MIB, Figure, Options
from bench.isolation import KINDS, Beside, pairs, ratio, show
from bench.spark_session import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "Spark scans a fork"


def measure(options: Options) -> Figure:
    """Percentiles of a latency-critical workload alone and beside Spark, which scans the old records."""
    rounds, lasting = options.pick(12, 3), chosen_seconds(options)
    figure = Figure(
        "spark_isolation",
        "Append to tail read at a fixed rate, alone and beside Spark scanning a fork",
        "percentile",
        "us",
        notes=[
            described(lasting, rounds),
            "Spark (local[1]) plans with the metadata and reads the objects itself: no broker serves it a record",
        ],
        log_x=False,
    )
    with critical(options) as workload:
        old = workload.fill(options.pick(512, 64) * MIB)
        workload.root.sfork("fork")
        figure.notes.append(workload.cores.describe())
        with workload.companion(scan_with_spark) as spark:
            told = (workload.cluster.url, "fork", old)
            with spark.at_work(told):  # which starts Spark and fills caches
                workload.warm()
            beside: dict[str, Beside] = {SPARK: partial(spark.at_work, told)}
            samples, managed = pairs(workload, beside, rounds, lasting)
    show(figure, samples, beside)
    scanned = statistics.median(managed[SPARK])
    figure.numbers["MB/s that Spark scans"] = scanned / 1e6
    figure.numbers["appends that began late, of all"] = workload.late / workload.begun
    figure.at_least("bytes scanned over bytes appended, or else nothing is shown", scanned / (RATE * RECORD_BYTES), 100)
    for kind in KINDS:
        figure.at_most(f"{kind}, p50, beside Spark, over alone", ratio(samples, SPARK, kind, 50), 1.2)
    return figure


def scan_with_spark(braid: braidlog.Braid, pipe: Connection, told: tuple[str, str, int]) -> float:
    """Scan so many records again and again, until told. Bytes per second."""
    del braid
    url, log, count = told
    spark = _session()
    begun, total = time.monotonic(), 0
    while not pipe.poll():
        rows = spark.read.format("braidlog").option("url", url).option("log", log).schema("value binary").load()
        found = rows.selectExpr("sum(crc32(value))", "count(1)").first()
        assert found is not None
        assert found[1] == count
        total += count * RECORD_BYTES
    pipe.recv()
    return total / (time.monotonic() - begun)


@functools.cache
def _session() -> SparkSession:
    """It stays for the next time, and ends with the process."""
    return start(1, Path(tempfile.gettempdir()))


if __name__ == "__main__":
    harness.main(measure)
