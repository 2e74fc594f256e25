"""`braid validate` and `braid validators`: what has to hold before a fork is promoted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from braidlog import limits
from braidlog.cli.call import Call, Verb, VerbGroup, log_argument, pass_call
from braidlog.cli.exit_codes import CONDITION_FAILED
from braidlog.cli.failures import Refused
from braidlog.cli.output import Json, console, say, write_json
from braidlog.cli.parameters import POSITION, Whole, duration, pair
from braidlog.cli.verdicts import finding_json, refusal, tell_findings

if TYPE_CHECKING:
    from braidlog.agents import Bounds, Registration

_parameters = click.option(
    "--param",
    "pairs",
    type=pair,
    multiple=True,
    help="NAME=VALUE, the value JSON if it can be read so; may be repeated.",
)
_start = click.option("--from", "start", type=POSITION, help="Where it begins to read. [default: the beginning]")
_timeout = click.option("--timeout", type=duration, metavar="DURATION", help="How long it may take. [default: 60s]")
_memory = click.option(
    "--memory",
    type=Whole(0),
    metavar="MB",
    help=f"Address space that it may have, 0 for no limit. [default: {limits.VALIDATOR_MEMORY_BYTES // limits.MIB}]",
)


@click.command(cls=Verb)
@log_argument("fork")
@click.option("--with", "spec", metavar="MODULE:NAME", help="A validator: module:name, or path/file.py:name.")
@_parameters
@_start
@_timeout
@_memory
@pass_call
def validate(
    call: Call,
    fork: str,
    spec: str | None,
    pairs: tuple[tuple[str, str], ...],
    start: int | None,
    timeout: float | None,
    memory: int | None,
) -> None:
    """Run a validator over FORK, or, without --with, all that stand before its parent. FORK stays as it is.

    Each runs in a process of its own. Ends with status 6 if one fails.
    """
    from braidlog.agents import validate
    from braidlog.agents.checking import Checks
    from braidlog.agents.promoting import check_fork

    access = call.access()
    with call.open_reading() as braid:
        found = braid.log(fork)
        if spec is not None:
            one = validate(
                braid,
                found,
                spec,
                parameters=_values(pairs),
                start=start,
                bounds=_bounds(timeout, memory),
                access=access,
            )
            findings = [one]
        else:
            if pairs or start is not None or timeout is not None or memory is not None:
                raise click.UsageError("those options are for --with: registered validators have their own")
            info = found.info()
            check_fork(info)
            findings = Checks(braid, access=access).findings(found, info.parent or "")
    passed = all(finding.passed for finding in findings)
    if call.json:
        write_json({"log": fork, "passed": passed, "findings": [finding_json(finding) for finding in findings]})
    elif findings:
        tell_findings(findings)
    else:
        say("no validator stands before it: `braid validators add` puts one there, or give --with")
    if not passed:
        raise Refused(f"{fork} did not pass: {refusal(findings)}", CONDITION_FAILED)


@click.group(cls=VerbGroup)
def validators() -> None:
    """The validators that stand before logs: what is proposed, or promoted with --validated, has to pass them."""


@validators.command(cls=Verb)
@click.argument("name")
@click.argument("spec", metavar="MODULE:NAME")
@click.option("--log", "logs", required=True, metavar="PATTERN", help="The logs that it stands before.")
@_parameters
@_start
@_timeout
@_memory
@pass_call
def add(
    call: Call,
    name: str,
    spec: str,
    logs: str,
    pairs: tuple[tuple[str, str], ...],
    start: int | None,
    timeout: float | None,
    memory: int | None,
) -> None:
    """Put a validator before all logs of such names, for every process."""
    from braidlog.agents import Registry

    with call.open_writing() as braid:
        made = Registry(braid).add(
            name, spec, logs=logs, parameters=_values(pairs), start=start, bounds=_bounds(timeout, memory)
        )
    if call.json:
        write_json(_registration_json(made))
    else:
        say(f"{name} stands before {logs}")


@validators.command("list", cls=Verb)
@click.option("--log", metavar="LOG", help="Only those that stand before this log.")
@pass_call
def list_(call: Call, log: str | None) -> None:
    """Print the validators there are."""
    from braidlog.agents import Registry

    with call.open_reading() as braid:
        found = Registry(braid).list(log)
    if call.json:
        write_json([_registration_json(one) for one in found])
    elif found:
        _draw(found)
    else:
        say("there are no validators: `braid validators add` makes one")


@validators.command(cls=Verb)
@click.argument("name")
@pass_call
def remove(call: Call, name: str) -> None:
    """Take the validator NAME away."""
    from braidlog.agents import Registry

    with call.open_writing() as braid:
        Registry(braid).remove(name)
    if call.json:
        write_json({"name": name, "removed": True})
    else:
        say(f"{name} is gone")


def _values(pairs: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """What reads as JSON is that, everything else a text."""
    found: dict[str, Any] = {}
    for name, text in pairs:
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = text
    return found


def _bounds(timeout: float | None, memory: int | None) -> Bounds:
    from braidlog.agents import Bounds

    given: dict[str, Any] = {}
    if timeout is not None:
        given["timeout_s"] = timeout
    if memory is not None:
        given["memory_bytes"] = memory * limits.MIB or None
    return Bounds(**given)


def _registration_json(one: Registration) -> dict[str, Json]:
    return {
        "name": one.name,
        "validator": one.validator,
        "logs": one.logs,
        "parameters": one.parameters,
        "from": one.start,
        "timeout_s": one.bounds.timeout_s,
        "memory_bytes": one.bounds.memory_bytes,
    }


def _draw(found: list[Registration]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("name", "logs", "validator", "parameters"):
        table.add_column(title)
    for one in found:
        parameters = msgspec.json.encode(one.parameters).decode() if one.parameters else ""
        table.add_row(one.name, Text(one.logs), Text(one.validator), Text(parameters))
    console().print(table)
