"""Two reports of a server tell rates and latencies of the time between them."""

from __future__ import annotations

import pytest

from braidlog.cli.vitals import vitals
from braidlog.wire.messages import StatusReport


def report(uptime: float, appended: int, counts: tuple[int, int, int], failed: int = 0, pid: int = 1) -> StatusReport:
    ok = counts[2] - failed
    return StatusReport(
        {
            "server": "s",
            "role": "serve",
            "version": "1",
            "pid": pid,
            "uptime_s": uptime,
            "braidlog_appended_records_total": appended,
            "braidlog_connections": 2,
            "braidlog_cache_hits_total": 3,
            "braidlog_cache_misses_total": 1,
        },
        {
            "metrics": [
                {"name": "braidlog_requests_total", "kind": "append", "outcome": "ok", "value": ok},
                {"name": "braidlog_requests_total", "kind": "append", "outcome": "blocked", "value": failed},
                {"name": "braidlog_requests_total", "kind": "read", "outcome": "ok", "value": 5},
                {"name": "braidlog_logs", "kind": "root", "value": 4},
            ],
            "histograms": [
                {
                    "name": "braidlog_request_duration_seconds",
                    "kind": "append",
                    "sum": 1.0,
                    "0.001": counts[0],
                    "0.01": counts[1],
                    "+Inf": counts[2],
                },
                {"name": "braidlog_commit_commands", "sum": appended, "1": 1, "+Inf": counts[2]},
            ],
        },
    )


def test_what_one_report_tells_is_of_all_the_time() -> None:
    found = vitals(report(10.0, 1000, (10, 10, 10)))
    assert found.window_s == found.uptime_s == 10.0
    assert found.rates["appended_records"] == 100.0
    assert found.now["connections"] == 2
    assert found.logs == {"root": 4}
    assert [(one.kind, one.per_s) for one in found.requests] == [("append", 1.0), ("read", 0.5)]
    assert found.requests[0].p50_s == pytest.approx(0.0005)
    assert found.requests[1].p50_s is None
    assert found.commands_per_commit == 100.0
    assert found.cache_hit_share == 0.75


def test_two_tell_of_the_time_between() -> None:
    found = vitals(report(12.0, 1500, (10, 30, 30), failed=4), report(10.0, 1000, (10, 10, 10)))
    assert found.window_s == 2.0
    assert found.rates["appended_records"] == 250.0
    [append] = found.requests  # nothing was read meanwhile
    assert (append.kind, append.per_s, append.failed_per_s) == ("append", 10.0, 2.0)
    assert append.p50_s == pytest.approx(0.0055)  # all of them were between 1 and 10 ms
    assert append.p99_s is not None
    assert 0.0055 < append.p99_s <= 0.01


@pytest.mark.parametrize("before", [report(11.0, 9000, (9, 9, 9)), report(1.0, 10, (1, 1, 1), pid=2)])
def test_a_server_that_began_anew_is_told_of_from_its_beginning(before: StatusReport) -> None:
    found = vitals(report(10.0, 1000, (10, 10, 10)), before)
    assert found.window_s == 10.0
    assert found.rates["appended_records"] == 100.0


def test_a_server_that_tells_little_is_shown_with_little() -> None:
    found = vitals(StatusReport({"role": "broker", "uptime_s": 1.0}))
    assert (found.rates, found.requests, found.holds, found.cache_hit_share) == ({}, [], [], None)
