"""A broker may bind what its client has sent elsewhere by then: it must not be taken for new."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.broker.remote import _since
from braidlog.broker.service import Caller
from braidlog.errors import OutcomeUnknown
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.wire import messages as m

CLIENT = b"8 bytes."


def request(number: int) -> bytes:
    return CLIENT + number.to_bytes(8, "big")


def append(number: int) -> c.Append:
    return c.Append(1, 1, 1, 0, 0, b"-", request=request(number))


def test_a_broker_says_since_when_a_change_may_be_there() -> None:
    caller = Caller(CLIENT, 0, "tests")
    caller.seen = 41
    assert _since(caller, m.Append(append(1))) == 41
    assert _since(caller, m.Append(append(1), since=17)) == 17  # it was sent before: what was seen then counts


def forest_that_forgot(monkeypatch: pytest.MonkeyPatch) -> Forest:
    """Request 0 was applied, answered and settled, and then many others came."""
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 4)
    forest = Forest()
    for command in (c.Create("orders", 0), c.Settle(CLIENT, 0), c.Again(append(0), 2)):
        forest.apply(command)
    for number in range(1, 10):
        forest.apply(c.Again(append(number), forest.applied))
    forest.apply(c.Settle(CLIENT, 10))
    return forest


def test_a_copy_of_what_was_settled_long_ago_is_not_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_that_forgot(monkeypatch)
    assert forest.recall(request(0)) is None
    assert isinstance(forest.apply(c.Again(append(0), 2)), OutcomeUnknown)
    assert forest.logs[1].own == 10


def test_what_is_young_is_new_even_below_what_another_connection_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_that_forgot(monkeypatch)
    late = c.Append(1, 1, 1, 0, 0, b"-", request=request(5)[:-1] + b"\xff")
    forest.apply(c.Settle(CLIENT, 300))
    answer = forest.apply(c.Again(late, forest.applied - 2))
    assert isinstance(answer, c.Appended)
    assert answer.block != NONE
