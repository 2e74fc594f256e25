"""A cluster of processes on this machine, for development and for tests: one metadata process and some brokers; or
several metadata processes, of which one leads, with an etcd of their own.

What it is made of stands in `cluster/cluster.json` below the directory, so that whoever comes later finds it again;
what the processes tell stands beside it, in a file for each. Processes may be killed, stopped and started again one by
one, and keep their names and ports. A cluster that cannot be started whole leaves nothing running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

import braidlog
from braidlog import Braid, config, limits
from braidlog.client.tokens import create_token
from braidlog.errors import AlreadyExists, Corrupt, InvalidArgument, NotFound, Unavailable
from braidlog.metadata import object_place
from braidlog.metadata.etcd import leadership
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.objects.files import OsFiles
from braidlog.testing import roles, shape
from braidlog.testing.etcd import await_member, etcd_environment, etcd_program
from braidlog.testing.processes import Process, ProcessId
from braidlog.testing.shape import Shape

_FOLDER: Final = "cluster"
_STATE: Final = "cluster.json"
_LOCK: Final = "LOCK"
_METADATA: Final = "metadata"
_ADMIN_TOKEN: Final = "admin.token"
_BROKER_TOKEN: Final = "broker.token"
_LOG_LINES_TOLD: Final = 8
_SAID: Final = "listening on braid://"


class StartFailed(Unavailable):
    """A process of a cluster ended before it listened. `status` is how, if it ended by itself."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process, as it stands in the file."""

    name: str
    role: str
    pid: int
    started: str
    address: str
    since: str


class _State(msgspec.Struct, frozen=True):
    processes: list[_Kept]
    version: int = 1
    token_file: str = ""


class Member:
    """One process of a cluster."""

    def __init__(
        self, name: str, role: str, log: Path, process: Process, address: str, since: datetime, began: int = 0
    ) -> None:
        self.name = name
        self.role = role
        self.log = log  # what it tells
        self.process = process
        self.address = address  # host:port; empty until it listens for the first time
        self.since = since
        self.began = began  # where in the log this start of it begins

    @property
    def pid(self) -> int:
        return self.process.id.pid

    @property
    def state(self) -> str:
        """`up`, `stopped` or `down`."""
        return self.process.id.state

    def __repr__(self) -> str:
        return f"<{self.name} {self.pid} {self.address} {self.state}>"


class Cluster:
    """Use it as a context manager, or `close` it. Not for several threads at once."""

    def __init__(
        self, directory: Path, processes: dict[str, Member], shape: Shape | None = None, token_file: str = ""
    ) -> None:
        self.directory = directory
        self.shape = shape  # of one with several metadata processes
        self._processes = processes
        self._token_file = token_file  # what brokers show

    # --- beginning and ending ------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        directory: str | os.PathLike[str],
        brokers: int = limits.CLUSTER_BROKERS_DEFAULT,
        *,
        objects: str | None = None,
        metadata: int | None = None,
        etcd: int | None = None,
        tokens: bool = False,
        token_file: str = "",
    ) -> Cluster:
        """Start a cluster on a directory, which is created if it is not there. AlreadyExists if it has one.

        Without brokers the metadata process serves clients itself. `objects` is the URL of the object store that a new
        directory is to keep its objects in. With several `metadata` processes, which is an odd number, there is an etcd
        of 1 or 3 members. With `tokens` those that everybody needs from then on are made, once, in files beside the
        state; `token_file` is what brokers show where they were made otherwise.
        """
        if not 0 <= brokers <= limits.CLUSTER_BROKERS_MAX:
            raise InvalidArgument(f"brokers must be between 0 and {limits.CLUSTER_BROKERS_MAX}, not {brokers}")
        where = Path(directory).absolute()
        found = shape.agreed(where, where / _FOLDER, metadata, etcd, objects)
        if found is None:
            if not (where / "FORMAT").exists():  # our folder in it would make it look like somebody else's
                braidlog.open(where, serve=False, objects=objects).close()
            else:
                object_place.agreed(OsFiles(where), objects)
        elif not brokers:
            raise InvalidArgument(
                "clients of several metadata processes need brokers, which find the leader: ask for 1"
            )
        (where / _FOLDER).mkdir(parents=True, exist_ok=True)
        cluster = cls(where, {}, found, os.path.abspath(token_file) if token_file else "")
        with cluster._alone():
            with contextlib.suppress(NotFound):
                if running := [one for one in cls.find(where).processes.values() if one.state != "down"]:
                    raise AlreadyExists(
                        f"{where} has a cluster already, {running[0].name} is process {running[0].pid}: "
                        "`braid cluster down` ends it"
                    )
            try:
                cluster._start_all(brokers, tokens)
            except BaseException:
                cluster._end(limits.PROCESS_STOP_TIMEOUT_S)
                raise
        return cluster

    @classmethod
    def find(cls, directory: str | os.PathLike[str]) -> Cluster:
        """The cluster that somebody started on a directory. NotFound if there is none."""
        where = Path(directory).absolute()
        path = where / _FOLDER / _STATE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"{where} has no cluster: `braid cluster up` starts one") from None
        except msgspec.DecodeError as error:
            raise Corrupt(f"{path} is not what braidlog writes there: {error}; remove it if nothing runs") from error
        members = {
            kept.name: Member(
                kept.name,
                kept.role,
                where / _FOLDER / f"{kept.name}.log",
                Process(ProcessId(kept.pid, kept.started)),
                kept.address,
                datetime.fromisoformat(kept.since),
            )
            for kept in state.processes
        }
        return cls(where, members, shape.remembered(where / _FOLDER), state.token_file)

    def close(self, timeout: float = limits.PROCESS_STOP_TIMEOUT_S) -> list[str]:
        """End all processes: brokers first, gracefully, and what has not ended in time is killed. Safe to call again.

        Answers the names of those that had to be killed.
        """
        with self._alone():
            return self._end(timeout)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def processes(self) -> Mapping[str, Member]:
        """By name: `metadata`, `broker-1` and so on; with several, `etcd-1`, `metadata-1`."""
        return self._processes

    @property
    def url(self) -> str:
        """What clients open: all brokers, or the metadata process if there are none."""
        return f"braid://{','.join(self._addresses('broker') or self._addresses(_METADATA))}"

    @property
    def admin_token_file(self) -> Path | None:
        """Where the token is that may do everything, if it was made here."""
        path = self.directory / _FOLDER / _ADMIN_TOKEN
        return path if path.exists() else None

    def leader(self, timeout: float = limits.ETCD_TIMEOUT_S) -> str | None:
        """The name of the metadata process that leads; None if none does, or it is not known within this time."""
        if self.shape is None:
            return _METADATA
        deadline = time.monotonic() + timeout
        with contextlib.closing(EtcdClient(self.shape.endpoints)) as client:
            while True:
                with contextlib.suppress(Unavailable):
                    found = leadership.leader(client, roles.PREFIX, limits.ETCD_TIMEOUT_S)
                    for one in self._processes.values():
                        if one.role == _METADATA and one.address == found:
                            return one.name
                if time.monotonic() >= deadline:
                    return None
                time.sleep(limits.PROCESS_POLL_S)

    def _addresses(self, role: str) -> list[str]:
        return [one.address for one in self._processes.values() if one.role == role]

    # --- what may befall its processes ---------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """SIGKILL. It is gone when this returns."""
        one = self._member(name)
        one.process.id.signal(signal.SIGKILL)
        if not one.process.wait(limits.PROCESS_STOP_TIMEOUT_S):
            raise Unavailable(f"{name}, process {one.pid}, does not end although it was killed")

    def stop(self, name: str) -> None:
        """SIGSTOP: it keeps its connections and does nothing, until `resume`."""
        self._send(name, signal.SIGSTOP)
        self._member(name).process.id.wait_until("stopped", limits.PROCESS_STOP_TIMEOUT_S)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._send(name, signal.SIGCONT)
        self._member(name).process.id.wait_until("up", limits.PROCESS_STOP_TIMEOUT_S)

    def terminate(self, name: str, timeout: float = limits.PROCESS_STOP_TIMEOUT_S) -> int | None:
        """SIGTERM, and wait for its end. Answers its exit status, if it was started here."""
        self._send(name, signal.SIGTERM)
        one = self._member(name)
        if not one.process.wait(timeout):
            raise Unavailable(f"{name}, process {one.pid}, has not ended within {timeout:g} s")
        return one.process.exit_status

    def restart(self, name: str) -> None:
        """Start it again, under its name and at its port, once it listens; if it still runs it is ended first."""
        one = self._member(name)
        if one.state == "stopped":
            self.resume(name)
        if one.state != "down":
            self.terminate(name)
        with self._alone():
            self._start(name, one.role, one.address)

    def _member(self, name: str) -> Member:
        try:
            return self._processes[name]
        except KeyError:
            raise NotFound(f"the cluster has no {name}: it has {', '.join(self._processes)}") from None

    def _send(self, name: str, number: signal.Signals) -> None:
        one = self._member(name)
        if not one.process.id.signal(number):
            raise Unavailable(f"{name}, process {one.pid}, does not run any more: restart it")

    # --- starting ------------------------------------------------------------------------------------------------

    def _start_all(self, brokers: int, tokens: bool) -> None:
        """From the bottom to the top; those of one kind side by side."""
        names = [_METADATA]
        if self.shape is not None:
            etcd_program()  # or say at once that there is none
            self.shape.keep(self.directory / _FOLDER)
            for member in self.shape.etcd:
                self._begin(member.name, "etcd", member.client)
            for member in self.shape.etcd:
                self._await(member.name)
            names = [f"{_METADATA}-{number + 1}" for number in range(self.shape.metadata)]
        elif tokens:
            self._make_tokens()
        for name in names:
            self._begin(name, _METADATA)
        for name in names:
            self._await(name)
        if self.shape is not None and tokens:
            self._make_tokens()
        if not self._token_file and (kept := self.directory / _FOLDER / _BROKER_TOKEN).exists():
            self._token_file = str(kept)
        names = [f"broker-{number + 1}" for number in range(brokers)]
        for name in names:
            self._begin(name, "broker")
        for name in names:
            self._await(name)

    def _start(self, name: str, role: str, address: str = "") -> None:
        """Start one and wait until it listens."""
        self._begin(name, role, address)
        self._await(name)

    def _begin(self, name: str, role: str, address: str = "") -> None:
        """It is known, and so can be ended, from the first moment."""
        log = self.directory / _FOLDER / f"{name}.log"
        began = log.stat().st_size if log.exists() else 0
        environment = etcd_environment() if role == "etcd" else _environment()
        process = Process.start(self._command(name, role, address or "127.0.0.1:0"), log, environment)
        self._processes[name] = Member(name, role, log, process, address, datetime.now(UTC), began)
        self._keep()

    def _await(self, name: str) -> None:
        one = self._processes[name]
        if one.role == "etcd":
            assert self.shape is not None
            [member] = [member for member in self.shape.etcd if member.name == name]
            with contextlib.closing(EtcdClient(self.shape.endpoints)) as client:
                await_member(client, member, one.process, one.log)
            return
        line = one.process.first_line(limits.PROCESS_START_TIMEOUT_S)
        if line is None or not line.startswith(_SAID):
            one.process.id.signal(signal.SIGKILL)  # unless it has ended by itself
            one.process.wait(limits.PROCESS_STOP_TIMEOUT_S)
            told = one.log.read_bytes()[one.began :].decode("utf-8", "replace").splitlines()[-_LOG_LINES_TOLD:]
            raise StartFailed("\n".join([f"{name} did not start:", *told]), status=one.process.exit_status)
        one.address = line.removeprefix(_SAID)
        self._keep()

    def _command(self, name: str, role: str, listen: str) -> list[str]:
        if self.shape is not None:
            if role == "etcd":
                [member] = [member for member in self.shape.etcd if member.name == name]
                return roles.etcd(etcd_program(), member, self.shape.etcd, self.directory / "etcd")
            if role == _METADATA:
                return roles.metadata_on_etcd(name, listen, self.shape.endpoints, self.shape.objects)
            return roles.broker(name, listen, self._addresses(_METADATA), token_file=self._token_file)
        if role == _METADATA:
            return roles.metadata_at(name, listen, self.directory)
        elsewhere = object_place.remembered(OsFiles(self.directory))
        objects = str(self.directory / "objects") if elsewhere is None else elsewhere.location.url
        metadata = self._addresses(_METADATA)
        return roles.broker(name, listen, metadata, objects=objects, token_file=self._token_file)

    def _make_tokens(self) -> None:
        """The first two, unless they were made before: on the directory itself, or at the leader, which lets those in
        who are on its machine as long as there never was one."""
        admin, broker = (self.directory / _FOLDER / name for name in (_ADMIN_TOKEN, _BROKER_TOKEN))
        if broker.exists():
            return
        _write_secret(admin, self._create_token(None, "admin", "admin:*"))
        _write_secret(broker, self._create_token(admin, "brokers", "broker"))

    def _create_token(self, token_file: Path | None, name: str, grant: str) -> str:
        """Whoever won the leadership refuses until it has taken over, and may lose it: others are asked then."""
        deadline = time.monotonic() + limits.PROCESS_START_TIMEOUT_S
        while True:
            try:
                with self._open_at_the_source(token_file) as braid:
                    return create_token(braid, name, [grant])
            except Unavailable:
                if self.shape is None or time.monotonic() >= deadline:
                    raise
            time.sleep(limits.PROCESS_POLL_S)

    def _open_at_the_source(self, token_file: Path | None) -> Braid:
        if self.shape is None:
            return braidlog.open(self.directory, serve=False)
        leader = self.leader(limits.PROCESS_START_TIMEOUT_S)
        if leader is None:
            raise Unavailable(f"no metadata process leads: see what they tell in {self.directory / _FOLDER}")
        return braidlog.open(f"braid://{self._processes[leader].address}", token_file=token_file)

    def _end(self, timeout: float) -> list[str]:
        """From the top to the bottom: brokers need metadata processes, and those an etcd, to answer what they were
        asked."""
        deadline = time.monotonic() + timeout
        killed: list[str] = []
        for role in ("broker", _METADATA, "etcd"):
            together = [one for one in self._processes.values() if one.role == role]
            for one in together:
                one.process.id.signal(signal.SIGTERM)
                one.process.id.signal(signal.SIGCONT)  # a stopped one would never hear it
            for one in together:
                if not one.process.wait(max(0.0, deadline - time.monotonic())):
                    killed.append(one.name)
                    self.kill(one.name)
        self._forget()
        return killed

    # --- the file ------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        kept = [
            _Kept(one.name, one.role, one.pid, one.process.id.started, one.address, one.since.isoformat())
            for one in self._processes.values()
        ]
        path = self.directory / _FOLDER / _STATE
        unfinished = path.with_suffix(".tmp")
        unfinished.write_bytes(
            msgspec.json.format(msgspec.json.encode(_State(kept, token_file=self._token_file))) + b"\n"
        )
        unfinished.replace(path)

    def _forget(self) -> None:
        """Remove the file, unless it is already that of a later cluster."""
        with contextlib.suppress(NotFound):
            theirs = Cluster.find(self.directory).processes
            if {one.process.id for one in theirs.values()} <= {one.process.id for one in self._processes.values()}:
                (self.directory / _FOLDER / _STATE).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While this lasts nobody else starts or ends processes here."""
        fd = os.open(self.directory / _FOLDER / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _write_secret(path: Path, token: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(token + "\n")


def _environment() -> dict[str, str]:
    """Ours, without what would set a role's settings."""
    known = {setting.environment for settings in config.ROLES.values() for setting in settings} | {config.FILE_VARIABLE}
    return {name: value for name, value in os.environ.items() if name not in known}
