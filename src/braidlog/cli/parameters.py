"""The kinds of values that options take, checked as the command line is read."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Any, Final

import click

from braidlog.record import to_micros
from braidlog.wording import byte_count


class Whole(click.IntRange):
    """A whole number within bounds."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            int(value)
        except (TypeError, ValueError, OverflowError):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


POSITION: Final = Whole(0, 2**63 - 1)

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)")


def duration(text: str | float) -> float:
    """Seconds, or a number with a unit: 500ms, 90s, 5m, 2h, 1d."""
    match = _DURATION.fullmatch(str(text))
    if match is None:
        raise click.BadParameter(f"{text!r} is not a duration: write 90, 90s, 500ms, 5m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def size(text: str | int) -> int:
    """Bytes, or a number with a unit: 64KiB, 10MiB, 1GiB."""
    try:
        return byte_count(str(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number of bytes: write 1000, 64KiB, 10MiB or 1GiB") from None


def check_range(start: int | None, stop: int | None) -> None:
    """UsageError for a range that ends before it begins, which nobody means."""
    if start is not None and stop is not None and stop < start:
        raise click.UsageError(f"STOP {stop} is below START {start}: a range goes from START up to and without STOP")


def lease_term(text: str | float) -> float:
    """A duration, or `none`. Infinity stands for that, as None means that nothing was said."""
    return float("inf") if text == "none" else duration(text)


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, rest = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, rest


def moment(text: str) -> int:
    """A point in time, as microseconds since 1970 UTC."""
    try:
        return moment_of(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-01-31T12:00:00Z, or microseconds since 1970"
        ) from None


def moment_of(text: str, unit_us: int = 1) -> int:
    """Microseconds since 1970 UTC from ISO 8601, or from a number of units; ValueError for anything else."""
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text) * unit_us
    return to_micros(datetime.fromisoformat(text))


def argument_bytes(text: str) -> bytes:
    """The very bytes that stood on the command line, UTF-8 or not."""
    return os.fsencode(text)
