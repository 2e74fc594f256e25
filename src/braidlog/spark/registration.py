"""Making Spark know the format by name, where it does not find it by itself."""

from __future__ import annotations

from pyspark.sql import SparkSession

from braidlog.spark.source import BraidDataSource


def register(spark: SparkSession) -> None:
    """Let this session say `format("braidlog")`.

    Where braidlog is installed for the Python of the driver, Spark knows it already. This is for sessions that started
    before it was. The executors, and the server of Spark Connect, need braidlog in any case.
    """
    spark.dataSource.register(BraidDataSource)
