"""`braid info`: all there is to know about one log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from braidlog.cli.call import Call, Verb, log_argument, pass_call
from braidlog.cli.describing import hold_text, info_json, kind_text, moment_text, time_left
from braidlog.cli.output import write_json, write_line

if TYPE_CHECKING:
    from braidlog import Info, Retention


@click.command(cls=Verb)
@log_argument("log")
@pass_call
def info(call: Call, log: str) -> None:
    """Print all there is to know about LOG."""
    with call.open_reading() as braid:
        found = braid.log(log)
        facts = found.info()
        lineage = found.lineage()
    if call.json:
        write_json(info_json(facts) | {"lineage": [step.name for step in lineage]})
        return
    for name, text in _facts(facts).items():
        write_line(f"{name:<12} {text}")
    if len(lineage) > 1:
        write_line(f"{'lineage':<12} {' < '.join(step.name for step in lineage)}")


def _facts(info: Info) -> dict[str, str]:
    facts = {
        "name": info.name,
        "kind": f"{kind_text(info)} #{info.id}",
        "start": str(info.start),
        "tail": str(info.tail),
        "own": f"{info.own:,} records, {info.own_bytes:,} bytes",
        "created": f"{moment_text(info.created)} by {info.owner or 'nobody known'}",
    }
    if info.parent is not None:
        facts["forked from"] = f"{info.parent} at {info.fork_point}, sharing {info.shared_bytes:,} bytes"
    if info.dedicated:
        facts["broker"] = "one of its own, where there are brokers"
    if info.limited_by is not None:
        facts["hold"] = hold_text(info)
    if info.lease_expires is not None:
        facts["lease"] = f"{moment_text(info.lease_expires)}, {time_left(info.lease_expires)}"
    if info.expires is not None:
        facts["expires"] = f"{moment_text(info.expires)}, {time_left(info.expires)}"
    if info.epoch:
        facts["promotions"] = f"{info.epoch} into it"
    if info.retention is not None:
        facts["retention"] = _retention_text(info.retention)
    for name, value in info.labels.items():
        facts[f"label {name}"] = value
    return facts


def _retention_text(retention: Retention) -> str:
    kept: list[str] = []
    if retention.max_age is not None:
        kept.append(f"{retention.max_age:g} s")
    if retention.max_bytes is not None:
        kept.append(f"{retention.max_bytes:,} bytes")
    return ", ".join(kept)
