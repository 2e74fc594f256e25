"""From a URL and a few options to a house, its callers, and what has to be closed in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import braidlog
from braidlog import Braid, limits
from braidlog.agents.desk import Desk
from braidlog.agents.policy import Policy
from braidlog.agents.registry import Registry
from braidlog.agents.running import Access
from braidlog.agents.sql_spark import Spark
from braidlog.agents.sql_spark import available as spark_available
from braidlog.broker.entry import Entry
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import directory_of, write_directory
from braidlog.client.remote.opening import SCHEMES
from braidlog.client.tokens import principal_of
from braidlog.embedded.writer import Writer
from braidlog.errors import InvalidArgument, Locked, NotPermitted, Unavailable
from braidlog.mcp.callers import TokenCallers
from braidlog.mcp.house import Caller, House, OnlyCaller

AGENT_DEFAULT: Final = "agent"

_log = logging.getLogger("braidlog.mcp")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the logs are, and how the house gets in."""

    url: str
    tls_ca: str | None = None
    token_file: str | None = None
    policy_file: str | None = None
    spark: bool = False  # whether large ranges may be queried by Spark

    @property
    def served(self) -> bool:
        """Whether it is a service."""
        return self.url.startswith(SCHEMES)

    def open(self) -> Braid:
        """With the house's own credentials."""
        if not self.served:
            return braidlog.open(self.url)
        return braidlog.open(self.url, tls_ca=self.tls_ca, token_file=self.token_file)

    def policy(self) -> Policy:
        """What the operator wrote, or what holds without."""
        return Policy.default() if self.policy_file is None else Policy.load(self.policy_file)


@contextmanager
def house_for_one(place: Place, agent: str | None = None, agent_token_file: str | None = None) -> Iterator[House]:
    """For a client at stdin and stdout: one agent, known by its token's name, or by the name that is given."""
    policy = place.policy()
    with ExitStack() as stack:
        braid = stack.enter_context(place.open())
        theirs = braid
        if agent_token_file is not None:
            if not place.served:
                raise InvalidArgument("--agent-token-file is for services: a directory asks nobody for a token")
            theirs = stack.enter_context(braidlog.open(place.url, tls_ca=place.tls_ca, token_file=agent_token_file))
        principal = principal_of(theirs)
        if agent is not None and principal and agent != principal:
            raise InvalidArgument(f"the token is {principal!r}'s, and --agent says {agent!r}: leave --agent out")
        access = _access(place, braid, agent_token_file or place.token_file)
        caller = Caller(_name(principal or agent or AGENT_DEFAULT), theirs, principal, access)
        yield _opened(stack, place, braid, OnlyCaller(caller), policy)


@contextmanager
def house_for_many(place: Place) -> Iterator[tuple[House, TokenCallers]]:
    """For clients over HTTP: each agent is the bearer of a token, and nobody else is let in."""
    policy = place.policy()
    with ExitStack() as stack:
        if place.served:
            braid, url = stack.enter_context(place.open()), place.url
        else:
            braid, url = _served(stack, place.url)
        tls_ca = place.tls_ca if place.served else None
        callers = TokenCallers(
            lambda token: braidlog.open(url, token=token, tls_ca=tls_ca, timeout=limits.MCP_CALL_S),
            lambda token: Access(url=url, token=token, tls_ca=tls_ca),
        )
        stack.callback(callers.close)
        yield _opened(stack, place, braid, callers, policy), callers


def _opened(stack: ExitStack, place: Place, braid: Braid, callers: OnlyCaller | TokenCallers, policy: Policy) -> House:
    if place.spark and not spark_available():
        raise InvalidArgument("--spark needs PySpark: pip install 'braidlog[spark]', or leave it out")
    house = House.of(braid, callers, policy, _access(place, braid, place.token_file))
    try:
        with house.audit.call("braid mcp", "start", {"url": place.url}, changes=True):
            known = {one.name for one in Registry(braid).list()}
    except NotPermitted as error:
        raise NotPermitted(
            f"nothing is done without the logs that are kept about agents: {error}. Start `braid mcp` with a token of "
            "its own that has admin:braidlog.* and what its policy promotes, and give the agent's by --agent-token-file"
        ) from None
    for name in policy.validators:
        if name not in known:
            raise InvalidArgument(
                f"the policy names the validator {name!r}, and there is none: `braid validators add {name} ...`"
            )
    stack.callback(house.audit.close)
    if place.spark:
        house.spark = Spark()
        stack.callback(house.spark.close)
    stack.callback(Tending(house.desk).stop)
    return house


def _access(place: Place, braid: Braid, token_file: str | None) -> Access | None:
    """How another process gets at the same logs; None if it cannot."""
    if place.served:
        return Access(url=place.url, token_file=token_file, tls_ca=place.tls_ca)
    return None if braid.url.startswith("memory:") else Access.to(braid)


class Tending:
    """Looks after proposals and holds now and then, though no agent calls: they expire, and are gone on with."""

    def __init__(self, desk: Desk, every_s: float = limits.MCP_TEND_S) -> None:
        self._desk = desk
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="braidlog-desk", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._desk.tend()
            except Exception as error:  # whatever it is, what the policy says of holds goes on being seen to
                _log.warning("proposals cannot be looked after now: %s", error)

    def stop(self) -> None:
        """Not in the middle of it, unless that takes too long."""
        self._stopped.set()
        self._thread.join(limits.MCP_SHUTDOWN_S)


def _served(stack: ExitStack, url: str) -> tuple[Braid, str]:
    """A directory has no scopes; a server on it has. It listens to this process's machine alone."""
    where = directory_of(url)
    if where is None:
        raise InvalidArgument("--http needs tokens, and memory:// keeps none: give a directory or a service")
    try:
        braid = stack.enter_context(write_directory(where, share=True))
    except Locked as error:
        raise Unavailable(
            f"another process writes {where}: have `braid serve` serve it, and give --at braid://HOST:PORT ({error})"
        ) from None
    writer = braid._session.backend
    assert isinstance(writer, Writer)
    server = ServerThread(lambda: LocalService(writer), "mcp", Entry(require_token=True))
    stack.callback(server.close)
    host, port = server.listen_tcp("127.0.0.1", 0)
    return braid, f"braid://{host}:{port}"


def _name(agent: str) -> str:
    if not agent or len(agent) > limits.OWNER_CHARS_MAX or not agent.isprintable():
        raise InvalidArgument(f"{agent[:80]!r} is no name for an agent: 1 to {limits.OWNER_CHARS_MAX} characters")
    return agent
