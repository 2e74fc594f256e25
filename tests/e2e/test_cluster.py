"""A cluster of processes: it starts whole or not at all, its processes can be struck one by one, and it ends.

Two processes serve most of this module, a metadata process and one broker.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.cli import exit_codes
from braidlog.errors import AlreadyExists, Corrupt, InvalidArgument, NotFound, Unavailable
from braidlog.testing.cluster import Cluster, StartFailed
from braidlog.testing.processes import ProcessId
from tests.e2e.test_cli import Command

DEADLINE_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("cluster") / "logs", brokers=1) as started:
        yield started
    assert {one.state for one in started.processes.values()} == {"down"}
    assert not (started.directory / "cluster" / "cluster.json").exists()


@pytest.fixture
def braid(cluster: Cluster) -> Command:
    return Command(cluster.directory)


def log_named(cluster: Cluster, name: str) -> braidlog.Log:
    """A new log, over a connection that closes with the test's process at the latest."""
    return braidlog.open(cluster.url, timeout=DEADLINE_S).create(name)


def test_clients_are_served_by_the_brokers(cluster: Cluster) -> None:
    assert list(cluster.processes) == ["metadata", "broker-1"]
    assert cluster.url == f"braid://{cluster.processes['broker-1'].address}"
    with braidlog.open(cluster.url) as opened:
        opened.create("orders").append(b"x")
        assert [record.value for record in opened.log("orders").read(0)] == [b"x"]


def test_status_shows_each_process(cluster: Cluster, braid: Command) -> None:
    head, *lines = braid.lines("cluster", "status")
    assert head.split() == ["name", "role", "pid", "address", "state", "since"]
    for line, one in zip(lines, cluster.processes.values(), strict=True):
        assert line.split()[:5] == [one.name, one.role, str(one.pid), one.address, "up"]
    told = braid.json("cluster", "status")
    assert told["url"] == cluster.url
    assert [one["state"] for one in told["processes"]] == ["up", "up"]
    assert all(Path(one["log"]).is_file() for one in told["processes"])


def test_a_second_cluster_on_the_same_directory_is_refused(cluster: Cluster, braid: Command) -> None:
    told = braid("cluster", "up", code=exit_codes.ALREADY_EXISTS).stderr
    assert str(cluster.processes["metadata"].pid) in told
    assert "cluster down" in told
    with pytest.raises(AlreadyExists):
        Cluster.start(cluster.directory)
    assert {one.state for one in cluster.processes.values()} == {"up"}


def test_nobody_else_writes_the_directory_but_through_it(cluster: Cluster, braid: Command) -> None:
    assert cluster.directory.joinpath("SOCKET").exists()
    braid("doctor")


def test_a_killed_broker_is_down_until_it_is_restarted_at_its_port(cluster: Cluster, braid: Command) -> None:
    broker = cluster.processes["broker-1"]
    address, pid = broker.address, broker.pid
    log = log_named(cluster, "killed")
    log.append(b"before")
    cluster.kill("broker-1")
    assert cluster.processes["broker-1"].state == "down"
    status = braid("cluster", "status", code=exit_codes.UNAVAILABLE).stdout.splitlines()
    assert [line.split()[4] for line in status[1:]] == ["up", "down"]
    with pytest.raises(Unavailable, match="restart"):
        cluster.stop("broker-1")
    cluster.restart("broker-1")
    again = cluster.processes["broker-1"]
    assert (again.state, again.address) == ("up", address)
    assert again.pid != pid
    assert log.append(b"after") == 1


def test_a_killed_metadata_process_is_found_again_by_its_broker(cluster: Cluster) -> None:
    log = log_named(cluster, "metadata-killed")
    log.append(b"before")
    cluster.kill("metadata")
    cluster.restart("metadata")
    assert log.append(b"after") == 1
    assert [record.value for record in log.read(0)] == [b"before", b"after"]


def test_a_stopped_process_keeps_its_connections_and_goes_on(cluster: Cluster, braid: Command) -> None:
    log = log_named(cluster, "stopped")
    log.append(b"before")  # so that its client knows which broker serves it
    cluster.stop("metadata")
    ticket = log.submit(b"meanwhile")
    assert cluster.processes["metadata"].state == "stopped"
    assert "stopped" in braid("cluster", "status", code=exit_codes.UNAVAILABLE).stdout
    cluster.resume("metadata")
    assert ticket.position(DEADLINE_S) == 1


def test_a_graceful_end_has_status_0(cluster: Cluster) -> None:
    assert cluster.terminate("broker-1") == exit_codes.OK
    cluster.restart("broker-1")


def test_somebody_else_finds_the_cluster(cluster: Cluster) -> None:
    found = Cluster.find(cluster.directory)
    assert found.url == cluster.url
    assert {name: one.pid for name, one in found.processes.items()} == {
        name: one.pid for name, one in cluster.processes.items()
    }
    with pytest.raises(NotFound, match="broker-9"):
        found.kill("broker-9")


# --- up and down -----------------------------------------------------------------------------------------------------


def test_up_and_down(tmp_path: Path) -> None:
    """From the command line, without brokers. What was appended is there when all is down, and in the next cluster."""
    braid = Command(tmp_path / "logs")
    url = braid.lines("cluster", "up", "--brokers", "0")[0]
    first = Cluster.find(tmp_path / "logs")
    assert first.url == url
    remote = Command(url)
    remote("create", "orders")
    remote("append", "orders", "x")
    assert braid.json("cluster", "down") == {"ended": ["metadata"], "killed": []}
    assert first.processes["metadata"].state == "down"
    assert braid.lines("read", "orders", "--raw") == ["x"]
    braid("cluster", "down", code=exit_codes.NOT_FOUND)
    braid("cluster", "status", code=exit_codes.NOT_FOUND)
    with Cluster.start(tmp_path / "logs", brokers=0) as again:
        assert Command(again.url).lines("read", "orders", "--raw") == ["x"]
        first.close()  # that of an earlier one leaves the later one alone
        assert again.processes["metadata"].state == "up"
        assert Cluster.find(tmp_path / "logs").url == again.url
        again.stop("metadata")  # and a stopped one is ended, too
    assert again.processes["metadata"].process.exit_status == exit_codes.OK


def test_what_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path / "logs", brokers=0)
    assert cluster.close(timeout=0.0) in ([], ["metadata"])  # quick as it is, it may have been quicker
    assert cluster.processes["metadata"].state == "down"


def test_a_cluster_that_cannot_start_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata process comes up, and the broker that is to follow is told to ask somebody else."""
    ids: list[ProcessId] = []
    command = Cluster._command

    def astray(self: Cluster, name: str, role: str, listen: str) -> list[str]:
        ids.extend(one.process.id for one in self.processes.values())
        return [*command(self, name, role, listen), *(["--objects", str(tmp_path)] if role == "broker" else [])]

    monkeypatch.setattr(Cluster, "_command", astray)
    with pytest.raises(StartFailed, match=r"broker-1 did not start:\n.*objects") as failed:
        Cluster.start(tmp_path / "logs", brokers=1)
    assert failed.value.status == exit_codes.USAGE
    assert [known.state for known in ids] == ["down"]
    with pytest.raises(NotFound):
        Cluster.find(tmp_path / "logs")


def test_up_ends_with_the_status_of_what_did_not_start(tmp_path: Path) -> None:
    braid = Command(tmp_path / "logs")
    braid("create", "orders")
    with braidlog.open(tmp_path / "logs", serve=False):
        told = braid("cluster", "up", "--brokers", "0", code=exit_codes.LOCKED).stderr
    assert "metadata did not start" in told
    assert f"process {os.getpid()}" in told


def test_a_pid_that_was_reused_is_neither_shown_as_up_nor_killed(tmp_path: Path) -> None:
    """As after a reboot: somebody else has the pid that stands in the file."""
    (tmp_path / "cluster").mkdir()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            kept = {
                "name": "metadata",
                "role": "metadata",
                "pid": stranger.pid,
                "started": "another boot 7",
                "address": "127.0.0.1:1",
                "since": "2026-01-31T12:00:00+00:00",
            }
            (tmp_path / "cluster" / "cluster.json").write_text(json.dumps({"processes": [kept], "version": 1}))
            braid = Command(tmp_path)
            assert "down" in braid("cluster", "status", code=exit_codes.UNAVAILABLE).stdout
            braid("cluster", "down")
            assert stranger.poll() is None
            braid("cluster", "status", code=exit_codes.NOT_FOUND)
        finally:
            stranger.kill()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_cluster_needs_a_directory() -> None:
    for place in ("memory://", "braid://127.0.0.1:1"):
        assert "directory" in Command(place)("cluster", "up", code=exit_codes.USAGE).stderr


def test_a_state_that_is_not_ours_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.json").write_text("{}")
    with pytest.raises(Corrupt, match=r"cluster\.json"):
        Cluster.find(tmp_path)
    assert Command(tmp_path)("cluster", "status", code=exit_codes.CORRUPT).stdout == ""


@pytest.mark.parametrize("brokers", [-1, limits.CLUSTER_BROKERS_MAX + 1])
def test_how_many_brokers_there_may_be(tmp_path: Path, brokers: int) -> None:
    with pytest.raises(InvalidArgument, match="brokers"):
        Cluster.start(tmp_path / "logs", brokers)
    assert not (tmp_path / "logs").exists()


def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("x")
    Command(tmp_path)("cluster", "up", "--brokers", "0", code=exit_codes.USAGE)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


# --- brokers by themselves -------------------------------------------------------------------------------------------


def test_a_broker_without_metadata_waits_and_can_be_ended(tmp_path: Path) -> None:
    """It listens to nobody before it has joined."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        where = f"127.0.0.1:{nobody.getsockname()[1]}"
        command = ["broker", "--metadata", where, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(
            [sys.executable, "-m", "braidlog", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        ) as process:
            try:
                nobody.settimeout(DEADLINE_S)
                nobody.accept()[0].close()  # it has come as far as to ask
                process.send_signal(signal.SIGTERM)
                out, told = process.communicate(timeout=DEADLINE_S)
            finally:
                process.kill()
    assert (process.returncode, out) == (exit_codes.OK, b""), told
