"""Spark writes rows that it holds in memory to a log, and as Parquet."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import braidlog
from bench import harness
from bench.harness import Figure, Options
from bench.spark_session import describe, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG: Final = "a log, committed at once"
PARQUET: Final = "Parquet, uncompressed"


def measure(options: Options) -> Figure:
    """MB of values per second that Spark writes to a log, and as Parquet."""
    figure = Figure(
        "spark_write",
        "Spark writes rows that are cached in memory",
        "record bytes",
        "MB/s of values",
        durability={
            LOG: "every object and the commit are synced; one atomic commit",
            PARQUET: "nothing is synced; files are renamed when the job commits",
        },
        log_y=False,
    )
    lines = {name: figure.line(name) for name in (LOG, PARQUET)}
    shapes = ((100, options.pick(2_000_000, 200_000), 2.0), (4096, options.pick(200_000, 20_000), 0.6))
    with harness.folder(options) as folder, session(2, folder) as spark, braidlog.open(folder / "braid") as braid:
        describe(figure, 2)
        for size, count, wanted in shapes:
            # 32 bytes of a hash at a time: incompressible, and different in every row
            pieces = ", ".join(f"unhex(sha2(concat(id, ':', {n}), 256))" for n in range(-(-size // 32)))
            rows = spark.range(0, count, 1, 4).selectExpr(f"substring(concat({pieces}), 1, {size}) AS value").cache()
            assert rows.count() == count
            name = f"records-{size}"
            braid.create(name)
            variants = {
                LOG: partial(_to_a_log, rows, folder / "braid", name, size, count),
                PARQUET: partial(_to_parquet, rows, folder / "parquet", size, count),
            }
            harness.interleave(variants, 1)
            taken = harness.interleave(variants, options.pick(7, 3))
            for label, line in lines.items():
                line.add(size, taken[label])
            ratio = harness.paired(taken[LOG], taken[PARQUET])
            figure.at_least(f"{LOG} over {PARQUET}, records of {size} B", ratio, wanted)
            rows.unpersist()
    return figure


def _to_a_log(rows: DataFrame, where: Path, log: str, size: int, count: int) -> float:
    begun = time.perf_counter()
    rows.write.format("braidlog").option("url", str(where)).option("log", log).mode("append").save()
    return size * count / 1e6 / (time.perf_counter() - begun)


def _to_parquet(rows: DataFrame, where: Path, size: int, count: int) -> float:
    shutil.rmtree(where, ignore_errors=True)
    begun = time.perf_counter()
    rows.write.option("compression", "none").parquet(str(where))
    return size * count / 1e6 / (time.perf_counter() - begun)


if __name__ == "__main__":
    harness.main(measure)
