"""For those who move much: records straight from and to the store, past whoever serves the logs."""

from braidlog.bulk.reading import COLUMNS, read_parts
from braidlog.bulk.writing import ObjectWriter

__all__ = ["COLUMNS", "ObjectWriter", "read_parts"]
