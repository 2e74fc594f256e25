"""Who is known to a service by a secret, and what each may do. Of the secrets only digests are kept.

A name is what forks made with the token belong to: who gets a new token under an old name gets the forks too. The
forest only keeps the table. What a scope means, and what time it is, is known to those who ask.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog import limits
from braidlog.errors import AlreadyExists, ConditionFailed, InvalidArgument, NotFound
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.names import check_name

DIGEST_BYTES: Final = 32


class Token(NamedTuple):
    """`expires` is NONE for one that does not."""

    name: str
    digest: bytes
    scopes: tuple[str, ...]
    created: int
    expires: int

    def valid(self, now: int) -> bool:
        return self.expires == NONE or now < self.expires


class Tokens:
    """The table, in the order in which they were made. `ever` counts all that ever were: a service that had one once
    is never open to everybody again, not even when the last is revoked."""

    def __init__(self) -> None:
        self.by_name: dict[str, Token] = {}
        self.by_digest: dict[bytes, Token] = {}
        self.ever = 0

    def create(self, command: c.CreateToken) -> None:
        check_name(command.name)
        if len(command.digest) != DIGEST_BYTES:
            raise InvalidArgument(f"the digest of a token has {DIGEST_BYTES} bytes, not {len(command.digest)}")
        if not 0 < len(command.scopes) <= limits.TOKEN_SCOPES_MAX:
            raise InvalidArgument(f"a token has 1 to {limits.TOKEN_SCOPES_MAX} scopes")
        if any(not 0 < len(scope) <= limits.TOKEN_SCOPE_CHARS_MAX for scope in command.scopes):
            raise InvalidArgument(f"a scope has 1 to {limits.TOKEN_SCOPE_CHARS_MAX} characters")
        if command.name in self.by_name or command.digest in self.by_digest:
            raise AlreadyExists(f"there is a token {command.name!r} already: revoke it first, or choose another name")
        if len(self.by_name) >= limits.TOKENS_MAX:
            raise ConditionFailed(f"there are {limits.TOKENS_MAX:,} tokens already: revoke some")
        self.ever += 1
        self.add(Token(command.name, command.digest, tuple(command.scopes), command.now, command.expires))

    def revoke(self, name: str) -> None:
        token = self.by_name.pop(name, None)
        if token is None:
            raise NotFound(f"there is no token named {name!r}: `braid token list` shows those there are")
        del self.by_digest[token.digest]

    def add(self, token: Token) -> None:
        self.by_name[token.name] = token
        self.by_digest[token.digest] = token
