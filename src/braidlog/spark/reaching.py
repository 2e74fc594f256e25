"""How a process of Spark reaches a braid to write: the driver's planners and the executors' workers alike.

A service is reached by a client that stays open for the next task of the same worker. A directory that some process
holds and shares is worked through that one, likewise. A directory that nobody holds is opened for a moment, for one
thing, and let go: while it lasts others find it locked by somebody who will share it, and so they wait their turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from braidlog import limits
from braidlog.client.braid import Braid
from braidlog.client.opening import open_files
from braidlog.client.remote.opening import SCHEMES, connect, socket_of
from braidlog.errors import (
    BraidError,
    InvalidArgument,
    Locked,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Timeout,
    Unavailable,
)
from braidlog.metadata import directory
from braidlog.metadata.directory import WriterLock
from braidlog.objects.files import OsFiles
from braidlog.spark.options import Place
from braidlog.spark.sessions import reach as open_place

T = TypeVar("T")

_FOR_GOOD: Final = (  # that is, until a person does something about it
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL),
)
INTERRUPTED: Final = (Unavailable, OutcomeUnknown, Timeout, Locked)  # later it may go well


class Reached(NamedTuple):
    """An open braid. While it is `brief` nobody else can write there, so nothing may be waited for."""

    braid: Braid
    brief: bool


@dataclass(frozen=True)
class Reach:
    """The way to a place, which is settled. Pickles; what it opens stays in the process."""

    place: Place

    @contextlib.contextmanager
    def braid(self, patience_s: float = limits.SPARK_REACH_S, *, create: bool = False) -> Iterator[Reached]:
        """The braid, open. `create` makes a directory that is not there. Unavailable or Locked after `patience_s`."""
        key = (os.getpid(), self)  # a forked worker has none of its parent's connections
        reached = self._open(time.monotonic() + patience_s, create)
        try:
            yield reached
        except (*INTERRUPTED, NotPermitted):  # the next one is opened anew, and shows what is to be shown by then
            stale = _clients.pop(key, None)
            if stale is not None:
                stale.close()
            raise
        finally:
            if reached.brief:
                reached.braid.close()

    def insist(self, do: Callable[[Braid], T], patience_s: float = limits.SPARK_REACH_S, *, create: bool = False) -> T:
        """Do what may be done twice, again and again until it is done or the time is over."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                with self.braid(deadline - time.monotonic(), create=create) as (braid, _):
                    return do(braid)
            except INTERRUPTED:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(limits.SPARK_PAUSE_S)

    def _open(self, deadline: float, create: bool) -> Reached:
        if self.place.url.startswith(SCHEMES):
            return Reached(self._service(deadline), False)
        if not (self.place.token_file is self.place.tls_ca is None):
            raise InvalidArgument("tokenFile and tlsCa are for services: a directory asks nobody who they are")
        return self._directory(Path(self.place.url), deadline, create)

    def _service(self, deadline: float) -> Braid:
        key = (os.getpid(), self)
        client = _clients.get(key)
        while client is None:
            try:
                client = open_place(self.place)
            except Unavailable as error:
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"the service at {self.place.url} does not answer on {socket.gethostname()}: the driver and "
                        f"all executors of Spark must reach it ({error})"
                    ) from None
                time.sleep(limits.SPARK_PAUSE_S)
        _clients[key] = client
        return client

    def _directory(self, where: Path, deadline: float, create: bool) -> Reached:
        key = (os.getpid(), self)
        joined = _clients.get(key)
        if joined is not None:
            if _answers(where):
                return Reached(joined, False)
            del _clients[key]
            joined.close()
        if not create:
            with _storage(where):
                _check_there(where)
        while True:
            try:
                with _storage(where):
                    return Reached(_open_briefly(where), True)
            except Locked as error:
                refusal = error
            if _answers(where):  # else it is held for a moment, just beginning or ending, or not shared
                with contextlib.suppress(Unavailable):
                    joined = connect(
                        [socket_of(where)],
                        where.as_uri(),
                        timeout=self.place.timeout_s or limits.SPARK_JOINED_TIMEOUT_S,
                        connect_timeout=limits.KNOCK_S,
                    )
                    _clients[key] = joined
                    return Reached(joined, False)
            if time.monotonic() >= deadline:
                raise Locked(f"{refusal}; Spark can write through a process that shares the directory", pid=refusal.pid)
            time.sleep(limits.SPARK_PAUSE_S)


_clients: dict[tuple[int, Reach], Braid] = {}  # of this process; never one that holds a directory itself


@contextlib.contextmanager
def _storage(where: Path) -> Iterator[None]:
    """Let what the operating system says of a directory surface as ours: wrong to ask for, or perhaps better later."""
    try:
        yield
    except BraidError:  # some of which are errors of the operating system, too
        raise
    except OSError as error:
        host, reason = socket.gethostname(), error.strerror or error
        told = f"the directory {where} cannot be opened on {host} to write there: {reason}"
        if error.errno in _FOR_GOOD:
            raise InvalidArgument(f"{told}; name one that can be, and that you may write to") from None
        raise Unavailable(f"{told}; mend the storage, then try again") from None


def _check_there(where: Path) -> None:
    if not where.is_dir() or directory.read_format(OsFiles(where)) is None:
        raise NotFound(
            f"there is no braidlog directory {where} on {socket.gethostname()}: all machines of Spark must see the "
            "same directory, or use a service, braid://host:port; option('createLog', true) makes a new one"
        )


def _open_briefly(where: Path) -> Braid:
    """Open a directory for writing and let nobody in, but say that others may wait."""
    files = OsFiles(where)
    files.make_dir("")
    lock = WriterLock.acquire(where, shared=True)
    try:
        return open_files(files, where.as_uri(), folder=str(where / "objects"), lock=lock)
    except BaseException:
        lock.release()
        raise


def _answers(where: Path) -> bool:
    """Whether somebody listens there still: a client of one who left would wait for him in vain."""
    try:
        socket_of(where).connect(limits.KNOCK_S).close()
    except (OSError, BraidError):
        return False
    return True
