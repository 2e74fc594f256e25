"""What a cluster of several metadata processes is made of. It is kept when the cluster ends, and holds for the next
time: the members of an etcd know each other by their addresses, and the logs are where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from braidlog import limits
from braidlog.errors import Corrupt, InvalidArgument
from braidlog.testing.etcd import free_ports
from braidlog.testing.roles import EtcdMember

_FILE: Final = "shape.json"
_OBJECTS: Final = "shared"


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metadata: int
    objects: str  # a URL
    etcd: list[EtcdMember]

    @property
    def endpoints(self) -> list[str]:
        return [member.client for member in self.etcd]

    def keep(self, folder: Path) -> None:
        (folder / _FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def remembered(folder: Path) -> Shape | None:
    """What the cluster in this folder was made of; None if it has one metadata process, or never was."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=Shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise Corrupt(f"{folder / _FILE} is not what braidlog writes there: {error}") from error


def agreed(directory: Path, folder: Path, metadata: int | None, etcd: int | None, objects: str | None) -> Shape | None:
    """What is asked for, completed by what is remembered; None for one metadata process on the directory itself."""
    known = remembered(folder)
    count = metadata if metadata is not None else 1 if known is None else known.metadata
    if count < 1 or count % 2 == 0 or count > limits.CLUSTER_METADATA_PROCESSES_MAX:
        raise InvalidArgument(
            f"metadata must be 1, 3 or another odd number up to {limits.CLUSTER_METADATA_PROCESSES_MAX}, not {count}"
        )
    if etcd not in (None, 1, 3):
        raise InvalidArgument(f"etcd must have 1 or 3 members, not {etcd}")
    if known is None:
        return _new(directory, folder, count, etcd, objects)
    if count == 1:
        raise InvalidArgument(f"the logs of {directory} are in an etcd: start it with --metadata {known.metadata}")
    if etcd is not None and etcd != len(known.etcd):
        raise InvalidArgument(f"the etcd of {directory} has {len(known.etcd)} members, and not {etcd}")
    if objects is not None and objects != known.objects:
        raise InvalidArgument(f"{directory} keeps its objects in {known.objects}, and not in {objects}")
    return msgspec.structs.replace(known, metadata=count)


def _new(directory: Path, folder: Path, metadata: int, etcd: int | None, objects: str | None) -> Shape | None:
    if metadata == 1:
        if etcd is not None:
            raise InvalidArgument("an etcd is for several metadata processes: ask for --metadata 3")
        return None
    if (directory / "FORMAT").exists():
        raise InvalidArgument(
            f"{directory} is a directory with logs, which one metadata process serves: give several a new directory, "
            "and import the logs there"
        )
    if directory.exists() and {path.name for path in directory.iterdir()} - {folder.name}:
        raise InvalidArgument(f"{directory} is not empty, and not a cluster's: give it a new directory")
    members = etcd or 1
    ports = free_ports(2 * members)
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    return Shape(
        metadata,
        objects or (directory / _OBJECTS).as_uri(),
        [EtcdMember(f"etcd-{n + 1}", urls[n], urls[members + n]) for n in range(members)],
    )
