"""Processes with TLS and tokens, for the tests of security: certificates of an authority made for the occasion."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

import braidlog
from braidlog import Braid
from braidlog.client.tokens import create_token

DEADLINE_S = 30


class Authority:
    """Signs certificates, and writes them down where processes find them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.file = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def certificate(self, *hosts: str, expired: bool = False, name: str = "cert") -> tuple[str, str]:
        """(certificate, key), as files."""
        ended = datetime.now(UTC) - timedelta(days=1) if expired else None
        made = self._ca.issue_cert(*hosts, common_name=name, not_after=ended)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return str(certificate), str(key)


def tls_options(pair: tuple[str, str]) -> list[str]:
    return ["--tls-cert", pair[0], "--tls-key", pair[1]]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BRAIDLOG_")} | more


class Role:
    """A process that serves, from its first word on; what it tells goes to a file."""

    def __init__(self, role: str, *args: str, told: Path, **env: str) -> None:
        self.told = told
        with told.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "braidlog", role, "--listen", "127.0.0.1:0", "--log-level", "debug", *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**env),
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip().removeprefix("listening on ")

    @property
    def address(self) -> str:
        return self.url.partition("://")[2]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode


@dataclass
class Site:
    """A service that asks for tokens, in one process or several."""

    folder: Path
    authority: Authority
    admin: str = ""
    url: str = ""
    roles: list[Role] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    @property
    def audit(self) -> Path:
        return self.folder / "audit.log"

    def open(self, token: str | None = None, *, timeout: float = DEADLINE_S) -> Braid:
        return braidlog.open(
            self.url, tls_ca=self.authority.file, token=self.admin if token is None else token, timeout=timeout
        )

    def token(self, name: str, *scopes: str, expires_s: float | None = None) -> str:
        with self.open() as braid:
            made = create_token(braid, name, scopes, expires_s)
        self.tokens.append(made)
        return made

    def close(self) -> None:
        for role in reversed(self.roles):
            role.end()

    def told(self) -> str:
        """All that any of its processes ever said."""
        return "".join(path.read_text() for path in {self.audit, *(role.told for role in self.roles)} if path.exists())


def serve(folder: Path, authority: Authority) -> Site:
    """`braid serve`."""
    site = Site(folder, authority)
    place = folder / "shop.braid"
    with braidlog.open(place) as braid:
        site.admin = create_token(braid, "admin", ["admin:*"])
    site.tokens.append(site.admin)
    pair = authority.certificate("localhost", "127.0.0.1", name=f"serve-{folder.name}")
    options = ["--at", str(place), *tls_options(pair), "--audit-file", str(site.audit)]
    site.roles.append(Role("serve", *options, told=folder / "serve.log"))
    site.url = site.roles[0].url
    return site


def apart(folder: Path, authority: Authority, brokers: int = 2) -> Site:
    """`braid metadata` and brokers, TLS everywhere."""
    site = Site(folder, authority)
    place = folder / "shop.braid"
    with braidlog.open(place) as braid:
        site.admin = create_token(braid, "admin", ["admin:*"])
        broker = create_token(braid, "broker", ["broker"])
    site.tokens += [site.admin, broker]
    pair = tls_options(authority.certificate("localhost", "127.0.0.1", name=f"apart-{folder.name}"))
    metadata = Role("metadata", "--at", str(place), *pair, told=folder / "metadata.log")
    site.roles.append(metadata)
    (folder / "broker.token").write_text(broker + "\n")
    for number in range(brokers):
        site.roles.append(
            Role(
                "broker",
                *("--metadata", metadata.address, "--metadata-tls-ca", authority.file),
                *("--token-file", str(folder / "broker.token"), "--audit-file", str(site.audit)),
                *pair,
                told=folder / f"broker-{number}.log",
            )
        )
    site.url = "braids://" + ",".join(role.address for role in site.roles[1:])
    return site
