"""Bearers of tokens: each has a connection of its own, checked by the service, and closed when it is not used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

import braidlog
from braidlog import limits
from braidlog.errors import NotPermitted
from braidlog.mcp.callers import TokenCallers


class Service:
    """Lets tokens in until they are revoked, and remembers what it opened."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, braidlog.Braid]] = []
        self.revoked: set[str] = set()

    def connect(self, token: str) -> braidlog.Braid:
        if token in self.revoked:
            raise NotPermitted("this token is not valid")
        braid = braidlog.open("memory://")
        self.opened.append((token, braid))
        return braid

    @property
    def open(self) -> list[str]:
        return [token for token, braid in self.opened if not braid._session.backend.closed]


def shown(callers: TokenCallers, token: str) -> Any:
    return asyncio.run(callers.verify_token(token))


def current(callers: TokenCallers, token: str) -> braidlog.Braid:
    """The braid of a call that came with this token."""
    verified = shown(callers, token)
    assert verified is not None
    before = auth_context_var.set(AuthenticatedUser(verified))
    try:
        return callers.current().braid
    finally:
        auth_context_var.reset(before)


def test_a_token_has_one_connection_and_another_has_another() -> None:
    service = Service()
    callers = TokenCallers(service.connect)
    assert current(callers, "a") is current(callers, "a")
    assert current(callers, "b") is not current(callers, "a")
    assert service.open == ["a", "b"]
    callers.close()
    assert service.open == []


def test_nobody_calls_without_a_token() -> None:
    with pytest.raises(NotPermitted):
        TokenCallers(Service().connect).current()


def test_what_is_no_token_is_not_even_asked_about() -> None:
    service = Service()
    assert shown(TokenCallers(service.connect), "") is None
    assert shown(TokenCallers(service.connect), "x" * (limits.TOKEN_CHARS_MAX + 1)) is None
    assert service.opened == []


def test_who_is_doubted_is_checked_again() -> None:
    service = Service()
    callers = TokenCallers(service.connect)
    kept = current(callers, "a")
    caller = next(iter(callers._kept.values())).caller
    callers.doubt(caller)
    assert current(callers, "a") is kept  # its calls under way go on
    assert service.open == ["a"]
    service.revoked.add("a")
    assert shown(callers, "a") is not None  # nobody had a doubt
    callers.doubt(caller)
    assert shown(callers, "a") is None
    assert service.open == []


def test_those_that_called_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_TOKENS_KEPT_MAX", 2)
    service = Service()
    callers = TokenCallers(service.connect)
    for token in ("a", "b", "a", "c"):
        assert shown(callers, token) is not None
    assert service.open == ["a", "c"]
    callers.close()


def test_who_listens_is_kept_though_it_does_not_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_CALLER_IDLE_S", -1.0)
    service = Service()
    callers = TokenCallers(service.connect)
    current(callers, "a")
    with callers.listening(next(iter(callers._kept.values())).caller):
        current(callers, "b")
        assert service.open == ["a", "b"]
        current(callers, "c")
        assert service.open == ["a", "c"]
    current(callers, "d")
    assert service.open == ["d"]
    callers.close()
