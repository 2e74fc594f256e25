"""The report that a server gives of itself when a client asks: metrics as they are, and tables for people.

Its size is bounded: so many rows of each table, so many characters of each text. Clients are named as they named
themselves; their ids, by which requests are told apart, are nobody else's affair.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.broker.service import Cell
from braidlog.observe.exposition import number_text
from braidlog.observe.metrics import Family, Histogram, cumulated
from braidlog.version import VERSION
from braidlog.wire.messages import StatusReport

if TYPE_CHECKING:
    from braidlog.broker.server import Server


def report(server: Server) -> StatusReport:
    """Numbers by the names of their metrics; tables of series (`metrics`, `histograms`) and of what stands behind."""
    families = server.registry.collect()
    standing = server.service.standing()
    trouble = server.health().trouble
    values: dict[str, int | float | str] = {
        "server": _short(server.name),
        "role": server.service.role,
        "version": VERSION,
        "pid": os.getpid(),
        "uptime_s": server.uptime_s,
        "trouble": _short(trouble),
        **standing.values,
    }
    rows: dict[str, list[dict[str, Cell]]] = {"metrics": [], "histograms": []}
    for family in families:
        _add(family, values, rows)
    rows["connections"] = _connections(server)
    for table, found in standing.rows.items():
        rows[table] = [_short_row(row) for row in found[: limits.STATUS_ROWS_MAX]]
    return StatusReport(values, rows)


def _add(family: Family, values: dict[str, int | float | str], rows: dict[str, list[dict[str, Cell]]]) -> None:
    """All series of a metric. How many there can be is bounded, since the values of labels are."""
    for labels, metric in list(family.series.items()):
        named: dict[str, Cell] = {"name": family.name, **dict(zip(family.labels, labels, strict=True))}
        if isinstance(metric, Histogram):
            counts = cumulated(metric.counts[:])
            if counts[-1]:
                bounds = [*map(number_text, metric.bounds), "+Inf"]
                rows["histograms"].append(named | {"sum": metric.total} | dict(zip(bounds, counts, strict=True)))
        elif labels:
            rows["metrics"].append(named | {"value": metric.value})
        else:
            values[family.name] = metric.value


def _connections(server: Server) -> list[dict[str, Cell]]:
    """Those that were there first."""
    chosen = sorted(server.connections, key=lambda connection: connection.number)[: limits.STATUS_ROWS_MAX]
    return [
        {
            "connection": connection.number,
            "client": _short(connection.who),
            "subscriptions": connection.subscriptions,
            "watches": connection.watches,
            "in_flight_bytes": connection.bytes_in_flight,
        }
        for connection in chosen
    ]


def _short(text: str) -> str:
    return text[: limits.STATUS_TEXT_CHARS_MAX]


def _short_row(row: dict[str, Cell]) -> dict[str, Cell]:
    return {key: _short(cell) if isinstance(cell, str) else cell for key, cell in row.items()}
