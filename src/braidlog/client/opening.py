"""From a URL or a path to an open braid."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from braidlog import limits
from braidlog.client import arguments
from braidlog.client.braid import Braid
from braidlog.client.remote.credentials import credentials
from braidlog.client.remote.opening import SCHEMES, connect, connect_groups, groups_of, secure, socket_of
from braidlog.client.sharing import Share
from braidlog.config import refuse_password
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.embedded.follower import DirectorySource, Follower
from braidlog.embedded.upkeep import Keeper
from braidlog.embedded.writer import Writer
from braidlog.errors import InvalidArgument, Locked, NotFound, Unavailable
from braidlog.metadata import directory, object_place
from braidlog.metadata.directory import WriterLock
from braidlog.metadata.home import DirectoryHome
from braidlog.objects.files import Files, OsFiles
from braidlog.objects.memory_files import MemoryFiles

_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")

_log = logging.getLogger("braidlog")


def open(
    url_or_path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    serve: bool = True,
    timeout: float | timedelta | None = None,
    linger: float | timedelta = 0.0,
    objects: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Braid:
    """Open the logs at a path, a `file://` URL, `memory://`, or those of a service at `braid://host:port`, or with TLS
    at `braids://host:port`.

    A directory that is not there is created. One process at a time writes it; it shares it with others that open the
    same directory, which work through it, unless `serve=False` keeps them out (they get Locked). Any number may open
    it with `read_only=True`, and they see what the writer has made durable.

    `objects` is the URL of an object store (`s3://bucket/prefix`, `gs://`, `az://`) that a new directory is to keep its
    objects in; it remembers it, so that later it need not be given.

    For a service, and a directory that another process holds: `timeout` is how many seconds a call may take with all
    that is tried again, `linger` how long a submitted record waits for others to travel with.

    For a service: `token`, or what stands in `token_file`, says who this client is; `tls_ca` is a file with the
    certificates of the authorities that sign for the service, if those that this machine trusts do not. What is not
    given comes from BRAIDLOG_TOKEN, BRAIDLOG_TOKEN_FILE and BRAIDLOG_TLS_CA, or the file of settings.
    """
    patience = arguments.seconds("timeout", timeout)
    pause = arguments.seconds("linger", linger) or 0.0
    if isinstance(url_or_path, str) and url_or_path.startswith(SCHEMES):
        refuse_password(url_or_path)  # before anything else is wrong with it, and may tell it
        if read_only:
            raise InvalidArgument("read_only is for directories: a service says itself who may do what")
        if objects is not None:
            raise InvalidArgument("objects is for directories: a service has chosen where its objects are")
        shown = credentials(secure=secure(url_or_path), token=token, token_file=token_file, tls_ca=tls_ca)
        groups = groups_of(url_or_path, shown.context)
        if len(groups) > 1:
            return connect_groups(groups, url_or_path, timeout=patience, linger=pause, shown=shown)
        return connect(groups[0], url_or_path, timeout=patience, linger=pause, shown=shown)
    if not (tls_ca is token is token_file is None):
        raise InvalidArgument("tls_ca, token and token_file are for services: a directory asks nobody who they are")
    where = directory_of(url_or_path)
    if where is None:
        if read_only:
            raise InvalidArgument("memory:// begins empty and belongs to its opener: read_only makes no sense there")
        if objects is not None:
            raise InvalidArgument("memory:// keeps everything in memory: objects is for directories")
        return open_files(MemoryFiles(), "memory://", folder=None)
    try:
        if read_only:
            return _follow(where, objects)
        return _write_or_join(where, serve, patience, pause, objects)
    except OSError as error:
        raise Unavailable(f"cannot open {where}: {error}; check the path and its permissions") from error


def _write_or_join(where: Path, share: bool, timeout: float | None, linger: float, objects: str | None) -> Braid:
    """Become the directory's writer, or, when it has one that shares it, work through that one."""
    deadline = time.monotonic() + limits.CONNECT_TIMEOUT_S
    while True:
        try:
            return write_directory(where, share=share, objects=objects)
        except Locked as locked:
            if not locked.shared:
                raise
            refusal = locked
        with contextlib.suppress(Unavailable):  # it is just beginning, or just ending: then the lock may be free
            return connect(
                [socket_of(where)], where.as_uri(), timeout=timeout, linger=linger, connect_timeout=limits.KNOCK_S
            )
        if time.monotonic() >= deadline:
            raise refusal


def open_files(
    files: Files,
    url: str,
    *,
    folder: str | None,
    clock: Clock | None = None,
    lock: WriterLock | None = None,
    share: Path | None = None,
    objects: str | None = None,
) -> Braid:
    """Open for writing on whatever holds the files, with the work behind the scenes running.

    `share` is the directory whose other users are let in."""
    clock = clock or SystemClock()
    new_id = uuid.uuid4().hex
    elsewhere = object_place.open_for_writing(files, objects, new_id)
    if elsewhere is None:
        home = DirectoryHome(files, new_id, folder=folder)
    else:
        directory_id, place, store = elsewhere
        home = DirectoryHome(files, directory_id, folder=place, store=store)
    writer = Writer(home, clock, release=lock.release if lock else _nothing)
    if writer.cut is not None:
        _log.warning(
            "%s: the last commit before an unclean stop was not whole and was cut (%s, %d bytes at %d); it was never "
            "acknowledged",
            url,
            writer.cut.path,
            writer.cut.bytes,
            writer.cut.offset,
        )
    try:
        keeper = Keeper(writer)
        door = None if share is None else _shared(share, writer)
    except BaseException:
        writer.close()
        raise

    def stop() -> None:
        if door is not None:
            door.close()
        keeper.stop()

    return Braid(writer, url, read_only=False, clock=clock, stop=stop)


def _shared(where: Path, writer: Writer) -> Share | None:
    """Let others in; where no socket can be made they stay out, and the writer writes all the same."""
    try:
        return Share(where, writer)
    except Unavailable as error:
        _log.warning("%s: other processes cannot be let in, and will find it locked: %s", where, error)
        return None


def _nothing() -> None:
    pass


def write_directory(
    where: Path, *, clock: Clock | None = None, share: bool = False, objects: str | None = None
) -> Braid:
    """Open a directory for writing, and create it if it is not there."""
    files = OsFiles(where)
    files.make_dir("")
    try:
        object_place.agreed(files, objects)  # before a lock is left in somebody else's folder
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
    lock = WriterLock.acquire(where, shared=share)
    try:
        return open_files(
            files,
            where.as_uri(),
            folder=str(where / "objects"),
            clock=clock,
            lock=lock,
            share=where if share else None,
            objects=objects,
        )
    except BaseException:
        lock.release()
        raise


def _follow(where: Path, objects: str | None) -> Braid:
    if not where.is_dir():
        raise NotFound(f"there is no directory {where}: open it for writing once to create it")
    files = OsFiles(where)
    if directory.read_format(files) is None:
        raise NotFound(f"{where} is empty: open it for writing once to make it a braidlog directory")
    object_place.agreed(files, objects)
    return Braid(Follower(DirectorySource(files, str(where / "objects"))), where.as_uri(), read_only=True)


def directory_of(url_or_path: str | os.PathLike[str]) -> Path | None:
    """The directory, or None for memory."""
    if isinstance(url_or_path, str) and "://" in url_or_path:
        return _from_url(url_or_path)
    text = os.fspath(url_or_path) if isinstance(url_or_path, os.PathLike) else url_or_path
    if not isinstance(text, str):
        raise InvalidArgument(f"open takes a path or a URL, not {type(url_or_path).__name__}")
    if not text or "\0" in text:
        raise InvalidArgument(f"{text!r} is not a path: give a directory, file:///... or memory://")
    try:
        os.fsencode(text)
        path = Path(text).expanduser().absolute()
        there = path.exists()
        occupied = there and not path.is_dir()
    except (OSError, RuntimeError, UnicodeEncodeError) as error:  # a name too long, or the home of nobody known
        raise InvalidArgument(f"{text[:200]!r} is not a path: {error}") from error
    if occupied:
        raise InvalidArgument(f"{path} is not a directory: braidlog keeps its logs in a directory of its own")
    if not there and isinstance(url_or_path, str) and _HOST_AND_PORT.fullmatch(text):
        raise InvalidArgument(
            f"there are no logs at {text!r}: for a service write braid://{text}, for a new directory ./{text}"
        )
    return path


def _from_url(url: str) -> Path | None:
    refuse_password(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"{url!r} is not a URL: {error}") from error
    if parts.query or parts.fragment:
        raise InvalidArgument(f"{url!r}: a braidlog URL has no query and no fragment")
    if parts.scheme == "memory":
        if parts.netloc or parts.path:
            raise InvalidArgument(f"{url!r}: memory:// takes no name, each opening is a new, empty one")
        return None
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidArgument(f"{url!r}: write file:///absolute/path, with three slashes")
        return directory_of(unquote(parts.path))
    raise InvalidArgument(f"{url!r}: the schemes are file://, memory://, braid:// and braids://, or give a path")
