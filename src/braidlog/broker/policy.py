"""Who may do what: the scopes of a token, and what each request needs of them. PURE.

A scope is `verb:pattern`. The pattern is a shell-like glob over names of logs; it covers a log if it matches the name
of the log itself or that of the root of its tree, so what is said of a log holds for its forks, whatever they are
called. System logs, whose names begin with `braidlog.`, are covered by patterns that begin so, and by `admin`: `*` is
meant for everything else. The verbs:

    read      read, follow and list
    consume   read, and say how far a consumer got
    append    append
    fork      make forks
    promote   decide on forks of a log: promote into it, renew its forks
    squash    squash forks
    own       read and fork, and do anything with forks that were made with this very token's name: append, squash,
              trim, fork again, promote into them; but neither append to, nor promote into, anything else
    admin     all of it, and create, drop and trim
    broker    (without a pattern) be a broker: of the metadata alone, and there it is everything

Whatever is not allowed by some scope is refused. Tokens themselves, and how the server fares, are for `admin:*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.names import is_system
from braidlog.wire import messages as m

READ: Final = "read"
CONSUME: Final = "consume"
APPEND: Final = "append"
FORK: Final = "fork"
PROMOTE: Final = "promote"
SQUASH: Final = "squash"
OWN: Final = "own"
ADMIN: Final = "admin"
BROKER: Final = "broker"
SEE: Final = "see"  # what any scope on a log allows: that it is there, and how far it reaches
VERBS: Final = (READ, CONSUME, APPEND, FORK, PROMOTE, SQUASH, OWN, ADMIN)

_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")
_LEASE_US_MAX: Final = round(limits.HOLD_LEASE_MAX_S * 1e6)

# What each verb of a scope lets be done with every log that it covers, and `own` with forks of one's own besides.
_GRANTS: Final[dict[str, frozenset[str]]] = {
    READ: frozenset({SEE, READ}),
    CONSUME: frozenset({SEE, READ, CONSUME}),
    APPEND: frozenset({SEE, APPEND}),
    FORK: frozenset({SEE, FORK}),
    PROMOTE: frozenset({SEE, PROMOTE}),
    SQUASH: frozenset({SEE, SQUASH}),
    OWN: frozenset({SEE, READ, FORK}),
    ADMIN: frozenset({SEE, READ, CONSUME, APPEND, FORK, PROMOTE, SQUASH, ADMIN}),
}
_OWNED: Final = _GRANTS[ADMIN]


class Scope(NamedTuple):
    verb: str
    pattern: str

    def __str__(self) -> str:
        return f"{self.verb}:{self.pattern}" if self.pattern else self.verb

    @classmethod
    def parse(cls, text: str) -> Scope:
        """InvalidArgument for what is none."""
        if text == BROKER:
            return cls(BROKER, "")
        verb, colon, pattern = text.partition(":")
        if verb not in VERBS or not colon:
            raise InvalidArgument(
                f"{text[:80]!r} is not a scope: write VERB:PATTERN, the verb one of {', '.join(VERBS)}, or `broker`"
            )
        if len(text) > limits.TOKEN_SCOPE_CHARS_MAX or not _PATTERN.fullmatch(pattern):
            raise InvalidArgument(f"{text[:80]!r}: a pattern is a name of a log with *, ? or [...] in it")
        return cls(verb, pattern)


class Log(NamedTuple):
    """What is to be known of a log: its name, that of the root of its tree, whose it is, and whether it is a fork."""

    name: str
    root: str
    owner: str
    fork: bool


class Scopes:
    """What a principal may do."""

    __slots__ = ("principal", "scopes")

    def __init__(self, principal: str, scopes: Iterable[Scope]) -> None:
        self.principal = principal
        self.scopes = tuple(scopes)

    @classmethod
    def of(cls, principal: str, texts: Iterable[str]) -> Scopes:
        """As they are kept. What this version does not understand allows nothing."""
        found: list[Scope] = []
        for text in texts:
            try:
                found.append(Scope.parse(text))
            except InvalidArgument:
                continue
        return cls(principal, found)

    @property
    def texts(self) -> list[str]:
        return [str(scope) for scope in self.scopes]

    @property
    def broker(self) -> bool:
        return any(scope.verb == BROKER for scope in self.scopes)

    @property
    def admin_of_all(self) -> bool:
        return any(scope.verb == ADMIN and scope.pattern == "*" for scope in self.scopes)

    def allows(self, verb: str, log: Log) -> bool:
        """Whether it may do this with that log."""
        for scope in self.scopes:
            if scope.verb != BROKER and (_covers(scope, log.name) or _covers(scope, log.root)):
                if verb in _GRANTS[scope.verb]:
                    return True
                if scope.verb == OWN and log.fork and log.owner == self.principal and verb in _OWNED:
                    return True
        return False

    def names(self, name: str) -> bool:
        """Whether it may know of a log of that name, of which nothing else is known."""
        return self.allows(SEE, Log(name, name, "", fork=False))

    def refusal(self, verb: str, log: Log) -> str:
        """Why it may not; empty if it may."""
        if self.allows(verb, log):
            return ""
        whose = f", which belongs to {log.owner!r}" if log.fork and log.owner != self.principal else ""
        return f"{self.principal!r} may not {verb} on {log.name!r}{whose}: it needs the scope {verb}:{log.root}"

    def fork_refusal(self, command: c.CFork | c.SFork, parent: Log) -> str:
        """The same for a fork of that log. Names stay among those of the parent, so that nobody takes the name of a
        log that others trust; and a hold of somebody who cannot decide on it ends by itself."""
        found = self.refusal(FORK, parent)
        if found:
            return found
        name = command.name
        may_name = not name or name.startswith(f"{parent.name}.") or self.allows(FORK, Log(name, name, "", fork=False))
        if not may_name:
            return f"{self.principal!r} may not call a fork {name!r}: begin it with {parent.name + '.'!r}"
        holds = isinstance(command, c.CFork) and command.promotable
        if holds and not self.allows(PROMOTE, parent) and not 0 <= getattr(command, "lease_us", NONE) <= _LEASE_US_MAX:
            return (
                f"{self.principal!r} may not hold {parent.name!r} for so long: a promotable fork by somebody who may "
                f"not promote into its parent needs a lease of at most {limits.HOLD_LEASE_MAX_S:g} s"
            )
        return ""

    def squash_refusal(self, command: c.Squash, log: Log) -> str:
        """To end what others severed from one's own fork takes more than that it is one's own."""
        if command.cascade_severed:
            log = log._replace(owner="")
        return self.refusal(SQUASH, log)

    def create_refusal(self, name: str) -> str:
        return self.refusal(ADMIN, Log(name, name, "", fork=False))

    def refusal_for_all(self, what: str) -> str:
        return "" if self.admin_of_all else f"{self.principal!r} may not {what}: it needs the scope admin:*"


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _covers(scope: Scope, name: str) -> bool:
    if is_system(name) and scope.verb != ADMIN and not is_system(scope.pattern):
        return False
    return _compiled(scope.pattern).match(name) is not None


# --- what requests need ----------------------------------------------------------------------------------------------

FREE: Final = (m.Hello, m.Ping, m.Recall)  # whoever knows the id of a request made it, or was told by who did
BROKERS: Final = (m.Join, m.Bind, m.Await, m.Identify)
OF_ALL: Final = {m.Status: "see how the server fares", m.ListTokens: "see tokens"}
FILTERED: Final = (m.ListLogs,)
BY_NAME: Final = (m.Find,)
CHANGES: Final = (m.Append, m.Execute)
LOOKS: Final[dict[type, str]] = {
    m.NameOf: SEE,
    m.EndOf: SEE,
    m.Tail: SEE,
    m.Describe: SEE,
    m.Lineage: SEE,
    m.Watch: SEE,
    m.Route: SEE,
    m.Kinship: SEE,
    m.Consumers: READ,
    m.Read: READ,
    m.Locate: READ,
    m.PlanRange: READ,
    m.PositionAt: READ,
    m.Subscribe: READ,
}
COMMANDS: Final[dict[type, str]] = {  # those on one log; forks, squashing, promoting and creating need more than a verb
    c.Append: APPEND,
    c.Renew: PROMOTE,
    c.Commit: CONSUME,
    c.ForgetConsumer: CONSUME,
    c.Trim: ADMIN,
    c.Drop: ADMIN,
}
TOKENS: Final = (c.CreateToken, c.RevokeToken)
