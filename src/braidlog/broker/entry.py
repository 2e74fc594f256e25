"""Who may come in: what a server asks of a peer before it says welcome. PURE, but for looking at a transport.

Whoever comes over a Unix socket has the directory anyway, and is trusted. Whoever comes over TCP shows a token, unless
the service never had one and the peer is on this machine, or shows a certificate that the server trusts, or the server
was told that everybody may come (`insecure`). A token that came over the network in the clear is refused, good or not:
whoever listened has it too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import NamedTuple

from braidlog import limits
from braidlog.broker.policy import Scopes


class Entry(NamedTuple):
    """What a server was told about letting peers in."""

    require_token: bool = False
    insecure: bool = False


class Peer(NamedTuple):
    """Where a connection comes from."""

    local: bool  # over a Unix socket
    loopback: bool
    tls: bool
    certified: str  # the name in a certificate that was checked
    address: str


UNKNOWN = Peer(local=False, loopback=False, tls=False, certified="", address="")


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Who is at the other end."""
    info = transport.get_extra_info
    connected = info("socket")
    if connected is not None and connected.family == socket.AF_UNIX:
        return Peer(local=True, loopback=True, tls=False, certified="", address="local")
    name = info("peername")
    host, port = (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("", 0)
    tls = info("ssl_object")
    certified = "" if tls is None else _certified_name(tls)
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Peer(local=False, loopback=is_loopback(host), tls=tls is not None, certified=certified, address=shown)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _certified_name(tls: ssl.SSLObject) -> str:
    certificate = tls.getpeercert()
    if not certificate:
        return ""
    for part in certificate.get("subject", ()):
        for pair in part:
            if pair[0] == "commonName":
                return str(pair[1])[: limits.OWNER_CHARS_MAX]
    return "certificate"


def token_refusal(peer: Peer) -> str:
    """Why no token may be shown over this connection; empty if one may."""
    if peer.tls or peer.loopback:
        return ""
    return (
        "a token must not travel over the network without TLS: use braids://, have the service serve with tls_cert, "
        "and revoke this token, for others may have seen it"
    )


def anonymous_refusal(entry: Entry, peer: Peer, role: str, *, required: bool) -> str:
    """Why a peer without a token does not come in; empty if it does. `required`: there are tokens."""
    if peer.local or (peer.certified and role in ("metadata", "standby")):
        return ""
    if entry.require_token or required:
        return "this service asks for a token: set BRAIDLOG_TOKEN, or give token= or token_file"
    if peer.certified or peer.loopback or entry.insecure:
        return ""
    return "this service asks everybody who is not on its own machine for a token: set BRAIDLOG_TOKEN"


def scopes_of(role: str, principal: str, texts: list[str]) -> Scopes | None:
    """What the bearer of a token may do; None for everything, which only a broker may, of the metadata."""
    scopes = Scopes.of(principal, texts)
    return None if role in ("metadata", "standby") and scopes.broker else scopes


class Pauses:
    """How long the next wrong token from an address is left without an answer."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}  # address -> (how many, when the last), the oldest first

    def next(self, peer: Peer, now: float) -> float:
        host = peer.address.rpartition(":")[0]
        count, last = self._failures.pop(host, (0, now))
        if now - last > limits.TOKEN_PAUSES_KEPT_S:
            count = 0
        self._failures[host] = (count + 1, now)
        while len(self._failures) > limits.TOKEN_PAUSES_KEPT_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        pause: float = min(limits.TOKEN_PAUSE_S * 2 ** min(count, 20), limits.TOKEN_PAUSE_MAX_S)
        return pause
