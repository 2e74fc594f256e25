"""Processes are killed before they publish, or before they hear of it: nothing is lost, bound twice or left behind."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog import Upload, UploadedObject, bulk, errors, limits
from braidlog.testing.cluster import Cluster
from tests.e2e.conformance import PATIENCE_S, numbered, values

STORE = """
import os, pickle, sys
import braidlog, pyarrow as pa
from braidlog import bulk

folder, publish = sys.argv[1], sys.argv[2] == "publish"
braid = braidlog.open(folder)
log = braid.create("orders")
log.append(b"before")
upload = log.upload(ttl=float(sys.argv[3]))
with bulk.ObjectWriter(upload) as writer:
    writer.add(pa.table({"value": [b"%d" % number for number in range(9)]}))
if publish:
    log.publish(writer.close(), writer="job", sequence=1)
sys.stdout.buffer.write(pickle.dumps((upload, writer.close())))
sys.stdout.flush()
os.close(1)
sys.stdin.read()
"""


def killed_after(folder: Path, deed: str, ttl_s: float) -> tuple[Upload, list[UploadedObject]]:
    """Another process does this and is killed, before it could close anything."""
    with subprocess.Popen(
        [sys.executable, "-c", STORE, str(folder), deed, str(ttl_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        told: tuple[Upload, list[UploadedObject]] = pickle.loads(process.stdout.read())
        process.send_signal(signal.SIGKILL)
    return told


def until(condition: Callable[[], bool]) -> None:
    never = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        never.wait(limits.PROCESS_POLL_S)


def test_what_was_stored_before_a_kill_is_published_after_it(tmp_path: Path) -> None:
    _, objects = killed_after(tmp_path / "b", "store", 600)
    with braidlog.open(tmp_path / "b") as braid:
        log = braid.log("orders")
        assert values(log.read(0)) == [b"before"]
        assert log.publish(objects) == range(1, 10)
    with braidlog.open(tmp_path / "b") as braid:
        assert values(braid.log("orders").read(1)) == numbered(9)


def test_what_is_published_again_after_a_kill_is_there_once(tmp_path: Path) -> None:
    _, objects = killed_after(tmp_path / "b", "publish", 600)
    with braidlog.open(tmp_path / "b") as braid:
        log = braid.log("orders")
        assert log.publish(objects, writer="job", sequence=1) == range(1, 10)
        assert values(log.read(0)) == [b"before", *numbered(9)]
        with pytest.raises(errors.ConditionFailed, match="is over"):
            log.publish(objects)


def test_what_was_never_published_is_deleted_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the keeper, while the braid is open; nothing asks it to."""
    upload, objects = killed_after(tmp_path / "b", "store", 1)
    monkeypatch.setattr(limits, "KEEPER_PERIOD_S", 0.02)
    monkeypatch.setattr(limits, "SWEEP_S", 0.02)
    path = Path(upload.objects, objects[0].object)
    with braidlog.open(tmp_path / "b") as braid:
        until(lambda: not path.exists())
        with pytest.raises(errors.ConditionFailed, match="is over"):
            braid.log("orders").publish(objects)
        late = Path(upload.objects, f"{upload.epoch:08x}-0000beef.arrow")
        late.write_bytes(b"by a process that did not know that it was over")
        monkeypatch.setattr(limits, "SWEEP_IDLE_S", 0.02)
        until(lambda: not late.exists())


def test_a_cluster_whose_processes_are_killed_publishes_once(tmp_path: Path) -> None:
    """The metadata and a broker are killed between storing and publishing, and the metadata once more."""
    with Cluster.start(str(tmp_path / "cluster"), brokers=2) as cluster, braidlog.open(cluster.url) as braid:
        log = braid.create("orders")
        upload = log.upload()
        with bulk.ObjectWriter(upload) as writer:
            writer.add(pa.table({"value": numbered(9)}))
        broker = next(name for name in sorted(cluster.processes) if name != "metadata")
        for name in ("metadata", broker):
            cluster.kill(name)
            cluster.restart(name)
        assert log.publish(writer.close(), writer="job", sequence=1) == range(9)
        cluster.kill("metadata")
        cluster.restart("metadata")
        assert log.publish(writer.close(), writer="job", sequence=1) == range(9)
        assert values(log.read(0)) == numbered(9)
