"""The life of a process that serves, the same for every role: it begins, says that it listens, and ends in good order.

Ports are taken first, so that a service knows its address when it is made; nobody can connect before it is. The first
SIGTERM or SIGINT ends the process gracefully: nothing new is taken, what was asked is answered, what was opened is
closed. The second ends it at once, which loses nothing that was acknowledged. Without TLS a process listens to this
machine alone, unless it is told that everybody who can reach it is meant to do as they like (`insecure`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import ipaddress
import logging
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from braidlog import limits
from braidlog.broker import handles, memory
from braidlog.broker.entry import Entry
from braidlog.broker.server import Server
from braidlog.broker.service import Service
from braidlog.broker.threaded import new_loop
from braidlog.config import Address
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.observe.http import serve_http
from braidlog.observe.logs import Event

MakeService = Callable[[Address], Service | Awaitable[Service]]

_log = logging.getLogger("braidlog.server")

_INSECURE = "whoever reaches the port and is asked for no token may read, write and drop every log"


class Listening(NamedTuple):
    """Where a process can be reached."""

    url: str  # for `braidlog.open`
    http: str | None

    @property
    def lines(self) -> list[str]:
        return [f"listening on {url}" for url in (self.url, self.http) if url is not None]


def conduct(work: Coroutine[Any, Any, None]) -> None:
    """Do what `run` does, in a loop of its own in the main thread. Returns when the process is to end."""
    memory.keep_freed()
    handles.allow_more()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


async def run(
    make_service: MakeService,
    name: str,
    listen: Sequence[Address],
    *,
    ready: Callable[[Listening], None],
    release: Callable[[], None] = lambda: None,
    http: Address | None = None,
    insecure: bool = False,
    tls: ssl.SSLContext | None = None,
    require_token: bool = False,
    grace_s: float = limits.SHUTDOWN_GRACE_S,
) -> None:
    """Serve until a signal says otherwise.

    `make_service` opens what is served, knowing the first address that will be listened on; it is called on the loop's
    thread, may be awaited, and is cancelled if the process is to end before. `release` closes it, in another thread,
    once everything is answered, and also if it could not be opened. `ready` is told where the process listens.
    """
    ending = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_signals(ending))
        open_to_all = insecure or tls is not None
        doors = [stack.enter_context(contextlib.closing(await _take(address, open_to_all))) for address in listen]
        if insecure:
            _log.warning(Event("insecure", note=_INSECURE))
        aside = None if http is None else stack.enter_context(contextlib.closing(await _take(http, open_to_all)))
        stack.push_async_callback(asyncio.get_running_loop().run_in_executor, None, release)
        service = await _made(make_service, doors[0].address, ending)
        if service is None:
            return
        server = Server(service, name, Entry(require_token, insecure))
        stack.push_async_callback(server.close, grace_s)
        for door in doors:
            await door.open(server, tls)
        if aside is not None:
            await aside.open_http(server)
        for door in doors:
            _log.info(Event("start", server=name, role=service.role, address=str(door.address)))
        url = f"{'braid' if tls is None else 'braids'}://{','.join(str(door.address) for door in doors)}"
        ready(Listening(url, None if aside is None else f"http://{aside.address}"))
        await ending.wait()


@contextlib.contextmanager
def _signals(ending: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def heed(number: signal.Signals) -> None:
        if ending.is_set():
            os._exit(128 + number)
        _log.info(Event("signal", signal=number.name, note="answering what was asked; a second signal ends at once"))
        ending.set()

    heeded = (signal.SIGTERM, signal.SIGINT)
    for number in heeded:
        loop.add_signal_handler(number, heed, number)
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


async def _made(make_service: MakeService, address: Address, ending: asyncio.Event) -> Service | None:
    """The service; None if the process is to end before there is one."""
    made = make_service(address)
    if not inspect.isawaitable(made):
        return made
    making = asyncio.ensure_future(made)
    told = asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait((making, told), return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            return making.result()
        making.cancel()
        await asyncio.wait((making,))
        return None
    finally:
        told.cancel()


# --- where to listen -------------------------------------------------------------------------------------------------


class _Door:
    """The sockets of one address, which nobody can connect to until it is opened."""

    def __init__(self, address: Address, bound: list[socket.socket]) -> None:
        self.address = address
        self.bound = bound

    async def open(self, server: Server, tls: ssl.SSLContext | None) -> None:
        for bound in self.bound:
            try:
                await server.listen_on(bound, tls)
            except OSError as error:
                raise _refusal(self.address, error) from error

    async def open_http(self, server: Server) -> None:
        """Let those look at the server who come over HTTP."""
        host, port = self.bound[0].getsockname()[:2]
        self.close()  # the endpoint binds for itself
        try:
            await serve_http(server, host, port)
        except OSError as error:
            raise _refusal(self.address, error) from error

    def close(self) -> None:
        for bound in self.bound:
            bound.close()


async def _take(address: Address, open_to_all: bool) -> _Door:
    """Bind all that a host's name stands for, with the port that was asked for; if any port will do, the first."""
    port = address.port
    bound: list[socket.socket] = []
    refused: OSError | None = None
    for family, host in (await _hosts(address, open_to_all))[: None if port else 1]:
        # The protocol is named, for else asyncio does not see that it is TCP and leaves answers to Nagle's delay.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # else it takes the IPv4 address too
            made.bind((host, port))
            made.setblocking(False)
        except OSError as error:
            made.close()
            refused = error
            if error.errno == errno.EADDRNOTAVAIL:  # a name may stand for an address that this machine has not got
                continue
            break
        bound.append(made)
        port = made.getsockname()[1]
        refused = None
    if not bound or (refused is not None and refused.errno != errno.EADDRNOTAVAIL):
        _Door(address, bound).close()
        assert refused is not None
        raise _refusal(address, refused) from refused
    return _Door(address._replace(port=port), bound)


async def _hosts(address: Address, open_to_all: bool) -> list[tuple[socket.AddressFamily, str]]:
    """The IP addresses that a host's name stands for, IPv4 first."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"cannot listen on {address}: {address.host} is not known here: {error}") from error
    hosts: list[tuple[socket.AddressFamily, str]] = sorted(
        {(entry[0], str(entry[4][0])) for entry in found if entry[0] in (socket.AF_INET, socket.AF_INET6)}
    )
    if not open_to_all and not all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for _, host in hosts):
        raise InvalidArgument(
            f"will not listen on {address}: other machines could connect to it, and without TLS nobody can safely say "
            "who they are. Give --tls-cert and --tls-key (and make tokens: `braid token create`), listen on 127.0.0.1, "
            "or give --insecure if the network itself keeps others out: then whoever reaches the port may read, write "
            "and drop every log"
        )
    return hosts


def _refusal(address: Address, error: OSError) -> Unavailable:
    if error.errno == errno.EADDRINUSE:
        return Unavailable(
            f"cannot listen on {address}: the port is taken by another process; stop that one, or choose another port "
            "(0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return Unavailable(f"cannot listen on {address}: this user may not use that port; choose one above 1023")
    return Unavailable(f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}")
