"""Logs and forks in PySpark: `spark.read.format("braidlog")`, and what helps around it. Needs `braidlog[spark]`."""

try:
    import pyspark.sql.datasource  # noqa: F401
except ImportError as error:
    raise ImportError(f'braidlog.spark needs PySpark: pip install "braidlog[spark]" ({error})') from None

from braidlog.spark.errors import BraidlogFailed
from braidlog.spark.json_rows import as_json_values
from braidlog.spark.registration import register
from braidlog.spark.source import BraidDataSource
from braidlog.spark.values import arrow_values, json_values

__all__ = ["BraidDataSource", "BraidlogFailed", "arrow_values", "as_json_values", "json_values", "register"]
