"""A census that is kept as commands are applied says what a walk over all logs would."""

from __future__ import annotations

import random

import pytest

from braidlog import limits
from braidlog.embedded.census import Census
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest

S = 1_000_000


def walked(forest: Forest) -> tuple[dict[str, int], int]:
    kinds = dict.fromkeys(("root", "cfork", "promotable", "sfork"), 0)
    for log in forest.logs.values():
        kinds["promotable" if log.promotable else log.kind] += 1
    tables = {id(log.consumers): len(log.consumers) for log in forest.logs.values()}
    return kinds, sum(tables.values())


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_a_walk_says(seed: int) -> None:
    chance = random.Random(seed)
    forest = Forest()
    late: Census | None = None
    early = Census(forest)
    for number in range(400):
        logs = list(forest.logs)
        log = chance.choice(logs) if logs else 0
        request = b"%016d" % chance.randrange(number + 1)  # now and then one that was answered before
        command: c.Command = chance.choice(
            [
                c.Create(f"log-{number}", number, request=request),
                c.CFork(log, "", number, promotable=chance.random() < 0.5, request=request),
                c.SFork(log, "", number, request=request),
                c.Promote(log, request=request),
                c.Squash(log, cascade_severed=chance.random() < 0.5, request=request),
                c.Drop(log, cascade=True, request=request),
                c.Again(c.CFork(log, "", number, promotable=True, request=request), 0),
            ]
        )
        answer = forest.apply(command)
        if number == 200:  # made while a command is applied that it is still to be told of
            late = Census(forest)
        for census in (early, late):
            if census is not None:
                census.take(command, answer)
                assert census.living == walked(forest)[0]
        undecided = sum(log.promotable for log in forest.logs.values())
        assert early.holds(number, 0).undecided == undecided
    assert early.living["root"] + early.living["cfork"] > 0


def forest_with(*commands: c.Command) -> tuple[Forest, Census]:
    forest = Forest()
    census = Census(forest)
    for command in commands:
        answer = forest.apply(command)
        assert not isinstance(answer, Exception)
        census.take(command, answer)
    return forest, census


def test_holds_tell_whom_they_hold_how_old_they_are_and_how_long_their_lease_lasts() -> None:
    _, census = forest_with(
        c.Create("orders", 0),
        c.CFork(1, "first", 10 * S, promotable=True, lease_us=60 * S, owner="agent"),
        c.Append(2, 3, 30, 0, 0, payload=b"..."),
        c.CFork(1, "second", 20 * S, promotable=True),
        c.CFork(1, "plain", 20 * S),
    )
    found = census.holds(40 * S, 10)
    assert (found.undecided, found.held, found.overdue, found.oldest_s) == (2, 1, 0, 30.0)
    assert [tuple(hold) for hold in found.oldest] == [
        ("orders", "first", "agent", 3, 30.0, 30.0),
        ("orders", "second", "", 0, 20.0, None),
    ]
    later = census.holds(100 * S, 1)
    assert later.overdue == 1
    assert [hold.lease_left_s for hold in later.oldest] == [-30.0]


def test_the_furthest_behind_comes_first() -> None:
    _, census = forest_with(
        c.Create("orders", 0),
        c.Append(1, 10, 100, 0, 0, payload=b"..."),
        c.Commit(1, "quick", 9, 5 * S),
        c.Commit(1, "slow", 2, 6 * S),
        c.CFork(1, "fork", 7 * S),  # inherits them, and is not counted
        c.Commit(2, "own", 0, 8 * S),
    )
    assert [(lag.log, lag.consumer, lag.position, lag.lag, lag.idle_s) for lag in census.lags(10 * S, 2)] == [
        ("fork", "own", 0, 10, 2.0),
        ("orders", "slow", 2, 8, 4.0),
    ]
    assert census.consumers == 5  # the fork has all three since it changed one


def test_consumers_are_counted_as_they_come_and_go() -> None:
    forest, census = forest_with(
        c.Create("orders", 0), c.Commit(1, "a", 0, 0), c.Commit(1, "b", 0, 0), c.ForgetConsumer(1, "a")
    )
    assert census.consumers == Census(forest).consumers == 1
    census.take(c.Drop(1), forest.apply(c.Drop(1)))
    assert census.consumers == 0
    assert census.lags(0, 10) == []


def test_one_look_examines_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_FORKS_EXAMINED_MAX", 3)
    monkeypatch.setattr(limits, "STATUS_CONSUMERS_EXAMINED_MAX", 4)
    _, census = forest_with(
        c.Create("orders", 0),
        *(c.Commit(1, f"c{number}", 0, 0) for number in range(6)),
        *(c.CFork(1, f"f{number}", 0, promotable=True, lease_us=1) for number in range(10)),
    )
    found = census.holds(S, 100)
    assert (found.undecided, found.overdue, len(found.oldest)) == (10, 3, 3)
    assert len(census.lags(0, 100)) == 4
    assert census.consumers == 6
