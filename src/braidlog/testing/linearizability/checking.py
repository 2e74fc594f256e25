"""The two checkers: the fast one for real histories, and the exact one that it is measured against.

What a history must keep to is said in `specification`; on top of that:

- A read that shows nothing means that the log could not be read beyond its start.
- An append that was answered without a position says nothing about one: it may have been held, or not asked.
- An append to a held log may be answered late, with the position that a decision gave it.
- `refused` and a promotion that answered False mean that nothing changed, whatever the reason.
- Nothing ends by itself. If leases or times to live may have run out, record a `squash` that is unknown.

Trees of logs are independent of each other, and are checked one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from braidlog.testing.linearizability.evidence import Tree, trees
from braidlog.testing.linearizability.exact import search
from braidlog.testing.linearizability.history import Operation, verified
from braidlog.testing.linearizability.precedence import Precedence
from braidlog.testing.linearizability.sweeps import Sweeps
from braidlog.testing.linearizability.verdict import Verdict, Violation
from braidlog.testing.linearizability.witness import Builder

SEARCH_STEPS: Final = 20_000
SEARCH_OPERATIONS_MAX: Final = 200
EXACT_STEPS: Final = 1_000_000
SHOWN: Final = 6
EFFORT: Final = 60_000
EFFORT_PER_OPERATION: Final = 6  # two are enough where nothing is tried in vain
VARIANTS: Final = 4  # of building an order, each by other preferences


def check(history: Iterable[Operation], *, steps: int = SEARCH_STEPS) -> Verdict:
    """Check a history of any length.

    It looks for contradictions, then for an order that explains everything, guided by values and positions. If there is
    neither, and the history of the tree is short, orders are tried one after the other, up to so many steps.
    """
    return _together([_check(tree, steps) for tree in trees(verified(history))])


def check_exactly(history: Iterable[Operation], *, steps: int = EXACT_STEPS) -> Verdict:
    """Check a short history by trying orders one after the other, up to so many steps."""
    return _together([_search(tree, steps) for tree in trees(verified(history))])


def _check(tree: Tree, steps: int) -> Verdict:
    if not tree.violations:
        Sweeps(tree)
    if tree.violations:
        return Verdict(False, tuple(tree.violations))
    precedence = Precedence(tree)
    if tree.violations:
        return Verdict(False, tuple(tree.violations))
    effort = EFFORT + EFFORT_PER_OPERATION * len(tree.operations)
    stuck: list[Operation] = []
    for variant in range(VARIANTS):
        builder = Builder(tree, precedence.before, precedence.due, variant)
        order = builder.build(effort)
        if order is not None:
            return Verdict(True, (), (tuple(tree.operations[number] for number in order),))
        stuck.append(tree.operations[builder.stuck])
    if len(tree.operations) <= SEARCH_OPERATIONS_MAX:
        return _search(tree, steps)
    furthest = max(stuck, key=lambda one: one.answered or 0)
    message = "no explanation was found, and no contradiction; it could not be explained how this was answered"
    return Verdict(None, (Violation("unexplained", message, (furthest,), tree.origin),))


def _search(tree: Tree, steps: int) -> Verdict:
    found = search(tree.operations, steps)
    if found.order is not None:
        return Verdict(True, (), (tuple(found.order),), searched=True)
    taken = set(map(id, found.furthest))
    left = sorted(
        (one for one in tree.operations if id(one) not in taken and one.outcome == "ok"),
        key=lambda one: one.answered or 0,
    )
    message = f"no order explains all {len(tree.operations)} operations"
    if found.given_up:
        message = f"{message} among those that were tried; the search was given up"
    message += f". Where the longest attempt ended, {len(found.furthest)} were explained, and these were next"
    stuck = Violation("unexplained", message, tuple(left[:SHOWN]), tree.origin)
    return Verdict(None if found.given_up else False, (stuck,), searched=True)


def _together(verdicts: list[Verdict]) -> Verdict:
    answers = [verdict.linearizable for verdict in verdicts]
    return Verdict(
        False if False in answers else None if None in answers else True,
        tuple(violation for verdict in verdicts for violation in verdict.violations),
        tuple(order for verdict in verdicts for order in verdict.order),
        searched=any(verdict.searched for verdict in verdicts),
    )
