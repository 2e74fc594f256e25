"""`braid doctor`: whether a directory is in order, or a store can be trusted, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from braidlog.cli import exit_codes
from braidlog.cli.call import Call, Verb, pass_call
from braidlog.cli.output import Json, console, flush, write_json
from braidlog.errors import InvalidArgument

if TYPE_CHECKING:
    from braidlog.embedded.doctor import Report
    from braidlog.objects.probe import Check

_STYLES: Final = {"corrupt": "bold red", "warning": "yellow", "note": "dim"}


@click.command(cls=Verb)
@click.argument("store", required=False, metavar="[STORE]")
@pass_call
@click.pass_context
def doctor(context: click.Context, call: Call, store: str | None) -> None:
    """Check a directory thoroughly: every checksum, every invariant, every record's place. It changes nothing.

    Ends with status 0 if all that was acknowledged is there and whole, else with 8. Works next to a writer.

    With the URL of an object store (s3://BUCKET/PREFIX, gs://, az://) it tries out, there, what braidlog needs of a
    store, and leaves nothing behind. Ends with status 0 if the store does all of it, with 1 if it cannot be trusted,
    with 9 if it cannot be reached.
    """
    if store is not None:
        context.exit(_try_out(call, store))
    from braidlog.embedded.doctor import examine

    call.check_clients()
    report = examine(call.require_folder("the doctor examines directories, also while they are served"))
    if call.json:
        write_json({"healthy": report.healthy} | msgspec.to_builtins(report))
    else:
        _print(report)
    context.exit(exit_codes.OK if report.healthy else exit_codes.CORRUPT)


def _try_out(call: Call, url: str) -> int:
    from braidlog.objects.locations import open_blobs, parse
    from braidlog.objects.probe import probe

    try:
        location = parse(url)
    except InvalidArgument as error:
        if "://" not in url:
            error.add_note(f"for a directory: `braid --at {url} doctor`")
        raise
    checks: list[Check] = []
    for check in probe(open_blobs(location), location.prefix):
        checks.append(check)
        if not call.json:
            _print_check(check)
    sound = all(check.passed for check in checks)
    if call.json:
        told: list[Json] = [{"what": one.what, "passed": one.passed, "problem": one.problem} for one in checks]
        write_json({"sound": sound, "store": location.place, "checks": told})
    else:
        _print_verdict(location.place, sound)
    if sound:
        return exit_codes.OK
    return exit_codes.UNAVAILABLE if checks[-1].unreachable else exit_codes.FAILED


def _print_check(check: Check) -> None:
    from rich.text import Text

    label = Text("ok: ", "green") if check.passed else Text("FAILED: ", "bold red")
    console().print(label.append(check.what, "default"))
    if check.problem:
        console().print(Text(f"    {check.problem}"))
    flush()


def _print_verdict(place: str, sound: bool) -> None:
    from rich.text import Text

    verdict = Text(f"{place} can be used", "bold green") if sound else Text(f"{place} cannot be used", "bold red")
    console().print(verdict)


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
