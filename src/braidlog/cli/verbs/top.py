"""`braid top`: how a service fares, live."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import click
import msgspec

from braidlog import limits
from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.output import console, flush, write_json
from braidlog.cli.parameters import duration
from braidlog.cli.rendering import printable
from braidlog.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from braidlog import Braid
    from braidlog.cli.vitals import Latency, Row, Vitals
    from braidlog.wire.messages import StatusReport

_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@click.command(cls=Verb)
@click.option("--interval", type=duration, default=limits.TOP_INTERVAL_S, show_default=True, help="Between two looks.")
@click.option("--once", is_flag=True, help="Look once and end; rates are then those since the server began.")
@pass_call
def top(call: Call, interval: float, once: bool) -> None:
    """Show how a service fares: rates, latencies, holds, consumers that lag, connections.

    URL is braid://host:port, or a directory whose writer shares it.
    """
    from braidlog.cli.vitals import vitals

    with _open(call) as braid:
        ask = _asker(braid)
        if call.json:
            for found in _samples(ask, interval, once=once):
                write_json(msgspec.to_builtins(found))
                flush()
        elif once:
            console().print(draw(vitals(ask())))
        else:
            _live(_samples(ask, interval, once=False))


def _samples(ask: Callable[[], StatusReport], interval: float, *, once: bool) -> Iterator[Vitals]:
    from braidlog.cli.vitals import vitals

    before = ask()
    yield vitals(before)
    while not once:
        time.sleep(max(interval, limits.TOP_INTERVAL_S / 20))
        now = ask()
        yield vitals(now, before)
        before = now


def _live(samples: Iterator[Vitals]) -> None:
    from rich.live import Live

    screen = console()
    if not screen.is_terminal:
        for found in samples:
            screen.print(draw(found))
            flush()
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        for found in samples:
            live.update(draw(found), refresh=True)


def _open(call: Call) -> Braid:
    """The service, and never the log itself: looking on must not make us the writer of a directory."""
    from braidlog.client.opening import directory_of
    from braidlog.client.remote.opening import connect, socket_of

    url = call.require_url()
    call.check_clients()
    if call.served:
        return call.open_reading()
    folder = directory_of(url)
    if folder is None:
        raise InvalidArgument(f"{url} is no service: nobody else is there to be looked at")
    address = socket_of(folder)
    if address.path.exists():
        with contextlib.suppress(Unavailable):  # it was left behind by one that was killed
            return connect([address], url, connect_timeout=limits.KNOCK_S)
    raise Unavailable(
        f"there is no service at {folder}: nobody has it open for writing, or whoever has it does not share it; "
        "`braid serve` makes one of it"
    )


def _asker(braid: Braid) -> Callable[[], StatusReport]:
    from braidlog.client.remote.backend import RemoteBackend

    backend = braid._session.backend
    if not isinstance(backend, RemoteBackend):
        raise Unavailable(f"{braid.url} is open here, in this process: there is no service to be looked at")
    return backend.status


# --- drawing -------------------------------------------------------------------------------------------------------


_ELSEWHERE: Final = "look at the metadata"


def draw(found: Vitals) -> RenderableType:
    """All of it, for a screen."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_headline(found)]
    if found.trouble:
        parts.append(Text(f"cannot take writes: {_safe(found.trouble)}", "bold red"))
    parts += [Text(f"{_safe(row.get('duty'))} fails: {_safe(row.get('error'))}", "red") for row in found.failing]
    parts += [_figures(found), Text(""), _requests(found)]
    for title, rows, columns in (
        ("undecided forks, oldest first", found.holds, ("log", "fork", "owner", "own", "age_s", "lease_left_s")),
        ("consumers, furthest behind first", found.consumers, ("log", "consumer", "position", "lag", "idle_s")),
        ("connections", found.connections, ("connection", "client", "subscriptions", "watches", "in_flight_bytes")),
    ):
        if rows:
            parts += [Text(""), _listed(title, rows, columns)]
    return Group(*parts)


def _headline(found: Vitals) -> RenderableType:
    from rich.text import Text

    line = Text(f"{_safe(found.server)}", "bold", no_wrap=True)
    line.append(f"  {found.role} {found.version}, up {_seconds(found.uptime_s)}; figures of ", "")
    line.append("all that time" if found.window_s >= found.uptime_s else f"the last {_seconds(found.window_s)}")
    return line


def _figures(found: Vitals) -> Table:
    rates, now = found.rates, found.now
    table = _table(4)
    table.add_row(
        *("appended", f"{_scaled(rates.get('appended_records'))} records/s, {_bytes(rates.get('appended_bytes'))}/s"),
        *("read", f"{_scaled(rates.get('read_records'))} records/s, {_bytes(rates.get('read_bytes'))}/s"),
    )
    table.add_row(
        *("in", f"{_bytes(rates.get('received_bytes'))}/s"),
        *("out", f"{_bytes(rates.get('sent_bytes'))}/s, {_bytes(now.get('in_flight_bytes'))} in flight"),
    )
    per_commit = "" if found.commands_per_commit is None else f", {found.commands_per_commit:.1f} commands each"
    table.add_row(
        *("commits", f"{_scaled(found.commits.per_s)}/s{per_commit}"),
        *("sync", _latency(found.commits)),
    )
    share = "" if found.cache_hit_share is None else f", {found.cache_hit_share:.0%} found"
    table.add_row(
        *("cache", f"{_scaled(now.get('cache_blocks'))} blocks, {_bytes(now.get('cache_bytes'))}{share}"),
        *("at rest", f"{_scaled(now.get('objects'))} objects, {_bytes(now.get('inline_bytes'))} inline"),
    )
    table.add_row(
        *("process", f"{rates.get('cpu_seconds', 0.0):.0%} CPU, {_bytes(now.get('resident_bytes'))} resident"),
        *("loop lag", _latency(found.loop_lag)),
    )
    if "held_logs" not in now:  # a broker: it knows nothing of its own of these, nor of consumers
        table.add_row(*("logs", _ELSEWHERE), *("holds", _ELSEWHERE))
        return table
    logs = ", ".join(f"{count:,} {kind}" for kind, count in found.logs.items() if count)
    table.add_row(
        *("logs", logs or "none"),
        *("holds", f"{now['held_logs']} logs, {now.get('overdue_leases', 0)} leases overdue"),
    )
    return table


def _requests(found: Vitals) -> Table:
    table = _table(5, "request", "per s", "failed per s", "p50", "p99")
    for kind in found.requests[: limits.STATUS_ROWS_MAX]:
        failed = f"{kind.failed_per_s:.1f}" if kind.failed_per_s else ""
        table.add_row(kind.kind, f"{kind.per_s:.1f}", failed, _seconds(kind.p50_s), _seconds(kind.p99_s))
    return table


def _listed(title: str, rows: list[Row], columns: tuple[str, ...]) -> Table:
    names = [column.removesuffix("_s").replace("_", " ") for column in columns]
    table = _table(len(columns), *names)
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    for row in rows:
        table.add_row(*(_cell(column, row.get(column)) for column in columns))
    return table


def _table(width: int, *titles: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=bool(titles), padding=(0, 2, 0, 0))
    for at in range(width):
        right = bool(titles) and titles[at] in _NUMBERS
        table.add_column(titles[at] if titles else "", justify="right" if right else "left", no_wrap=True)
    return table


_NUMBERS = frozenset({"per s", "failed per s", "p50", "p99", "own", "age", "lease left", "position", "lag", "idle"})


def _cell(column: str, value: int | float | str | None) -> RenderableType:
    from rich.text import Text

    if column.endswith("_s") and isinstance(value, int | float):
        return Text("overdue", "red") if value < 0 else Text(_seconds(value))
    return Text(_safe(value))


def _safe(value: int | float | str | None) -> str:
    """What a client called itself may be anything."""
    return "" if value is None else printable(str(value).encode("utf-8", "backslashreplace"))


def _latency(latency: Latency) -> str:
    return f"p50 {_seconds(latency.p50_s)}, p99 {_seconds(latency.p99_s)}" if latency.p50_s is not None else "-"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.1f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, hours = value / 60, value / 3600
    return f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"


def _scaled(value: int | float | str | None) -> str:
    """A number in few characters: 1.5k."""
    number = value if isinstance(value, int | float) else 0
    for scale, unit in _SCALES:
        if number >= scale:
            return f"{number / scale:.1f}{unit}"
    return f"{number:.0f}" if number == int(number) else f"{number:.1f}"


def _bytes(value: int | float | str | None) -> str:
    return f"{_scaled(value)}B"
