"""`braid export`: a log, or a range of it, into a file or a pipe.

A file gets its name only when it is whole. The range is fixed when the export begins.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final

import click

from braidlog import limits
from braidlog.cli.asking import confirm, yes_option
from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.failures import Refused
from braidlog.cli.formats import FORMATS, STDIN, format_of
from braidlog.cli.ingest import progress
from braidlog.cli.output import Json, say, shown_path, write_json
from braidlog.cli.parameters import POSITION, check_range

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog import Info, Log

_CHUNK_BYTES: Final = 16 * limits.MIB
_CHUNK_ROWS_MAX: Final = 65_536


@click.command(cls=Verb)
@log_argument("log")
@click.argument("file", type=click.Path(), default=STDIN)
@click.option("--format", "form", type=click.Choice(FORMATS), help="What to write. [default: by name; stdout: jsonl]")
@click.option("--records", is_flag=True, help="JSON lines of whole records, not of values alone.")
@click.option("--start", type=POSITION, help="From this position. [default: the beginning]")
@click.option("--stop", type=POSITION, help="Up to and without this position. [default: the end]")
@yes_option
@pass_call
def export(
    call: Call,
    log: str,
    file: str,
    form: str | None,
    records: bool,
    start: int | None,
    stop: int | None,
    yes: bool,
) -> None:
    """Write the records of LOG to FILE, or to stdout.

    Parquet, Arrow and `jsonl --records` keep all of each record, and `import` brings it back. jsonl (the values must be
    JSON), lines and csv keep what fits them. To stdout, Arrow is a stream.
    """
    from braidlog.cli.formats.writing import writer_for

    check_range(start, stop)
    form = format_of(file, form, "jsonl")
    if file != STDIN and os.path.isfile(file):
        confirm(f"Replace {shown_path(file)}?", yes=yes)
    with call.open_reading() as braid:
        source = braid.log(log)
        info = source.info()
        first = info.start if start is None else start
        last = info.readable_tail if stop is None else min(stop, info.readable_tail)
        source.read(first, first)  # raises what reading there would
        count = 0
        with _opened(file) as out, progress(f"from {log}", max(last - first, 0)) as show:
            writer = writer_for(form, out, whole=records, stream=file == STDIN or file.endswith(".arrows"))
            for table in _tables(source, info, first, last):
                writer.write(table)
                count += table.num_rows
                show(count, count)
            writer.close()
    if writer.left_out:
        say(f"keys or headers of {writer.left_out:,} records were left out: jsonl --records, parquet, arrow keep them")
    _tell(call, {"log": log, "file": shown_path(file), "format": form, "records": count, "start": first})


def _tables(log: Log, info: Info, low: int, high: int) -> Iterator[pa.Table]:
    """The range in tables of about equal size: the last one says how many rows the next may have."""
    held = max(info.tail - info.start, 1)
    rows = _rows_for((info.own_bytes + info.shared_bytes) // held)
    while low < high:
        table = log.read_arrow(low, min(low + rows, high))
        if not table.num_rows:  # a hold came over what could be read when we began
            return
        yield table
        low += table.num_rows
        rows = _rows_for(table.nbytes // table.num_rows)


def _rows_for(record_bytes: int) -> int:
    return min(max(_CHUNK_BYTES // max(record_bytes, 1), 1), _CHUNK_ROWS_MAX)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == STDIN:
        yield sys.stdout.buffer
        return
    regular = not os.path.exists(path) or os.path.isfile(path)
    unfinished = f"{path}.unfinished" if regular else path
    try:
        file = open(unfinished, "wb")  # noqa: SIM115  closed below, on every way out
    except FileNotFoundError as error:
        raise Refused(f"cannot write {shown_path(path)}: there is no folder {shown_path(_folder(path))}") from error
    except (OSError, ValueError) as error:
        raise Refused(f"cannot write {shown_path(path)}: {getattr(error, 'strerror', None) or error}") from error
    try:
        with file:
            yield file
        if regular:
            os.replace(unfinished, path)
    except BaseException:
        if regular:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        raise


def _folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _tell(call: Call, summary: dict[str, Json]) -> None:
    if summary["file"] != STDIN:
        if call.json:
            write_json(summary)
        else:
            say(f"{summary['records']:,} records written to {summary['file']}")
