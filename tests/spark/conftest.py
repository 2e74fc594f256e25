"""One Spark session for all tests here, as starting one takes longer than most of them. They run in one process.

The environment of the JVM, and so of every worker of Spark, is fixed when it starts: what any test needs in it is set
here. The object store that tests may ask for has its credentials in it from the beginning, and starts when asked for.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from braidlog.testing.seaweed import Seaweed

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 60.0  # how long a test waits for what must come; never reached when all is well
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
# Workers would import pyspark from a zip, which has no compiled modules: three times as long for each of them.
_UNZIPPED: Final = """import sys
sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
"""
# These run for seconds or minutes, beside other tests: the better compiler, the parallel collector and the proof that
# Spark's own classes are sound cost more than they give.
_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def environment(folder: Path) -> dict[str, str]:
    """What a process that starts Spark needs: ours on the path of all its workers, which start quickly."""
    (folder / "sitecustomize.py").write_text(_UNZIPPED)
    (folder / "spark-defaults.conf").write_text(
        f"spark.driver.extraJavaOptions {_JAVA}\nspark.executor.extraJavaOptions {_JAVA}\n"
    )
    path = [str(folder), str(ROOT / "src"), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    return {
        "PYTHONPATH": ":".join(dict.fromkeys(path)),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LAUNCHER_OPTS": _JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def sleeping_seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """An S3 server that has credentials already, but was not started."""
    server = Seaweed(tmp_path_factory.mktemp("seaweed"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3(sleeping_seaweed: Seaweed) -> Seaweed:
    """The same, started. Sessions of Spark are let in."""
    os.environ.update(sleeping_seaweed.environment)
    sleeping_seaweed.resume()
    sleeping_seaweed.create_bucket(sleeping_seaweed.bucket)
    return sleeping_seaweed


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory, sleeping_seaweed: Seaweed) -> dict[str, str]:
    """For scripts that start a Spark of their own."""
    return environment(tmp_path_factory.mktemp("site")) | dict(sleeping_seaweed.environment)


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores of this machine."""
    before = dict(os.environ)
    os.environ.update(spark_environment)
    builder = SparkSession.builder.master("local[2]").appName("braidlog")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Where a test keeps its logs."""
    return str(tmp_path / "logs.braid")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a test's query keeps how far it got."""
    return str(tmp_path / "checkpoint")


def eventually(true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until it is, without taking a core for it."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        pause.wait(0.02)
