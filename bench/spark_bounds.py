"""What Spark takes to hand rows to Python processes, or to take them from there, when these do nothing with them.

No source and no sink that is written in Python can be faster than that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 2 * 1024 * 1024


class SameRows(DataSource):
    """Values that are made once for each task and handed on again and again: options `size`, `count` and `tasks`."""

    @classmethod
    def name(cls) -> str:
        return "same_rows"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: object) -> DataSourceReader:
        del schema
        return _Reader(int(self.options["size"]), int(self.options["count"]), int(self.options["tasks"]))


class _Reader(DataSourceReader):
    def __init__(self, size: int, count: int, tasks: int) -> None:
        self._size = size
        self._count = count
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        ends = [self._count * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition(stop - start) for start, stop in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = min(BATCH_ROWS, max(1, BATCH_BYTES // self._size))
        values = pa.array([os.urandom(self._size) for _ in range(rows)], pa.binary())
        batch = pa.RecordBatch.from_arrays([values], schema=pa.schema([("value", pa.binary())]))
        for first in range(0, partition.value, rows):
            yield batch.slice(0, min(rows, partition.value - first))


def same_rows(spark: SparkSession, size: int, count: int, tasks: int) -> DataFrame:
    """So many values of so many bytes, from processes that do nothing but hand them on."""
    spark.dataSource.register(SameRows)
    return spark.read.format("same_rows").options(size=size, count=count, tasks=tasks).load()


class DropRows(DataSource):
    """A sink that takes rows as Arrow batches, as the log's does, and does nothing with them."""

    @classmethod
    def name(cls) -> str:
        return "drop_rows"

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite
        return _Writer()


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def drop(rows: DataFrame) -> None:
    """Hand all rows to Python processes that do nothing with them."""
    rows.sparkSession.dataSource.register(DropRows)
    rows.write.format("drop_rows").mode("append").save()
