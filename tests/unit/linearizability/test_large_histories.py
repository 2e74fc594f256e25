"""Real histories are long: they are explained in seconds, and a single wrong answer in them is found and named."""

from __future__ import annotations

import dataclasses
import time

import pytest

from braidlog.testing.linearizability import Operation, check
from tests.unit.linearizability.generated import Taste, valid

SERVICE = Taste(
    operations=3000,
    clients=30,
    unknown=0.005,
    points_told=1.0,
    final_reads=True,
    reach=100,
    weights=(
        ("append", 5000),
        ("read", 2500),
        ("tail", 2000),
        ("cfork", 12),
        ("promotable", 16),
        ("sfork", 5),
        ("promote", 20),
        ("squash", 30),
    ),
)


def spoilt(history: list[Operation], verb: str, **changes: int) -> tuple[list[Operation], Operation]:
    """The history with one answer changed, of an operation in the middle of it."""
    candidates = [
        number
        for number, one in enumerate(history)
        if one.verb == verb and one.outcome == "ok" and one.log == "root" and (one.position or 0) > 20
    ]
    at = candidates[len(candidates) // 2]
    shift = changes.get("by", 0)
    changed = dataclasses.replace(history[at], position=(history[at].position or 0) + shift)
    return [*history[:at], changed, *history[at + 1 :]], changed


@pytest.fixture(scope="module")
def history() -> list[Operation]:
    return valid(3, SERVICE)


def test_a_long_history_is_explained(history: list[Operation]) -> None:
    verdict = check(history)
    assert verdict, str(verdict)
    assert not verdict.searched


@pytest.mark.parametrize("by", [-20, 5000])
@pytest.mark.parametrize("verb", ["tail", "append"])
def test_one_wrong_answer_in_a_long_history_is_named(history: list[Operation], verb: str, by: int) -> None:
    wrong, culprit = spoilt(history, verb, by=by)
    verdict = check(wrong)
    assert verdict.linearizable is False
    assert any(culprit in violation.operations for violation in verdict.violations), str(verdict)


def test_one_wrong_record_in_a_long_history_is_named(history: list[Operation]) -> None:
    at = [
        n for n, one in enumerate(history) if one.verb == "read" and len(one.records) > 3 and one.client != "auditor"
    ][9]
    (first, one), (second, other), *rest = history[at].records
    wrong = dataclasses.replace(history[at], records=((first, other), (second, one), *rest))
    verdict = check([*history[:at], wrong, *history[at + 1 :]])
    assert verdict.linearizable is False
    assert any(wrong in violation.operations for violation in verdict.violations), str(verdict)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1])
def test_fifty_thousand_operations_of_two_hundred_clients(seed: int) -> None:
    history = valid(seed, dataclasses.replace(SERVICE, operations=50_000, clients=200))
    began = time.process_time()
    verdict = check(history)
    assert verdict, str(verdict)
    assert time.process_time() - began < 40  # seconds of a machine that has much to do; about 7 if it has not
