"""Words, counted as they come; the counts so far are a log of their own, which is the journal that they come back from.

Each batch writes the counts that it changed, by word, and once, however often it is tried: the sink knows the batch. So
a query that is stopped anywhere goes on from its checkpoint, and the newest count of each word is the count.

    python -m apps.pipelines.wordcount --url words.braid
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from apps.pipelines.command import Command

WORDS: Final = ("log", "fork", "promote", "squash", "hold", "braid", "tail", "trim")


def counts(records: DataFrame) -> DataFrame:
    """Each word with how often it came. As a stream, in update mode: what a batch changed."""
    line = f.lower(f.col("value").cast("string"))
    words = records.select(f.explode(f.regexp_extract_all(line, f.lit(r"([\p{L}']+)"), 1)).alias("word"))
    return words.groupBy("word").count().withColumnRenamed("count", "times")


def newest(journal: DataFrame) -> DataFrame:
    """The counts that a journal comes to: of each word the last that was written, as it only grows."""
    return journal.groupBy("word").agg(f.max("times").alias("times"))


def draw(rng: Random, count: int) -> list[str]:
    """Lines of a few words, some more common than others."""
    weights = range(1, len(WORDS) + 1)
    return [" ".join(rng.choices(WORDS, weights, k=rng.randrange(0, 9))) for _ in range(count)]


def main(argv: Sequence[str] | None = None) -> None:
    with Command(__doc__, "lines", draw, argv, output="counts") as command:
        newest(command.run(counts, mode="update")).orderBy(f.desc("times"), "word").show(20, truncate=False)


if __name__ == "__main__":
    main()
