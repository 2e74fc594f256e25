"""From the name of a file and its format to chunks of records."""

from __future__ import annotations

from io import BufferedIOBase

from braidlog.cli.formats import Chunks, Columns
from braidlog.cli.formats.lines import read_json_lines, read_lines


def read_chunks(file: BufferedIOBase, name: str, form: str, *, records: bool, columns: Columns) -> Chunks:
    """All records of an open file; `name` is what complaints call it."""
    if form == "lines":
        return read_lines(file, name)
    if form == "jsonl":
        return read_json_lines(file, name, records=records)
    from braidlog.cli.formats.tables import read_arrow, read_csv, read_parquet

    if form == "csv":
        return read_csv(file, name, columns)
    if form == "parquet":
        return read_parquet(file, name, columns)
    return read_arrow(file, name, columns)
