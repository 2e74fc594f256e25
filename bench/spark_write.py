"""Spark writes rows that it holds in memory to a log, and as Parquet."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import braidlog
from bench import harness
from bench.harness import MIB, Figure, Options
from bench.spark_bounds import drop
from bench.spark_session import describe, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = "a log, committed at once"
TUNED: Final = "a log, and Spark's batches bounded otherwise"
BOUND: Final = "a sink in Python that drops them"
PARQUET: Final = "Parquet, uncompressed"
SYNCED: Final = "Parquet, uncompressed, its files synced"
SNAPPY: Final = "Parquet, compressed as Spark does unless told otherwise"
_BESIDE: Final = (
    *((TUNED, PARQUET), (BOUND, PARQUET)),
    *((LOG, SYNCED), (TUNED, SYNCED)),
    *((LOG, SNAPPY), (TUNED, SNAPPY)),
)
BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
WHOLE: Final = "whole records"
VALUES: Final = "values alone"
BESIDE_THE_VALUE: Final = (
    "CAST(concat('key-', id) AS BINARY) AS key",
    "timestamp_micros(1700000000000000 + id) AS timestamp",
    "array(named_struct('key', 'source', 'value', CAST(concat('sensor-', id % 100) AS BINARY))) AS headers",
)


def measure(options: Options) -> Figure:
    """MB of values per second that Spark writes to a log, and as Parquet."""
    figure = Figure(
        "spark_write",
        "Spark writes rows that are cached in memory",
        "record bytes",
        "MB/s of values",
        notes=[
            f"{WHOLE}: a key and a timestamp that differ in every row, one header, and the value; {VALUES}: one column",
            f"{BOUND}: what no sink in Python can be faster than; it too with Spark's batches bounded otherwise",
            f"bounded otherwise: {BATCH_BYTES} is 2147483647 for 100 B, which says not to look, and 4 MiB for 4 KB",
            "what the run before has written is deleted, and memory is touched, before each run",
        ],
        durability={
            LOG: "every object and the commit are synced; one atomic commit",
            PARQUET: "nothing is synced; files are renamed when the job commits",
            SYNCED: "files are renamed when the job commits, then each of them and their folder is synced",
            SNAPPY: "nothing is synced; files are renamed when the job commits",
        },
        log_y=False,
    )
    kinds = ((WHOLE, BESIDE_THE_VALUE), (VALUES, ()))
    labels = (LOG, TUNED, BOUND, PARQUET, SYNCED, SNAPPY)
    lines = {(kind, name): figure.line(f"{name}, {kind}") for kind, _ in kinds for name in labels}
    shapes = (
        (100, options.pick(5_000_000, 200_000), 2**31 - 1, 2.0),
        (4096, options.pick(250_000, 20_000), 4 * MIB, 0.6),
    )
    with harness.folder(options) as folder, session(2, folder) as spark:
        describe(figure, 2)
        for size, count, batch_bytes, wanted in shapes:
            for kind, beside in kinds:
                rows = _rows(spark, size, count, beside)
                taken = _taken(spark, rows, folder, size, count, batch_bytes, options.pick(5, 3))
                for label, found in taken.items():
                    lines[kind, label].add(size, found)
                shape = f"{kind} of {size} B"
                figure.at_least(f"{LOG} over {PARQUET}, {shape}", harness.paired(taken[LOG], taken[PARQUET]), wanted)
                for over, under in _BESIDE:
                    figure.numbers[f"{over}, over {under}, {shape}"] = harness.paired(taken[over], taken[under])
                rows.unpersist()
    return figure


def _rows(spark: SparkSession, size: int, count: int, beside: tuple[str, ...]) -> DataFrame:
    # 32 bytes of a hash at a time: incompressible, and different in every row
    pieces = ", ".join(f"unhex(sha2(concat(id, ':', {n}), 256))" for n in range(-(-size // 32)))
    value = f"substring(concat({pieces}), 1, {size}) AS value"
    rows = spark.range(0, count, 1, 4).selectExpr(*beside, value).cache()
    assert rows.count() == count
    return rows


def _taken(
    spark: SparkSession, rows: DataFrame, folder: Path, size: int, count: int, batch_bytes: int, rounds: int
) -> dict[str, list[float]]:
    def bounded(call: Callable[[], float]) -> float:
        spark.conf.set(BATCH_BYTES, str(batch_bytes))
        try:
            return call()
        finally:
            spark.conf.unset(BATCH_BYTES)

    to_a_log = partial(_to_a_log, rows, folder / "braid", size, count)
    variants = {
        LOG: to_a_log,
        TUNED: partial(bounded, to_a_log),
        BOUND: partial(bounded, partial(_dropped, rows, size, count)),
        PARQUET: partial(_to_parquet, rows, folder / "parquet", size, count),
        SYNCED: partial(_to_parquet, rows, folder / "parquet", size, count, synced=True),
        SNAPPY: partial(_to_parquet, rows, folder / "parquet", size, count, compression="snappy"),
    }
    harness.interleave(variants, 1)
    return harness.interleave(variants, rounds, before=partial(harness.warm_memory, 2 * size * count))


def _dropped(rows: DataFrame, size: int, count: int) -> float:
    begun = time.perf_counter()
    drop(rows)
    return size * count / 1e6 / (time.perf_counter() - begun)


def _to_a_log(rows: DataFrame, where: Path, size: int, count: int) -> float:
    shutil.rmtree(where, ignore_errors=True)
    with braidlog.open(where) as braid:
        braid.create("written")
        begun = time.perf_counter()
        rows.write.format("braidlog").option("url", str(where)).option("log", "written").mode("append").save()
        return size * count / 1e6 / (time.perf_counter() - begun)


def _to_parquet(
    rows: DataFrame, where: Path, size: int, count: int, *, synced: bool = False, compression: str = "none"
) -> float:
    shutil.rmtree(where, ignore_errors=True)
    begun = time.perf_counter()
    rows.write.option("compression", compression).parquet(str(where))
    if synced:
        for path in (*where.iterdir(), where):
            _sync(path)
    return size * count / 1e6 / (time.perf_counter() - begun)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


if __name__ == "__main__":
    harness.main(measure)
