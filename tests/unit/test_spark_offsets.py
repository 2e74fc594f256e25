"""Offsets are the same text for the same place, and say by themselves what a batch reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import InvalidArgument
from braidlog.spark.offsets import At, Offset, between, shares, turn_of


def test_the_same_offset_is_the_same_text() -> None:
    one = Offset({"b": At(2, 5, ("trial",)), "a": At(1, 3)})
    other = Offset({"a": At(1, 3), "b": At(2, 5, ("trial",))})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert Offset.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert Offset({"a": At(1, 3)}).to_json() == {"version": 1, "logs": {"a": {"id": 1, "position": 3}}}


def test_where_a_query_began_is_marked_until_it_is_written_down() -> None:
    initial = Offset({"a": At(1, 3)}, initial=True)
    assert Offset.from_json(initial.to_json()) == initial
    assert initial.pinned() == Offset({"a": At(1, 3)})
    assert list(between(initial, Offset({"a": At(1, 9)}))) == []


def test_a_batch_reads_what_lies_between_in_the_logs_of_both() -> None:
    start = Offset({"a": At(1, 3), "b": At(2, 5), "gone": At(3, 1), "reused": At(4, 1)})
    end = Offset({"a": At(1, 7), "b": At(2, 5), "new": At(5, 0), "reused": At(6, 9)})
    assert list(between(start, end)) == [("a", At(1, 3), 7)]


@pytest.mark.parametrize(
    "found",
    [{}, {"version": 2, "logs": {}}, {"version": 1, "logs": {"a": 3}}, {"version": 1, "logs": []}, {"offset": 1}],
)
def test_what_braidlog_never_wrote_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="checkpoint"):
        Offset.from_json(found)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**12), max_size=8), st.integers(1, 10**9))
def test_a_limit_is_used_up_and_never_exceeded(wanted: dict[str, int], limit: int) -> None:
    found = shares(wanted, limit)
    assert found.keys() == wanted.keys()
    assert sum(found.values()) == min(limit, sum(wanted.values()))
    assert all(0 <= found[name] <= wanted[name] for name in wanted)
    waiting = [name for name in wanted if wanted[name]]
    assert len(waiting) > limit or all(found[name] for name in waiting)


def test_a_limit_is_shared_in_proportion() -> None:
    assert shares({"a": 900, "b": 100, "c": 0}, 10) == {"a": 9, "b": 1, "c": 0}


def test_a_short_log_does_not_wait_behind_a_long_one() -> None:
    assert shares({"a": 1_000_000, "b": 100, "c": 0}, 1000) == {"a": 999, "b": 1, "c": 0}
    assert shares({"a": 1_000_000, "b": 1, "c": 1}, 3) == {"a": 1, "b": 1, "c": 1}


def test_where_there_is_not_one_for_each_the_next_ones_get_it() -> None:
    start = Offset({"a": At(1, 500), "b": At(2, 0), "c": At(3, 4), "idle": At(4, 0)})
    assert turn_of(start) == ["a", "b", "c", "idle"]
    assert turn_of(Offset(start.logs | {"b": At(2, 2)})) == ["c", "idle", "a", "b"]
    assert turn_of(Offset({})) == []
    wanted = {"a": 9, "b": 9, "c": 1}
    assert shares(wanted, 2, ["c", "idle", "a", "b"]) == {"a": 1, "b": 0, "c": 1}
    assert shares(wanted, 1, ["idle", "a", "b", "c"]) == {"a": 1, "b": 0, "c": 0}
