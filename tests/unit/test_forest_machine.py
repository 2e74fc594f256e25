"""What the forest remembers is bounded, names it gives are free, and a thawed forest is as quick as it was."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.errors import ConditionFailed, Corrupt, Gone, NotFound
from braidlog.forest import commands as c
from braidlog.forest import invariants
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw


def planted(*commands: c.Command) -> Forest:
    forest = Forest()
    forest.apply(c.Create("root", 0))
    for command in commands:
        forest.apply(command)
    return forest


def append(request: bytes = b"", writer: str = "", sequence: int = -1) -> c.Append:
    return c.Append(1, 1, 1, 0, 0, b"-", writer=writer, sequence=sequence, request=request)


def test_of_settled_requests_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 3)
    forest = planted(*(append(b"%d" % number) for number in range(5)))
    assert [forest.recall(b"%d" % number) is not None for number in range(5)] == [False, False, True, True, True]


def test_requests_that_a_hold_withholds_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 1)
    forest = planted(c.CFork(1, "fork", 0, promotable=True), *(append(b"%d" % number) for number in range(5)))
    assert all(forest.recall(b"%d" % number) is not None for number in range(5))


def test_of_ended_logs_the_oldest_ends_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOMBSTONES_KEPT_MAX", 2)
    forest = planted()
    for log in range(2, 5):
        forest.apply(c.CFork(1, "", 0))
        forest.apply(c.Squash(log))
    for log, end in ((2, ""), (3, "squashed"), (4, "squashed")):
        error = forest.apply(c.Squash(log))
        assert isinstance(error, Gone)
        assert error.end == end


def test_of_a_logs_writers_the_longest_silent_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITERS_PER_LOG_MAX", 2)
    forest = planted(append(writer="a", sequence=1), append(writer="b", sequence=1), append(writer="a", sequence=2))
    forest.apply(append(writer="c", sequence=1))
    assert list(forest.logs[1].writers) == ["a", "c"]
    assert isinstance(forest.apply(append(writer="a", sequence=1)), ConditionFailed)


def test_what_a_writer_did_on_a_promoted_fork_is_the_latest_that_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITERS_PER_LOG_MAX", 2)
    forest = planted(
        append(writer="a", sequence=1), append(writer="b", sequence=1), c.CFork(1, "f", 0, promotable=True)
    )
    forest.apply(c.Append(2, 1, 1, 0, 0, b"-", writer="a", sequence=2))
    forest.apply(c.Promote(2))
    forest.apply(append(writer="c", sequence=1))
    assert list(forest.logs[1].writers) == ["a", "c"]


def test_a_writer_that_goes_back_is_told_where_it_is() -> None:
    forest = planted(append(writer="a", sequence=5))
    refused = forest.apply(append(writer="a", sequence=4))
    assert isinstance(refused, ConditionFailed)
    assert refused.sequence == 5
    other = forest.apply(c.Append(1, 1, 1, 0, 0, b"-", expected_tail=9))
    assert isinstance(other, ConditionFailed)
    assert other.sequence is None


def test_the_name_of_a_promoted_fork_says_what_it_went_on_as() -> None:
    forest = planted(
        c.CFork(1, "squashed", 0), c.CFork(1, "outer", 0, promotable=True), c.CFork(3, "inner", 0, promotable=True)
    )
    forest.apply(c.Squash(2))
    for promoted, into in ((4, "outer"), (3, "root")):  # inner, then what it went on as
        forest.apply(c.Promote(promoted))
        with pytest.raises(NotFound) as missing:
            forest.by_name("inner")
        assert missing.value.into == into
    for name in ("squashed", "never"):
        with pytest.raises(NotFound) as missing:
            forest.by_name(name)
        assert missing.value.into == ""


def test_a_name_that_the_forest_gives_is_free_and_not_too_long() -> None:
    forest = Forest()
    longest = "x" * limits.NAME_CHARS_MAX
    forest.apply(c.Create(longest, 0))
    for suffix in (".cfork-4", ".cfork-4-2"):  # what the forest would choose next is taken
        forest.apply(c.Create(longest[: -len(suffix)] + suffix, 0))
    result = forest.apply(c.CFork(1, "", 0))
    assert isinstance(result, c.Opening)
    assert result.name == longest[: -len(".cfork-4-3")] + ".cfork-4-3"


def test_a_thawed_deep_tree_keeps_its_tour() -> None:
    forest = planted(*(c.CFork(log, "", 0) for log in range(1, limits.TOUR_DEPTH_MIN + 3)))
    assert forest.logs[1].tree.tour is not None
    assert thaw(freeze(forest)).logs[1].tree.tour is not None
    assert thaw(freeze(planted(c.CFork(1, "", 0)))).logs[1].tree.tour is None


@pytest.mark.parametrize("data", [b"", b"\x90", b"not a forest", freeze(Forest())[:-1], b"\xdc\x00\x10\x63"])
def test_bytes_that_are_no_forest_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        thaw(data)


@pytest.mark.parametrize("thawed", [False, True])
def test_packing_joins_nothing_over_the_point_where_a_promotion_cut_a_shared_segment(thawed: bool) -> None:
    """Bytes before and behind the cut are counted apart for ever: another promotion may ask for one side of it."""
    forest = planted(
        c.CFork(1, "outer", 0, promotable=True),
        c.Append(2, 10, 1000, 0, 0, b"-"),
        c.CFork(2, "inner", 0, promotable=True),
        c.Append(3, 1, 1, 0, 0, b"-"),
        c.Append(2, 10, 10, 0, 0, b"-"),
        c.Promote(3),
    )
    if thawed:
        forest = thaw(freeze(forest))
    first, _, last = forest.space.inline
    forest.apply(c.Opened(1, 0))
    forest.apply(c.Register("00000001-00000001.arrow", 1, 100, 0, 0))
    packed = c.PackedBlock(2, 0, 100, 0, [first, last], [10, 10])
    assert isinstance(forest.apply(c.Pack("00000001-00000001.arrow", [packed])), c.Collected)
    assert forest.apply(c.Promote(2)) == c.Promotion(True, [2])
    assert invariants.broken(forest) == []
