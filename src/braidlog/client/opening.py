"""From a URL or a path to an open braid."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from braidlog.client.braid import Braid
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.embedded.follower import Follower
from braidlog.embedded.upkeep import Keeper
from braidlog.embedded.writer import Writer
from braidlog.errors import InvalidArgument, NotFound, Unavailable
from braidlog.metadata import directory
from braidlog.metadata.directory import WriterLock
from braidlog.objects.files import Files, OsFiles
from braidlog.objects.memory_files import MemoryFiles

_log = logging.getLogger("braidlog")


def open(url_or_path: str | os.PathLike[str], *, read_only: bool = False) -> Braid:
    """Open the logs at a path, a `file://` URL or `memory://`.

    A directory that is not there is created. One process at a time opens it for writing (others get Locked); any number
    may open it with `read_only=True`, and they see what the writer has made durable.
    """
    where = directory_of(url_or_path)
    if where is None:
        if read_only:
            raise InvalidArgument("memory:// begins empty and belongs to its opener: read_only makes no sense there")
        return serve(MemoryFiles(), "memory://", folder=None)
    try:
        return _follow(where) if read_only else write_directory(where)
    except OSError as error:
        raise Unavailable(f"cannot open {where}: {error}; check the path and its permissions") from error


def serve(
    files: Files, url: str, *, folder: str | None, clock: Clock | None = None, lock: WriterLock | None = None
) -> Braid:
    """Open for writing on whatever holds the files, with the work behind the scenes running."""
    clock = clock or SystemClock()
    writer = Writer(files, clock, folder=folder, release=lock.release if lock else _nothing)
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
    except BaseException:
        writer.close()
        raise
    return Braid(writer, url, read_only=False, clock=clock, stop=keeper.stop)


def _nothing() -> None:
    pass


def write_directory(where: Path, *, clock: Clock | None = None) -> Braid:
    """Open a directory for writing, and create it if it is not there."""
    files = OsFiles(where)
    files.make_dir("")
    try:
        directory.read_format(files)  # before a lock is left in somebody else's folder
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
    lock = WriterLock.acquire(where)
    try:
        return serve(files, where.as_uri(), folder=str(where / "objects"), clock=clock, lock=lock)
    except BaseException:
        lock.release()
        raise


def _follow(where: Path) -> Braid:
    if not where.is_dir():
        raise NotFound(f"there is no directory {where}: open it for writing once to create it")
    files = OsFiles(where)
    if directory.read_format(files) is None:
        raise NotFound(f"{where} is empty: open it for writing once to make it a braidlog directory")
    return Braid(Follower(files, folder=str(where / "objects")), where.as_uri(), read_only=True)


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
        occupied = path.exists() and not path.is_dir()
    except (OSError, RuntimeError, UnicodeEncodeError) as error:  # a name too long, or the home of nobody known
        raise InvalidArgument(f"{text[:200]!r} is not a path: {error}") from error
    if occupied:
        raise InvalidArgument(f"{path} is not a directory: braidlog keeps its logs in a directory of its own")
    return path


def _from_url(url: str) -> Path | None:
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
    raise InvalidArgument(f"{url!r}: the schemes are file:// and memory://, or give a path")
