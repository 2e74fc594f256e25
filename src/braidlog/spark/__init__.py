"""Logs and forks in PySpark: `spark.read.format("braidlog")`, and what helps around it. Needs `braidlog[spark]`."""

try:
    import pyspark.sql.datasource  # noqa: F401
except ImportError as error:
    raise ImportError(f'braidlog.spark needs PySpark: pip install "braidlog[spark]" ({error})') from None

from braidlog.spark.errors import BraidlogFailed
from braidlog.spark.expectations import (
    Expectation,
    Failure,
    compared_with_parent,
    equals,
    every_row,
    has_schema,
    row_count,
    satisfies,
)
from braidlog.spark.forks import Produced, run_on_fork
from braidlog.spark.json_rows import as_json_values
from braidlog.spark.pipelines import Pipeline, read_rows, run
from braidlog.spark.registration import register
from braidlog.spark.source import BraidDataSource
from braidlog.spark.time_travel import as_of, forget_tables, table_as_of
from braidlog.spark.validation import SparkValidator, Verdict
from braidlog.spark.values import arrow_values, json_values

__all__ = [
    "BraidDataSource",
    "BraidlogFailed",
    "Expectation",
    "Failure",
    "Pipeline",
    "Produced",
    "SparkValidator",
    "Verdict",
    "arrow_values",
    "as_json_values",
    "as_of",
    "compared_with_parent",
    "equals",
    "every_row",
    "forget_tables",
    "has_schema",
    "json_values",
    "read_rows",
    "register",
    "row_count",
    "run",
    "run_on_fork",
    "satisfies",
    "table_as_of",
]
