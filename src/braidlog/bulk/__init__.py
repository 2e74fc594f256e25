"""Large amounts, past every server: processes write Arrow data to the object store themselves, for `Log.publish`."""

from braidlog.bulk.writing import ObjectWriter

__all__ = ["ObjectWriter"]
