"""A fork's work leaves its broker when that one dies, and comes back to it: or it would stay with the roots. To find
out where a log is served takes only part of a caller's time, and nothing of others'."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import limits
from braidlog.client.remote.link import Link
from braidlog.testing.cluster import Cluster
from braidlog.wire import messages as m

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


def test_submits_do_not_wait_until_it_is_known_where_another_log_is_served(tmp_path: Path) -> None:
    with (
        Cluster.start(tmp_path / "shop.braid") as cluster,
        ThreadPoolExecutor() as threads,
        braidlog.open(cluster.url, timeout=DEADLINE_S) as braid,
    ):
        routes: Any = braid._session.backend._routes  # type: ignore[attr-defined]
        ask, asked, go_on = routes._ask, threading.Event(), threading.Event()
        known, unknown = braid.create("known"), braid.create("unknown")
        known.append(b"1")

        def held_up(log: int, *rest: Any) -> Any:
            asked.set()
            assert go_on.wait(DEADLINE_S)
            return ask(log, *rest)

        routes._ask = held_up
        slow = threads.submit(unknown.submit, b"a")
        try:
            assert asked.wait(DEADLINE_S)
            ticket = threads.submit(known.submit, b"2", timeout=0.0).result(DEADLINE_S / 4)
            assert ticket.position(DEADLINE_S) == 1
        finally:
            go_on.set()
        assert slow.result(DEADLINE_S).position(DEADLINE_S) == 0


@pytest.mark.parametrize("timeout", [1.0, DEADLINE_S])
def test_a_call_and_finding_out_where_it_goes_have_one_deadline(
    tmp_path: Path, timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Link.begin
    given: list[tuple[type, float]] = []

    def begun(link: Link, request: m.Request, body: bytes, timeout: float, *rest: Any, **options: Any) -> Any:
        given.append((type(request), timeout))
        return begin(link, request, body, DEADLINE_S, *rest, **options)

    with Cluster.start(tmp_path / "shop.braid") as cluster, braidlog.open(cluster.url, timeout=timeout) as braid:
        logs = [braid.create(f"log-{n}") for n in range(3)]
        monkeypatch.setattr(Link, "begin", begun)
        logs[0].append(b"1")
        logs[1].tail()
        logs[2].trim(0)
    assert [kind for kind, _ in given] == [m.Route, m.Append, m.Route, m.Tail, m.Route, m.Execute]
    assert all(seconds <= min(timeout / 2, limits.ROUTE_ANSWER_S) for kind, seconds in given if kind is m.Route)
    assert all(seconds < timeout for kind, seconds in given if kind is not m.Route)
