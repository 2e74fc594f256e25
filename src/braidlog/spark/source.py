"""The data source `braidlog`: logs and forks as DataFrames, read and written, in batches and as streams."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from braidlog.errors import InvalidArgument
from braidlog.spark import columns, planning
from braidlog.spark.options import SourceOptions, parse
from braidlog.spark.sessions import reach, settled
from braidlog.spark.workers import called

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FORMAT = "braidlog"


class BraidDataSource(DataSource):
    """What `format("braidlog")` stands for. Options are looked at when it is known what for."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        with called():
            options = parse(self._given, os.environ)
            if options.value_schema is None:
                return columns.schema(headers=options.include_headers)
            return columns.schema_with(options.value_schema, options.value_format, headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        with called():
            return BatchReader(*self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from braidlog.spark.stream import StreamReader

        with called():
            return StreamReader(*self._checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from braidlog.spark import sink

        with called():
            return sink.batch_writer(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from braidlog.spark import sink

        with called():
            return sink.stream_writer(self._given, schema, overwrite)

    def _checked(self, schema: StructType) -> tuple[SourceOptions, StructType]:
        found = parse(self._given, os.environ)
        columns.check(schema, found.format_of_values)
        return dataclasses.replace(found, place=settled(found.place)), schema


class BatchReader(DataSourceReader):
    """Reads what there is when it plans, once for each `load()`: a DataFrame stays what it was."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for given, name in (
            (options.max_offsets_per_trigger, "maxOffsetsPerTrigger"),
            (options.max_bytes_per_trigger, "maxBytesPerTrigger"),
        ):
            if given is not None:
                raise InvalidArgument(f"{name} is for streams: a batch query reads its range at once; leave it out")
        if options.on_fork_end != "fail":
            raise InvalidArgument("onForkEnd=continue is for streams: a batch query reads the log that it names")
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with called(), reach(self._options.place) as braid:
            ranges = planning.batch_ranges(braid, self._options)
            return [BraidPartition(part) for part in planning.partitions(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._schema)


class BraidPartition(InputPartition):
    """What one task reads, encoded."""

    def __repr__(self) -> str:
        return f"<{len(self.value)} bytes of a plan>"


def read(partition: InputPartition, options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """What a task does. Spark makes up an empty partition where there is none."""
    with called():
        if partition.value is not None:
            yield from columns.batches(
                partition.value,
                options.place,
                schema,
                fail=options.fail_on_data_loss,
                value_format=options.format_of_values,
            )
