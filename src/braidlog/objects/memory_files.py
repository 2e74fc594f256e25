"""A disk in memory, with the semantics and the exceptions of `OsFiles`.

It is safe to use from several threads. Nothing survives the process, so `sync` and `sync_dir` only check that
there is something to sync. One instance is one disk image: `contents` and `folders` are all there is to it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Mapping

from braidlog.errors import InvalidArgument
from braidlog.objects.files import File, Files


class MemoryFiles(Files):
    """A folder tree in memory, at first holding `contents` (by path) and `folders`."""

    def __init__(self, contents: Mapping[str, bytes | bytearray] | None = None, folders: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, bytearray] = {}
        self._folders = {""}
        for folder in folders:
            self._add_folder(folder)
        for path, data in (contents or {}).items():
            self._add_folder(folder_of(path))
            self._nodes[path] = bytearray(data)

    def contents(self) -> dict[str, bytes]:
        """Every file's bytes by path."""
        with self._lock:
            return {path: bytes(node) for path, node in sorted(self._nodes.items())}

    def folders(self) -> tuple[str, ...]:
        """Every folder below the root, parents before children."""
        with self._lock:
            return tuple(sorted(self._folders - {""}))

    def make_dir(self, path: str) -> None:
        _check(path)
        with self._lock:
            self._add_folder(path)

    def create(self, path: str) -> File:
        _check(path)
        with self._lock:
            self._require_folder(folder_of(path))
            if path in self._nodes or path in self._folders:
                raise _error(errno.EEXIST, path)
            node = self._nodes[path] = bytearray()
        return _MemoryFile(node, self._lock, writable=True)

    def open(self, path: str) -> File:
        return _MemoryFile(self._node(path), self._lock, writable=True)

    def open_read(self, path: str) -> File:
        return _MemoryFile(self._node(path), self._lock, writable=False)

    def exists(self, path: str) -> bool:
        _check(path)
        with self._lock:
            return path in self._nodes or path in self._folders

    def list(self, path: str) -> list[str]:
        _check(path)
        with self._lock:
            return sorted(
                other.rpartition("/")[2]
                for other in (*self._nodes, *self._folders)
                if other and folder_of(other) == path
            )

    def rename(self, old: str, new: str) -> None:
        _check(old)
        _check(new)
        with self._lock:
            self._require_file(old)
            self._require_folder(folder_of(new))
            if new in self._folders:
                raise _error(errno.EISDIR, new)
            self._nodes[new] = self._nodes.pop(old)

    def remove(self, path: str) -> None:
        _check(path)
        with self._lock:
            self._require_file(path)
            del self._nodes[path]

    def sync_dir(self, path: str) -> None:
        _check(path)
        with self._lock:
            self._require_folder(path)

    def _node(self, path: str) -> bytearray:
        _check(path)
        with self._lock:
            self._require_file(path)
            return self._nodes[path]

    def _add_folder(self, path: str) -> None:
        while path not in self._folders:
            self._folders.add(path)
            path = folder_of(path)

    def _require_file(self, path: str) -> None:
        if path in self._folders:
            raise _error(errno.EISDIR, path)
        if path not in self._nodes:
            raise _error(errno.ENOENT, path)

    def _require_folder(self, path: str) -> None:
        if path not in self._folders:
            raise _error(errno.ENOENT, path)


class _MemoryFile(File):
    """An open file. It holds the bytes, not the name: so it stays readable after a rename or a removal."""

    __slots__ = ("_lock", "_node", "_writable")

    def __init__(self, node: bytearray, lock: threading.Lock, *, writable: bool) -> None:
        self._node: bytearray | None = node
        self._lock = lock
        self._writable = writable

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        with self._lock:
            node = self._opened(writing=True)
            if offset > len(node):
                node.extend(bytes(offset - len(node)))
            node[offset : offset + len(data)] = data

    def reserve(self, offset: int, length: int) -> None:
        pass

    def start_sync(self, offset: int, length: int) -> None:
        pass

    def read(self, offset: int, length: int) -> bytes:
        with self._lock:
            return bytes(memoryview(self._opened())[offset : offset + length])

    def read_into(self, offset: int, target: memoryview) -> int:
        data = self.read(offset, len(target))
        target[: len(data)] = data
        return len(data)

    def size(self) -> int:
        with self._lock:
            return len(self._opened())

    def truncate(self, size: int) -> None:
        with self._lock:
            node = self._opened(writing=True)
            if size > len(node):
                node.extend(bytes(size - len(node)))
            del node[size:]

    def sync(self) -> None:
        with self._lock:
            self._opened()

    def close(self) -> None:
        self._node = None

    def _opened(self, *, writing: bool = False) -> bytearray:
        if self._node is None or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._node


def folder_of(path: str) -> str:
    """The folder that holds the path; "" is the root."""
    return path.rpartition("/")[0]


def _check(path: str) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidArgument(f"path {path!r} leaves the store: use a relative path without '..'")


def _error(code: int, path: str) -> OSError:
    """OSError itself picks the subclass for the code: FileNotFoundError, FileExistsError and so on."""
    return OSError(code, os.strerror(code), path)
