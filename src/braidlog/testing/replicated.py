"""A replicated cluster of real processes on this machine, for tests: etcd, metadata processes that share it, brokers.

Any of them can be killed, stopped, continued and started again by its name, and keeps its address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from types import TracebackType

from braidlog import limits
from braidlog.errors import NotFound, Unavailable
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.metadata.etcd.leadership import leader
from braidlog.testing import roles
from braidlog.testing.etcd import EtcdCluster, free_ports
from braidlog.testing.islands import Islands
from braidlog.testing.processes import Process


class Replicated:
    """Use it as a context manager. `objects` is a URL of a store; without it a folder is shared. etcd keeps its data
    below `etcd_folder`, if one is given. With `islands` each metadata process has one, in their order."""

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 3,
        metadata: int = 3,
        brokers: int = 3,
        objects: str = "",
        lease_s: float = 2.0,
        environment: dict[str, str] | None = None,
        islands: Islands | None = None,
        etcd_folder: Path | None = None,
    ) -> None:
        self.folder = folder
        self.objects = objects or (folder / "shared").as_uri()
        self.lease_s = lease_s
        self._islands = islands
        host = "127.0.0.1" if islands is None else islands.host
        self.etcd = EtcdCluster(members=members, host=host, folder=etcd_folder)
        self._environment = {**os.environ, **(environment or {})}
        self._processes: dict[str, Process] = {}
        self._commands: dict[str, list[str]] = {}
        try:
            hosts = ["127.0.0.1"] * metadata if islands is None else islands.addresses
            self.metadata = {f"metadata-{n + 1}": _free_address(hosts[n]) for n in range(metadata)}
            self.brokers = {f"broker-{number + 1}": _free_address() for number in range(brokers)}
            for name, address in self.metadata.items():
                self._commands[name] = self._metadata_command(name, address)
            for name, address in self.brokers.items():
                self._commands[name] = self._broker_command(name, address)
            for name in self._commands:
                self._begin(name)
            for name in self._commands:
                self._await(name)
        except BaseException:
            self.close()
            raise

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"braid://{','.join(self.brokers.values())}"

    @property
    def names(self) -> list[str]:
        return list(self._commands)

    def leader(self, timeout: float = 30.0) -> str:
        """The name of the metadata process that leads."""
        deadline = time.monotonic() + timeout
        client = EtcdClient(self.etcd.endpoints)
        try:
            while time.monotonic() < deadline:
                with contextlib.suppress(Unavailable):
                    found = leader(client, roles.PREFIX)
                    for name, address in self.metadata.items():
                        if address == found:
                            return name
                time.sleep(limits.PROCESS_POLL_S)
        finally:
            client.close()
        raise Unavailable(f"no metadata process leads within {timeout:g} s")

    def log_of(self, name: str) -> str:
        """What a process told."""
        return self._log(name).read_text("utf-8", "replace")

    # --- what may befall its processes ---------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        self._processes[name].wait(limits.PROCESS_STOP_TIMEOUT_S)

    def stop(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def terminate(self, name: str) -> int | None:
        """SIGTERM, and its exit status."""
        self._signal(name, signal.SIGTERM)
        if not self._processes[name].wait(limits.PROCESS_STOP_TIMEOUT_S):
            raise Unavailable(f"{name} does not end although it was told to")
        return self._processes[name].exit_status

    def start(self, name: str) -> None:
        """Again, after it ended. Returns once it listens."""
        self._begin(name)
        self._await(name)

    def close(self) -> None:
        for process in self._processes.values():
            process.id.signal(signal.SIGCONT)
            process.id.signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait(limits.PROCESS_STOP_TIMEOUT_S)
        self.etcd.close()

    def __enter__(self) -> Replicated:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # --- inside --------------------------------------------------------------------------------------------------

    def _metadata_command(self, name: str, address: str) -> list[str]:
        island = [] if self._islands is None else self._islands.command(list(self.metadata).index(name))
        command = roles.metadata_on_etcd(name, address, self.etcd.endpoints, self.objects, lease_s=self.lease_s)
        return [*island, *command, *(() if self._islands is None else ("--insecure",))]

    def _broker_command(self, name: str, address: str) -> list[str]:
        return roles.broker(name, address, self.metadata.values())

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _begin(self, name: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._processes[name] = Process.start(self._commands[name], self._log(name), self._environment)

    def _await(self, name: str) -> None:
        line = self._processes[name].first_line(limits.PROCESS_START_TIMEOUT_S)
        if line is None or not line.startswith("listening on braid://"):
            raise Unavailable(f"{name} did not start:\n{self.log_of(name)[-2000:]}")

    def _signal(self, name: str, number: signal.Signals) -> None:
        if name not in self._processes:
            raise NotFound(f"there is no {name}: there are {', '.join(self._processes)}")
        self._processes[name].id.signal(number)


def _free_address(host: str = "127.0.0.1") -> str:
    """Free on this machine; elsewhere any port is."""
    return f"{host}:{free_ports(1)[0]}"
