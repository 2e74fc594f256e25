"""What a user of Spark sees when something is wrong: one clear message, on the driver."""

from __future__ import annotations

from pyspark.errors import PySparkException


class BraidlogFailed(PySparkException):
    """Something that the user can mend; the message begins with what kind of error of braidlog it was."""


BraidlogFailed.__module__ = "braidlog.spark"  # as it is imported, and as it is shown
