"""Totals of each shop in tumbling windows, though events come late, come twice, or make no sense.

What a stream processor must get right, and what its tests try on a fork: events that are late by less than `LATEST` are
counted in the window they belong to, those that come again within that time are counted once, and what is malformed is
left out. An event that is later than that may be dropped: when, depends on how far the stream had come.

    python -m apps.pipelines.tumbling --url sales.braid
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from apps.pipelines.command import Command, decoded

SALE: Final = "id string, at bigint, shop string, amount bigint"
WINDOW: Final = "5 seconds"
LATEST: Final = "10 seconds"


def sales(records: DataFrame) -> DataFrame:
    """What can be understood of the events."""
    found = decoded(records, SALE).filter("id is not null and at is not null and shop is not null and amount > 0")
    return found.withColumn("at", f.timestamp_millis("at"))


def totals(records: DataFrame) -> DataFrame:
    """Sales and their sum, for each window and shop; each sale once."""
    return (
        sales(records)
        .withWatermark("at", LATEST)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.window("at", WINDOW), "shop")
        .agg(f.count("*").alias("sales"), f.sum("amount").alias("total"))
        .select(f.col("window.start").alias("begins"), "shop", "sales", "total")
    )


def draw(rng: Random, count: int) -> list[dict[str, object]]:
    """Sales in order of time, except that some come late, some twice, and some are none."""
    drawn: list[dict[str, object]] = []
    for number in range(count):
        fate = rng.random()
        if fate < 0.05 and drawn:
            drawn.append(rng.choice(drawn[-40:]))
        elif fate < 0.08:
            drawn.append({"id": f"m{number}", "at": "yesterday", "shop": 7})
        else:
            late = rng.randrange(9_000) if fate < 0.2 else 60_000 if fate > 0.98 else 0
            drawn.append(
                {
                    "id": f"e{number}",
                    "at": 1_700_000_000_000 + number * 100 - late,
                    "shop": rng.choice(("north", "south")),
                    "amount": rng.randrange(1, 100),
                }
            )
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    with Command(__doc__, "sales", draw, argv, output="totals") as command:
        command.run(totals).orderBy("begins", "shop").show(20, truncate=False)


if __name__ == "__main__":
    main()
