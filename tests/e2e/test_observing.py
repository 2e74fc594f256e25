"""What can be seen of a service from outside: metrics, health, its report, and what it logs."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import limits
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import write_directory
from braidlog.client.remote.backend import RemoteBackend
from braidlog.client.remote.link import TcpAddress
from braidlog.client.remote.opening import connect
from braidlog.embedded.upkeep import Keeper
from braidlog.embedded.writer import Writer
from braidlog.errors import Blocked, NotFound, OutOfRange, Unavailable
from braidlog.observe.logs import Event
from braidlog.testing import VirtualClock
from braidlog.wire.messages import StatusReport
from tests.e2e.conformance import PATIENCE_S, writer_of
from tests.unit.prometheus_text import Metric, parse


class Served:
    """A directory that is served, a client of it, and an eye on it."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.directory = write_directory(folder / "logs", clock=self.clock)
        self.thread = ServerThread(lambda: LocalService(self.writer), "observed")
        self.port = self.thread.listen_tcp("127.0.0.1", 0)[1]
        self.http_port = self.thread.listen_http("127.0.0.1", 0)[1]
        self.braid = self.connect()

    @property
    def writer(self) -> Writer:
        return writer_of(self.directory)

    def connect(self) -> braidlog.Braid:
        url = f"braid://127.0.0.1:{self.port}"
        return connect([TcpAddress("127.0.0.1", self.port)], url, clock=self.clock)

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def metrics(self) -> dict[str, Metric]:
        status, page = self.get("/metrics")
        assert status == 200
        return parse(page)

    def health(self) -> tuple[int, dict[str, Any]]:
        status, page = self.get("/health")
        return status, json.loads(page)

    def status(self) -> StatusReport:
        backend = self.braid._session.backend
        assert isinstance(backend, RemoteBackend)
        return backend.status()

    def close(self) -> None:
        self.braid.close()
        self.thread.close()
        self.directory.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def until(true: Callable[[], bool]) -> None:
    """Look again and again, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [record.msg.fields for record in caplog.records if isinstance(record.msg, Event) and record.msg.name == name]


# --- metrics -------------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_kind_and_outcome(served: Served) -> None:
    orders = served.braid.create("orders")
    orders.append_many([b"a", b"bc"])
    fork = orders.cfork("trial", promotable=True)
    orders.append(b"late")
    assert len(orders.read(0, 2)) == 2
    with pytest.raises(Blocked):
        orders.read(2)
    with pytest.raises(NotFound):
        served.braid.log("nothing")
    fork.promote()
    found = served.metrics()
    requests = found["braidlog_requests_total"]
    expected = {
        ("create", "ok"): 1,
        ("append", "ok"): 2,
        ("cfork", "ok"): 1,
        ("read", "ok"): 1,
        ("read", "blocked"): 1,
        ("find", "refused"): 1,
        ("promote", "ok"): 1,
    }
    assert {key: requests.value(kind=key[0], outcome=key[1]) for key in expected} == expected
    assert found["braidlog_request_duration_seconds"].value("_count", kind="append") == 2
    assert found["braidlog_appends_total"].value() == 2
    assert found["braidlog_appended_records_total"].value() == 3
    assert found["braidlog_appended_bytes_total"].value() == 7
    assert found["braidlog_read_records_total"].value() == 2
    assert found["braidlog_received_bytes_total"].value() > 100
    assert found["braidlog_sent_bytes_total"].value() > 100
    assert found["braidlog_commit_commands"].value("_sum") >= 5
    assert found["braidlog_build_info"].value(version=braidlog.__version__, role="serve") == 1


def test_what_a_repetition_answers_is_not_counted_as_appended_again(served: Served) -> None:
    orders = served.braid.create("orders")
    for _ in range(3):
        orders.append(b"once", writer="w", sequence=1)
    assert served.metrics()["braidlog_appends_total"].value() == 1


def test_what_the_holder_of_the_directory_appends_itself_is_counted_too(served: Served) -> None:
    served.directory.create("orders").append(b"from within")
    assert served.metrics()["braidlog_appended_records_total"].value() == 1


def test_what_lives_is_told_by_kind(served: Served) -> None:
    orders = served.braid.create("orders")
    orders.append_many([b"a"] * 10)
    orders.commit("mailer", 4)
    orders.sfork("snapshot")
    orders.cfork("plain")
    orders.cfork("first", promotable=True, lease=10)
    served.clock.advance(30)
    orders.cfork("second", promotable=True)
    found = served.metrics()
    kinds = {kind: found["braidlog_logs"].value(kind=kind) for kind in ("root", "cfork", "promotable", "sfork")}
    assert kinds == {"root": 1, "cfork": 1, "promotable": 2, "sfork": 1}
    assert found["braidlog_held_logs"].value() == 1
    assert found["braidlog_oldest_hold_seconds"].value() == 30
    assert found["braidlog_overdue_leases"].value() == 1
    assert found["braidlog_consumers"].value() == 1
    assert found["braidlog_consumer_lag_max_records"].value() == 6
    assert found["braidlog_inline_bytes"].value() > 0
    Keeper(served.writer).stop()  # which packs, and ends what is overdue
    found = served.metrics()
    assert found["braidlog_logs"].value(kind="promotable") == 1
    assert found["braidlog_overdue_leases"].value() == 0
    assert found["braidlog_inline_bytes"].value() == 0
    assert found["braidlog_objects"].value() == 1
    assert found["braidlog_upkeep_runs_total"].value(duty="pack", outcome="done") == 1


def test_subscriptions_watches_and_the_cache_are_seen(served: Served) -> None:
    orders = served.braid.create("orders")
    orders.append_many([b"x" * 100] * 10)
    Keeper(served.writer).stop()
    with orders.subscribe(0) as subscription:
        assert len(subscription.poll(PATIENCE_S)) == 10
        found = served.metrics()
        assert found["braidlog_subscriptions"].value() == 1
        assert found["braidlog_connections"].value() == 1
        assert found["braidlog_read_records_total"].value() == 10
        assert found["braidlog_cache_misses_total"].value() == 1
        assert found["braidlog_cache_blocks"].value() == 1
    assert found["braidlog_process_resident_memory_bytes"].value() > 1_000_000
    assert found["braidlog_process_cpu_seconds_total"].value() > 0
    until(lambda: served.metrics()["braidlog_subscriptions"].value() == 0)


def test_no_name_of_a_log_or_a_client_gets_into_the_metrics(served: Served) -> None:
    log = served.braid.create("secret-plans")
    log.cfork("secret-fork", promotable=True)
    log.commit("secret-consumer", 0)
    _, page = served.get("/metrics")
    assert b"secret" not in page
    assert b"pytest" not in page


def test_a_duty_that_fails_is_counted_logged_once_and_told(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.braid.create("orders").append(b"x")
    keeper = Keeper(served.writer)
    keeper.stop()

    def pack() -> bool:
        raise Unavailable("no room")

    for _ in range(2):
        assert keeper._try(pack) is False
    assert served.metrics()["braidlog_upkeep_runs_total"].value(duty="pack", outcome="failed") == 2
    assert [event["duty"] for event in events(caplog, "upkeep_failed")] == ["pack"]
    assert served.status().rows["failing"] == [{"duty": "pack", "error": "no room"}]
    assert served.health()[0] == 200
    monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", -1)
    status, told = served.health()
    assert status == 503
    assert "no room" in told["reason"]


# --- health --------------------------------------------------------------------------------------------------------


def test_health_is_whether_writes_are_taken(served: Served) -> None:
    status, told = served.health()
    assert (status, told["status"], told["role"], told["version"]) == (200, "ok", "serve", braidlog.__version__)
    served.writer.committer.fail(Unavailable("the disk is gone"))
    status, told = served.health()
    assert (status, told["status"], told["reason"]) == (503, "unavailable", "the disk is gone")


def test_a_server_that_shuts_down_says_so_until_it_is_gone(served: Served) -> None:
    orders = served.braid.create("orders")
    with ThreadPoolExecutor(1) as pool:
        with served.writer.committer.alone():
            ticket = orders.submit(b"still to be answered")
            until(lambda: served.metrics()["braidlog_in_flight_bytes"].value() > 0)
            closing = pool.submit(served.thread.close)
            until(lambda: served.health()[0] == 503)
            assert served.health()[1]["reason"] == "the server is shutting down"
        ticket.durable(PATIENCE_S)
        closing.result(PATIENCE_S)
    with pytest.raises(ConnectionError):
        served.get("/health")


# --- the report ----------------------------------------------------------------------------------------------------


def test_the_report_tells_of_holds_consumers_and_connections(served: Served) -> None:
    orders = served.braid.create("orders")
    orders.append_many([b"a"] * 5)
    orders.commit("mailer", 2)
    fork = orders.cfork("trial", promotable=True, lease=60)
    fork.append(b"own")
    served.clock.advance(20)
    found = served.status()
    assert found.values["role"] == "serve"
    assert found.values["server"] == "observed"
    assert found.values["version"] == braidlog.__version__
    assert found.values["braidlog_appended_records_total"] == 6
    [hold] = found.rows["holds"]
    assert (hold["log"], hold["fork"], hold["own"], hold["age_s"], hold["lease_left_s"]) == (
        "orders",
        "trial",
        1,
        20.0,
        40.0,
    )
    [consumer] = found.rows["consumers"]
    assert (consumer["log"], consumer["consumer"], consumer["lag"]) == ("orders", "mailer", 3)
    [connection] = found.rows["connections"]
    assert connection["client"]
    requests = [row for row in found.rows["metrics"] if row["name"] == "braidlog_requests_total"]
    assert {"name": "braidlog_requests_total", "kind": "append", "outcome": "ok", "value": 2} in requests


def test_the_report_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_ROWS_MAX", 3)
    monkeypatch.setattr(limits, "STATUS_TEXT_CHARS_MAX", 10)
    orders = served.braid.create("orders-" + "x" * 100)
    for number in range(5):
        orders.commit(f"consumer-{number}", 0)
        orders.cfork(f"a-long-name-{number}", promotable=True)
    others = [served.connect() for _ in range(4)]
    found = served.status()
    assert {table: len(found.rows[table]) for table in ("holds", "consumers", "connections")} == {
        "holds": 3,
        "consumers": 3,
        "connections": 3,
    }
    assert found.rows["holds"][0]["log"] == "orders-xxx"
    assert found.values["undecided_forks"] == 5
    for other in others:
        other.close()


def test_the_report_does_not_give_away_who_others_are(served: Served) -> None:
    backend = served.braid._session.backend
    assert isinstance(backend, RemoteBackend)
    told = repr(served.status())
    assert backend.client.hex() not in told
    assert repr(backend.client) not in told


# --- logs ----------------------------------------------------------------------------------------------------------


def test_decisions_are_logged_with_who_asked(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog")
    orders = served.braid.create("orders")
    orders.append_many([b"secret-value"] * 3)
    orders.append(b"secret-value", key=b"secret-key")
    fork = orders.cfork("good", promotable=True)
    fork.append(b"secret-value")
    assert not fork.promote(expected_own=5)
    assert fork.promote()
    orders.cfork("bad").squash()
    orders.trim(2)
    with pytest.raises(braidlog.errors.OutOfRange):
        orders.trim(1000)
    served.braid.drop("orders")
    told = {name: events(caplog, name) for name in ("promote", "squash", "trim", "drop")}
    assert [event["outcome"] for event in told["promote"]] == ["not promoted", "ok"]
    assert [event["name"] for event in told["promote"]] == ["good", "good"]
    assert [event["before"] for event in told["trim"]] == [2, 1000]
    assert told["trim"][1]["outcome"].startswith("OutOfRange: ")
    assert [event["name"] for event in told["squash"] + told["drop"]] == ["bad", "orders"]
    backend = served.braid._session.backend
    assert isinstance(backend, RemoteBackend)
    for event in [event for found in told.values() for event in found]:
        assert event["client_id"] == backend.client.hex()
        assert event["client"]
        assert len(bytes.fromhex(event["request"])) == limits.REQUEST_ID_BYTES
    assert "secret" not in caplog.text


def test_expiry_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog")
    served.braid.create("orders").cfork("trial", promotable=True, lease=5)
    served.clock.advance(10)
    Keeper(served.writer).stop()
    assert [event["name"] for event in events(caplog, "expire")] == ["trial"]


def test_a_connection_that_is_dropped_is_logged_with_the_reason(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while stranger.recv(1000):
            pass
    [event] = events(caplog, "connection_dropped")
    assert event["reason"] == "this is not the braid protocol"
    assert served.metrics()["braidlog_connections_dropped_total"].value() == 1


def test_failed_requests_are_logged_with_their_ids_and_mistakes_are_not(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = served.braid.create("orders")
    with pytest.raises(OutOfRange):
        orders.read(7)
    assert events(caplog, "failed_request") == []

    def refuse() -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(served.writer, "check_open", refuse)
    monkeypatch.setattr(limits, "FAILED_REQUESTS_S", 1e9)
    for _ in range(limits.FAILED_REQUESTS_TOLD_MAX + 5):
        with pytest.raises(Unavailable):
            orders.append(b"secret-value")
    found = events(caplog, "failed_request")
    assert len(found) == limits.FAILED_REQUESTS_TOLD_MAX
    assert {(event["kind"], event["outcome"], event["error"]) for event in found} == {
        ("append", "Unavailable", "the disk is full")
    }
    assert len({event["request"] for event in found}) == len(found)
    assert {len(event["request"]) for event in found} == {2 * limits.REQUEST_ID_BYTES}
    monkeypatch.setattr(limits, "FAILED_REQUESTS_S", 0.0)
    with pytest.raises(Unavailable):
        orders.append(b"secret-value")
    assert events(caplog, "failed_request")[-1]["untold"] == 5
    assert "secret" not in caplog.text


def test_slow_requests_are_logged_and_others_are_not(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "braidlog")
    orders = served.braid.create("orders")
    for _ in range(10):
        orders.append(b"secret-value")
        orders.read(0)
    assert [record for record in caplog.records if record.name == "braidlog.requests"] == []
    monkeypatch.setattr(limits, "SLOW_REQUEST_S", -1.0)
    orders.append(b"secret-value")
    orders.tail()
    kinds = {event["kind"]: event for event in events(caplog, "slow_request")}
    assert {"append", "tail"} <= kinds.keys()
    assert len(kinds["append"]["request"]) == 2 * limits.REQUEST_ID_BYTES
    assert kinds["tail"]["request"].count("-") == 1
    assert "secret" not in caplog.text
    assert served.metrics()["braidlog_slow_requests_total"].value() >= 2


def test_start_and_stop_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog")
    made = Served(tmp_path)
    made.close()
    [start] = events(caplog, "start")
    assert start["address"] == f"127.0.0.1:{made.port}"
    assert [event["server"] for event in events(caplog, "stop")] == ["observed"]
