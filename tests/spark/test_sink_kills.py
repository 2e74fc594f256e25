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
from tests.spark.test_sink_stream import batch, committed

BATCHES = 3  # in Spark's books when a driver is ended


def drive(folder: Path, environment: dict[str, str], batches: int, step: str) -> int:
    """How it ended."""
    command = [sys.executable, "-m", "tests.spark.sink_driver", str(folder), str(batches), step]
    with open(folder / "driver.log", "ab") as told:
        return subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, stdout=told, stderr=told, check=False, timeout=240
        ).returncode


def test_a_driver_that_is_killed_at_any_step_loses_and_repeats_nothing(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    directory, checkpoint = str(tmp_path / "logs.braid"), str(tmp_path / "checkpoint")
    with braidlog.open(directory) as braid:
        braid.create("orders")
    batches = 0
    for step in (faulty.PUBLISHED, faulty.COMMITTING, faulty.STORED):
        batches += BATCHES
        assert drive(tmp_path, spark_environment, batches, step) == -signal.SIGKILL, tmp_path.joinpath(
            "driver.log"
        ).read_text()
        assert faulty.struck(directory)
        batches = committed(checkpoint)
    assert drive(tmp_path, spark_environment, batches + BATCHES, "-") == 0, tmp_path.joinpath("driver.log").read_text()
    count = committed(checkpoint)
    with braidlog.open(directory, read_only=True) as braid:
        found = [record.value for record in braid.log("orders").read(0)]
    whole = [
        value for number in range(count + 1) for value in batch(number)
    ]  # the last one perhaps not in the books yet
    assert found in (whole[: -len(batch(0))], whole)
    left = {part.object for part in plan(directory).parts}
    assert swept(directory, 2 * 3600, but=left)


def plan(directory: str) -> braidlog.Plan:
    with braidlog.open(directory, read_only=True) as braid:
        return braid.log("orders").plan()
