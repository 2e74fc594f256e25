"""`braid bench`: what this machine and this disk give, in a few seconds. Nothing is compared; nothing is kept."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.failures import Refused
from braidlog.cli.output import console, say, write_json
from braidlog.cli.parameters import duration

if TYPE_CHECKING:
    from braidlog import Log

_VALUE: Final = bytes(100)
_BATCH: Final = [_VALUE] * 10_000
_MB: Final = 1e6


class Figures(Struct):
    """What was measured, all on one directory."""

    directory: str
    appends: int
    append_p50_us: float
    append_p99_us: float
    batch_records_per_s: float
    batch_mb_per_s: float
    forks: int
    fork_p50_us: float
    fork_p99_us: float
    read_records_per_s: float
    read_arrow_mb_per_s: float


@click.command(cls=Verb)
@click.option(
    "--dir", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("."), help="On which disk."
)
@click.option("--seconds", type=duration, default=1.0, show_default=True, help="How long to measure each thing.")
@pass_call
def bench(call: Call, folder: Path, seconds: float) -> None:
    """Measure appends, batches, forks and reads in a temporary directory under --dir."""
    if not folder.is_dir():
        raise Refused(f"there is no directory {folder}: --dir says on which disk to measure")
    say(f"measuring for about {4 * seconds:g} s")
    figures = _measure(folder, seconds)
    if call.json:
        write_json(msgspec.to_builtins(figures))
    else:
        _show(figures)


def _measure(folder: Path, seconds: float) -> Figures:
    import braidlog

    with (
        tempfile.TemporaryDirectory(prefix="braid-bench-", dir=folder) as place,
        braidlog.open(place) as braid,
    ):
        single, bulk = braid.create("single"), braid.create("bulk")
        appends = _repeat(lambda: single.append(_VALUE), seconds)
        batches = _repeat(lambda: bulk.append_many(_BATCH), seconds)
        records = len(batches) * len(_BATCH)
        forks = _repeat(single.cfork, seconds)
        # Tables first: reading records keeps the blocks in memory, and the disk is to be measured here.
        arrow_s = _best(lambda: bulk.read_arrow(0, records), seconds / 2)
        read_s = _best(lambda: _read_all(bulk), seconds / 2)
    return Figures(
        directory=str(folder),
        appends=len(appends),
        append_p50_us=statistics.median(appends) * 1e6,
        append_p99_us=_percentile(appends, 0.99) * 1e6,
        batch_records_per_s=records / sum(batches),
        batch_mb_per_s=records * len(_VALUE) / sum(batches) / _MB,
        forks=len(forks),
        fork_p50_us=statistics.median(forks) * 1e6,
        fork_p99_us=_percentile(forks, 0.99) * 1e6,
        read_records_per_s=records / read_s,
        read_arrow_mb_per_s=records * len(_VALUE) / arrow_s / _MB,
    )


def _read_all(log: Log) -> None:
    for _ in log.subscribe(0, follow=False):
        pass


def _repeat(call: Callable[[], object], seconds: float) -> list[float]:
    """The duration of each call, in seconds, until the time is up."""
    until = time.perf_counter() + seconds
    taken: list[float] = []
    while not taken or time.perf_counter() < until:
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def _best(call: Callable[[], object], seconds: float) -> float:
    return min(_repeat(call, seconds))


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def _show(figures: Figures) -> None:
    from rich.table import Table

    table = Table(title=f"braidlog on {figures.directory}", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_row("append of 100 B, durable, median", f"{figures.append_p50_us:,.0f} µs")
    table.add_row("append of 100 B, durable, 99 %", f"{figures.append_p99_us:,.0f} µs")
    table.add_row(
        "batches of 10,000 x 100 B",
        f"{figures.batch_records_per_s:,.0f} records/s ({figures.batch_mb_per_s:,.0f} MB/s)",
    )
    table.add_row("fork, durable, median", f"{figures.fork_p50_us:,.0f} µs")
    table.add_row("fork, durable, 99 %", f"{figures.fork_p99_us:,.0f} µs")
    table.add_row("read as records", f"{figures.read_records_per_s:,.0f} records/s")
    table.add_row("read as an Arrow table", f"{figures.read_arrow_mb_per_s:,.0f} MB/s")
    console().print(table)
