"""What two reports of a server tell together: rates, latencies between them, and how things are now. PURE.

With one report alone, or when the server began anew in between, rates and latencies are those since it began.
"""

from __future__ import annotations

from typing import Final

import msgspec

from braidlog.observe.metrics import quantile
from braidlog.wire.messages import StatusReport

Cell = int | float | str | None
Row = dict[str, Cell]

_RATES: Final = {
    "appends": "braidlog_appends_total",
    "appended_records": "braidlog_appended_records_total",
    "appended_bytes": "braidlog_appended_bytes_total",
    "read_records": "braidlog_read_records_total",
    "read_bytes": "braidlog_read_bytes_total",
    "received_bytes": "braidlog_received_bytes_total",
    "sent_bytes": "braidlog_sent_bytes_total",
    "connections_opened": "braidlog_connections_opened_total",
    "cpu_seconds": "braidlog_process_cpu_seconds_total",
}
_NOW: Final = {
    "connections": "braidlog_connections",
    "subscriptions": "braidlog_subscriptions",
    "watches": "braidlog_watches",
    "in_flight_bytes": "braidlog_in_flight_bytes",
    "resident_bytes": "braidlog_process_resident_memory_bytes",
    "held_logs": "braidlog_held_logs",
    "overdue_leases": "braidlog_overdue_leases",
    "oldest_hold_s": "braidlog_oldest_hold_seconds",
    "consumers": "braidlog_consumers",
    "inline_bytes": "braidlog_inline_bytes",
    "objects": "braidlog_objects",
    "cache_blocks": "braidlog_cache_blocks",
    "cache_bytes": "braidlog_cache_bytes",
}
_REQUESTS: Final = "braidlog_requests_total"
_DURATIONS: Final = "braidlog_request_duration_seconds"
_COMMITS: Final = "braidlog_commit_duration_seconds"
_COMMANDS: Final = "braidlog_commit_commands"
_LAG: Final = "braidlog_loop_lag_seconds"
_LOGS: Final = "braidlog_logs"
_KEPT_OUT: Final = frozenset({"name", "kind", "duty", "sum"})


class Latency(msgspec.Struct, frozen=True):
    """Of what was done in the window. None where nothing was."""

    per_s: float
    p50_s: float | None
    p99_s: float | None


class Kind(msgspec.Struct, frozen=True):
    """One kind of request. `failed_per_s` counts what was answered with an error."""

    kind: str
    per_s: float
    failed_per_s: float
    p50_s: float | None
    p99_s: float | None


class Vitals(msgspec.Struct, frozen=True):
    """How a server fares."""

    server: str
    role: str
    version: str
    uptime_s: float
    window_s: float
    trouble: str
    rates: dict[str, float]  # each second
    now: dict[str, Cell]
    logs: dict[str, int]
    requests: list[Kind]  # the most frequent first
    commits: Latency
    commands_per_commit: float | None
    loop_lag: Latency
    cache_hit_share: float | None
    holds: list[Row]
    consumers: list[Row]
    connections: list[Row]
    failing: list[Row]


def vitals(now: StatusReport, before: StatusReport | None = None) -> Vitals:
    """What is true of the time between the two."""
    uptime = _number(now, "uptime_s")
    if before is not None and not _continues(before, now):
        before = None
    window = max(uptime - (_number(before, "uptime_s") if before else 0.0), 1e-9)
    commits = _histogram(now, before, _COMMITS)
    commands, committed = _sum_and_count(now, before, _COMMANDS)
    hits, misses = (_delta(now, before, f"braidlog_cache_{what}_total") for what in ("hits", "misses"))
    return Vitals(
        server=str(now.values.get("server", "")),
        role=str(now.values.get("role", "")),
        version=str(now.values.get("version", "")),
        uptime_s=uptime,
        window_s=window,
        trouble=str(now.values.get("trouble", "")),
        rates={name: _delta(now, before, metric) / window for name, metric in _RATES.items() if metric in now.values},
        now={name: now.values[metric] for name, metric in _NOW.items() if metric in now.values},
        logs={str(row["kind"]): int(row["value"] or 0) for row in now.rows.get("metrics", []) if row["name"] == _LOGS},
        requests=_kinds(now, before, window),
        commits=_latency(commits, window),
        commands_per_commit=commands / committed if committed else None,
        loop_lag=_latency(_histogram(now, before, _LAG), window),
        cache_hit_share=hits / (hits + misses) if hits + misses else None,
        holds=now.rows.get("holds", []),
        consumers=now.rows.get("consumers", []),
        connections=now.rows.get("connections", []),
        failing=now.rows.get("failing", []),
    )


def _continues(before: StatusReport, now: StatusReport) -> bool:
    """Whether both are of one life of one server."""
    same = all(before.values.get(key) == now.values.get(key) for key in ("server", "pid", "role"))
    return same and _number(now, "uptime_s") > _number(before, "uptime_s")


def _kinds(now: StatusReport, before: StatusReport | None, window: float) -> list[Kind]:
    counts: dict[str, list[float]] = {}  # kind -> all, failed
    for report, sign in ((now, 1), (before, -1)):
        for row in report.rows.get("metrics", []) if report else []:
            if row["name"] == _REQUESTS:
                count = counts.setdefault(str(row["kind"]), [0.0, 0.0])
                count[0] += sign * _float(row["value"])
                count[1] += sign * _float(row["value"]) if row["outcome"] != "ok" else 0.0
    found: list[Kind] = []
    for kind, (total, failed) in counts.items():
        if total > 0:
            latency = _latency(_histogram(now, before, _DURATIONS, kind), window)
            found.append(Kind(kind, total / window, failed / window, latency.p50_s, latency.p99_s))
    return sorted(found, key=lambda one: (-one.per_s, one.kind))


def _latency(histogram: tuple[list[float], list[int]] | None, window: float) -> Latency:
    if histogram is None:
        return Latency(0.0, None, None)
    bounds, counts = histogram
    return Latency(sum(counts) / window, quantile(bounds, counts, 0.5), quantile(bounds, counts, 0.99))


def _histogram(
    now: StatusReport, before: StatusReport | None, name: str, kind: str | None = None
) -> tuple[list[float], list[int]] | None:
    """Bounds, and how many of the window's observations are in each bucket."""
    row = _row(now, name, kind)
    if row is None:
        return None
    old = (_row(before, name, kind) if before else None) or {}
    bounds = [key for key in row if key not in _KEPT_OUT]
    up_to = [int(_float(row[bound]) - _float(old.get(bound, 0))) for bound in bounds]
    counts = [count - below for count, below in zip(up_to, [0, *up_to], strict=False)]
    return [float(bound) for bound in bounds[:-1]], counts


def _sum_and_count(now: StatusReport, before: StatusReport | None, name: str) -> tuple[float, float]:
    row = _row(now, name, None) or {}
    old = (_row(before, name, None) if before else None) or {}
    return (
        _float(row.get("sum", 0)) - _float(old.get("sum", 0)),
        _float(row.get("+Inf", 0)) - _float(old.get("+Inf", 0)),
    )


def _row(report: StatusReport, name: str, kind: str | None) -> Row | None:
    for row in report.rows.get("histograms", []):
        if row["name"] == name and row.get("kind") == kind:
            return row
    return None


def _delta(now: StatusReport, before: StatusReport | None, name: str) -> float:
    return _number(now, name) - (_number(before, name) if before else 0.0)


def _number(report: StatusReport, name: str) -> float:
    return _float(report.values.get(name, 0))


def _float(value: Cell) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
