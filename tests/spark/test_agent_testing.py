"""The testing agent against the pipeline of production, run by Spark on forks, and against one with a mistake in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import SystemRandom

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import braidlog
from apps.agents import testing
from apps.agents.live_sales import LiveSales
from apps.agents.reports import CaseReport
from apps.agents.scripted import scripted
from apps.agents.testing_script import script
from apps.agents.under_test_spark import pipeline
from apps.agents.workplace import workplace
from apps.pipelines.tumbling import LATEST, WINDOW, sales, totals
from braidlog.spark.pipelines import Pipeline

HISTORY = 300  # records that Spark takes first; those of the test are in the next batch


def tried(
    spark: SparkSession, directory: str, tested: Pipeline, cases: Sequence[str], batch_records: int = HISTORY
) -> dict[str, CaseReport]:
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")

    async def work(braid: braidlog.Braid) -> dict[str, CaseReport]:
        async with workplace(braid.url, agent="tester") as place:
            processor = pipeline(tested, spark, braid, batch_records=batch_records)
            answers = await testing.try_out(place, scripted(script), processor, cases=cases)
            assert await place.forks_there() == []
        return {answer.output.case: answer.output for answer in answers}

    with braidlog.open(directory) as braid:
        with LiveSales(braid, seed, history=HISTORY) as live:
            reports = asyncio.run(work(braid))
        assert live.unharmed()
    return reports


def test_windows_by_spark_are_right_whatever_comes_between(spark: SparkSession, directory: str) -> None:
    cases = ["late", "duplicate", "malformed"]
    reports = tried(spark, directory, totals, cases)
    assert {case: report.verdict for case, report in reports.items()} == dict.fromkeys(cases, "right"), reports
    assert all(report.live_between for report in reports.values())


def edge_before(records: DataFrame) -> DataFrame:
    """As `totals`, but a sale at the very beginning of a window is put into the one before."""
    moved = sales(records).withColumn("at", f.expr("at - interval 1 millisecond"))
    return (
        moved.withWatermark("at", LATEST)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.window("at", WINDOW), "shop")
        .agg(f.count("*").alias("sales"), f.sum("amount").alias("total"))
        .select(f.col("window.start").alias("begins"), "shop", "sales", "total")
    )


def test_a_pipeline_that_is_wrong_by_a_millisecond_is_found_out(spark: SparkSession, directory: str) -> None:
    report = tried(spark, directory, edge_before, ["boundary"], batch_records=100 * HISTORY)["boundary"]
    assert report.verdict == "wrong", report
    ((sale,),) = report.triggers
    assert sale.value["at"] % 5_000 == 0
    before, after = report.differences
    assert (before.begins, after.begins) == (sale.value["at"] - 5_000, sale.value["at"])
    assert before.shop == after.shop == sale.value["shop"]
    assert before.got == [(before.expected[0][0] + 1, before.expected[0][1] + sale.value["amount"])]
