"""For those who move much: records straight from and to the store, past whoever serves the logs."""

from braidlog.bulk.reading import COLUMNS, read_parts

__all__ = ["COLUMNS", "read_parts"]
