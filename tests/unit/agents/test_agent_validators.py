"""The forms that a validator may have, and what is made of what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import limits
from braidlog.agents import Context, Verdict
from braidlog.agents.validators import as_verdict, examine, load, split
from braidlog.agents.verdict import bounded
from braidlog.errors import InvalidArgument


@pytest.fixture
def fork() -> Iterator[braidlog.Log]:
    """History, then the agent's records between those that came meanwhile."""
    with braidlog.open("memory://") as braid:
        orders = braid.create("orders")
        orders.append_many([b"a", b"b", b"c"])
        fork = orders.cfork("trial")
        fork.append(b"own 1")
        orders.append(b"d")
        fork.append(b"own 2")
        yield fork


class Recorder:
    """What it was fed, and with what it was made."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.seen: list[tuple[int, bytes, bool]] = []

    def begin(self, context: Context) -> None:
        self.context = context

    def record(self, record: braidlog.Record, own: bool) -> None:
        self.seen.append((record.position, record.value, own))

    def end(self) -> Verdict:
        return Verdict(len(self.seen) <= self.most, [f"{self.context.own} own", *(repr(one) for one in self.seen)])


def test_a_class_sees_history_and_both_kinds_of_records_in_the_forks_order(fork: braidlog.Log) -> None:
    said = examine(fork, Recorder, {})
    assert said.passed
    assert said.reasons == [
        "2 own",
        *map(repr, [(0, b"a", False), (1, b"b", False), (2, b"c", False)]),
        *map(repr, [(3, b"own 1", True), (4, b"d", False), (5, b"own 2", True)]),
    ]


@pytest.mark.parametrize("start", [0, 2, 3, 4, 6])
def test_it_begins_where_it_is_told(fork: braidlog.Log, start: int) -> None:
    assert len(examine(fork, Recorder, {}, start).reasons) == 1 + 6 - start


def test_a_trimmed_history_is_not_asked_for(fork: braidlog.Log) -> None:
    fork.trim(2)
    assert len(examine(fork, Recorder, {}).reasons) == 1 + 4


def test_parameters_make_the_instance(fork: braidlog.Log) -> None:
    assert not examine(fork, Recorder, {"most": 5}).passed
    with pytest.raises(TypeError):
        examine(fork, Recorder, {"least": 5})


def test_a_function_gets_the_fork_and_the_context(fork: braidlog.Log) -> None:
    def check(log: braidlog.Log, context: Context) -> bool:
        return (log.name, context.parent, context.fork_point, context.stop) == ("trial", "orders", 3, 6) and (
            context.parameters == {"x": 1}
        )

    assert examine(fork, check, {"x": 1}).passed


@dataclass(frozen=True)
class Foreign:
    """A verdict of somebody else's making."""

    passed: bool
    reasons: tuple[str, ...] = ()
    samples: list[Any] = field(default_factory=list)


def test_a_callable_may_take_the_fork_alone_and_have_a_verdict_of_its_own(fork: braidlog.Log) -> None:
    said = examine(fork, lambda log: Foreign(False, (log.name,), [{"row": 1}]), {})
    assert said == Verdict(False, ["trial"], [], ["{'row': 1}"])


def test_what_is_no_validator_is_told(fork: braidlog.Log) -> None:
    with pytest.raises(InvalidArgument, match="neither be called"):
        examine(fork, 7, {})
    parent = fork.info().parent
    assert parent == "orders"


@pytest.mark.parametrize(
    ("said", "passed"), [(None, True), (True, True), (False, False), ("yes", False), (1, False), (Foreign(True), True)]
)
def test_only_none_true_and_verdicts_pass(said: object, passed: bool) -> None:
    verdict = as_verdict(said)
    assert verdict.passed is passed
    assert verdict.passed or verdict.reasons


def test_a_verdict_is_cut_to_what_can_be_kept() -> None:
    cut = bounded(Verdict(False, ["x" * 10_000] * 1000, list(range(1000))))
    assert len(cut.reasons) == limits.VERDICT_ROWS_MAX + 1
    assert cut.reasons[-1] == f"and {1000 - limits.VERDICT_ROWS_MAX} more"
    assert max(map(len, cut.reasons)) == limits.VERDICT_CHARS_MAX + 3
    assert len(cut.positions) == limits.VERDICT_ROWS_MAX


@pytest.mark.parametrize("spec", ["", "module", ":name", "module:", "module:a b", "module:1x"])
def test_a_validator_is_named_by_module_and_name(spec: str) -> None:
    with pytest.raises(InvalidArgument, match="module:name"):
        split(spec)


def test_validators_are_found_in_modules_and_in_files(tmp_path: Path) -> None:
    path = tmp_path / "own_checks.py"
    path.write_text("class Box:\n    @staticmethod\n    def check(fork):\n        return True\n")
    found = load(f"{path}:Box.check")
    assert callable(found)
    assert load("tests.unit.agents.test_agent_validators:Recorder").__name__ == "Recorder"  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match="has no nothing"):
        load(f"{path}:nothing")
    with pytest.raises(InvalidArgument, match="no file"):
        load(f"{tmp_path}/missing.py:check")
