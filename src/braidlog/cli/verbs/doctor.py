"""`braid doctor`: whether a directory is in order, and what to do if it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from braidlog.cli import exit_codes
from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.output import console, write_json

if TYPE_CHECKING:
    from braidlog.embedded.doctor import Report

_STYLES: Final = {"corrupt": "bold red", "warning": "yellow", "note": "dim"}


@click.command(cls=Verb)
@pass_call
@click.pass_context
def doctor(context: click.Context, call: Call) -> None:
    """Check a directory thoroughly: every checksum, every invariant, every record's place. It changes nothing.

    Ends with status 0 if all that was acknowledged is there and whole, else with 8. Works next to a writer.
    """
    from braidlog.embedded.doctor import examine

    report = examine(call.require_folder("the doctor examines directories, also while they are served"))
    if call.json:
        write_json({"healthy": report.healthy} | msgspec.to_builtins(report))
    else:
        _print(report)
    context.exit(exit_codes.OK if report.healthy else exit_codes.CORRUPT)


def _print(report: Report) -> None:
    from rich.text import Text

    screen = console()
    for finding in report.findings:
        label = Text(f"{finding.severity}: ", _STYLES[finding.severity])
        screen.print(label.append(f"{finding.where}: {finding.problem}", "default"))
        screen.print(Text(f"    to do: {finding.advice}"))
    screen.print(Text(_examined(report)))
    screen.print(Text("healthy", "bold green") if report.healthy else Text("corrupt", "bold red"))


def _examined(report: Report) -> str:
    return (
        f"examined {report.path}: {report.logs:,} logs, {report.records:,} records, "
        f"{report.frames:,} frames ({report.frame_bytes:,} bytes), "
        f"{report.objects:,} objects ({report.object_bytes:,} bytes)"
    )
