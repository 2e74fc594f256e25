"""A driver that is killed, with its JVM, between any two steps of a batch, and started again from its checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import braidlog
from tests.spark import faulty
from tests.spark.conftest import ROOT
from tests.spark.test_sink import swept
from tests.spark.test_sink_stream import ROWS, batch, committed

BATCHES = 2  # that a driver gets to, about
DRIVER_S = 600.0


def drive(folder: Path, environment: dict[str, str], batches: int, step: str, ends: int) -> None:
    """Until it has committed so many batches, or is killed at that step."""
    command = [sys.executable, "-m", "tests.spark.sink_driver", str(folder), str(batches), step]
    told = folder / "driver.log"
    with open(told, "ab") as log:
        ended = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, stdout=log, stderr=log, check=False, timeout=DRIVER_S
        )
    assert ended.returncode == ends, told.read_text()


def test_a_driver_that_is_killed_loses_and_repeats_nothing(tmp_path: Path, spark_environment: dict[str, str]) -> None:
    directory, checkpoint = str(tmp_path / "logs.braid"), str(tmp_path / "checkpoint")
    with braidlog.open(directory) as braid:
        braid.create("orders")
    batches = 0
    for step in faulty.STEPS:
        drive(tmp_path, spark_environment, batches + BATCHES, step, ends=-signal.SIGKILL)
        assert faulty.struck(directory)
        batches = committed(checkpoint)
    drive(tmp_path, spark_environment, batches + BATCHES, "-", ends=0)
    with braidlog.open(directory, read_only=True) as braid:
        found = [record.value for record in braid.log("orders").read(0)]
    count = committed(checkpoint)
    whole = [value for number in range(count + 1) for value in batch(number)]
    assert found in (whole[:-ROWS], whole)  # the query was stopped, perhaps before the last one was in Spark's books
    left = {part.object for part in plan(directory).parts}
    assert swept(directory, 2 * 3600, but=left)


def plan(directory: str) -> braidlog.Plan:
    with braidlog.open(directory, read_only=True) as braid:
        return braid.log("orders").plan()
