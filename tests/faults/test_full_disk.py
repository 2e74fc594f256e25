"""A cluster of real processes whose disk is full for a while: whoever writes is told, nothing acknowledged is lost, and
when there is room again all goes on.

The disk is a tmpfs of a few MiB, once below the objects and snapshots, once below etcd.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.errors import BraidError, OutcomeUnknown, Timeout, Unavailable
from braidlog.testing.replicated import Replicated
from tests.faults import small_disk
from tests.faults.small_disk import SmallDisk

PATIENCE_S = 90.0
LARGE = bytes(2 * limits.INLINE_BYTES_MAX)


@pytest.fixture(autouse=True)
def may_mount(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    if not small_disk.possible(tmp_path / "probe"):
        pytest.skip("a small disk takes Linux and the right to mount")


def test_the_objects_have_no_room(tmp_path: Path) -> None:
    with (
        small_disk.small_disk(tmp_path / "disk", 32) as disk,
        Replicated(
            tmp_path / "cluster", members=1, metadata=3, brokers=1, objects=(disk.folder / "objects").as_uri()
        ) as cluster,
        braidlog.open(cluster.url, timeout=PATIENCE_S) as braid,
    ):
        log = braid.create("orders")
        assert log.append_many([b"small", LARGE]) == range(2)
        disk.fill()
        with pytest.raises(Unavailable, match="No space left") as refused:
            log.append(LARGE)
        assert not isinstance(refused.value, OutcomeUnknown)
        assert log.append(b"rides along") == 2  # what needs no object is taken
        assert log.tail() == 3
        cluster.kill(cluster.leader())  # and what was taken is there for the next leader
        assert log.append(b"after") == 3
        disk.free()
        assert log.append(LARGE) == 4
        assert [record.value for record in log.read(0)] == [b"small", LARGE, b"rides along", b"after", LARGE]


def test_etcd_has_no_room(tmp_path: Path) -> None:
    """It ends by itself when it cannot write: a cluster with one member is down until it is started again."""
    with (
        small_disk.small_disk(tmp_path / "disk", 160) as disk,  # its log takes 64 MiB at once, twice
        Replicated(tmp_path / "cluster", members=1, metadata=3, brokers=1, etcd_folder=disk.folder) as cluster,
        braidlog.open(cluster.url, timeout=PATIENCE_S) as braid,
    ):
        braid.create("orders")
        acknowledged, refusals = _fill_until_refused(cluster, disk)
        assert acknowledged
        assert refusals
        _wait_until(lambda: not cluster.etcd.runs(0))
        _wait_until(lambda: _is_refused(cluster.url))  # as soon as the leader's lease is over
        disk.free()
        cluster.etcd.restart(0)
        with braidlog.open(cluster.url, timeout=PATIENCE_S) as again:
            log = again.log("orders")
            log.append(b"again")
            found = [record.value for record in log.read(0)]
        assert found[-1] == b"again"
        assert len(found) == len(set(found))
        assert set(acknowledged) <= set(found)
        unknown = {value for value, error in refusals if isinstance(error, OutcomeUnknown | Timeout)}
        assert set(found) - set(acknowledged) - {b"again"} <= unknown  # of the others it was said that they are not


def _is_refused(url: str) -> bool:
    try:
        with braidlog.open(url, timeout=1.0) as braid:
            list(braid.logs())
    except Unavailable:
        return True
    return False


def _fill_until_refused(cluster: Replicated, disk: SmallDisk) -> tuple[list[bytes], list[tuple[bytes, BraidError]]]:
    """Append while the disk gets full and a little longer; answers what was acknowledged, and what was not and why."""
    acknowledged: list[bytes] = []
    refusals: list[tuple[bytes, BraidError]] = []
    enough = threading.Event()

    def work() -> None:
        with braidlog.open(cluster.url, timeout=3.0) as braid:
            log = braid.log("orders")
            while not enough.is_set():
                value = b"%d " % (len(acknowledged) + len(refusals)) + bytes(10_000)
                try:
                    log.append(value)
                except BraidError as error:
                    refusals.append((value, error))
                else:
                    acknowledged.append(value)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        _wait_until(lambda: len(acknowledged) >= 20 or not worker.is_alive())
        disk.fill()
        _wait_until(lambda: len(refusals) >= 2 or not worker.is_alive())
    finally:
        enough.set()
        worker.join()
    assert {type(error) for _, error in refusals} <= {Unavailable, OutcomeUnknown, Timeout}
    return acknowledged, refusals


def _wait_until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
