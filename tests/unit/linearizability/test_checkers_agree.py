"""The fast checker against the exact one: on histories that are right by construction, and on the same, damaged.

Whatever one accepts the other accepts. What the fast one accepts comes with an order, and the plain specification
follows that order answer by answer.
"""

from __future__ import annotations

from collections import Counter

import pytest

from braidlog.testing.linearizability import Operation, Verdict, check, check_exactly
from braidlog.testing.linearizability.evidence import trees
from braidlog.testing.linearizability.exact import replay
from braidlog.testing.linearizability.history import verified
from tests.unit.linearizability.generated import Taste, damaged, valid

STEPS = 20_000  # of a search, for the fast checker
EXACT_STEPS = 3_000
PLAIN = Taste()
AUDITED = Taste(operations=18, clients=5, points_told=1.0, final_reads=True)
DOUBTFUL = Taste(operations=12, clients=6, unknown=0.3, points_told=0.4)
BUSY = Taste(operations=150, clients=10, unknown=0.02, points_told=1.0, final_reads=True)


def explains(history: list[Operation], verdict: Verdict) -> bool:
    families = trees(verified(history))
    return len(families) == len(verdict.order) and all(
        replay(tree.operations, list(order)) for tree, order in zip(families, verdict.order, strict=True)
    )


def accept(first: int, count: int, taste: Taste) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in range(first, first + count):
        history = valid(seed, taste)
        fast = check(history, steps=STEPS)
        assert fast.linearizable is not False, f"seed {seed}: {fast}"
        if fast:
            assert explains(history, fast), f"seed {seed}: the order explains nothing"
        met["undecided" if not fast else "searched" if fast.searched else "built"] += 1
        exact = check_exactly(history, steps=EXACT_STEPS)
        assert exact.linearizable is not False, f"seed {seed}: {exact}"
        met["exact"] += exact.linearizable is True
    return met


def agree(first: int, count: int, taste: Taste) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in range(first, first + count):
        history = damaged(valid(seed, taste), seed)
        fast = check(history, steps=STEPS)
        exact = check_exactly(history, steps=EXACT_STEPS)
        if exact.linearizable is None or fast.linearizable is None:
            met["given up"] += 1
            continue
        assert fast.linearizable == exact.linearizable, f"seed {seed}: {fast}\n{exact}"
        if fast:
            assert explains(history, fast), f"seed {seed}: the order explains nothing"
        met["accepted" if fast else "rejected"] += 1
        met["named"] += not fast and not fast.searched
    return met


@pytest.mark.parametrize("taste", [PLAIN, AUDITED, DOUBTFUL], ids=["plain", "audited", "doubtful"])
def test_both_accept_what_is_right(taste: Taste) -> None:
    met = accept(0, 120, taste)
    assert met["built"] >= 110, met
    assert met["exact"] >= 100, met


@pytest.mark.parametrize("taste", [PLAIN, AUDITED, DOUBTFUL], ids=["plain", "audited", "doubtful"])
def test_they_agree_about_what_is_damaged(taste: Taste) -> None:
    met = agree(1000, 150, taste)
    assert met["accepted"] >= 30, met
    assert met["rejected"] >= 15, met
    assert met["named"] >= 0.7 * met["rejected"], met


def test_longer_histories_are_explained_without_search() -> None:
    built = 0
    for seed in range(12):
        history = valid(seed, BUSY)
        verdict = check(history, steps=1)
        assert verdict.linearizable is not False, f"seed {seed}: {verdict}"
        if verdict:
            assert explains(history, verdict)
            built += 1
    assert built >= 11


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 90_000, 10_000))
def test_both_accept_what_is_right_for_long(first: int) -> None:
    for taste in (PLAIN, AUDITED, DOUBTFUL):
        met = accept(first, 1000, taste)
        assert met["undecided"] <= 5, met


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100_000, 180_000, 10_000))
def test_they_agree_about_what_is_damaged_for_long(first: int) -> None:
    for taste in (PLAIN, AUDITED, DOUBTFUL):
        agree(first, 1500, taste)
