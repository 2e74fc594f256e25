"""Spark's Python processes: what they imported is not looked through for garbage after each call."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidlog.errors import NotFound
from braidlog.spark import BraidlogFailed, workers


def test_a_worker_sets_aside_what_it_imported(spark: SparkSession) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            counts = []
            for _ in range(2):
                with workers.called():
                    pass
                counts.append(gc.get_freeze_count())
            yield pa.RecordBatch.from_pydict({"once": counts[:1], "again": counts[1:]})

    [found] = spark.range(1).repartition(1).mapInArrow(frozen, "once long, again long").collect()
    assert found.once > 10_000
    assert found.again == found.once  # while nothing more is imported


def test_a_process_of_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORKER", "no variable of this name")
    before = gc.get_freeze_count()
    with workers.called():
        pass
    assert gc.get_freeze_count() == before


def test_errors_of_braidlog_leave_as_one_message() -> None:
    with pytest.raises(BraidlogFailed, match=r"^NotFound: there is no log") as raised, workers.called():
        raise NotFound("there is no log 'x'")
    assert raised.value.__suppress_context__
