"""The command lines of the processes that a cluster is made of. Nobody else writes them down."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

PREFIX: Final = "/braidlog"  # of the keys in an etcd that is a cluster's own

_HEARTBEAT_MS: Final = 50
_ELECTION_MS: Final = 500


def metadata_at(name: str, listen: str, directory: Path) -> list[str]:
    """The one metadata process of a directory."""
    return [*_braid("metadata", name, listen), "--at", str(directory)]


def metadata_on_etcd(
    name: str, listen: str, endpoints: Iterable[str], objects: str, *, lease_s: float | None = None
) -> list[str]:
    """One of several metadata processes."""
    lease = () if lease_s is None else ("--etcd-lease-s", str(lease_s))
    etcd = ("--etcd", ",".join(endpoints), "--etcd-prefix", PREFIX, *lease)
    return [*_braid("metadata", name, listen), *etcd, "--objects", objects]


def broker(name: str, listen: str, metadata: Iterable[str], *, objects: str = "", token_file: str = "") -> list[str]:
    command = [*_braid("broker", name, listen), "--metadata", ",".join(metadata)]
    if objects:
        command += ["--objects", objects]
    if token_file:
        command += ["--token-file", token_file]
    return command


def _braid(role: str, name: str, listen: str) -> list[str]:
    return [sys.executable, "-m", "braidlog", role, "--name", name, "--listen", listen]


class EtcdMember(NamedTuple):
    """A member of an etcd, by the URLs that clients and the other members use."""

    name: str
    client: str
    peer: str


def etcd(program: str, member: EtcdMember, everyone: Iterable[EtcdMember], folder: Path) -> list[str]:
    """A member that keeps its data below `folder`. Timings are for members on one machine."""
    return [
        program,
        *("--name", member.name, "--data-dir", str(folder / member.name)),
        *("--listen-client-urls", member.client, "--advertise-client-urls", member.client),
        *("--listen-peer-urls", member.peer, "--initial-advertise-peer-urls", member.peer),
        *("--initial-cluster", ",".join(f"{other.name}={other.peer}" for other in everyone)),
        *("--initial-cluster-state", "new"),
        *("--heartbeat-interval", str(_HEARTBEAT_MS), "--election-timeout", str(_ELECTION_MS)),
        *("--logger", "zap", "--log-level", "warn"),
    ]
