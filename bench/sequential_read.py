"""Reading a log from end to end as Arrow, beside pyarrow reading the very same object files."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import braidlog
from bench import harness
from bench.harness import MIB, Figure, Options

OURS: Final = "braidlog, read_arrow"
THEIRS: Final = "pyarrow, the same files without mmap"
BATCHES_PER_STEP: Final = 4  # as many as an object takes


def measure(options: Options) -> Figure:
    """Bytes per second of read_arrow, beside pyarrow reading the same files without mmap; both sum the value bytes."""
    figure = Figure(
        "sequential_read",
        "Sequential read of a whole log from the page cache",
        "record bytes",
        "MiB/s of values",
        notes=[
            "read_arrow checks the CRC-32C of every block it reads and adds a position column; pyarrow does neither"
        ],
        log_y=False,
    )
    ours, theirs = figure.line(OURS), figure.line(THEIRS)
    total = options.pick(256, 64) * MIB
    for size in (100, 4096):
        with harness.folder(options) as path, braidlog.open(path) as braid:
            log = braid.create("records")
            values = [os.urandom(size) for _ in range(MIB // size)]
            batches = total // MIB
            for ticket in [log.submit(values) for _ in range(batches)]:
                ticket.durable()
            wanted = batches * len(values) * size
            parts = log.plan().parts
            assert all(part.object is not None for part in parts), "something is not packed yet"
            names = dict.fromkeys(str(part.object) for part in parts)
            step = BATCHES_PER_STEP * len(values)
            files = [path / "objects" / name for name in names]
            variants = {OURS: partial(_read_arrow, log, step, wanted), THEIRS: partial(_pyarrow, files, wanted)}
            harness.interleave(variants, 1)  # so that both have the memory they need
            taken = harness.interleave(variants, options.pick(21, 5))
        ours.add(size, taken[OURS])
        theirs.add(size, taken[THEIRS])
        figure.at_least(f"{OURS} over {THEIRS}, records of {size} B", harness.paired(taken[OURS], taken[THEIRS]), 0.5)
    return figure


def _read_arrow(log: braidlog.Log, step: int, wanted: int) -> float:
    """Go through the log in steps as large as the files, so that both sides hold as much memory at a time."""
    begun = time.perf_counter()
    found = 0
    for start in range(0, log.tail(), step):
        found += _value_bytes(log.read_arrow(start, start + step).column("value"))
    took = time.perf_counter() - begun
    assert found == wanted, f"{found} of {wanted} bytes were read"
    return wanted / MIB / took


def _pyarrow(files: list[Path], wanted: int) -> float:
    begun = time.perf_counter()
    found = 0
    for file in files:
        with pa.OSFile(str(file)) as source:
            found += _value_bytes(pa.ipc.open_file(source).read_all().column("value"))
    took = time.perf_counter() - begun
    assert found == wanted, f"{found} of {wanted} bytes were read"
    return wanted / MIB / took


def _value_bytes(column: pa.ChunkedArray) -> int:
    total: int = pc.sum(pc.binary_length(column)).as_py()
    return total


if __name__ == "__main__":
    harness.main(measure)
