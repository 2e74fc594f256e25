"""A driver of its own, to be killed: a query that writes numbers to a log until it has committed so many batches.

Run as `python -m tests.spark.sink_driver <folder> <batches> <step or ->`. Without a step its tasks fail at random when
they have written, and are tried again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark import faulty
from tests.spark.conftest import SETTINGS
from tests.spark.test_sink_stream import committed, numbers

PATIENCE_S = 240.0  # of a machine that has much else to do; seconds, else


def main(folder: Path, batches: int, step: str) -> None:
    directory = str(folder / "logs.braid")
    checkpoint = str(folder / "checkpoint")
    builder = SparkSession.builder.master("local[2,20]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(faulty.FaultySource)
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    fault = [step, str(jvm), str(os.getpid())] if step != "-" else [f"sometimes-{faulty.STORED}"]
    writing = numbers(spark).writeStream.format("faulty").option("url", directory).option("log", "orders")
    query = writing.option("checkpointLocation", checkpoint).start()
    if step != "-":  # not the first batch that this driver has: that may be one of the driver before it
        wait_for(lambda: committed(checkpoint) >= batches - 1, query)
    faulty.fault_of(directory).write_text(" ".join(fault))
    wait_for(lambda: committed(checkpoint) >= batches, query)
    faulty.fault_of(directory).unlink(missing_ok=True)
    query.stop()


def wait_for(true, query) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not true():
        if query.exception() is not None or time.monotonic() >= deadline:
            raise SystemExit(f"the query did not get on: {query.exception()}")
        pause.wait(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
