"""Requests that are sent again: recalled, applied as new when that is certain, or unknown."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.errors import InvalidArgument, OutcomeUnknown
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw

ONE, OTHER = b"client-1", b"client-2"


def request(client: bytes, number: int) -> bytes:
    return client + number.to_bytes(8, "big")


def append(client: bytes, number: int) -> c.Append:
    return c.Append(1, 1, 1, 0, 0, b"-", request=request(client, number))


def planted(*commands: c.Command) -> Forest:
    forest = Forest()
    for command in (c.Create("root", 0), *commands):
        assert isinstance(forest.apply(command), c.Result)
    return forest


@pytest.fixture(autouse=True)
def _a_short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 2)


def test_every_command_counts_refused_ones_too() -> None:
    forest = planted(append(ONE, 0))
    forest.apply(c.Squash(1))
    forest.apply(append(ONE, 0))
    forest.apply(c.Again(append(ONE, 0), 0))
    assert forest.applied == 5
    assert thaw(freeze(forest)).applied == 5


def test_what_all_forget_the_clients_window_keeps() -> None:
    forest = planted(c.Settle(ONE, 0), *(append(ONE, number) for number in range(6)))
    for one in (forest, thaw(freeze(forest))):
        assert [one.recall(request(ONE, number)) for number in range(6)] == [c.Appended(1, n, 1) for n in range(6)]
        assert one.apply(c.Again(append(ONE, 0), 1)) == c.Appended(1, 0, 1)
        assert one.logs[1].own == 6


def test_a_client_without_a_window_is_forgotten_with_all_others() -> None:
    forest = planted(c.Settle(ONE, 0), append(OTHER, 0), append(ONE, 0), append(ONE, 1))
    assert forest.recall(request(OTHER, 0)) is None
    assert isinstance(forest.apply(c.Again(append(OTHER, 0), 1)), OutcomeUnknown)
    assert forest.logs[1].own == 3


def test_what_is_settled_is_kept_no_more_and_never_applied_again() -> None:
    forest = planted(c.Settle(ONE, 0), *(append(ONE, number) for number in range(6)))
    assert forest.apply(c.Settle(ONE, 3)) == c.Done(3)
    assert forest.apply(c.Settle(ONE, 1)) == c.Done(3)  # a floor never falls
    assert [forest.recall(request(ONE, number)) is not None for number in range(6)] == [False] * 3 + [True] * 3
    answer = forest.apply(c.Again(append(ONE, 2), 1))
    assert isinstance(answer, OutcomeUnknown)
    assert answer.request_id == request(ONE, 2).hex()
    assert forest.logs[1].own == 6


def test_of_a_windows_outcomes_the_lowest_numbers_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_OUTCOMES_KEPT_MAX", 2)
    forest = planted(c.Settle(ONE, 0), *(append(ONE, number) for number in (3, 1, 2, 9, 8, 7)))
    forest = thaw(freeze(forest))
    kept = [number for number in range(10) if forest.recall(request(ONE, number)) is not None]
    assert kept == [3, 7, 8, 9]
    assert isinstance(forest.apply(c.Again(append(ONE, 2), 2)), OutcomeUnknown)
    assert isinstance(forest.apply(c.Again(append(ONE, 0), 2)), OutcomeUnknown)  # it might have been one of those
    assert forest.apply(c.Again(append(ONE, 4), 2)) == c.Appended(1, 6, 1, 7)


def test_one_that_never_arrived_is_applied_as_new_and_then_recalled() -> None:
    forest = planted(c.Settle(ONE, 0), *(append(ONE, number) for number in range(5)))
    answer = forest.apply(c.Again(append(ONE, 5), forest.applied))
    assert answer == c.Appended(1, 5, 1, 6)
    assert forest.apply(c.Again(append(ONE, 5), 0)) == c.Appended(1, 5, 1)
    made = forest.apply(c.Again(c.CFork(1, "fork", 0, request=request(ONE, 6)), forest.applied))
    assert made == c.Opening(2, "fork")
    assert forest.apply(c.CFork(1, "another", 0, request=request(ONE, 6))) == made


def test_one_that_was_refused_may_be_refused_again() -> None:
    forest = planted(c.Settle(ONE, 0))
    again = c.Again(c.Trim(1, 5, request(ONE, 0)), 2)
    assert type(forest.apply(again)) is type(forest.apply(c.Trim(1, 5)))
    assert forest.recall(request(ONE, 0)) is None


def test_positions_that_a_hold_withheld_are_told_when_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECIDED_OUTCOMES_KEPT_MAX", 1)
    forest = planted(c.Settle(ONE, 0), c.CFork(1, "fork", 0, promotable=True))
    for number in range(3):
        forest.apply(append(ONE, number))
    assert forest.apply(c.Again(append(ONE, 0), 2)) == c.Appended(1, 0, 1, NONE, withheld=True)
    forest.apply(c.Squash(2))
    for one in (forest, thaw(freeze(forest))):
        assert [one.apply(c.Again(append(ONE, n), 2)) for n in range(3)] == [c.Appended(1, n, 1) for n in range(3)]


def test_the_client_that_was_silent_longest_loses_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENTS_KEPT_MAX", 2)
    monkeypatch.setattr(limits, "YOUNG_COMMANDS", 1)
    forest = planted(c.Settle(ONE, 0), c.Settle(OTHER, 0), c.Settle(ONE, 0), c.Settle(b"client-3", 0))
    assert list(forest.windows.by_client) == [ONE, b"client-3"]
    assert forest.windows.windows_forgotten_at == forest.applied == 5
    assert isinstance(forest.apply(c.Again(append(OTHER, 0), 4)), OutcomeUnknown)
    assert isinstance(forest.apply(c.Again(append(OTHER, 0), 6)), c.Appended)  # first sent when that was over


def test_a_client_that_goes_on_asking_keeps_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENTS_KEPT_MAX", 2)
    forest = planted(c.Settle(ONE, 0), c.Settle(OTHER, 0), append(ONE, 0))
    for one in (forest, thaw(freeze(forest))):
        one.apply(c.Settle(b"client-3", 0))
        assert list(one.windows.by_client) == [ONE, b"client-3"]


def test_what_is_sent_for_the_first_time_is_new_though_its_clients_window_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker sends every change as one that may be there since its client saw the forest last."""
    monkeypatch.setattr(limits, "CLIENTS_KEPT_MAX", 2)
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 4)
    forest = planted(c.Settle(ONE, 0), c.Settle(OTHER, 0), c.Settle(b"client-3", 0))
    for number in range(5):
        seen = forest.applied
        forest.apply(c.Settle(b"short-%02d" % number, 0))
        forest.apply(c.Again(c.Append(1, 1, 1, 0, 0, b"-", request=request(b"short-%02d" % number, 0)), seen + 1))
        answer = forest.apply(c.Again(append(ONE, number), seen))
        assert isinstance(answer, c.Appended)
        assert forest.apply(c.Again(append(ONE, number), seen)) == c.Appended(1, answer.first, 1)
        assert ONE not in forest.windows.by_client
    assert forest.logs[1].own == 10
    assert isinstance(forest.apply(c.Again(append(ONE, 9), forest.applied - 4)), OutcomeUnknown)
    assert forest.logs[1].own == 10


@pytest.mark.parametrize("window", [True, False])
def test_what_is_young_is_unknown_once_a_decision_pushed_out_what_was_withheld(
    window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 10)
    monkeypatch.setattr(limits, "DECIDED_OUTCOMES_KEPT_MAX", 1)
    forest = planted(c.Settle(ONE if window else OTHER, 0), c.CFork(1, "fork", 0, promotable=True))
    seen = forest.applied
    for command in (append(ONE, 0), append(ONE, 1), c.Squash(2), c.Settle(OTHER, 1)):
        assert isinstance(forest.apply(command), c.Result)
    if window:
        forest.apply(c.Settle(ONE, 1))
    assert forest.recall(request(ONE, 0)) is None
    assert isinstance(forest.apply(c.Again(append(ONE, 0), seen)), OutcomeUnknown)
    assert forest.logs[1].own == 2


def test_a_window_made_anew_does_not_know_what_the_old_one_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENTS_KEPT_MAX", 1)
    forest = planted(c.Settle(ONE, 0), *(append(ONE, n) for n in range(4)), c.Settle(OTHER, 0), c.Settle(ONE, 0))
    assert isinstance(forest.apply(c.Again(append(ONE, 0), 2)), OutcomeUnknown)
    assert isinstance(forest.apply(c.Again(append(ONE, 4), forest.applied)), c.Appended)


@pytest.mark.parametrize(
    "command",
    [
        c.Expire(1, 0),
        c.Append(1, 1, 1, 0, 0, b"-"),
        c.Again(append(ONE, 0), 0),
        c.Append(1, 1, 1, 0, 0, b"-", request=b"short"),
    ],
)
def test_only_a_command_with_a_request_can_be_sent_again(command: c.Command) -> None:
    forest = planted(c.Settle(ONE, 0), append(ONE, 0))
    assert isinstance(forest.apply(c.Again(command, 1)), InvalidArgument)
    assert forest.logs[1].own == 1


@pytest.mark.parametrize("settle", [c.Settle(b"short", 0), c.Settle(ONE, -1)])
def test_nonsense_is_not_settled(settle: c.Settle) -> None:
    assert isinstance(planted().apply(settle), InvalidArgument)


def test_holds_are_foreseen_for_what_is_certainly_new(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = planted(c.Settle(ONE, 0), c.CFork(1, "side", 0), c.CFork(1, "trial", 0, promotable=True))
    blocked = c.Append(2, 1, 1, 0, 0, b"-", request=request(ONE, 0))
    with pytest.raises(Exception, match="blocked"):
        forest.check_holds(c.Again(blocked, 4))
    forest.apply(c.Settle(ONE, 1))
    with pytest.raises(Exception, match="blocked"):  # settled, but it would be remembered if it had been applied
        forest.check_holds(c.Again(blocked, 4))
    monkeypatch.setattr(limits, "YOUNG_COMMANDS", 0)
    with pytest.raises(OutcomeUnknown):
        forest.check_holds(c.Again(blocked, 4))
    forest.check_holds(c.Again(c.Trim(1, 0, request(ONE, 2)), 4))
