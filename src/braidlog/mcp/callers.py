"""Agents that come over HTTP, each with a token of its own.

A bearer token is a token of the service. Whether it is good, the service says: a connection is opened with it, and that
connection is what the agent's calls are made on, so that the service's scopes hold for each of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.to_thread
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

from braidlog import Braid, limits
from braidlog.agents.running import Access
from braidlog.client.tokens import principal_of
from braidlog.errors import BraidError, NotPermitted
from braidlog.mcp.house import Caller
from braidlog.wire.secrets import digest_of

_log = logging.getLogger("braidlog.mcp")


class _Kept:
    """A caller, and when it last called."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.used = time.monotonic()
        self.doubted = False
        self.listening = 0  # how many of its calls only listen


class TokenCallers:
    """The bearers of tokens. Connections of those that have not called for long are closed."""

    def __init__(self, connect: Callable[[str], Braid], access: Callable[[str], Access] | None = None) -> None:
        """`connect` opens the service with a token; NotPermitted if that one is not good. `access` is how another
        process does."""
        self._connect = connect
        self._access = access
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # by the digest of the token, the longest silent first

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who shows this token; None if it is not good."""
        if not token or len(token) > limits.TOKEN_CHARS_MAX:
            return None
        digest = digest_of(token)
        with self._lock:
            kept = self._kept.get(digest)
            if kept is not None and not kept.doubted:
                kept.used = time.monotonic()
                self._kept.move_to_end(digest)
        if kept is None or kept.doubted:
            try:
                braid = await anyio.to_thread.run_sync(self._connect, token, abandon_on_cancel=False)
            except NotPermitted:
                self._drop(digest)
                return None
            except BraidError as error:
                _log.error("a token cannot be checked: %s", error)
                return None
            kept = await anyio.to_thread.run_sync(self._keep, token, braid)
        return AccessToken(token=token, client_id=kept.caller.principal, scopes=[])

    def _keep(self, token: str, braid: Braid) -> _Kept:
        digest, principal = digest_of(token), principal_of(braid)
        kept = _Kept(Caller(principal, braid, principal, None if self._access is None else self._access(token)))
        overdue: list[_Kept] = []
        with self._lock:
            if digest in self._kept:  # its calls may be under way on the connection that it has
                overdue.append(kept)
                kept = self._kept.pop(digest)
                kept.doubted, kept.used = False, time.monotonic()
            self._kept[digest] = kept
            overdue += self._silent(kept)
        _close(overdue)
        return kept

    def _silent(self, latest: _Kept) -> list[_Kept]:
        """Those that have to go, as they have not called for long or as there are too many."""
        gone: list[_Kept] = []
        for digest, one in list(self._kept.items()):
            idle = latest.used - one.used > limits.MCP_CALLER_IDLE_S
            surplus = idle or len(self._kept) > limits.MCP_TOKENS_KEPT_MAX
            if surplus and one is not latest and not one.listening:
                gone.append(self._kept.pop(digest))
        return gone

    @contextmanager
    def listening(self, caller: Caller) -> Iterator[None]:
        """Keep the connection of one that listens, though it does not call."""
        with self._lock:
            kept = next((one for one in self._kept.values() if one.caller is caller), None)
            if kept is not None:
                kept.listening += 1
        try:
            yield
        finally:
            with self._lock:
                if kept is not None:
                    kept.listening -= 1
                    kept.used = time.monotonic()

    def _drop(self, digest: bytes) -> None:
        with self._lock:
            kept = self._kept.pop(digest, None)
        _close([] if kept is None else [kept])

    def current(self) -> Caller:
        """The bearer of the token that the present call came with."""
        shown = get_access_token()
        with self._lock:
            kept = None if shown is None else self._kept.get(digest_of(shown.token))
        if kept is None:
            raise NotPermitted("this call came without a token that is good: connect again, with one")
        return kept.caller

    def doubt(self, caller: Caller) -> None:
        """Have its token checked again before the next call."""
        with self._lock:
            for kept in self._kept.values():
                if kept.caller is caller:
                    kept.doubted = True

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
        _close(kept)


def _close(kept: list[_Kept]) -> None:
    for one in kept:
        one.caller.braid.close()
