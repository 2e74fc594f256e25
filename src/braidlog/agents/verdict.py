"""What a validator says, and what is kept of it. Plain values that can be written as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from braidlog import limits


class Verdict(Struct, frozen=True):
    """Whether a fork may be promoted, and why not.

    `positions` are those of records that the reasons are about, `samples` what is worth showing of them.
    """

    passed: bool
    reasons: list[str] = []
    positions: list[int] = []
    samples: list[str] = []


class Finding(Struct, frozen=True, kw_only=True):
    """The verdict of one validator, under the name that it is known by, and how long it took."""

    validator: str
    verdict: Verdict
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it has nothing against it."""
        return self.verdict.passed


def failed(*reasons: str) -> Verdict:
    """A verdict against, for these reasons."""
    return Verdict(passed=False, reasons=list(reasons))


def reasons_of(findings: Iterable[Finding]) -> list[str]:
    """Why promotion is refused, each reason with the validator that gave it; empty if nobody refuses."""
    return [
        f"{finding.validator}: {reason}"
        for finding in findings
        if not finding.passed
        for reason in finding.verdict.reasons or ["it did not say why"]
    ]


def bounded(verdict: Verdict) -> Verdict:
    """As much of it as is kept: a validator that complains of each of a million records is cut short."""
    return Verdict(
        verdict.passed,
        _cut(verdict.reasons),
        list(verdict.positions[: limits.VERDICT_ROWS_MAX]),
        _cut(verdict.samples),
    )


def _cut(texts: list[str]) -> list[str]:
    kept = [
        text if len(text) <= limits.VERDICT_CHARS_MAX else f"{text[: limits.VERDICT_CHARS_MAX]}..." for text in texts
    ]
    if len(kept) > limits.VERDICT_ROWS_MAX:
        return [*kept[: limits.VERDICT_ROWS_MAX], f"and {len(kept) - limits.VERDICT_ROWS_MAX:,} more"]
    return kept
