"""Readings of sensors: statistics of each sensor in windows of time, and the readings that stand far out.

`statistics` is for a stream: it keeps a window open until no reading can come that late. `outliers` looks at all that
there is, so it is for a log as of some position: a severed fork, which does not move while it is looked at.

    python -m apps.pipelines.iot --url readings.braid
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from apps.pipelines.command import Command, decoded
from braidlog.spark.time_travel import table_as_of

READING: Final = "sensor string, metric string, at bigint, reading double, status string"
WINDOW: Final = "10 seconds"
LATEST: Final = "20 seconds"  # how late a reading may come
DEVIATIONS: Final = 6.0  # this many from the median is far out
NORMAL: Final = 1.4826  # the median of deviations is so much smaller than the standard deviation of a normal curve


def readings(records: DataFrame) -> DataFrame:
    """What can be understood; `at` is when a sensor measured, not when the log was told."""
    found = decoded(records, READING).filter("sensor is not null and at is not null and reading is not null")
    return found.withColumn("at", f.timestamp_millis("at"))


def statistics(records: DataFrame) -> DataFrame:
    """For each window, sensor and metric: how many readings, and how they lie."""
    return (
        readings(records)
        .withWatermark("at", LATEST)
        .groupBy(f.window("at", WINDOW), "sensor", "metric")
        .agg(
            f.count("*").alias("readings"),
            f.avg("reading").alias("mean"),
            f.stddev_pop("reading").alias("deviation"),
            f.min("reading").alias("least"),
            f.max("reading").alias("greatest"),
            f.count_if(f.col("status") != "ok").alias("troubled"),
        )
        .select(f.col("window.start").alias("begins"), *_STATISTICS)
    )


_STATISTICS: Final = ("sensor", "metric", "readings", "mean", "deviation", "least", "greatest", "troubled")


def outliers(records: DataFrame, deviations: float = DEVIATIONS) -> DataFrame:
    """Readings far from the median of their sensor and metric.

    Measured in medians and not in means: a few wild readings would drag those along, and hide behind them.
    """
    of = ["sensor", "metric"]
    found = readings(records)
    middles = found.groupBy(*of).agg(f.median("reading").alias("middle"))
    off = found.join(middles, of).withColumn("off", f.abs(f.col("reading") - f.col("middle")))
    spreads = off.groupBy(*of).agg((f.median("off") * NORMAL).alias("spread"))
    far = f.col("off") > deviations * f.greatest("spread", f.lit(1e-9))
    return off.join(spreads, of).filter(far).select("position", *of, "at", "reading", "middle", "spread")


def draw(rng: Random, count: int) -> list[dict[str, object]]:
    """Readings of a few sensors: mostly in order of time, some late, and one in a hundred wild."""
    drawn: list[dict[str, object]] = []
    for number in range(count):
        metric = rng.choice(("temperature", "humidity"))
        reading = rng.gauss(21.0, 0.6) if metric == "temperature" else rng.gauss(45.0, 2.0)
        if rng.random() < 0.01:
            reading *= rng.choice((-1.0, 2.0, 3.0))
        drawn.append(
            {
                "sensor": f"s{rng.randrange(6)}",
                "metric": metric,
                "at": 1_700_000_000_000 + number * 100 - (rng.randrange(9_000) if rng.random() < 0.1 else 0),
                "reading": round(reading, 3),
                "status": "ok" if rng.random() < 0.97 else "low battery",
            }
        )
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    with Command(__doc__, "readings", draw, argv, output="statistics") as command:
        produced = command.run(statistics)
        produced.orderBy("begins", "sensor", "metric").show(20, truncate=False)
        with table_as_of(command.spark, command.url, command.log) as then:
            outliers(then).orderBy("position").show(20, truncate=False)


if __name__ == "__main__":
    main()
