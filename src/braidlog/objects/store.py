"""Where objects are kept: immutable bytes under a name that is used once.

`put` is durable when it returns. What one left behind that did not return, after a kill or a power cut, may be
anything: nobody was told of it, so nobody refers to it, and it is swept. An object is never replaced: what once could
be read under a name is what is read under it until it is deleted. `delete` need not be durable: after a power cut the
object may be back, and is then one that nobody refers to. Failures surface as OSError.
"""

from __future__ import annotations

import contextlib
import errno
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from braidlog.errors import InvalidArgument
from braidlog.objects.files import File, Files, Folder

Bytes: TypeAlias = bytes | bytearray | memoryview

FOLDER: Final = "objects"
_NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{8}\.arrow")
UNFINISHED: Final = ".tmp-"
_HANDLES_KEPT: Final = 64
_SYNC_AHEAD_BYTES: Final = 1024 * 1024  # the disk is given work in pieces of so many bytes
_PAGE_BYTES: Final = 4096
_RESERVED_BYTES: Final = 4 * 1024 * 1024  # of a large object, found room for at once


class Making(Protocol):
    """An object that is put piece by piece, by one thread. Whoever began it finishes or abandons it."""

    def write(self, part: Bytes) -> None:
        """The next of its bytes, which stay what they are until the object is finished or abandoned."""

    def finish(self) -> None:
        """As `put` that returns; if it fails, abandon it."""

    def abandon(self) -> None:
        """Nothing is kept of it."""


class Store(Protocol):
    """A set of objects by name."""

    def begin(self, name: str) -> Making:
        """Put an object piece by piece. FileExistsError if the name is taken, and at its end if it was taken since."""
        try:
            self.size(name)
        except FileNotFoundError:
            return _Gathered(self, name)
        raise FileExistsError(errno.EEXIST, "an object of that name is in the store", name)

    def put(self, name: str, data: Bytes | Iterable[Bytes]) -> None:
        """Keep the object, durably; its bytes may come in parts. FileExistsError if the name is taken.

        A part is done with when the next one is asked for. If they end with an exception, nothing is kept.
        """

    def get(self, name: str, offset: int, length: int) -> memoryview:
        """Bytes of the object, fewer only at its end; FileNotFoundError if it is gone."""

    def size(self, name: str) -> int:
        """Bytes of the whole object; FileNotFoundError if it is gone."""

    def delete(self, name: str) -> None:
        """Forget the object. One that is not there is fine."""

    def list(self, besides: Container[str] = ()) -> list[str]:
        """The names of all objects but those, sorted."""

    def sweep_unfinished(self, over: Callable[[str], bool]) -> None:
        """Remove what puts left behind that never ended, of the names that are `over`: no put of those is to end."""

    def close(self) -> None:
        """Let go of what the store holds open."""


class _Gathered(Making):
    """For stores that take an object as a whole: it is kept here until it is one."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._parts: list[Bytes] = []

    def write(self, part: Bytes) -> None:
        self._parts.append(part)

    def finish(self) -> None:
        self._store.put(self._name, self._parts)

    def abandon(self) -> None:
        self._parts = []


def object_name(epoch: int, seq: int) -> str:
    """The name of the `seq`-th object of an epoch: names sort as they were given."""
    return f"{epoch:08x}-{seq:08x}.arrow"


class FileStore(Store):
    """Objects as files of one folder, safe to use from several threads.

    Handles of objects read lately are kept open. So an object that another process deletes stays readable
    here until its handle is closed, which happens once enough others were read.

    `shared`: other processes may put objects of the same names, and look for them before they are told of any. Then an
    object gets its name when it is whole, one of those that put a name at the same time gets it, and what a killed one
    left unfinished keeps the name taken. Otherwise it has its name from the beginning, which saves a rename.
    """

    def __init__(self, files: Files, *, handles: int = _HANDLES_KEPT, shared: bool = False) -> None:
        self._files = files
        self._shared = shared
        self._handles_max = handles
        self._lock = threading.Lock()
        self._folder = Folder(files, FOLDER)
        self._named = _SharedSync(lambda: files.sync_dir(FOLDER))
        self._handles: OrderedDict[str, _Handle] = OrderedDict()

    def begin(self, name: str) -> Making:
        path = _path(name)
        begun = f"{FOLDER}/{UNFINISHED}{name}" if self._shared else path
        self._folder.make()
        making = _File(self._files, self._named, begun, path)
        try:
            if self._shared and self._files.exists(path):  # looked at by none but him who has the unfinished file
                raise FileExistsError(errno.EEXIST, "an object of that name is in the store", path)
        except BaseException:
            making.abandon()
            raise
        return making

    def put(self, name: str, data: Bytes | Iterable[Bytes]) -> None:
        making = self.begin(name)
        try:
            for part in [data] if isinstance(data, Bytes) else data:
                making.write(part)
                del part  # what it points to may be used again
            making.finish()
        except BaseException:
            making.abandon()
            raise

    def get(self, name: str, offset: int, length: int) -> memoryview:
        # Arrow's allocator reuses memory where malloc would return large pieces and fault them in again: measured 5x.
        target = memoryview(pa.allocate_buffer(length)).cast("B")
        with self._handle(name) as file:
            return target[: file.read_into(offset, target)]

    def size(self, name: str) -> int:
        with self._handle(name) as file:
            return file.size()

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(_path(name))
        # Only after the removal: a handle opened before it is kept by now, and none can be opened any more.
        with self._lock:
            handle = self._handles.pop(name, None)
            if handle is not None:
                handle.retire()

    def list(self, besides: Container[str] = ()) -> list[str]:
        return [name for name in self._files.list(FOLDER) if name not in besides and is_object_name(name)]

    def sweep_unfinished(self, over: Callable[[str], bool]) -> None:
        for found in self._files.list(FOLDER):
            name = found.removeprefix(UNFINISHED)
            if name != found and (not is_object_name(name) or over(name)):
                with contextlib.suppress(FileNotFoundError):  # its put ended just now
                    self._files.remove(f"{FOLDER}/{found}")

    def close(self) -> None:
        with self._lock:
            while self._handles:
                self._handles.popitem()[1].retire()

    @contextlib.contextmanager
    def _handle(self, name: str) -> Iterator[File]:
        path = _path(name)
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                handle = self._handles[name] = _Handle(self._files.open_read(path))
                if len(self._handles) > self._handles_max:
                    self._handles.popitem(last=False)[1].retire()
            else:
                self._handles.move_to_end(name)
            handle.users += 1
        try:
            yield handle.file
        finally:
            with self._lock:
                handle.leave()


class _File(Making):
    """An object as a file. The disk is given work while more is written, so that little is left for the end."""

    def __init__(self, files: Files, named: _SharedSync, begun: str, path: str) -> None:
        self._files = files
        self._named = named
        self._file: File | None = files.create(begun)
        self._left_over = begun  # the name that it has
        self._path = path
        self._offset = 0
        self._started = 0  # up to where the disk was given work
        self._reserved = 0  # up to where it was asked to find room

    def write(self, part: Bytes) -> None:
        assert self._file is not None
        if self._offset + len(part) >= self._reserved + _SYNC_AHEAD_BYTES:
            ahead = max(_RESERVED_BYTES, len(part))
            self._file.reserve(self._offset, ahead)
            self._reserved = self._offset + ahead
        self._file.write(self._offset, part)
        self._offset += len(part)
        if self._offset - self._started >= _SYNC_AHEAD_BYTES:  # whole pages: the last one is still to be filled
            whole = (self._offset - self._started) // _PAGE_BYTES * _PAGE_BYTES
            self._file.start_sync(self._started, whole)
            self._started += whole

    def finish(self) -> None:
        assert self._file is not None
        if self._reserved > self._offset:
            self._file.truncate(self._offset)
        self._file.sync()
        self._close()
        if self._left_over != self._path:
            self._files.rename(self._left_over, self._path)
            self._left_over = self._path
        self._named.sync()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self._files.remove(self._left_over)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _SharedSync:
    """Puts side by side wait for the same sync of their folder: one that began after each of them had its name."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._changed = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._failures: dict[int, OSError] = {}  # of the last syncs

    def sync(self) -> None:
        with self._changed:
            needed = self._begun + 1
            while self._ended < needed:
                if self._ended < self._begun:
                    self._changed.wait()
                    continue
                self._begun += 1
                self._changed.release()
                failure: OSError | None = None
                try:
                    self._sync()
                except OSError as error:
                    failure = error
                except BaseException:  # nobody knows what was synced, and this one is told why
                    failure = OSError(errno.EIO, "the sync of the folder was interrupted")
                    raise
                finally:
                    self._changed.acquire()
                    self._ended = self._begun
                    self._failures.pop(self._ended - 2, None)
                    if failure is not None:
                        self._failures[self._ended] = failure
                    self._changed.notify_all()
            failed = self._failures.get(needed)
        if failed is not None:
            raise OSError(failed.errno, failed.strerror) from failed


class _Handle:
    """An open object. It closes when it was retired and its last user left; the store's lock guards it."""

    __slots__ = ("file", "retired", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.retired = False

    def leave(self) -> None:
        self.users -= 1
        self._close_if_idle()

    def retire(self) -> None:
        self.retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.retired and self.users == 0:
            self.file.close()


def is_object_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """The name, if it is one that an object can have."""
    if not is_object_name(name):
        raise InvalidArgument(f"object name {name!r} is not <epoch>-<seq>.arrow with 8 hex digits each")
    return name


def _path(name: str) -> str:
    return f"{FOLDER}/{checked_name(name)}"
