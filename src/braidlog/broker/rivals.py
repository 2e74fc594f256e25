"""What metadata processes share when they keep the command log in etcd: who leads, what the leader wrote, where objects
and snapshots are."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

from braidlog import limits
from braidlog.broker.node import Rivalry, Term
from braidlog.embedded.follower import Following, Source
from braidlog.errors import InvalidArgument, Timeout, Unavailable
from braidlog.metadata.etcd.client import Ambiguous, EtcdClient, Tls
from braidlog.metadata.etcd.codec import Compare, Put, Txn
from braidlog.metadata.etcd.following import EtcdFollower
from braidlog.metadata.etcd.home import EtcdHome
from braidlog.metadata.etcd.leadership import Candidacy, LeaderWatch
from braidlog.metadata.etcd.leadership import Term as EtcdTerm
from braidlog.metadata.home import Home
from braidlog.objects import blob_store, probe
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.blobs import Blobs, Bytes
from braidlog.objects.files import OsFiles
from braidlog.objects.local_blobs import FileBlobs
from braidlog.objects.locations import is_location, open_blobs, parse
from braidlog.objects.store import FOLDER, FileStore, Store


class Objects(NamedTuple):
    """Where a cluster keeps its objects and snapshots."""

    where: str  # a URL, or the folder of the objects
    store: Store
    blobs: Blobs  # of the snapshots


def open_objects(url: str, cluster_id: str) -> Objects:
    """A store that was proven to be sound, and that belongs to this cluster."""
    if not is_location(url):
        return _in_directory(url)
    location = parse(url)
    blobs = open_blobs(location)
    try:
        probe.require_sound(blobs, location.prefix, location.place)
        blob_store.claim(blobs, location.prefix, cluster_id, location.place)
    except OSError as error:
        blobs.close()
        raise Unavailable(f"{location.place} cannot be worked with: {error.strerror or error}") from error
    except BaseException:
        blobs.close()
        raise
    return Objects(location.url, BlobStore(blobs, location.prefix), _Below(blobs, location.prefix))


def _in_directory(url: str) -> Objects:
    parts = urlsplit(url)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidArgument(f"objects: {url!r} is neither s3://, gs:// or az:// nor file:///path")
    where = Path(unquote(parts.path))
    files = OsFiles(where)
    try:
        files.make_dir(FOLDER)
    except OSError as error:
        raise Unavailable(f"cannot keep objects in {where}: {error.strerror or error}") from error
    return Objects(str(where / FOLDER), FileStore(files), FileBlobs(files))


class _Below(Blobs):
    """The blobs below a prefix."""

    def __init__(self, blobs: Blobs, prefix: str) -> None:
        self._blobs = blobs
        self._prefix = f"{prefix}/" if prefix else ""

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        self._blobs.create(self._prefix + key, data)

    def read(self, key: str, offset: int, length: int) -> memoryview:
        return self._blobs.read(self._prefix + key, offset, length)

    def size(self, key: str) -> int:
        return self._blobs.size(self._prefix + key)

    def delete(self, key: str) -> None:
        self._blobs.delete(self._prefix + key)

    def list(self, prefix: str) -> list[str]:
        return [key.removeprefix(self._prefix) for key in self._blobs.list(self._prefix + prefix)]

    def close(self) -> None:
        self._blobs.close()


class EtcdRivalry(Rivalry):
    """`address` is where brokers find this process."""

    def __init__(self, client: EtcdClient, prefix: str, objects: Objects, address: str, lease_s: float) -> None:
        self._client = client
        self._prefix = prefix
        self._objects = objects
        self._candidacy = Candidacy(client, prefix, address, lease_s)
        self.source: Source = EtcdSource(client, prefix, objects)
        self._watch: LeaderWatch | None = None
        with contextlib.suppress(Unavailable):  # then nobody is told who leads: they find out by trying
            self._watch = LeaderWatch(client, prefix, lambda _: None)

    @classmethod
    def from_settings(
        cls,
        endpoints: Sequence[str],
        *,
        prefix: str,
        objects: str,
        address: str,
        lease_s: float = limits.ETCD_LEASE_S,
        ca: str = "",
        certificate: str = "",
        key: str = "",
        user: str = "",
        password: str = "",
    ) -> EtcdRivalry:
        """Connect to etcd and to the store. Unavailable, or InvalidArgument, if one of them cannot be worked with."""
        secure = bool(ca or certificate) or any(endpoint.startswith("https://") for endpoint in endpoints)
        tls = Tls(ca or None, certificate or None, key or None) if secure else None
        client = EtcdClient(endpoints, tls=tls, user=user, password=password)
        try:
            return cls(client, prefix, open_objects(objects, cluster_id(client, prefix)), address, lease_s)
        except BaseException:
            client.close()
            raise

    def win(self, stop: threading.Event) -> Term | None:
        try:
            return self._candidacy.win(stop=stop)
        except Timeout:
            return None

    def home(self, term: Term) -> Home:
        objects = self._objects
        home = EtcdHome(self._client, cast(EtcdTerm, term), objects.blobs, _lent(objects.store), self._prefix)
        home.folder = objects.where
        return home

    def leader(self) -> str:
        return (self._watch.current or "") if self._watch is not None else ""

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._client.close()
        self._objects.store.close()
        self._objects.blobs.close()


class EtcdSource:
    """The command log in etcd, to be followed."""

    def __init__(self, client: EtcdClient, prefix: str, objects: Objects) -> None:
        self._client = client
        self._prefix = prefix
        self._blobs = objects.blobs
        self.store = _lent(objects.store)
        self.folder: str | None = objects.where
        self._begun: EtcdFollower | None = None

    def latest(self) -> tuple[int, memoryview] | None:
        self._begun = EtcdFollower(self._client, self._prefix, self._blobs)
        try:
            return self._begun.latest()
        except BaseException:
            self._begun.close()
            raise

    def follow(self, after: int) -> Following:
        begun, self._begun = self._begun, None
        assert begun is not None
        assert begun.last_sequence == after  # it goes on behind its own snapshot
        return _Followed(begun)

    def unwritten(self) -> bool:
        """Whoever leads may be anywhere."""
        return False


class _Lent:
    """A store that whoever is done with it leaves open: others have it, too."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def close(self) -> None:
        """It is closed with the rivalry."""


def _lent(store: Store) -> Store:
    return cast(Store, _Lent(store))


class _Followed:
    def __init__(self, follower: EtcdFollower) -> None:
        self._follower = follower
        self.poll = follower.poll
        self.silent_s = follower.silent_s
        self.close = follower.close

    @property
    def failing(self) -> str:
        return self._follower.failing

    def wait(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            if self._follower.wait(limits.LEADER_LOOK_S):
                break
        return stop.is_set()


def cluster_id(client: EtcdClient, prefix: str) -> str:
    """What tells this cluster from others: drawn once, by whoever comes first."""
    key = f"{prefix}/id".encode()
    for _ in range(limits.ETCD_ID_ATTEMPTS):
        try:
            [found] = client.read(key).kvs
        except Unavailable as error:
            raise Unavailable(f"{error}; start it, or mend --etcd") from error
        if found is not None:
            return found.value.decode("ascii", "replace")
        new = secrets.token_hex(16).encode()
        with contextlib.suppress(Ambiguous):
            client.txn(Txn((Compare(key, 0, created=True),), (Put(key, new),)))
    raise Unavailable(f"etcd does not settle the id of the cluster below {prefix!r}: is it well?")
