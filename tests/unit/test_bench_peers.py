"""The benchmarks' drivers and servers, without the systems that they are for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.peers import line_up, servers
from bench.peers.braid import BraidService
from bench.peers.driver import Workload
from bench.peers.servers import CLIENT_CORES, SERVER_CORES, Placement, Unavailable

CORES = servers.usable_cores()


def test_batches_hold_every_record_once() -> None:
    batches = list(Workload(25, 100, 10, 3_500, 0.0).batches())
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert {len(value) for batch in batches for value in batch} == {100}


def test_bytes_in_flight_are_whole_batches_and_at_least_one() -> None:
    assert Workload(100, 100, 10, 3_500, 0.0).batches_in_flight == 3
    assert Workload(100, 100, 10, 1, 0.0).batches_in_flight == 1


def test_cores_are_those_of_the_environment() -> None:
    core = str(min(CORES))
    placement = Placement.chosen({SERVER_CORES: core, CLIENT_CORES: f"{core}-{core}"})
    assert placement.server == placement.client == {min(CORES)}


@pytest.mark.parametrize("text", ["", "x", "0-", "99999", "3-1"])
def test_cores_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Unavailable, match="cores"):
        Placement.chosen({SERVER_CORES: text})


def test_an_unknown_system_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(line_up.SYSTEMS, "redis,paper")
    with pytest.raises(Unavailable, match="paper: there are braid, kafka"):
        line_up.chosen()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system keeps nothing to its cores")
def test_a_server_is_kept_to_its_cores_and_stopped(tmp_path: Path) -> None:
    said = "import os, signal; print(sorted(os.sched_getaffinity(0)), flush=True); signal.pause()"
    core = frozenset({max(CORES)})
    with servers.running("a server", [sys.executable, "-c", said], core, tmp_path) as server:
        server.wait_until(lambda: server.messages.read_text() == f"[{max(CORES)}]\n", 60.0)
        assert server.process.poll() is None
    assert server.process.returncode is not None
    assert os.sched_getaffinity(0) == CORES


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('the port is taken')"]
    with (
        servers.running("a server", command, CORES, tmp_path) as server,
        pytest.raises(Unavailable, match="status 1: the port is taken"),
    ):
        server.wait_until(lambda: False, 60.0)


def test_a_server_that_is_never_ready_is_given_up_and_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with (
        servers.running("a server", command, CORES, tmp_path) as server,
        pytest.raises(Unavailable, match=r"not ready after 0\.1 s"),
    ):
        server.wait_until(lambda: False, 0.1)
    assert server.process.returncode is not None


def test_an_installation_is_made_once_and_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(servers.CACHE, str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise Unavailable("no network")

    with pytest.raises(Unavailable, match="no network"):
        servers.installed("thing", fail)
    assert list(tmp_path.iterdir()) == []
    folder = servers.installed("thing", lambda folder: (folder / "whole").write_text("") and None)
    assert (folder / "whole").exists()
    assert servers.installed("thing", fail) == folder


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Unavailable, match="installing it needs `no-such-program`"):
        servers.run(["no-such-program"], "installing it", 1.0)


def test_a_driver_appends_tails_and_reads_in_bulk(tmp_path: Path) -> None:
    """All that a figure asks of a driver, on the embedded log: its readers are processes that only look."""
    driver = BraidService(str(tmp_path / "braid"))
    try:
        assert driver.append_throughput(1_000, 100, 100, 1_000_000, 5.0) > 0
        assert len(driver.append_latency(20, 100)) == 20
        taken = driver.tail_read_latency(20, 100, 0.0)
        assert len(taken.appended) == len(taken.read) == 20
        assert all(0 < seconds < 60 for seconds in taken.read)
        driver.fill_for_bulk_read(1_000_000)
        with driver.bulk_read(60.0) as bulk:
            assert len(driver.append_latency(5, 100)) == 5
        assert bulk.bytes_per_s > 0
    finally:
        driver.close()


def test_every_system_says_what_its_acknowledgement_promises() -> None:
    driver = BraidService("braid://127.0.0.1:1")
    assert "synced before it is acknowledged" in driver.durability
    assert [system.key for system in line_up.ALL] == ["braid", "kafka", "nats", "redis", "braid-apart"]
