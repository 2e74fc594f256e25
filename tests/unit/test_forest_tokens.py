"""Tokens in the forest: commands like any other, replayed and thawed to the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import limits
from braidlog.errors import AlreadyExists, BraidError, ConditionFailed, InvalidArgument, NotFound
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw


def digest(number: int) -> bytes:
    return bytes([number]) * 32


def made(name: str = "agent", number: int = 1, expires: int = NONE, request: bytes = b"") -> c.CreateToken:
    return c.CreateToken(name, digest(number), ["own:orders*"], 5, expires, request)


def test_a_token_is_known_by_its_digest_until_it_is_revoked() -> None:
    forest = Forest()
    assert forest.tokens.ever == 0
    assert forest.apply(made(expires=100)) == c.Done()
    token = forest.tokens.by_digest[digest(1)]
    assert (token.name, token.scopes, token.created) == ("agent", ("own:orders*",), 5)
    assert (token.valid(99), token.valid(100)) == (True, False)
    assert forest.apply(c.RevokeToken("agent")) == c.Done()
    assert forest.tokens.by_digest == forest.tokens.by_name == {}
    assert forest.tokens.ever == 1  # and so the service stays closed to those without one


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (made(number=2), AlreadyExists),
        (made("another"), AlreadyExists),
        (made(""), InvalidArgument),
        (made("a b"), InvalidArgument),
        (c.CreateToken("x", b"short", ["read:*"], 0), InvalidArgument),
        (c.CreateToken("x", digest(3), [], 0), InvalidArgument),
        (c.CreateToken("x", digest(3), [""], 0), InvalidArgument),
        (c.CreateToken("x", digest(3), ["r" * 301], 0), InvalidArgument),
        (c.CreateToken("x", digest(3), ["read:*"] * 257, 0), InvalidArgument),
        (c.RevokeToken("nobody"), NotFound),
    ],
)
def test_what_is_refused_changes_nothing(command: c.Command, error: type[BraidError]) -> None:
    forest = Forest()
    forest.apply(made())
    before = freeze(forest)
    assert isinstance(forest.apply(command), error)
    forest.applied -= 1
    assert freeze(forest) == before


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOKENS_MAX", 1)
    forest = Forest()
    forest.apply(made())
    assert isinstance(forest.apply(made("b", 2)), ConditionFailed)


def test_a_request_that_is_sent_again_answers_the_same() -> None:
    forest = Forest()
    once = made(request=bytes(16))
    assert forest.apply(once) == forest.apply(once) == c.Done()
    assert forest.tokens.ever == 1


COMMANDS = st.lists(
    st.one_of(
        st.builds(made, st.sampled_from("abc"), st.integers(0, 5), st.sampled_from([NONE, 7])),
        st.builds(c.RevokeToken, st.sampled_from("abc")),
    ),
    max_size=20,
)


@given(COMMANDS, COMMANDS)
def test_replayed_or_thawed_in_between_it_is_the_same(before: list[c.Command], after: list[c.Command]) -> None:
    one, other = Forest(), Forest()
    for command in before:
        one.apply(command)
        other.apply(command)
    thawed = thaw(freeze(one))
    for command in after:
        assert str(one.apply(command)) == str(other.apply(command)) == str(thawed.apply(command))
    assert freeze(one) == freeze(other) == freeze(thawed)
    assert set(one.tokens.by_digest.values()) == set(one.tokens.by_name.values())


def test_a_promotion_goes_only_into_the_parent_that_was_meant() -> None:
    """What was allowed when it was looked at may be something else when it happens: the fork's parent was promoted."""
    forest = Forest()
    forest.apply(c.Create("orders", 0))
    forest.apply(c.CFork(1, "mine", 0, promotable=True))
    forest.apply(c.CFork(2, "deeper", 0, promotable=True))
    assert forest.apply(c.Promote(3, into=1)).__class__ is ConditionFailed
    assert 3 in forest.logs
    assert forest.apply(c.Promote(3, into=2)) == c.Promotion(True, [3])
