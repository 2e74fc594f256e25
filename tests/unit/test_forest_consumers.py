"""A fork's consumers cost nothing until somebody changes them, in memory and in snapshots."""

from __future__ import annotations

from braidlog.errors import Blocked
from braidlog.forest import commands as c
from braidlog.forest.consumers import position_of
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw


def planted(consumers: int) -> Forest:
    forest = Forest()
    forest.apply(c.Create("root", 0))
    forest.apply(c.Append(1, 10, 10, 0, 0, b"-"))
    for number in range(consumers):
        assert forest.apply(c.Commit(1, f"consumer {number}", 8, 0)) == c.Done(8)
    return forest


def test_forks_share_their_parents_consumers() -> None:
    forest = planted(3)
    forest.apply(c.CFork(1, "live", 0))
    forest.apply(c.SFork(1, "cut", 0, at=5))
    root, live, cut = forest.logs.values()
    assert root.consumers is live.consumers is cut.consumers
    forest.apply(c.Commit(3, "consumer 0", 2, 0))
    assert root.consumers is live.consumers
    assert [position_of(log, "consumer 0") for log in (root, live, cut)] == [8, 8, 2]
    assert [position_of(log, "consumer 1") for log in (root, live, cut)] == [8, 8, 5]


def test_a_snapshot_holds_shared_consumers_once() -> None:
    few, many = planted(1), planted(1000)
    before = len(freeze(many)) - len(freeze(few))
    for forest in (few, many):
        for _ in range(50):
            forest.apply(c.CFork(1, "", 0))
    assert len(freeze(many)) - len(freeze(few)) < before + 1000
    thawed = thaw(freeze(many))
    assert len({id(log.consumers) for log in thawed.logs.values()}) == 1
    thawed.apply(c.Commit(2, "consumer 0", 1, 0))
    assert [position_of(thawed.logs[log], "consumer 0") for log in (1, 2, 3)] == [8, 1, 8]


def test_a_promotion_leaves_the_parents_consumers_valid() -> None:
    forest = planted(1)
    forest.apply(c.Commit(1, "consumer 0", 10, 0))
    forest.apply(c.CFork(1, "trial", 0, promotable=True))
    forest.apply(c.Append(1, 1, 1, 0, 0, b"-"))
    assert isinstance(forest.apply(c.Commit(1, "consumer 0", 11, 0)), Blocked)
    assert forest.apply(c.Commit(2, "consumer 0", 11, 0)) == c.Done(11)
    assert forest.apply(c.Promote(2)) == c.Promotion(True, [2])
    assert position_of(forest.logs[1], "consumer 0") == 10
