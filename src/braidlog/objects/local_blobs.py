"""Blobs that are near: as files of one folder, or in memory.

As files they are durable like the objects of a `FileStore`: whole or not there, whatever happens. A key is the name of
its file, with all but letters, digits and `_.-~` escaped, so that no key leaves the folder and none is a folder.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from braidlog.errors import InvalidArgument
from braidlog.objects.blobs import Blobs, Bytes
from braidlog.objects.files import Files, Folder, read_whole

FOLDER: Final = "blobs"
_UNFINISHED: Final = "+"  # begins the names of files that are not whole yet, and of no key: it is escaped


class FileBlobs(Blobs):
    """Safe for several threads and processes.

    A process that is killed while it creates a key leaves an unfinished file, and the key is then nobody's to create.
    So keys of which several may be tried should have something random in them.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._folder = Folder(files, FOLDER)

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        path, unfinished = _path(key), f"{FOLDER}/{_UNFINISHED}{_name(key)}"
        self._folder.make()
        file = self._files.create(unfinished)  # one of those who try at the same time; FileExistsError for the others
        left_over = unfinished
        try:
            try:
                if self._files.exists(path):  # looked at by none but him
                    raise _taken(key)
                offset = 0
                for part in [data] if isinstance(data, Bytes) else data:
                    file.write(offset, part)
                    offset += len(part)
                file.sync()
            finally:
                file.close()
            self._files.rename(unfinished, path)
            left_over = path
            self._files.sync_dir(FOLDER)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.remove(left_over)
            raise

    def read(self, key: str, offset: int, length: int) -> memoryview:
        file = self._files.open_read(_path(key))
        try:
            if offset == 0 and length >= file.size():
                return read_whole(file)
            return memoryview(file.read(offset, length))
        finally:
            file.close()

    def size(self, key: str) -> int:
        file = self._files.open_read(_path(key))
        try:
            return file.size()
        finally:
            file.close()

    def delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(_path(key))

    def list(self, prefix: str) -> list[str]:
        keys = (unquote(name) for name in self._files.list(FOLDER) if not name.startswith(_UNFINISHED))
        return sorted(key for key in keys if key.startswith(prefix))

    def close(self) -> None:
        """Nothing is held open."""


class MemoryBlobs(Blobs):
    """For tests, and for what need not outlive the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: dict[str, bytes] = {}

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        _name(key)
        whole = bytes(data) if isinstance(data, Bytes) else b"".join(data)
        with self._lock:
            if key in self._blobs:
                raise _taken(key)
            self._blobs[key] = whole

    def read(self, key: str, offset: int, length: int) -> memoryview:
        return memoryview(self._found(key))[offset : offset + length]

    def size(self, key: str) -> int:
        return len(self._found(key))

    def delete(self, key: str) -> None:
        with self._lock:
            self._blobs.pop(key, None)

    def list(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self._blobs if key.startswith(prefix))

    def close(self) -> None:
        """What is here stays as long as this object does."""

    def _found(self, key: str) -> bytes:
        with self._lock:
            try:
                return self._blobs[key]
            except KeyError:
                raise FileNotFoundError(errno.ENOENT, "there is no such blob", key) from None


def _name(key: str) -> str:
    if not key or key.startswith("/") or "\0" in key:
        raise InvalidArgument(f"blob key {key!r}: a relative path is allowed")
    name = quote(key, safe="")
    return "%2E" + name[1:] if name.startswith(".") else name


def _path(key: str) -> str:
    return f"{FOLDER}/{_name(key)}"


def _taken(key: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "there is a blob of that key", key)
