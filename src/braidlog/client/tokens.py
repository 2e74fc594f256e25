"""Tokens of an open braid: of a directory, or of a service that this client may administer.

The secret is made here, and never leaves but to whoever asked for it: the log keeps a digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from braidlog.broker.policy import Scope
from braidlog.client.braid import Braid
from braidlog.client.groups import GroupedBackend
from braidlog.client.remote.backend import RemoteBackend
from braidlog.embedded.replica import Replica
from braidlog.errors import InvalidArgument
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.wire import messages as m
from braidlog.wire.secrets import digest_of, new_token


class TokenFacts(NamedTuple):
    """Times are microseconds since 1970; `expires` is None for never."""

    name: str
    scopes: list[str]
    created: int
    expires: int | None


def principal_of(braid: Braid) -> str:
    """Who this client is to the service: the name of its token, or of its certificate. Empty without either, and for a
    directory, which asks nobody."""
    backend = braid._session.backend
    if isinstance(backend, GroupedBackend):
        backend = backend.first
    return backend.welcome.principal if isinstance(backend, RemoteBackend) else ""


def create_token(braid: Braid, name: str, scopes: Sequence[str], expires_s: float | None = None) -> str:
    """A new token with these scopes, which can be seen now and never again."""
    if not scopes:
        raise InvalidArgument("a token without a scope would allow nothing: give at least one")
    checked = [str(Scope.parse(scope)) for scope in scopes]
    if expires_s is not None and expires_s <= 0:
        raise InvalidArgument("a token that has expired already helps nobody")
    session = braid._session
    token = new_token()
    now = session.now_us()
    expires = NONE if expires_s is None else now + round(expires_s * 1e6)
    command = c.CreateToken(name, digest_of(token), checked, now, expires, session.next_request())
    session.backend.execute(command)
    return token


def revoke_token(braid: Braid, name: str) -> None:
    """Whoever holds it is shown the door within a second. NotFound if there is none of that name."""
    session = braid._session
    session.backend.execute(c.RevokeToken(name, session.next_request()))


def list_tokens(braid: Braid) -> list[TokenFacts]:
    """All there are, in the order in which they were made."""
    backend = braid._session.backend
    if isinstance(backend, RemoteBackend):
        found = [(t.name, t.scopes, t.created, t.expires) for t in backend.ask(m.ListTokens(), m.TokenList).tokens]
    elif isinstance(backend, Replica):
        with backend.lock:
            tokens = list(backend.forest.tokens.by_name.values())
        found = [(t.name, list(t.scopes), t.created, t.expires) for t in tokens]
    else:
        raise InvalidArgument(f"{braid.url} keeps no tokens")
    return [TokenFacts(name, scopes, made, None if ends == NONE else ends) for name, scopes, made, ends in found]
