"""Where PySpark finds the format "braidlog": it looks for modules of this name by itself, whoever asks for any format.

So this imports nothing before the format is used, and never fails: it would take other formats down with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # nobody looks for formats without it
    pass
else:
    if TYPE_CHECKING:
        from collections.abc import MutableMapping

        from pyspark.sql.datasource import (
            DataSourceReader,
            DataSourceStreamReader,
            DataSourceStreamWriter,
            DataSourceWriter,
        )
        from pyspark.sql.types import StructType

    class DefaultSource(DataSource):
        """The name, and the way to what it stands for."""

        def __init__(self, options: MutableMapping[str, str]) -> None:
            from braidlog.spark.source import BraidDataSource

            self._source = BraidDataSource(options)

        @classmethod
        def name(cls) -> str:
            return "braidlog"

        def schema(self) -> StructType | str:
            return self._source.schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._source.reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return self._source.streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._source.writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return self._source.streamWriter(schema, overwrite)
