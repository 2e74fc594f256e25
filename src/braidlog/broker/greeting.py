"""How a connection begins: who greets is found out, and then let in or not.

A wrong token is answered after a pause that grows with each one from the same address. What was found out may change
while the connection lasts: a token is revoked or runs out, or the first one is made (`reconsidered`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.broker import entry as entering
from braidlog.broker.service import Caller
from braidlog.errors import BraidError, NotPermitted
from braidlog.wire.messages import Hello, Identities, Identity
from braidlog.wire.secrets import digest_of

if TYPE_CHECKING:
    from braidlog.broker.server import Server

Found = Callable[[Caller | BraidError, float], None]  # who it is, or why not and after which pause to say so


class TokenChecks:
    """Asks now and again whether those who are in may stay. Whoever's token was revoked, or ran out, is shown the door,
    and so is who came in without one before there were any."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._asking = False
        self._stopped = False
        server.later(limits.TOKEN_CHECK_S, self._check)

    def stop(self) -> None:
        self._stopped = True

    def _check(self) -> None:
        if self._stopped:
            return
        server = self._server
        server.later(limits.TOKEN_CHECK_S, self._check)
        if not self._asking and any(connection.doubtful for connection in server.connections):
            self._asking = True
            digests = list({connection.digest for connection in server.connections if connection.digest})
            server.service.identify(digests, partial(self._checked, digests))

    def _checked(self, digests: list[bytes], answer: Identities | BraidError) -> None:
        self._asking = False
        if isinstance(answer, Identities):  # else there is nobody to ask, and nothing to be had without that one
            good = dict(zip(digests, answer.known, strict=True))
            for connection in list(self._server.connections):
                if connection.doubtful:
                    connection.reconsider(good, required=answer.required)


class Greeting:
    """Of one connection."""

    __slots__ = ("_server", "digest", "done", "peer")

    def __init__(self, server: Server) -> None:
        self._server = server
        self.peer = entering.UNKNOWN
        self.digest = b""  # of the token that was shown
        self.done = False  # it is in

    def begin(self, hello: Hello, then: Found) -> None:
        if self.peer.local:
            self._let_in(hello, then)
        elif not hello.token:
            self._server.service.identify([], partial(self._anonymous, hello, then), recently=True)
        elif refusal := entering.token_refusal(self.peer):
            then(NotPermitted(refusal), 0.0)
        else:
            self.digest = digest_of(hello.token)
            self._server.service.identify([self.digest], partial(self._shown, hello, then))

    def _anonymous(self, hello: Hello, then: Found, answer: Identities | BraidError) -> None:
        if isinstance(answer, BraidError):
            then(answer, 0.0)
        elif refusal := self._anonymous_refusal(answer.required):
            then(NotPermitted(refusal), 0.0)
        else:
            self._let_in(hello, then)

    def _anonymous_refusal(self, required: bool) -> str:
        server = self._server
        return entering.anonymous_refusal(server.entry, self.peer, server.service.role, required=required)

    def _shown(self, hello: Hello, then: Found, answer: Identities | BraidError) -> None:
        if isinstance(answer, BraidError):
            then(answer, 0.0)
            return
        [identity] = answer.known
        if identity is None:
            pause = self._server.pauses.next(self.peer, self._server.now)
            then(NotPermitted("this token is not valid: it is unknown here, was revoked, or has expired"), pause)
        else:
            self._let_in(hello, then, identity)

    def _let_in(self, hello: Hello, then: Found, identity: Identity | None = None) -> None:
        caller = Caller(hello.client, hello.floor, hello.name)
        caller.address = self.peer.address
        if identity is None:
            caller.principal = self.peer.certified
        else:
            caller.principal = identity.name
            caller.scopes = entering.scopes_of(self._server.service.role, identity.name, identity.scopes)
        self.done = True
        then(caller, 0.0)

    def reconsidered(self, good: Mapping[bytes, Identity | None], *, required: bool) -> str:
        """Why it may not stay; empty if it may. `good` are tokens of which it is known now whether they are."""
        if not self.digest:
            return self._anonymous_refusal(required)
        if self.digest in good and good[self.digest] is None:
            return "this token is not valid any more: it was revoked, or has expired"
        return ""
