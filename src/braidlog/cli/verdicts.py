"""What validators said, in words and as JSON, the same for every verb that tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from braidlog.cli.output import Json, write_line
from braidlog.cli.rendering import printable

if TYPE_CHECKING:
    from braidlog.agents import Finding


def finding_json(finding: Finding) -> dict[str, Json]:
    """All of it."""
    verdict = finding.verdict
    return {
        "validator": finding.validator,
        "passed": verdict.passed,
        "reasons": [*verdict.reasons],
        "positions": [*verdict.positions],
        "samples": [*verdict.samples],
        "seconds": finding.seconds,
    }


def tell_findings(findings: Iterable[Finding]) -> None:
    """A line for each validator, and below it what it has to say."""
    for finding in findings:
        word = "passed" if finding.passed else "FAILED"
        write_line(f"{word}  {shown(finding.validator)}  {finding.seconds:.1f} s")
        verdict = finding.verdict
        for reason in verdict.reasons:
            write_line(f"        {shown(reason)}")
        if verdict.positions:
            write_line(f"        at {', '.join(map(str, verdict.positions))}")
        for sample in verdict.samples:
            write_line(f"        | {shown(sample)}")


def refusal(findings: Iterable[Finding]) -> str:
    """Why it was not promoted, in one line."""
    against = [finding.validator for finding in findings if not finding.passed]
    if against:
        return f"{', '.join(map(shown, against))} failed"
    return "it was written to meanwhile, or a sibling was promoted first"


def shown(text: str) -> str:
    """Text that a terminal shows and never obeys."""
    return printable(text.encode("utf-8", "backslashreplace"))
