"""The one seam between braidlog and a disk.

Everything durable goes through `Files`: nothing else opens, writes, syncs, renames or removes. So a test can record
each step and rebuild every state that a power cut may leave behind, or make any step fail.

Paths are relative to the root of the store and use "/". What is promised, and no more:
- bytes written are durable once `sync` of that file returned; before that any part of them may be missing;
- a created, renamed or removed name is durable once `sync_dir` of its folder returned;
- a failed `sync` says nothing about what is on the disk, and a later success does not either.
Failures surface as OSError.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from pathlib import Path
from typing import Final, Protocol

from braidlog.errors import InvalidArgument

_LARGE_BYTES: Final = 1024 * 1024  # from here on memory is asked for in large pieces
_HUGE_PAGE_BYTES: Final = 2 * 1024 * 1024
_PRIVATE_MEMORY: Final = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class File(Protocol):
    """An open file. Offsets are explicit: there is no cursor."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `offset`, extending the file if needed."""

    def reserve(self, offset: int, length: int) -> None:
        """A hint that all of these bytes will be written, and none are yet from `offset` on: the disk may find room for
        them at once. The file may grow by it, so it is to be truncated to what was written. It promises nothing."""

    def start_sync(self, offset: int, length: int) -> None:
        """A hint that these bytes will be synced: the disk may begin while more is written. It promises nothing."""

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; shorter only at the end of the file."""

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` on; returns how many bytes there were, fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once the file's bytes and size are durable."""

    def close(self) -> None: ...


class Files(Protocol):
    """A folder tree that files live in."""

    def make_dir(self, path: str) -> None:
        """Create the folder if it is not there. It is durable on return, though another made it just now."""

    def create(self, path: str) -> File:
        """A new, empty file; FileExistsError if there is one."""

    def open(self, path: str) -> File:
        """An existing file for reading and writing; FileNotFoundError if there is none."""

    def open_read(self, path: str) -> File:
        """An existing file for reading only. It stays readable after it was removed."""

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""

    def rename(self, old: str, new: str) -> None:
        """Atomically give the file another name, replacing what had it."""

    def remove(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Return once the names in the folder are durable."""


class Folder:
    """A folder that is made when it is first needed, and durable before anybody gets to put anything in it. Safe to use
    from several threads."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._made = False

    def make(self) -> None:
        with self._lock:
            if not self._made:
                self._files.make_dir(self._path)
                self._made = True


def read_whole(file: File) -> memoryview:
    """All of a file that is kept for a while, in memory that the system hands out in large pieces where it can.

    Touching new memory page by page took longer than reading and checking what goes into it: measured.
    """
    size = file.size()
    if size < _LARGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(file.read(0, size))
    memory = mmap.mmap(-1, -(-size // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES, flags=_PRIVATE_MEMORY)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    target = memoryview(memory)[:size]
    return target[: file.read_into(0, target)]


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written < len(data):
            rest = memoryview(data)
            while written < len(rest):
                step = os.pwrite(self._fd, rest[written:], offset + written)
                if step == 0:
                    raise OSError("short write: the disk took no bytes")
                written += step

    def reserve(self, offset: int, length: int) -> None:
        _reserve(self._fd, offset, length)

    def start_sync(self, offset: int, length: int) -> None:
        _start_sync(self._fd, offset, length)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (more := os.pread(self._fd, length - got, offset + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def read_into(self, offset: int, target: memoryview) -> int:
        got = 0
        while got < len(target) and (step := os.preadv(self._fd, [target[got:]], offset + got)):
            got += step
        return got

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        _sync_data(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _reserve(fd: int, offset: int, length: int) -> None:
    """Room found for many pages at once took a fifth off the system time of a large write: measured on ext4."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, offset, length)
        except OSError:  # a full disk says so again when it is written to; what it had found is for whoever needs less
            with contextlib.suppress(OSError):
                os.ftruncate(fd, offset)


def _start_sync(fd: int, offset: int, length: int) -> None:
    """Linux begins to write dirty pages that it is told nobody needs, and keeps them in its cache: measured."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)


_sync_data = getattr(os, "fdatasync", os.fsync)  # fdatasync flushes the size too, which is all we rely on


class OsFiles:
    """A real folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"OsFiles({str(self.root)!r})"

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidArgument(f"path {path!r} leaves the store: use a relative path without '..'")
        return f"{self.root}/{path}" if path else str(self.root)  # joined by pathlib it took ten times as long

    def make_dir(self, path: str) -> None:
        full = Path(self._path(path))
        missing = []
        while not full.is_dir():
            missing.append(full)
            full = full.parent
        if path and not missing:
            _sync_folder(str(full.parent))
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            _sync_folder(str(folder.parent))

    def create(self, path: str) -> File:
        return OsFile(os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def open(self, path: str) -> File:
        return OsFile(os.open(self._path(path), os.O_RDWR | os.O_CLOEXEC))

    def open_read(self, path: str) -> File:
        return OsFile(os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def remove(self, path: str) -> None:
        os.unlink(self._path(path))

    def sync_dir(self, path: str) -> None:
        _sync_folder(self._path(path))


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
