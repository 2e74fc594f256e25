"""What makes a folder a braidlog directory: its FORMAT file, its one writer, and how a whole file gets into it.

FORMAT is written before anything else but OBJECTS (see `object_place`): the line `braidlog 3`, then the directory's id.
What older formats wrote can be read as it is; opening it for writing brings it to this format first, so that no older
program takes it for its own.
At most one process writes at a time: it holds an flock on LOCK, which the kernel releases when the process ends,
however it ends. LOCK itself is never removed, for removing it would let two processes lock two different files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from braidlog.errors import Corrupt, InvalidArgument, Locked, Unavailable
from braidlog.objects.files import File, Files

FORMAT: Final = "FORMAT"
LOCK: Final = "LOCK"
OBJECTS: Final = "OBJECTS"
UNFINISHED: Final = ".tmp"  # ends the names of files that were not whole yet when their writer stopped
VERSION: Final = 3
_OLDEST: Final = 1  # that can still be read

_FORMAT_TEXT: Final = re.compile(rb"braidlog (\d{1,9})\n([0-9a-f]{32})\n")
_FORMAT_BYTES_MAX: Final = 256
_PID_BYTES_MAX: Final = 32


@contextlib.contextmanager
def storage(doing: str) -> Iterator[None]:
    """Let a failure of the disk surface as Unavailable."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"cannot {doing}: {error}; mend the storage, then open the directory again") from error


def put_file(files: Files, path: str, data: bytes) -> None:
    """Make a file with these bytes, or replace it. After a power cut it is whole, or as it was before."""
    finish_file(files, path, begin_file(files, path, data))


def begin_file(files: Files, path: str, data: bytes) -> File:
    """The first half of `put_file`, where a full disk is met: the bytes are there, under another name."""
    unfinished = path + UNFINISHED
    with contextlib.suppress(FileNotFoundError):
        files.remove(unfinished)
    file = files.create(unfinished)
    try:
        file.write(0, data)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):  # on a full disk it would take what little room there is
            files.remove(unfinished)
        raise
    return file


def finish_file(files: Files, path: str, file: File) -> None:
    """The other half: they become durable, and then the file gets its name. If this fails, it may have it or not."""
    try:
        file.sync()
    finally:
        file.close()
    files.rename(path + UNFINISHED, path)
    files.sync_dir(path.rpartition("/")[0])


def sweep_unfinished(files: Files, folder: str) -> None:
    """Remove what interrupted `put_file`s left in a folder. Only its writer may do so."""
    for name in files.list(folder):
        if name.endswith(UNFINISHED):
            files.remove(f"{folder}/{name}" if folder else name)


def write_format(files: Files, directory_id: str) -> None:
    """Make this folder a braidlog directory; `directory_id` is a uuid in hex."""
    text = f"braidlog {VERSION}\n{directory_id}\n".encode()
    if not _FORMAT_TEXT.fullmatch(text):
        raise InvalidArgument(f"directory_id {directory_id!r}: 32 lower-case hex digits are allowed")
    with storage("create the directory"):
        put_file(files, FORMAT, text)


def bring_format(files: Files, new_id: str) -> None:
    """Make this folder a directory of the present format, whether it is free, of an older format, or one already."""
    known = _read_format(files)
    if known is None or known[0] != VERSION:
        write_format(files, new_id if known is None else known[1])


def read_format(files: Files) -> str | None:
    """The id of the braidlog directory here; None if the folder is empty or missing, and so free to become one."""
    known = _read_format(files)
    return None if known is None else known[1]


def _read_format(files: Files) -> tuple[int, str] | None:
    with storage(f"read {FORMAT}"):
        try:
            file = files.open_read(FORMAT)
        except FileNotFoundError:
            # A creation that was cut short leaves these, and nothing else comes before FORMAT.
            early = (LOCK, FORMAT + UNFINISHED, OBJECTS, OBJECTS + UNFINISHED)
            strangers = [name for name in files.list("") if name not in early]
            if strangers:
                raise InvalidArgument(
                    f"not a braidlog directory: there is no {FORMAT} file, but there is {strangers[0]!r}; "
                    "name an empty folder, a new one, or a braidlog directory"
                ) from None
            return None
        try:
            text = file.read(0, _FORMAT_BYTES_MAX)
        finally:
            file.close()
    match = _FORMAT_TEXT.fullmatch(text)
    version = re.match(rb"braidlog (\d{1,9})\n", text)
    if version and not _OLDEST <= int(version[1]) <= VERSION:
        raise InvalidArgument(
            f"the directory has format {int(version[1])} and this braidlog reads formats {_OLDEST} to {VERSION}: "
            "upgrade braidlog"
        )
    if not match:
        raise Corrupt(f"{FORMAT}: {text[:64]!r} is not what braidlog writes there; restore the file from a copy")
    return int(match[1]), match[2].decode()


class WriterLock:
    """The right to write a directory, held from `acquire` to `release` or to the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _held.add(self)

    @classmethod
    def acquire(cls, root: Path, *, shared: bool = False) -> WriterLock:
        """Take the lock of an existing folder at once, or raise Locked. `shared`: its holder will let others in."""
        path = root / LOCK
        with storage(f"lock {path}"):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d%s\n" % (os.getpid(), b" shared" if shared else b""), 0)
            except BlockingIOError:
                pid, is_shared = _holder(fd)
                os.close(fd)
                raise _locked(root, pid, is_shared) from None
            except BaseException:
                os.close(fd)
                raise
        return cls(fd)

    def release(self) -> None:
        """Let others write. Safe to call again."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        if fd >= 0:
            # No pid rather than a stale one, should the next holder be asked for before it has written its own.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not do if some child still had the file open
            os.close(fd)

    def _disown(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def is_held(root: Path) -> bool:
    """Whether some process has the lock. For whoever only reads: it is taken for a moment, shared with other readers,
    and a writer that comes in just then finds it locked; so only where something is wrong already."""
    with storage(f"look at {root / LOCK}"):
        try:
            fd = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def _holder(fd: int) -> tuple[int | None, bool]:
    """Who holds the lock, if that can be read, and whether he shares the directory."""
    words = os.pread(fd, _PID_BYTES_MAX, 0).split()
    try:
        return int(words[0]), words[1:] == [b"shared"]
    except (ValueError, IndexError):
        return None, False


def _locked(root: Path, pid: int | None, shared: bool) -> Locked:
    if pid == os.getpid():
        who, advice = "this process", "close the one that is open, or share it"
    else:
        who = "another process" if pid is None else f"process {pid}"
        advice = "stop it, or open with read_only=True"
    return Locked(f"{root} is open for writing by {who}: {advice}", pid=pid, shared=shared)


_held: set[WriterLock] = set()


def _disown_all() -> None:
    """A forked child shares its parent's lock: left open it would outlive the parent and keep others out."""
    while _held:
        _held.pop()._disown()


os.register_at_fork(after_in_child=_disown_all)
