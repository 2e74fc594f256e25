"""From a `braid://` or `braids://` URL, or the socket in a directory, to an open braid."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.client.groups import GroupedBackend
from braidlog.client.remote.backend import RemoteBackend
from braidlog.client.remote.credentials import Credentials
from braidlog.client.remote.link import Address, TcpAddress, UnixAddress
from braidlog.config import is_host, refuse_password
from braidlog.embedded.clock import Clock
from braidlog.errors import InvalidArgument

SOCKET: Final = "SOCKET"  # in a directory whose writer shares it
PORT_DEFAULT: Final = 7411


SCHEMES: Final = ("braid://", "braids://")


def secure(url: str) -> bool:
    """Whether TLS is spoken there."""
    return url.startswith("braids://")


def groups_of(url: str, context: ssl.SSLContext | None = None) -> list[list[TcpAddress]]:
    """The servers that a URL names, group by group."""
    refuse_password(url)
    scheme, between, rest = url.partition("://")
    return [addresses_of(f"{scheme}{between}{part}", context) for part in rest.split(";")]


def addresses_of(url: str, context: ssl.SSLContext | None = None) -> list[TcpAddress]:
    """The servers that a URL of one group names; with a context TLS is spoken with them."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"{url!r} is not a URL: {error}") from error
    if parts.query or parts.fragment or parts.path not in ("", "/"):
        raise InvalidArgument(f"{url!r}: write braid://host:port, or several of them: braid://host:port,host:port")
    return [_address(url, text, context) for text in parts.netloc.split(",")]


def _address(url: str, text: str, context: ssl.SSLContext | None) -> TcpAddress:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidArgument(f"{url!r}: {text!r} is not host:port, with a port from 1 to 65535")
    if not is_host(host):
        raise InvalidArgument(f"{url!r}: {host!r} is not the name of a host, nor an address")
    return TcpAddress(host, int(port), context)


def connect(
    addresses: Sequence[Address],
    url: str,
    *,
    timeout: float | None = None,
    linger: float = 0.0,
    clock: Clock | None = None,
    connect_timeout: float = limits.CONNECT_TIMEOUT_S,
    shown: Credentials | None = None,
) -> Braid:
    """Open a braid that is served there. Unavailable if nobody answers in time."""
    client = os.urandom(limits.CLIENT_ID_BYTES)
    backend = RemoteBackend(
        addresses,
        client,
        timeout=limits.CALL_TIMEOUT_S if timeout is None else timeout,
        linger=linger,
        connect_timeout=connect_timeout,
        shown=shown,
    )
    return Braid(backend, url, read_only=False, clock=clock, client=client)


def connect_groups(
    groups: Sequence[Sequence[Address]],
    url: str,
    *,
    timeout: float | None = None,
    linger: float = 0.0,
    shown: Credentials | None = None,
) -> Braid:
    """Open a braid whose trees are spread over several metadata groups. Unavailable if one of them does not answer."""
    client = os.urandom(limits.CLIENT_ID_BYTES)
    opened: list[RemoteBackend] = []
    try:
        for addresses in groups:
            patience = limits.CALL_TIMEOUT_S if timeout is None else timeout
            opened.append(RemoteBackend(addresses, client, timeout=patience, linger=linger, shown=shown))
    except BaseException:
        for backend in opened:
            backend.close()
        raise
    return Braid(GroupedBackend(opened), url, read_only=False, client=client)


def socket_of(directory: Path) -> UnixAddress:
    return UnixAddress(directory / SOCKET)
