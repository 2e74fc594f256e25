"""Each kind of violation is planted once, is rejected by both checkers, and is named with its culprits.

The same stories without the plant are accepted, so that it is the plant that is found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from braidlog.testing.linearizability import Operation, check, check_exactly


class Story:
    """A history told call by call: one after the other, unless `during` says from when to when."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self.now = 0
        self.call("create", "log", child="log")

    def call(
        self, verb: str, log: str, *, by: str = "c", during: tuple[int, int] | None = None, **fields: object
    ) -> Operation:
        invoked, answered = during or (self.now + 10, self.now + 20)
        self.now = max(self.now, answered)
        made = Operation(
            client=by,
            verb=verb,
            log=log,
            invoked=invoked,
            answered=answered,
            **{"outcome": "ok", **fields},  # type: ignore[arg-type]
        )
        self.history.append(made)
        return made

    def append(self, log: str, values: str, position: int | None, **more: object) -> Operation:
        return self.call("append", log, values=tuple(values), position=position, **more)  # type: ignore[arg-type]

    def read(self, log: str, values: str, start: int = 0, stop: int | None = None, **more: object) -> Operation:
        records = tuple(enumerate(values, start))
        return self.call("read", log, start=start, stop=stop, records=records, **more)  # type: ignore[arg-type]

    def tail(self, log: str, position: int, **more: object) -> Operation:
        return self.call("tail", log, position=position, **more)  # type: ignore[arg-type]

    def fork(self, log: str, child: str, point: int, *, promotable: bool = False, **more: object) -> Operation:
        return self.call("cfork", log, child=child, position=point, promotable=promotable, **more)  # type: ignore[arg-type]

    def sever(self, log: str, child: str, at: int, **more: object) -> Operation:
        return self.call("sfork", log, child=child, at=at, position=at, **more)  # type: ignore[arg-type]

    def promote(self, fork: str, **more: object) -> Operation:
        return self.call("promote", fork, promoted=True, **more)  # type: ignore[arg-type]

    def squash(self, fork: str, **more: object) -> Operation:
        return self.call("squash", fork, **more)  # type: ignore[arg-type]


Plant = Callable[[Story], tuple[str, list[Operation]]]


def an_acknowledged_append_is_missing(story: Story) -> tuple[str, list[Operation]]:
    lost = story.append("log", "a", 0)
    story.append("log", "b", 1)
    return "missing", [lost, story.read("log", "b")]


def a_withheld_append_is_missing_after_the_decision(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "try", 0, promotable=True)
    lost = story.append("log", "a", None)
    story.squash("try")
    return "missing", [lost, story.tail("log", 0)]


def a_record_twice(story: Story) -> tuple[str, list[Operation]]:
    twice = story.append("log", "a", 0)
    return "twice", [twice, story.read("log", "aa")]


def two_records_at_one_position(story: Story) -> tuple[str, list[Operation]]:
    story.append("log", "a", None)
    story.append("log", "b", None)
    return "conflict", [story.read("log", "ab"), story.read("log", "ba")]


def one_position_given_twice(story: Story) -> tuple[str, list[Operation]]:
    return "conflict", [story.append("log", "a", 0), story.append("log", "b", 0)]


def a_stale_read(story: Story) -> tuple[str, list[Operation]]:
    done = story.append("log", "a", 0)
    return "stale", [done, story.read("log", "")]


def a_stale_tail(story: Story) -> tuple[str, list[Operation]]:
    story.append("log", "a", 0)
    done = story.append("log", "b", 1)
    return "stale", [done, story.tail("log", 1)]


def a_record_before_its_append(story: Story) -> tuple[str, list[Operation]]:
    shown = story.read("log", "a")
    return "early", [shown, story.append("log", "a", 0)]


def a_tail_that_counts_what_was_not_sent(story: Story) -> tuple[str, list[Operation]]:
    story.append("log", "a", 0)
    return "early", [story.tail("log", 2)]


def an_append_behind_a_later_one(story: Story) -> tuple[str, list[Operation]]:
    first = story.append("log", "a", None)
    second = story.append("log", "b", None)
    story.read("log", "ba")
    return "order", [first, second]


def tails_that_go_back(story: Story) -> tuple[str, list[Operation]]:
    story.append("log", "a", None, during=(10, 100), outcome="unknown")
    return "backwards", [story.tail("log", 1, during=(20, 30)), story.tail("log", 0, during=(40, 50))]


def a_torn_batch(story: Story) -> tuple[str, list[Operation]]:
    batch = story.append("log", "abc", 0, during=(30, 60))
    return "torn", [batch, story.read("log", "ab", during=(35, 55))]


def an_interleaved_batch(story: Story) -> tuple[str, list[Operation]]:
    batch = story.append("log", "ab", None, during=(30, 60))
    story.append("log", "x", None, during=(30, 60))
    return "torn", [batch, story.read("log", "axb")]


def a_fork_that_misses_records(story: Story) -> tuple[str, list[Operation]]:
    story.append("log", "a", 0)
    done = story.append("log", "b", 1)
    return "fork", [done, story.fork("log", "fork", 1)]


def a_live_fork_that_misses_records(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0)
    done = story.append("log", "a", 0)
    return "stale", [done, story.tail("fork", 0)]


def a_severed_fork_that_receives(story: Story) -> tuple[str, list[Operation]]:
    severed = story.sever("log", "past", 0)
    story.append("log", "a", 0)
    return "severed", [severed, story.read("past", "a")]


def another_order_on_the_fork(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0)
    story.append("log", "a", None, during=(50, 90))
    story.append("log", "b", None, during=(50, 90))
    return "fork order", [story.read("log", "ab"), story.read("fork", "ba")]


def a_record_of_a_squashed_fork(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0)
    vain = story.append("fork", "x", 0)
    squashed = story.squash("fork")
    return "leaked", [vain, squashed, story.read("log", "x")]


def a_promoted_record_is_missing(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0, promotable=True)
    promoted = story.append("fork", "x", 0)
    return "promotion", [promoted, story.promote("fork"), story.tail("log", 0)]


def a_promotion_that_moves_records(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0, promotable=True)
    promoted = story.append("fork", "x", 0)
    story.append("log", "a", None)
    story.promote("fork")
    return "promotion", [promoted, story.read("log", "ax")]


def a_parent_readable_beyond_an_undecided_fork(story: Story) -> tuple[str, list[Operation]]:
    fork = story.fork("log", "fork", 0, promotable=True)
    story.append("log", "a", None)
    return "hold", [fork, story.read("log", "a")]


def a_position_told_of_a_held_log(story: Story) -> tuple[str, list[Operation]]:
    return "hold", [story.fork("log", "fork", 0, promotable=True), story.append("log", "a", 0)]


def a_refused_append_is_visible(story: Story) -> tuple[str, list[Operation]]:
    refused = story.append("log", "a", None, outcome="refused")
    return "refused", [refused, story.read("log", "a")]


def rivals_that_both_win(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "one", 0, promotable=True)
    story.fork("log", "two", 0, promotable=True)
    return "rivals", [story.promote("one", during=(100, 140)), story.promote("two", during=(110, 130))]


def an_answer_after_the_end(story: Story) -> tuple[str, list[Operation]]:
    story.fork("log", "fork", 0)
    squashed = story.squash("fork")
    return "ended", [squashed, story.tail("fork", 0)]


def an_answer_before_the_beginning(story: Story) -> tuple[str, list[Operation]]:
    early = story.tail("fork", 0)
    return "unborn", [early, story.fork("log", "fork", 0)]


def a_record_out_of_nowhere(story: Story) -> tuple[str, list[Operation]]:
    return "invented", [story.read("log", "a")]


PLANTS: list[Plant] = [
    an_acknowledged_append_is_missing,
    a_withheld_append_is_missing_after_the_decision,
    a_record_twice,
    two_records_at_one_position,
    one_position_given_twice,
    a_stale_read,
    a_stale_tail,
    a_record_before_its_append,
    a_tail_that_counts_what_was_not_sent,
    an_append_behind_a_later_one,
    tails_that_go_back,
    a_torn_batch,
    an_interleaved_batch,
    a_fork_that_misses_records,
    a_live_fork_that_misses_records,
    a_severed_fork_that_receives,
    another_order_on_the_fork,
    a_record_of_a_squashed_fork,
    a_promoted_record_is_missing,
    a_promotion_that_moves_records,
    a_parent_readable_beyond_an_undecided_fork,
    a_position_told_of_a_held_log,
    a_refused_append_is_visible,
    rivals_that_both_win,
    an_answer_after_the_end,
    an_answer_before_the_beginning,
    a_record_out_of_nowhere,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_it_is_found_and_named(plant: Plant) -> None:
    story = Story()
    kind, culprits = plant(story)
    verdict = check(story.history)
    assert verdict.linearizable is False
    (violation,) = verdict.violations
    assert violation.kind == kind, str(violation)
    assert set(culprits) <= set(violation.operations), str(violation)
    for culprit in culprits:
        assert culprit.told(violation.origin) in str(verdict)
    assert check_exactly(story.history).linearizable is False


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_it_is_found_in_a_long_history_and_in_another_tree_it_is_not(plant: Plant) -> None:
    story = Story()
    plant(story)
    other = [
        dataclasses.replace(one, log=f"other {one.log}", child=None if one.child is None else f"other {one.child}")
        for one in healthy()
    ]
    assert check(other)
    verdict = check([*story.history, *other])
    assert verdict.linearizable is False
    assert all("other" not in str(one.log) for violation in verdict.violations for one in violation.operations)


def healthy() -> list[Operation]:
    """A bit of everything, in order; with values that no plant uses."""
    story = Story()
    story.append("log", "123", 0)
    story.fork("log", "live", 3)
    story.append("live", "4", 3)
    story.append("log", "5", 3)
    story.read("live", "12345")
    story.sever("log", "past", 2)
    story.append("past", "6", 2)
    story.fork("log", "one", 4, promotable=True)
    story.fork("log", "two", 4, promotable=True)
    story.append("one", "7", 4)
    story.append("log", "8", None)
    story.tail("log", 4)
    story.read("log", "1235")
    story.read("one", "78", 4)
    story.read("two", "8", 4)
    story.promote("one")
    story.read("log", "123578")
    story.read("live", "1234578")
    story.read("past", "126")
    story.squash("live")
    story.call("drop", "log")
    return story.history


def test_what_is_in_order_is_accepted() -> None:
    history = healthy()
    verdict = check(history)
    assert verdict
    assert not verdict.searched
    assert check_exactly(history)
    assert [list(order) for order in verdict.order] == [history]


def test_an_unknown_append_may_have_happened_late_or_never() -> None:
    for shown in ("", "a"):
        story = Story()
        story.append("log", "a", None, outcome="unknown")
        story.read("log", "")
        story.read("log", shown)
        assert check(story.history)
        assert check_exactly(story.history)


def test_a_position_may_be_told_when_it_is_decided() -> None:
    story = Story()
    story.fork("log", "fork", 0, promotable=True)
    story.append("log", "a", 1, during=(50, 200))
    story.append("fork", "x", 0, during=(60, 100))
    story.promote("fork", during=(150, 190))
    story.read("log", "xa")
    assert check(story.history)
    assert check_exactly(story.history)
    early = [dataclasses.replace(one, answered=140) if one.values == ("a",) else one for one in story.history]
    assert check(early).linearizable is False
    assert check_exactly(early).linearizable is False


def test_a_second_winner_is_no_rival_if_it_was_made_later() -> None:
    story = Story()
    story.fork("log", "one", 0, promotable=True)
    story.promote("one")
    story.fork("log", "two", 0, promotable=True)
    story.promote("two")
    assert check(story.history)


def test_a_severed_fork_may_cut_a_batch() -> None:
    story = Story()
    story.append("log", "abc", 0)
    story.sever("log", "past", 2)
    story.append("past", "d", 2)
    story.read("past", "abd")
    assert check(story.history)
    assert check_exactly(story.history)


def test_what_neither_is_explained_nor_contradicts_itself_is_undecided_unless_it_is_short() -> None:
    """Counting is a puzzle: no sum of the batches that may be there makes the tail that was seen."""
    story = Story()
    for number in range(4):
        batch = "".join(chr(0x4E00 + 10 * number + at) for at in range(7))
        story.append("log", batch, None, outcome="unknown")
    story.tail("log", 6)
    verdict = check(story.history)
    assert verdict.linearizable is False
    assert verdict.searched
    assert verdict.violations[0].kind == "unexplained"
    for _ in range(200):
        story.tail("log", 6)
    verdict = check(story.history)
    assert verdict.linearizable is None
    assert not verdict
    assert "undecided" in str(verdict)
