"""A thorough examination of a directory: every checksum, every invariant, every record's place. It changes nothing.

It goes from the outside in, and on past whatever it finds wrong, as far as what is left allows:

1. FORMAT, and whether a writer is at work.
2. The newest snapshot, and every frame of the command log behind it.
3. The forest that these add up to, and its invariants; the bytes that ride inline.
4. Every registered object: there, of the right size and checksum, each block of it whole; and that every position of
   every log stands in a block that has that row. Objects that nobody registered.

While a writer is at work only what it has made durable is examined, and what it drops or moves under our eyes is not
held against it. Damage to bytes is named with the logs and positions that it takes away.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from braidlog import limits
from braidlog.embedded.replica import Replica
from braidlog.embedded.writer import absorb_frame, load_snapshot
from braidlog.errors import BraidError, Corrupt, InvalidArgument, NotFound, Unavailable
from braidlog.forest import invariants
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.forest.reading import resolve
from braidlog.forest.space import Space
from braidlog.forest.tails import reach
from braidlog.forest.uploads import epoch_of
from braidlog.metadata import directory, object_place, segments, snapshots
from braidlog.metadata.file_log import FileLog
from braidlog.metadata.log_check import LogCheck, check_log
from braidlog.metadata.log_follower import LogFollower, Superseded
from braidlog.objects import store
from braidlog.objects.batch import decode
from braidlog.objects.files import Files, OsFiles
from braidlog.objects.format import BlockPlace, check_object, read_block
from braidlog.objects.locations import open_store
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.store import FileStore

Severity = Literal["corrupt", "warning", "note"]

_SNAPSHOT: Final = re.compile(r"([0-9a-f]{16})\.snap")
_ATTEMPTS: Final = limits.OBJECT_GONE_RETRIES
_RANGES_NAMED: Final = 20  # of the positions that damage takes away; the rest is counted
_FROM_A_COPY: Final = "restore it from a copy of the directory, and look why the disk changed it"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be, or that is worth knowing."""

    severity: Severity
    where: str
    problem: str
    advice: str


class Report(Struct, frozen=True, kw_only=True):
    """What was examined, and what was found."""

    path: str
    writer: int | None  # the process that writes there now; 0 if it cannot be told which
    clean: bool  # the last writer closed the log
    snapshot: int  # the frame that the newest snapshot covers; 0 without one
    frames: int
    frame_bytes: int
    logs: int
    records: int  # of all logs, each counted where it was appended
    objects: int
    object_bytes: int
    findings: list[Finding]

    @property
    def healthy(self) -> bool:
        """Whether everything that was acknowledged is there and whole."""
        return not any(finding.severity == "corrupt" for finding in self.findings)


def examine(path: str | os.PathLike[str]) -> Report:
    """Examine the directory at `path`. NotFound if there is none; everything else that is wrong is in the report."""
    root = Path(path)
    if not root.is_dir():
        raise NotFound(f"there is no directory {root}: check the path")
    return _Examination(root).report()


class _Examination:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: Files = OsFiles(root)
        self.place = store.FOLDER  # where the objects are, in words
        self.store: store.Store = FileStore(self.files)
        self.findings: list[Finding] = []
        self.snapshot = 0
        self.partial = False  # not all of the log could be taken in
        self.sound = True  # the forest is one that can be, and positions can be resolved in it
        self.object_count = self.object_bytes = 0

    def report(self) -> Report:
        self._format()
        self._place()
        self.writer = self._writer()
        check, replica = self._metadata()
        if replica is not None:
            self._forest(replica)
            self._inline(replica)
            self._objects(replica)
        else:
            self._unjudged()
        self.store.close()
        forest = Forest() if replica is None else replica.forest
        return Report(
            path=str(self.root),
            writer=self.writer,
            clean=check.clean,
            snapshot=self.snapshot,
            frames=check.frames,
            frame_bytes=check.bytes,
            logs=len(forest.logs),
            records=sum(log.own for log in forest.logs.values()),
            objects=self.object_count,
            object_bytes=self.object_bytes,
            findings=self.findings,
        )

    def _found(self, severity: Severity, where: str, problem: str, advice: str) -> None:
        self.findings.append(Finding(severity=severity, where=where, problem=problem, advice=advice))

    # --- the directory -------------------------------------------------------------------------------------------

    def _format(self) -> None:
        inside = self.files.list("")
        if directory.FORMAT not in inside and not {segments.FOLDER, snapshots.FOLDER} & set(inside):
            raise NotFound(f"{self.root} is not a braidlog directory: check the path")
        try:
            directory.read_format(self.files)
        except Corrupt as error:
            self._found("corrupt", directory.FORMAT, str(error), _FROM_A_COPY)
        except InvalidArgument as error:
            if directory.FORMAT in inside:  # of another version: nothing here can be judged
                raise
            self._found("corrupt", directory.FORMAT, str(error), _FROM_A_COPY)

    def _place(self) -> None:
        """Where the objects are: here, or in a store elsewhere."""
        try:
            known = object_place.remembered(self.files)
        except Corrupt as error:
            self._found("corrupt", object_place.OBJECTS, str(error), _FROM_A_COPY)
            return
        if known is not None:
            self.place, self.store = known.location.place, open_store(known.location.url)

    def _writer(self) -> int | None:
        """Who writes here. Asked of the kernel only if somebody left a pid, so as not to get in a new writer's way."""
        try:
            fd = os.open(self.root / directory.LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            left = os.pread(fd, 32, 0).strip()
            if not left:
                return None
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = int(left) if left.isdigit() else 0
                self._found(
                    "note",
                    directory.LOCK,
                    f"process {pid or '?'} is writing here: only what it has made durable is examined",
                    "examine again when it has stopped, to be thorough",
                )
                return pid
            return None
        finally:
            os.close(fd)

    # --- snapshot and command log --------------------------------------------------------------------------------

    def _metadata(self) -> tuple[LogCheck, Replica | None]:
        """Check the log and build what it adds up to, again if a checkpoint of the writer came between."""
        for _ in range(_ATTEMPTS):
            kept = len(self.findings)
            try:
                newest = self._newest_snapshot()
                check = self._check_log(newest)
                self._log_findings(check)
                replica = self._replay(newest, check)
            except (Superseded, Unavailable):
                if self.writer is None:
                    raise
            else:
                if self.writer is None or newest == self._newest_snapshot():
                    self.snapshot = newest
                    return check, replica
            del self.findings[kept:]
        raise Unavailable("the writer checkpoints faster than this process can read: examine again")

    def _check_log(self, after: int) -> LogCheck:
        check = check_log(self.files, after)
        if self.writer is not None and check.findings:
            # A commit may have been half written when it was looked at, and followed by another the next moment.
            # Damage is still there when one looks again.
            again = {(finding.path, finding.offset) for finding in check_log(self.files, after).findings}
            lasting = tuple(finding for finding in check.findings if (finding.path, finding.offset) in again)
            check = replace(check, findings=lasting)
        return check

    def _newest_snapshot(self) -> int:
        names = (_SNAPSHOT.fullmatch(name) for name in self.files.list(snapshots.FOLDER))
        return max((int(match[1], 16) for match in names if match), default=0)

    def _log_findings(self, check: LogCheck) -> None:
        for finding in check.findings:
            where = f"{finding.path} at byte {finding.offset:,}"
            if not finding.torn:
                self._found(
                    "corrupt", where, finding.message, f"{_FROM_A_COPY}; what follows cannot be read without it"
                )
            elif self.writer is None:
                problem = f"{finding.message}: the last commit before a crash, never acknowledged"
                self._found("warning", where, problem, "nothing: it will be cut at next open")

    def _replay(self, newest: int, check: LogCheck) -> Replica | None:
        try:
            after, forest, payloads = load_snapshot(snapshots.latest(self.files))
        except Corrupt as error:
            self._found("corrupt", f"{snapshots.FOLDER} at frame {newest}", str(error), _FROM_A_COPY)
            return None
        replica = Replica(forest, payloads, self.store, None)
        sequence = after
        try:
            for sequence, payload in self._frames(after, check):
                absorb_frame(replica, sequence, payload)
        except (Corrupt, Superseded) as error:
            if isinstance(error, Superseded) and self.writer is not None:
                raise
            if all(finding.torn for finding in check.findings):  # else what is wrong was said already
                self._found("corrupt", f"{segments.FOLDER} after frame {sequence}", str(error), _FROM_A_COPY)
            self.partial = True
        return replica

    def _frames(self, after: int, check: LogCheck) -> Iterator[tuple[int, memoryview]]:
        """What the next opening would take in; what is durable, while a writer is at work or the log is damaged."""
        damaged = any(not finding.torn for finding in check.findings)
        if self.writer is None and not damaged:
            log, recovery = FileLog.open(self._log_in_memory(), after)
            log.close()
            yield from recovery.replay()
            return
        follower = LogFollower(self.files, after)
        try:
            yield from follower.poll()
            if damaged:
                yield from follower.poll()  # which raises what stopped the first
        finally:
            follower.close()

    def _log_in_memory(self) -> MemoryFiles:
        """A copy that opening may mend as it does."""
        copy: dict[str, bytes] = {}
        for name in self.files.list(segments.FOLDER):
            path = f"{segments.FOLDER}/{name}"
            file = self.files.open_read(path)
            try:
                copy[path] = file.read(0, file.size())
            finally:
                file.close()
        return MemoryFiles(copy, [segments.FOLDER])

    # --- what they add up to -------------------------------------------------------------------------------------

    def _forest(self, replica: Replica) -> None:
        broken = invariants.broken(replica.forest, deep=False)
        if not broken:  # else resolving positions would only stumble over it
            try:
                broken = invariants.broken(replica.forest)
            except (AssertionError, AttributeError, LookupError) as error:
                broken = [f"a position leads nowhere: {error}"]
        self.sound = not broken
        for sentence in broken:
            self._found("corrupt", "forest", sentence, "report this as a bug, with a copy of the directory")

    def _inline(self, replica: Replica) -> None:
        for block, (_, rows) in replica.forest.space.inline.items():
            problem = ""
            payload = replica.payloads.get(block)
            if payload is None:
                problem = "its bytes are missing"
            else:
                try:
                    count = decode(payload).count
                except Corrupt as error:
                    problem = str(error)
                else:
                    problem = f"it has {count} records instead of {rows}" if count != rows else ""
            if problem:
                where = f"block {block}, inline"
                self._found("corrupt", where, f"{problem}; {self._affected(replica, {block})}", _FROM_A_COPY)

    # --- objects -------------------------------------------------------------------------------------------------

    def _objects(self, replica: Replica) -> None:
        space = replica.forest.space
        placed: dict[str, dict[BlockPlace, list[int]]] = defaultdict(lambda: defaultdict(list))
        for block, place in space.places.items():
            placed[place.object][BlockPlace(place.offset, place.length, place.crc)].append(block)
        rows: dict[int, int] = {}  # of the physical block that each block stands in
        for name, known in space.objects.items():
            condemned = known.condemned != NONE
            try:
                size = self.store.size(name)
                data = self.store.get(name, 0, size)
            except FileNotFoundError:
                if not condemned and self._still_needed(name):
                    lost = {block for blocks in placed[name].values() for block in blocks}
                    self._damaged(replica, name, "the file is missing", lost)
                continue
            except OSError as error:  # nobody can tell now
                self._found("warning", self._path(name), f"it cannot be read now: {error}", "mend that, and ask again")
                if isinstance(self.store, FileStore):
                    continue
                return  # the others would not come from there either
            self.object_count += 1
            self.object_bytes += size
            if condemned:
                self._found(
                    "note",
                    self._path(name),
                    "nothing refers to it any more",
                    "nothing: it is deleted after a grace period",
                )
                continue
            if size != known.size:
                problem = f"it has {size:,} bytes, but {known.size:,} were written"
            else:
                problem = _problem_of(name, data, known.crc, list(placed[name]))
            bad: set[int] = set()
            for at, blocks in placed[name].items():
                try:
                    block_bytes = memoryview(data)[at.offset : at.offset + at.length]
                    count = read_block(name, at, block_bytes).num_rows
                    rows.update(dict.fromkeys(blocks, count))
                except Corrupt:
                    bad.update(blocks)
            if problem:
                self._damaged(replica, name, problem, bad)
        self._unregistered(space)
        self._rows_are_there(replica, rows)

    def _damaged(self, replica: Replica, name: str, problem: str, blocks: set[int]) -> None:
        affected = self._affected(replica, blocks)
        self._found(
            "corrupt", self._path(name), f"{problem}; {affected}", f"{_FROM_A_COPY}; other positions can be read"
        )

    def _still_needed(self, name: str) -> bool:
        """Whether an object that is not there should be: a writer may have compacted it away meanwhile."""
        if self.writer is None:
            return True
        try:
            after, forest, payloads = load_snapshot(snapshots.latest(self.files))
            now = Replica(forest, payloads, self.store, None)
            for sequence, payload in self._frames(after, LogCheck(0, 0, 0, 0, False, ())):
                absorb_frame(now, sequence, payload)
        except (BraidError, Superseded):
            return False  # it goes too fast to tell; the next examination will find a loss that is one
        known = now.forest.space.objects.get(name)
        return known is not None and known.condemned == NONE

    def _unregistered(self, space: Space) -> None:
        problem, advice = "no log was told of it: an interrupted write left it", "nothing: the next opening removes it"
        if self.writer is not None:
            problem, advice = "no log was told of it yet", "nothing: the writer will register or remove it"
        if self.partial:
            problem, advice = "the part of the log that can be read does not tell of it", "keep it"
        for name in self._names():
            if name in space.objects:
                continue
            stored = name.removeprefix(store.UNFINISHED)
            if store.is_object_name(stored) and epoch_of(stored) in space.uploads.by_epoch:
                why = "a client wrote it, or is at it, and may yet publish it"
                self._found("note", self._path(name), why, "nothing: it is published, or removed when its upload ends")
            else:
                self._found("note", self._path(name), problem, advice)

    def _names(self) -> list[str]:
        """What is there: every file of the folder, or every object of the store."""
        if isinstance(self.store, FileStore):
            return self.files.list(store.FOLDER)
        try:
            return self.store.list()
        except OSError as error:
            self._found("warning", self.place, f"it cannot be listed now: {error}", "mend that, and ask again")
            return []

    def _path(self, name: str) -> str:
        return f"{self.place}/{name}"

    def _unjudged(self) -> None:
        if names := self._names():
            problem = f"{len(names)} objects were not examined: the snapshot would say what they should hold"
            self._found("note", self.place, problem, "keep them, and examine again when the snapshot is restored")

    def _rows_are_there(self, replica: Replica, rows: dict[int, int]) -> None:
        """Every position must stand in a row that its block has."""
        if not self.sound:
            return
        places = replica.forest.space.places
        for log in replica.forest.logs.values():
            for extent in resolve(log.view, log.start, reach(log).tail):
                count = rows.get(extent.block)
                if count is not None and places[extent.block].row + extent.row + extent.rows > count:
                    problem = (
                        f"block {extent.block} has {count} rows, too few for {_range(extent.position, extent.rows)}"
                    )
                    self._found("corrupt", f"log {log.name!r}", problem, _FROM_A_COPY)

    def _affected(self, replica: Replica, blocks: set[int]) -> str:
        """Which positions of which logs stand in these blocks, in words."""
        if not self.sound:
            return "the forest is broken, so nobody can say which positions that takes away"
        named = list(_ranges(replica, blocks))
        if not named:
            return "no log's records are affected"
        more = f" and {len(named) - _RANGES_NAMED} more ranges" if len(named) > _RANGES_NAMED else ""
        return f"it takes away {', '.join(named[:_RANGES_NAMED])}{more}"


def _ranges(replica: Replica, blocks: set[int]) -> Iterator[str]:
    for log in replica.forest.logs.values():
        first = last = -1
        for extent in resolve(log.view, log.start, reach(log).tail) if blocks else ():
            if extent.block not in blocks:
                continue
            if extent.position != last:
                if last >= 0:
                    yield f"log {log.name!r} {_range(first, last - first)}"
                first = extent.position
            last = extent.position + extent.rows
        if last >= 0:
            yield f"log {log.name!r} {_range(first, last - first)}"


def _range(first: int, rows: int) -> str:
    return f"position {first}" if rows == 1 else f"positions {first} to {first + rows - 1}"


def _problem_of(name: str, data: memoryview, crc: int, places: Iterable[BlockPlace]) -> str:
    try:
        check_object(name, data, crc, list(places))
    except (Corrupt, Unavailable) as error:
        return str(error)
    return ""
