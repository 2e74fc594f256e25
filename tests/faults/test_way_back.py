"""A fork's work leaves its broker when that one dies, and comes back to it: or it would stay with the roots."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import braidlog
from braidlog.testing.cluster import Cluster

DEADLINE_S = 30.0


def test_what_fell_over_to_another_broker_comes_back(tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "shop.braid", brokers=2) as cluster, braidlog.open(cluster.url) as braid:
        backend: Any = braid._session.backend
        orders = braid.create("orders")
        fork = orders.cfork("trial")
        fork.append(b"1")
        there = str(backend.link_for(fork.id).address)
        assert there != str(backend.link_for(orders.id).address)
        [name] = [name for name, member in cluster.processes.items() if member.address == there]

        cluster.kill(name)
        fork.append(b"2")
        assert str(backend.link_for(fork.id).address) != there
        cluster.restart(name)
        deadline = time.monotonic() + DEADLINE_S
        while str(backend.link_for(fork.id).address) != there:
            assert time.monotonic() < deadline, "it stays where it fell over to"
            backend._routes._known.clear()  # as if it were time to ask again
            fork.tail()
        fork.append(b"3")
        assert str(backend.link_for(fork.id).address) == there
        assert [record.value for record in fork.read(0)] == [b"1", b"2", b"3"]
