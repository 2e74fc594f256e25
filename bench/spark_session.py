"""The Spark session of the figures that need one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.harness import Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"  # one rename a file
)


@contextlib.contextmanager
def session(cores: int, folder: Path) -> Iterator[SparkSession]:
    """The same for a while."""
    started = start(cores, folder)
    try:
        yield started
    finally:
        started.stop()


def start(cores: int, folder: Path) -> SparkSession:
    """A local session on so many cores, with logs and forks as a source and a sink. `folder` is for what it spills."""
    from pyspark.sql import SparkSession

    from braidlog.spark import register

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the first python3 on the path
    scratch = str(folder)
    made = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("braidlog bench")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", scratch)
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINTS)
        .getOrCreate()
    )
    register(made)
    return made


def describe(figure: Figure, cores: int) -> None:
    """How Spark was run, for the figure's notes."""
    from pyspark import __version__

    figure.notes.append(
        f"Spark {__version__}, local[{cores}], 6 GiB of heap, no cluster: everything is in the page cache and shares "
        "the machine's cores"
    )
