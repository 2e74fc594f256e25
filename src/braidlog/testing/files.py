"""Disks for tests: one that remembers every step, and one that fails on demand. Both are public.

`RecordingFiles` records what is done to a disk, and rebuilds the states that a power cut may leave behind. It
takes the promises of `Files` at their word, and grants nothing beyond them:

- Data. Each write or truncation since the file's last `sync` is, on its own, present, absent or torn. A
  torn write is cut at a sector of 512 bytes: either what lies before the cut is there, or what lies after
  it, with zeros or old bytes in the place of the rest. At the extreme only the size grew. A sector itself is
  never torn.
- Names. What was created, renamed or removed in a folder since its last `sync_dir` is undone from the last
  step backwards: any prefix survives, as with a journal. A file whose name was not synced may be missing
  although its data was. Folders are durable at once, as `make_dir` promises.

This is harsher than real disks: two writes to one sector are independent here. Renames stay in one folder.

`FaultyFiles` stands before any other `Files` and fails, cuts short, kills or flips bits as planned.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from braidlog.errors import InvalidArgument
from braidlog.objects.files import File, Files
from braidlog.objects.memory_files import MemoryFiles, folder_of

SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class MakeDir:
    path: str


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    inode: int


@dataclass(frozen=True, slots=True)
class Write:
    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    inode: int


@dataclass(frozen=True, slots=True)
class Rename:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Remove:
    path: str


@dataclass(frozen=True, slots=True)
class SyncDir:
    path: str


Operation = MakeDir | Create | Write | Truncate | Sync | Rename | Remove | SyncDir


class RecordingFiles(Files):
    """A disk in memory that records every operation, its number being its index in `operations`.

    It may begin with a `disk`, all of which is durable: that is how a crash during recovery is tested. The
    disk is used in place.
    """

    def __init__(self, disk: MemoryFiles | None = None) -> None:
        self.operations: list[Operation] = []
        self._disk = disk if disk is not None else MemoryFiles()
        self._lock = threading.Lock()
        self._marks: list[tuple[int, object]] = []
        contents = self._disk.contents()
        self._inodes = {path: inode for inode, path in enumerate(contents)}
        self._next_inode = len(contents)
        self._first = _Replay(
            folders=set(self._disk.folders()),
            names=dict(self._inodes),
            contents={inode: contents[path] for path, inode in self._inodes.items()},
        )
        self._replay = self._first.copy()

    def mark(self, label: object) -> None:
        """Note that something was acknowledged, after the operations so far."""
        with self._lock:
            self._marks.append((len(self.operations), label))

    def marked(self, upto: int) -> list[object]:
        """What was acknowledged when only the first `upto` operations had happened."""
        with self._lock:
            return [label for after, label in self._marks if after <= upto]

    def crash_states(self, upto: int, rng: random.Random, limit: int) -> Iterator[MemoryFiles]:
        """Disks that a power cut may leave once the first `upto` operations had happened, `limit` at most.

        First come the extremes, whatever the limit: nothing unsynced survived, and everything did. Then those
        that differ from the latter in one write (or in the last of several to one place) or in one folder's names,
        in random order, and then random mixtures. Each is a disk of its own, and no choice of survivors comes twice.
        """
        replay = self._replay_to(upto)
        least, most = replay.least(), replay.most()
        seen: set[_Survival] = set()
        for survival in (
            least,
            most,
            *_shuffled(replay.single_losses(rng), rng),
            *replay.mixtures(rng, limit),
        ):
            if survival in seen or (len(seen) >= limit and survival not in (least, most)):
                continue
            seen.add(survival)
            yield replay.disk(survival)

    def make_dir(self, path: str) -> None:
        with self._lock:
            missing = []
            while path and not self._disk.exists(path):
                missing.append(path)
                path = folder_of(path)
            for folder in reversed(missing):
                self._disk.make_dir(folder)
                self.operations.append(MakeDir(folder))

    def create(self, path: str) -> File:
        with self._lock:
            file = self._disk.create(path)
            inode = self._inodes[path] = self._next_inode
            self._next_inode += 1
            self.operations.append(Create(path, inode))
            return _RecordingFile(self, file, inode)

    def open(self, path: str) -> File:
        with self._lock:
            file = self._disk.open(path)
            return _RecordingFile(self, file, self._inodes[path])

    def open_read(self, path: str) -> File:
        return self._disk.open_read(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def rename(self, old: str, new: str) -> None:
        if folder_of(old) != folder_of(new):
            raise InvalidArgument(f"{old!r} and {new!r} are in two folders: rename within one")
        with self._lock:
            self._disk.rename(old, new)
            self._inodes[new] = self._inodes.pop(old)
            self.operations.append(Rename(old, new))

    def remove(self, path: str) -> None:
        with self._lock:
            self._disk.remove(path)
            del self._inodes[path]
            self.operations.append(Remove(path))

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._disk.sync_dir(path)
            self.operations.append(SyncDir(path))

    def _replay_to(self, upto: int) -> _Replay:
        """Where the disk stood after `upto` operations. Ascending numbers continue from the last one."""
        with self._lock:
            if not 0 <= upto <= len(self.operations):
                raise InvalidArgument(
                    f"upto={upto} is not within 0 and {len(self.operations)}, the operations recorded"
                )
            if upto < self._replay.done:
                self._replay = self._first.copy()
            for operation in self.operations[self._replay.done : upto]:
                self._replay.apply(operation)
            return self._replay.copy()


class _RecordingFile(File):
    def __init__(self, files: RecordingFiles, file: File, inode: int) -> None:
        self._files = files
        self._file = file
        self._inode = inode

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        copy = bytes(data)
        with self._files._lock:
            self._file.write(offset, copy)
            self._files.operations.append(Write(self._inode, offset, copy))

    def reserve(self, offset: int, length: int) -> None:
        pass  # what it may leave behind a truncation takes away, and nobody refers to a file before that

    def start_sync(self, offset: int, length: int) -> None:
        pass  # it promises nothing, and the disk may do so on its own at any time

    def read(self, offset: int, length: int) -> bytes:
        return self._file.read(offset, length)

    def read_into(self, offset: int, target: memoryview) -> int:
        return self._file.read_into(offset, target)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        with self._files._lock:
            self._file.truncate(size)
            self._files.operations.append(Truncate(self._inode, size))

    def sync(self) -> None:
        with self._files._lock:
            self._file.sync()
            self._files.operations.append(Sync(self._inode))

    def close(self) -> None:
        self._file.close()


# Which bytes of a write survived, from and to; None if nothing did. Of a truncation only that matters.
_Part = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Survival:
    """What survived of what is pending: a part of each data operation, and how many steps of each folder."""

    parts: tuple[_Part, ...]
    steps: tuple[int, ...]

    def without(self, indexes: Sequence[int], part: _Part) -> _Survival:
        """The same, but of these data operations only that part."""
        parts = list(self.parts)
        for index in indexes:
            parts[index] = part
        return _Survival(tuple(parts), self.steps)


@dataclass(slots=True)
class _Replay:
    """What is durable after the first `done` operations, and what is pending.

    Contents are kept by inode, apart from names: an undone removal shows the file again.
    """

    folders: set[str]
    names: dict[str, int]
    contents: dict[int, bytes]
    pending_data: list[Write | Truncate] = field(default_factory=list)
    pending_names: dict[str, list[Create | Rename | Remove]] = field(default_factory=dict)
    done: int = 0

    def copy(self) -> _Replay:
        return _Replay(
            set(self.folders),
            dict(self.names),
            dict(self.contents),
            list(self.pending_data),
            {folder: list(steps) for folder, steps in self.pending_names.items()},
            self.done,
        )

    def apply(self, operation: Operation) -> None:
        match operation:
            case MakeDir(path):
                self.folders.add(path)
            case Create(path, inode):
                self.contents[inode] = b""
                self.pending_names.setdefault(folder_of(path), []).append(operation)
            case Rename(path) | Remove(path):
                self.pending_names.setdefault(folder_of(path), []).append(operation)
            case Write() | Truncate():
                self.pending_data.append(operation)
            case Sync(inode):
                self._settle_data(inode)
            case SyncDir(path):
                for step in self.pending_names.pop(path, ()):
                    _take_step(self.names, step)
        self.done += 1

    def _settle_data(self, inode: int) -> None:
        content = bytearray(self.contents[inode])
        for operation in self.pending_data:
            if operation.inode == inode:
                _take_part(content, operation, _whole(operation))
        self.contents[inode] = bytes(content)
        self.pending_data = [operation for operation in self.pending_data if operation.inode != inode]

    def least(self) -> _Survival:
        return _Survival((None,) * len(self.pending_data), (0,) * len(self.pending_names))

    def most(self) -> _Survival:
        return _Survival(
            tuple(map(_whole, self.pending_data)), tuple(len(steps) for steps in self.pending_names.values())
        )

    def single_losses(self, rng: random.Random) -> Iterator[_Survival]:
        """Everything survived but one write, or a part of it, or the last steps in one folder.

        Where writes to one place followed each other, earlier ones show only if all later ones are lost.
        """
        most = self.most()
        places: dict[object, list[int]] = {}
        for index, operation in enumerate(self.pending_data):
            place = (operation.inode, operation.offset, len(operation.data)) if isinstance(operation, Write) else index
            places.setdefault(place, []).append(index)
        for indexes in places.values():
            for part in (None, *_torn(self.pending_data[indexes[-1]], rng)):
                yield most.without(indexes[-1:], part)
            if len(indexes) > 1:
                yield most.without(indexes, None)
                yield most.without(indexes[rng.randrange(len(indexes)) :], None)
        for index, count in enumerate(most.steps):
            for kept in range(count):
                yield _Survival(most.parts, (*most.steps[:index], kept, *most.steps[index + 1 :]))

    def mixtures(self, rng: random.Random, count: int) -> Iterator[_Survival]:
        """`count` random choices for everything that is pending."""
        for _ in range(count):
            yield _Survival(
                tuple(rng.choice((None, _whole(operation), *_torn(operation, rng))) for operation in self.pending_data),
                tuple(rng.randint(0, len(steps)) for steps in self.pending_names.values()),
            )

    def disk(self, survival: _Survival) -> MemoryFiles:
        names = dict(self.names)
        for steps, kept in zip(self.pending_names.values(), survival.steps, strict=True):
            for step in steps[:kept]:
                _take_step(names, step)
        contents = {inode: bytearray(self.contents[inode]) for inode in names.values()}
        for operation, part in zip(self.pending_data, survival.parts, strict=True):
            if part is not None and operation.inode in contents:
                _take_part(contents[operation.inode], operation, part)
        return MemoryFiles({path: contents[inode] for path, inode in names.items()}, self.folders)


def _whole(operation: Write | Truncate) -> tuple[int, int]:
    return (0, len(operation.data)) if isinstance(operation, Write) else (0, 0)


def _torn(operation: Write | Truncate, rng: random.Random) -> list[tuple[int, int]]:
    """What a cut at a sector leaves of a write: for the outermost cuts and one more, either side of it."""
    if isinstance(operation, Truncate):
        return []
    length = len(operation.data)
    cuts = range(SECTOR_BYTES - operation.offset % SECTOR_BYTES, length, SECTOR_BYTES)
    chosen = {cuts[0], cuts[-1], rng.choice(cuts)} if cuts else set()
    return [part for cut in sorted(chosen) for part in ((0, cut), (cut, length))] + [(length, length)]


def _take_part(content: bytearray, operation: Write | Truncate, part: tuple[int, int]) -> None:
    if isinstance(operation, Truncate):
        content.extend(bytes(max(0, operation.size - len(content))))
        del content[operation.size :]
        return
    start, stop = part
    content.extend(bytes(max(0, operation.offset + stop - len(content))))
    content[operation.offset + start : operation.offset + stop] = operation.data[start:stop]


def _take_step(names: dict[str, int], step: Create | Rename | Remove) -> None:
    match step:
        case Create(path, inode):
            names[path] = inode
        case Rename(old, new):
            names[new] = names.pop(old)
        case Remove(path):
            del names[path]


def _shuffled(survivals: Iterator[_Survival], rng: random.Random) -> Sequence[_Survival]:
    shuffled = list(survivals)
    rng.shuffle(shuffled)
    return shuffled


OPERATIONS: Final = frozenset(
    {"make_dir", "create", "open", "rename", "remove", "sync_dir", "read", "write", "truncate", "sync"}
)


class FaultyFiles(Files):
    """Any files, with failures as planned. Calls of an operation are counted from 1 over all files.

    An operation that fails did not happen, but for a short write. `calls` tells how often each was called, so
    the next sync is number `calls["sync"] + 1`.
    """

    def __init__(self, files: Files) -> None:
        self.calls: Counter[str] = Counter()
        self._files = files
        self._lock = threading.Lock()
        self._once: dict[tuple[str, int], OSError] = {}
        self._always: dict[str, OSError] = {}
        self._short: dict[int, int] = {}
        self._kills: dict[int, bool] = {}
        self._flips: list[tuple[Callable[[str], bool], int, int]] = []
        self._full = False

    def fail(self, operation: str, nth: int, error: OSError) -> None:
        """Raise the error in the nth call of the operation."""
        _check_operation(operation)
        self._once[operation, nth] = error

    def fail_always(self, operation: str, error: OSError) -> None:
        """Raise the error in every call of the operation from now on."""
        _check_operation(operation)
        self._always[operation] = error

    def short_write(self, nth: int, keep_bytes: int) -> None:
        """The nth write writes only its first bytes, then the disk is full."""
        self._short[nth] = keep_bytes

    def fill(self) -> None:
        """The disk is full from now on: what is there can be overwritten, but no file can grow."""
        self._full = True

    def kill_at_sync(self, nth: int, *, after: bool = False) -> None:
        """The nth sync kills this process (SIGKILL), before it syncs or after."""
        self._kills[nth] = after

    def flip(self, path_predicate: Callable[[str], bool], offset: int, bit: int) -> None:
        """Reads of files opened under such a path see one bit flipped, of the byte at the offset."""
        self._flips.append((path_predicate, offset, bit))

    def mend(self) -> None:
        """Forget every fault that was planned."""
        with self._lock:
            self._once.clear()
            self._always.clear()
            self._short.clear()
            self._kills.clear()
            self._flips.clear()
            self._full = False

    def make_dir(self, path: str) -> None:
        self._call("make_dir")
        self._files.make_dir(path)

    def create(self, path: str) -> File:
        self._call("create")
        return _FaultyFile(self, self._files.create(path), path)

    def open(self, path: str) -> File:
        self._call("open")
        return _FaultyFile(self, self._files.open(path), path)

    def open_read(self, path: str) -> File:
        self._call("open")
        return _FaultyFile(self, self._files.open_read(path), path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def list(self, path: str) -> list[str]:
        return self._files.list(path)

    def rename(self, old: str, new: str) -> None:
        self._call("rename")
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        self._call("remove")
        self._files.remove(path)

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir")
        self._files.sync_dir(path)

    def _call(self, operation: str) -> int:
        """Count the call and return its number, or raise what was planned for it."""
        with self._lock:
            self.calls[operation] += 1
            nth = self.calls[operation]
            error = self._once.pop((operation, nth), None) or self._always.get(operation)
        if error is not None:
            raise type(error)(*error.args)  # a fresh one: an exception raised twice would chain to itself
        return nth


class _FaultyFile(File):
    def __init__(self, files: FaultyFiles, file: File, path: str) -> None:
        self._files = files
        self._file = file
        self._path = path

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        keep = self._files._short.get(self._files._call("write"))
        if self._files._full and offset + len(data) > self._file.size():
            keep = max(0, self._file.size() - offset)
        if keep is not None:
            self._file.write(offset, data[:keep])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file.write(offset, data)

    def reserve(self, offset: int, length: int) -> None:
        self._file.reserve(offset, length)

    def start_sync(self, offset: int, length: int) -> None:
        self._file.start_sync(offset, length)

    def read(self, offset: int, length: int) -> bytes:
        self._files._call("read")
        data = bytearray(self._file.read(offset, length))
        for applies, place, bit in self._files._flips:
            if offset <= place < offset + len(data) and applies(self._path):
                data[place - offset] ^= 1 << bit
        return bytes(data)

    def read_into(self, offset: int, target: memoryview) -> int:
        data = self.read(offset, len(target))
        target[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._files._call("truncate")
        self._file.truncate(size)

    def sync(self) -> None:
        after = self._files._kills.get(self._files._call("sync"))
        if after is False:
            os.kill(os.getpid(), signal.SIGKILL)
        self._file.sync()
        if after is True:
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        self._file.close()


def _check_operation(operation: str) -> None:
    if operation not in OPERATIONS:
        raise InvalidArgument(f"operation {operation!r} is none of {', '.join(sorted(OPERATIONS))}")
