"""Asking before something is lost. Without a terminal nobody can answer, and then `--yes` must have been given."""

from __future__ import annotations

import sys

import click

from braidlog.cli.failures import Refused

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Return if it is to be done."""
    if yes:
        return
    if not on_terminal():
        raise click.UsageError(f"{question} There is no terminal to ask on: give --yes to do it.")
    if not click.confirm(question, err=True):
        raise Refused("left as it was")


def on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
