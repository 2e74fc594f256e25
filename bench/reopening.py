"""How long opening takes after much was written, and after the writer was killed."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import braidlog
from bench import harness
from bench.harness import Figure, Options

CLEAN: Final = "after a clean close"
KILLED: Final = "after SIGKILL"
RECORD_BYTES: Final = 100
BATCH: Final = 1_000
STEP_BATCHES: Final = 211  # enough for several times what is packed at once


def measure(options: Options) -> Figure:
    """Time to open a directory by the records in it, after a clean close and after SIGKILL."""
    figure = Figure(
        "reopening",
        "Time to open a directory and ask for the tail",
        "records",
        "ms",
        notes=[
            "the page cache is warm: what is compared is what opening does, not how fast the disk is",
            "each run opens a fresh copy, which is synced, files and folders, before the clock starts: opening syncs "
            "what it finds, and would have to write the copy's pages for whoever made it",
            "after SIGKILL it depends on when that came how much is not packed yet and has to be read: so the runs "
            f"take turns among directories whose writers were killed {STEP_BATCHES * BATCH:,} records apart",
        ],
    )
    counts = (10_000, 1_000_000, options.pick(10_000_000, 2_000_000))
    for label in (CLEAN, KILLED):
        with harness.folder(options) as folder:
            written: dict[int, Iterator[tuple[Path, int]]] = {}
            for count in counts:
                steps = options.pick(5, 2) if label == KILLED and count > counts[0] else 1
                written[count] = itertools.cycle(_written(folder / str(count), count, steps, kill=label == KILLED))
            taken = harness.interleave(
                {str(n): partial(_opened, written[n], folder / "copy") for n in counts},
                options.pick(15, 3),
            )
        line = figure.line(label)
        for count in counts:
            line.add(count, taken[str(count)])
        ratio = harness.paired(taken[str(counts[-1])], taken[str(counts[0])])
        figure.at_most(f"{counts[-1]:,} over {counts[0]:,} records, {label}", ratio, 3)
    return figure


def _written(path: Path, count: int, steps: int, *, kill: bool) -> list[tuple[Path, int]]:
    """Directories with so many records, each with a step more than the one before it, and how many they have."""
    written = []
    for step in range(steps):
        more = STEP_BATCHES * BATCH if step else count
        _run_writer(path, more, kill=kill)
        kept = path.with_name(f"{path.name}-{step}")
        _copy(path, kept)
        written.append((kept, count + step * STEP_BATCHES * BATCH))
    return written


def _run_writer(path: Path, count: int, *, kill: bool) -> None:
    """Let another process append to the directory, and let it end as it should or as it should not."""
    command = [sys.executable, "-m", "bench.reopening", "--write", str(path), str(count), "kill" if kill else "close"]
    ended = subprocess.run(command, check=False).returncode
    assert ended == (-signal.SIGKILL if kill else 0), f"the writer ended with {ended}"


def _write(path: Path, count: int, end: str) -> None:
    values = [os.urandom(RECORD_BYTES) for _ in range(BATCH)]
    with braidlog.open(path) as braid:
        log = next(braid.logs(), None) or braid.create("records")
        for _ in range(count // BATCH):
            log.append_many(values)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def _opened(written: Iterator[tuple[Path, int]], copy: Path) -> float:
    """Milliseconds to open a copy: opening mends and cleans, and the next time would find nothing to do."""
    path, count = next(written)
    _copy(path, copy)
    try:
        _sync(copy)
        begun = time.perf_counter()
        with braidlog.open(copy) as braid:
            tail = braid.log("records").tail()
            took = time.perf_counter() - begun
        assert tail == count, f"{tail} of {count} records are there"
    finally:
        shutil.rmtree(copy)
    return took * 1e3


def _copy(path: Path, copy: Path) -> None:
    shutil.copytree(path, copy, copy_function=_link_or_copy, ignore=shutil.ignore_patterns("SOCKET"))


def _link_or_copy(source: str, target: str) -> None:
    """Objects never change, so a second name will do."""
    if source.endswith(".arrow"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _sync(path: Path) -> None:
    """All that is below, so that nothing of it is left to be written."""
    for here, _, names in os.walk(path):
        for name in (*names, "."):
            file = os.open(os.path.join(here, name), os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        _write(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        harness.main(measure)
