"""The tour around a tree, against sums along the path to the root; and the two ways to reach a limit, compared."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from braidlog import limits
from braidlog.forest import commands as c
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.tails import Marker, Tour, reach


def path(log: Log) -> list[Log]:
    found = [log]
    while (above := found[-1].parent) is not None:
        found.append(above)
    return found


def held(log: Log) -> int:
    """How often a log is held, itself included: by each log on its path, unless through an undecided fork of that."""
    line = path(log)
    return bool(log.promotables) + sum(bool(above.promotables) and not via.promotable for via, above in pairwise(line))


def check(forest: Forest) -> None:
    for log in forest.logs.values():
        tour = log.tree.tour
        assert tour is not None
        line = path(log)
        assert tour.at(log) == (line[-1].base + sum(above.own for above in line), held(log))
        for other in forest.logs.values():
            if other.tree is log.tree:
                assert tour.encloses(other, log) == (other in line)


def grow(forest: Forest, chance: Random) -> None:
    """One random change of a tree."""
    log = chance.choice(list(forest.logs.values()))
    command: c.Command
    match chance.choice(["append", "append", "cfork", "cfork", "cfork", "promote", "squash"]):
        case "append":
            command = c.Append(log.id, chance.randint(1, 3), 1, 0, 0, b"-")
        case "cfork":
            command = c.CFork(log.id, "", 0, promotable=chance.random() < 0.5)
        case "promote":
            command = c.Promote(log.id)
        case _:
            command = c.Squash(log.id)
    forest.apply(command)


@pytest.mark.parametrize("seed", range(8))
def test_the_tour_gives_the_sums_along_every_path(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", -1)  # every tree keeps one, from its first fork on
    chance = Random(seed)
    forest = Forest()
    forest.apply(c.Create("root", 0))
    forest.apply(c.Append(1, 2, 1, 0, 0, b"-"))
    forest.apply(c.CFork(1, "", 0))
    for _ in range(120):
        if len(forest.logs) > 25:
            forest.apply(c.Squash(max(forest.logs)))
        grow(forest, chance)
        check(forest)


@pytest.mark.parametrize("seed", range(8))
def test_tours_and_walks_reach_the_same_limits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for depth in (-1, 2, 1_000):
        monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", depth)
        chance = Random(seed)
        forest = Forest()
        forest.apply(c.Create("root", 0))
        for _ in range(150):
            grow(forest, chance)
        answers.append(
            {log.id: (*reach(log)[:2], getattr(reach(log).holder, "id", None)) for log in forest.logs.values()}
        )
    assert answers[0] == answers[1] == answers[2]


def test_a_tour_built_late_equals_one_that_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", 1_000)
    chance = Random(5)
    forest = Forest()
    forest.apply(c.Create("root", 0))
    for _ in range(200):
        grow(forest, chance)
    for log in forest.logs.values():
        assert log.tree.tour is None
    forest.logs[1].tree.tour = Tour(forest.logs[1])
    check(forest)


def height(marker: Marker) -> int:
    deepest, level = 0, [marker]
    while level:
        deepest += 1
        level = [child for node in level for child in (node.left, node.right) if child is not None]
    return deepest


@pytest.mark.parametrize("shape", ["chain", "star"])
def test_the_tour_stays_balanced_however_the_tree_grows(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", -1)
    forest = Forest()
    forest.apply(c.Create("root", 0))
    for log in range(1, 3_000):
        forest.apply(c.CFork(log if shape == "chain" else 1, "", 0))
    top = forest.logs[1].enter
    assert top is not None
    while top.parent is not None:
        top = top.parent
    assert top.size == 6_000
    assert height(top) < 60  # a perfectly balanced one has 13 levels
