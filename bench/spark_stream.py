"""What a micro-batch costs: a log as the source, beside Spark's own rate source, into the same sink."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import braidlog
from bench import harness
from bench.harness import Figure, Options
from bench.spark_session import describe, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FED_ROWS: Final = 10  # at a time
FED_EVERY_S: Final = 0.05
BATCH_ROWS: Final = 20  # about what a micro-batch finds in the log
SINKS: Final = ("noop", "a log")
SOURCES: Final = ("rate", "a log")
DEADLINE_S: Final = 60.0  # of one run
BUDGET_S: Final = 80.0  # no round but the first begins later than that


def measure(options: Options) -> Figure:
    """Milliseconds of a micro-batch that has rows, from a log and from the rate source, to nothing and to a log."""
    begun = time.monotonic()
    batches, rounds = options.pick(12, 4), options.pick(3, 1)
    figure = Figure(
        "spark_stream",
        "A micro-batch",
        "sink (0: nothing, 1: a log)",
        "ms",
        notes=[
            f"{FED_ROWS / FED_EVERY_S:g} rows a second come to the log, and Spark's rate source makes {BATCH_ROWS} for "
            f"each micro-batch; of each run the median of {batches} micro-batches with rows, the first three left out; "
            "triggerExecution as Spark reports it",
        ],
        log_x=False,
        log_y=False,
    )
    with harness.folder(options) as folder, session(2, folder) as spark, braidlog.open(folder / "braid") as braid:
        describe(figure, 2)
        braid.create("in")
        braid.create("out")
        numbers = itertools.count()
        harness.interleave(_variants(spark, folder, braid.log("in"), 1, numbers), 1)
        taken = harness.interleave(
            _variants(spark, folder, braid.log("in"), batches, numbers),
            rounds,
            budget_s=BUDGET_S - (time.monotonic() - begun),
        )
    for source in SOURCES:
        line = figure.line(f"from {source}")
        for x, sink in enumerate(SINKS):
            line.add(x, taken[f"{source} to {sink}"])
    for sink in SINKS:
        figure.numbers[f"a log over the rate source, to {sink}"] = harness.paired(
            taken[f"a log to {sink}"], taken[f"rate to {sink}"]
        )
    return figure


def _variants(
    spark: SparkSession, folder: Path, log: braidlog.Log, batches: int, numbers: itertools.count[int]
) -> dict[str, Callable[[], float]]:
    return {
        f"{source} to {sink}": partial(_run, spark, folder, log, source, sink, batches, numbers)
        for sink in SINKS
        for source in SOURCES
    }


def _run(
    spark: SparkSession,
    folder: Path,
    log: braidlog.Log,
    source: str,
    sink: str,
    batches: int,
    numbers: itertools.count[int],
) -> float:
    checkpoint = str(folder / f"checkpoint-{next(numbers)}")
    rows = _rows(spark, folder, source).selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if sink == "noop":
        writer = writer.format("noop")
    else:
        writer = writer.format("braidlog").option("url", str(folder / "braid")).option("log", "out")
    feeding = threading.Event()
    feeder = threading.Thread(target=_feed, args=(log, feeding), daemon=True)
    query = writer.start()
    try:
        if source != "rate":
            feeder.start()
        taken = _batch_times(query, batches)
    finally:
        feeding.set()
        query.stop()
        if feeder.ident is not None:
            feeder.join()
    return statistics.median(taken)


def _rows(spark: SparkSession, folder: Path, source: str) -> DataFrame:
    if source == "rate":  # the one by the second has rows in one micro-batch a second only
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS).load()
    return spark.readStream.format("braidlog").option("url", str(folder / "braid")).option("log", "in").load()


def _feed(log: braidlog.Log, ending: threading.Event) -> None:
    while not ending.wait(FED_EVERY_S):
        log.append_many([b"12345678"] * FED_ROWS)


def _batch_times(query: Any, wanted: int) -> list[float]:
    """Of micro-batches with rows, after the first three."""
    seen: dict[int, float] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < wanted + 3:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(seen)} micro-batches in {DEADLINE_S:g} s")
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        time.sleep(0.05)
    return [seen[number] for number in sorted(seen)[3 : wanted + 3]]


if __name__ == "__main__":
    harness.main(measure)
