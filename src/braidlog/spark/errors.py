"""What a user of Spark sees when something is wrong: one clear message, on the driver.

Whatever a worker of Spark raises comes to the driver as text, with the frames of Spark's and our insides before it. For
an error that says what to do these are noise, so they are left out. Anything else is a defect, and keeps its frames.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from braidlog.errors import BraidError

# Every worker that Spark starts has one of these. It ends after it reported an exception, so that what is set in its
# environment then touches nobody else.
_WORKER: Final = "PYTHON_WORKER_FACTORY_"
_HIDE: Final = "SPARK_HIDE_TRACEBACK"


class BraidlogFailed(PySparkException):
    """Something that the user can mend; the message begins with what kind of error of braidlog it was."""


BraidlogFailed.__module__ = "braidlog.spark"  # as it is imported, and as it is shown


@contextmanager
def told() -> Iterator[None]:
    """Errors of braidlog leave as one message without frames."""
    try:
        yield
    except BraidError as error:
        if any(name.startswith(_WORKER) for name in os.environ):
            os.environ[_HIDE] = "1"
        raise BraidlogFailed(f"{type(error).__name__}: {error}") from None
