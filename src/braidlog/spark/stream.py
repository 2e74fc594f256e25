"""Logs as a streaming source: which positions the next micro-batch reads, and how a stream ends.

One object of this lives in a process of its own for as long as the query runs. Positions never repeat or skip: a hold
only hides what was not readable yet, a fork gets its parent's records at positions of its own, and the positions below
the end of a fork that was promoted are the same in its parent.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from braidlog import Braid, Info, Log, limits
from braidlog.embedded.replica import Replica
from braidlog.errors import Gone, InvalidArgument, NotFound, Unavailable
from braidlog.spark import planning
from braidlog.spark.offsets import At, Offset, between, shares, turn_of
from braidlog.spark.options import EARLIEST, LATEST, Edge, Selection, SourceOptions
from braidlog.spark.planning import Range
from braidlog.spark.sessions import FORGOTTEN, ending, handle, reach
from braidlog.spark.source import BraidPartition, read
from braidlog.spark.workers import called

_log = logging.getLogger("braidlog.spark")


class _EndedMeanwhile(Exception):
    """A log that lived a moment ago does no more."""

    def __init__(self, how: Gone) -> None:
        super().__init__(str(how))
        self.how = how


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Opens the braid when it is first asked something: it travels to executors before that."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.ending is not None:
            raise InvalidArgument("endingOffsets and endingTimestamp are for batch queries: a stream has no end")
        self._options = options
        self._schema = schema
        self._opened: Braid | None = None
        self._initial: Offset | None = None
        self._targets: dict[int, int] | None = None  # with Trigger.AvailableNow: how far each log is read
        self._meant: dict[int, bool] = {}  # which logs of a pattern are, by number
        self._looked = -math.inf  # when it looked for other logs though nothing had happened
        self._latest: Offset | None = None  # what could be read when it was last looked

    # --- what Spark asks -------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        with called():
            if self._initial is None:  # Spark asks twice, and must hear the same
                self._initial = Offset(self._beginnings(), initial=True)
            return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with called():
            logs = planning.living(self._braid, self._options.selection, self._meant)
            self._targets = {}
            for log in logs:
                with contextlib.suppress(Gone):  # then it is nothing to be waited for
                    self._targets[log.id] = log.tail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with called():
            begin = Offset.from_json(start)
            if begin.initial:
                return begin.pinned().to_json()
            begun = time.monotonic()
            deadline, give_up = begun + limits.SPARK_IDLE_WAIT_S, begun + limits.SPARK_RETRY_S
            ids = [at.id for at in begin.logs.values()]
            while True:
                seen = self._braid._session.backend.version
                try:
                    found = self._limited(begin, *self._advanced(begin), limit)
                except _EndedMeanwhile as ended:  # the next look finds out how, and whether that matters
                    if time.monotonic() >= give_up:
                        raise ended.how from None
                    self._wait(seen, ids, limits.SPARK_IDLE_WAIT_S)
                    continue
                if found != begin or self._targets is not None or time.monotonic() >= deadline:
                    return found.to_json()
                self._wait(seen, ids, deadline - time.monotonic())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with called():
            wanted = list(between(Offset.from_json(start), Offset.from_json(end)))
            deadline = time.monotonic() + limits.SPARK_RETRY_S
            while True:
                seen = self._braid._session.backend.version
                ranges = [self._range(name, at, stop) for name, at, stop in wanted]
                try:
                    parts = planning.partitions(list(filter(None, ranges)), self._options)
                except Gone:  # it ended just now: the next look finds out how, and whether that matters
                    if time.monotonic() >= deadline:
                        raise
                    self._wait(seen, [at.id for _, at, _ in wanted], limits.SPARK_IDLE_WAIT_S)
                    continue
                return [BraidPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for a query but its checkpoint."""

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()

    # --- what there is to read -------------------------------------------------------------------------------------

    @property
    def _braid(self) -> Braid:
        if self._opened is None:
            self._opened = reach(self._options.place)
        return self._opened

    def _beginnings(self) -> dict[str, At]:
        options = self._options
        logs = planning.selected(self._braid, options.selection)
        starting = options.starting or Edge(all=LATEST)
        planning.check_named(starting, "startingOffsets", logs)
        return {
            log.name: At(
                log.id,
                planning.position_of(log, log.info(), starting, EARLIEST, fail=options.fail_on_data_loss),
            )
            for log in logs
        }

    def _advanced(self, start: Offset) -> tuple[Offset, set[str]]:
        """As far as everything can be read now, or up to its target; and the logs that only skip what is lost."""
        skipping: set[str] = set()
        found: dict[str, At] = {}
        readable: dict[str, At] = {}
        for name, at in start.logs.items():
            try:
                info = self._info(handle(self._braid, at.id, name), at.position)
            except Gone:
                heir = self._heir(name, at)
                if heir is not None and (heir[0] == name or heir[0] not in start.logs):
                    into, goes_on = heir  # another fork may have become the same log, and was not read as far
                    other = found.get(into, goes_on)
                    forks = tuple(sorted({*other.forks, *goes_on.forks}))
                    found[into] = readable[into] = min(other, goes_on)._replace(forks=forks)
                continue
            if info.name != name:
                raise InvalidArgument(
                    f"the checkpoint calls log number {at.id} {name!r}, but here that is {info.name!r}: is it another "
                    "braid than the query began with? Use a checkpoint of its own for each"
                )
            self._check_meant(name, at, start)
            readable[name] = at._replace(position=info.readable_tail)
            if at.position < info.start:
                planning.lost(name, at.position, info.start, fail=self._options.fail_on_data_loss)
                found[name] = at._replace(position=info.start)
                skipping.add(name)
            elif at.position > info.tail:
                self._cut(name, at, info.tail)
                found[name] = at._replace(position=info.tail)
            else:
                target = info.readable_tail if self._targets is None else self._target(at.id, info.readable_tail)
                found[name] = at._replace(position=max(at.position, target))
        known = {at.id for at in (*found.values(), *start.logs.values())}
        for log in self._others(start) if found != start.logs or self._time_to_look() else ():
            if log.id not in known and (self._targets is None or log.id in self._targets):
                with contextlib.suppress(Gone):  # it was here for a moment only
                    found[log.name] = readable[log.name] = At(log.id, self._info(log).start)
        self._latest = Offset(readable)
        return Offset(found), skipping

    def _time_to_look(self) -> bool:
        """Whether to look for other logs though nothing has happened: that is to go through all that there are."""
        if self._targets is None and time.monotonic() < self._looked + limits.SPARK_LOOK_S:
            return False
        self._looked = time.monotonic()
        return True

    def _others(self, start: Offset) -> list[Log]:
        """Logs that are meant and may not be read yet: those of a pattern, and those that were added to the options."""
        selection = self._options.selection
        if not selection.fixed:
            return planning.living(self._braid, selection, self._meant)
        passed_on = {fork for at in start.logs.values() for fork in at.forks}
        added = tuple(name for name in selection.names if name not in start.logs and name not in passed_on)
        return planning.living(self._braid, Selection(added)) if added else []

    def _check_meant(self, name: str, at: At, start: Offset) -> None:
        """InvalidArgument if the options do not select a log of the checkpoint, nor a fork that goes on as it."""
        selection = self._options.selection
        if any(selection.matches(meant) for meant in (name, *at.forks)):
            return
        if not at.forks and self._options.on_fork_end == "continue":  # older checkpoints do not say of which forks
            living = {log.name for log in planning.living(self._braid, Selection(selection.names))}
            if not selection.fixed or any(meant not in start.logs and meant not in living for meant in selection.names):
                return
        raise InvalidArgument(
            f"the checkpoint is of a query that reads log {name!r}, which {selection} does not select: select it too, "
            "or begin with a new checkpoint"
        )

    def _cut(self, name: str, at: At, tail: int) -> None:
        """A log never becomes shorter, so this is another one that has its name and number."""
        what = (
            f"log {name!r} ends at {tail}, but the query had read it up to position {at.position}: it was made anew, "
            "or comes from an older copy"
        )
        if self._options.fail_on_data_loss:
            raise InvalidArgument(f"{what}; begin with a new checkpoint, or go on at its end with failOnDataLoss=false")
        _log.warning("%s; going on at its end, as failOnDataLoss=false says", what)

    def _info(self, log: Log, known: int = 0) -> Info:
        """A follower that cannot follow for a moment tries again by itself, and one that is behind what is known of a
        log catches up; so there is time for that."""
        backend = self._braid._session.backend
        deadline = time.monotonic() + limits.SPARK_RETRY_S
        while True:
            seen = backend.version
            try:
                info = log.info()
                if info.tail >= known or info.name != log.name or time.monotonic() >= deadline:
                    return info
            except Unavailable:
                if not isinstance(backend, Replica) or time.monotonic() >= deadline:
                    raise
            self._wait(seen, [log.id], limits.SPARK_IDLE_WAIT_S)

    def _target(self, log_id: int, readable: int) -> int:
        """With Trigger.AvailableNow nothing is read that came after it began, or after a fork's heir was found."""
        assert self._targets is not None
        return min(self._targets.setdefault(log_id, readable), readable)

    # --- how much of it -------------------------------------------------------------------------------------------

    def _limited(self, start: Offset, end: Offset, skipping: set[str], limit: ReadLimit) -> Offset:
        """No more than a batch may have, of every log in proportion to what waits there."""
        if isinstance(limit, ReadAllAvailable):
            return end
        waiting = {name: stop - at.position for name, at, stop in between(start, end) if name not in skipping}
        records = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets_per_trigger
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes_per_trigger
        if records is not None:
            waiting = shares(waiting, records, turn_of(start))
        if size is not None:
            rooms = shares({name: count * size for name, count in waiting.items()}, size)
            waiting = {
                name: self._affordable(start.logs[name], name, count, rooms[name]) for name, count in waiting.items()
            }
        limited = {
            name: end.logs[name]._replace(position=start.logs[name].position + waiting[name]) for name in waiting
        }
        return Offset({**end.logs, **limited})

    def _affordable(self, at: At, name: str, count: int, room: int) -> int:
        """How many records fit into so many bytes, and at least one, so that it goes on."""
        taken = 0
        log, stop = handle(self._braid, at.id, name), at.position + count
        try:
            for plan in planning.pages(log, at.position, stop, fail=self._options.fail_on_data_loss):
                for part in plan.parts:
                    rows = part.stop - part.start
                    each = max(part.length / (part.row + rows), 1.0)
                    if rows * each > room:
                        return max(part.start + int(room / each) - at.position, 1)
                    room -= int(rows * each)
                    taken = part.stop - at.position
        except Gone as error:
            raise _EndedMeanwhile(error) from error
        return max(taken, min(count, 1))

    def _wait(self, seen: int, ids: list[int], seconds: float) -> None:
        """Until something may have changed of these logs, or a moment has passed."""
        backend = self._braid._session.backend
        if isinstance(backend, Replica) or (len(ids) == 1 and self._options.selection.fixed):
            backend.wait_for_change(seen, seconds, ids[0] if ids else None)
        else:
            threading.Event().wait(seconds)

    # --- how logs end ----------------------------------------------------------------------------------------------

    def _heir(self, name: str, at: At) -> tuple[str, At] | None:
        """What a log that is no more goes on as, if the options allow it. Otherwise Gone says why it ended."""
        kind, into = ending(self._braid, at.id)
        if kind == FORGOTTEN:  # if it was promoted, to leave it out would be to lose what was not read of it
            raise Gone(
                f"log {name!r} ended so long ago that it is not known how; the query had read it up to position "
                f"{at.position}: begin with a new checkpoint",
                end=kind,
            )
        how = "lost to another fork, which was promoted" if kind == "lost" else f"was {kind}"
        got = f"log {name!r} {how}; the query had read it up to position {at.position}"
        goes_on = self._options.on_fork_end == "continue"
        if kind == "promoted" and into:
            if not goes_on:
                raise Gone(
                    f"{got}, below which {into!r} has the same records: to go on there set onForkEnd=continue, or read "
                    f'{into!r} with startingOffsets {{"{into}": {at.position}}}',
                    end=kind,
                )
            _log.warning("%s: going on with %r, as onForkEnd=continue says", got, into)
            return into, At(self._braid.log(into).id, at.position, at.forks or (name,))
        try:
            other = self._braid.log(name)
        except NotFound:
            if goes_on and not self._options.selection.fixed:
                _log.warning("%s: going on without it, as onForkEnd=continue says", got)
                return None
            raise Gone(f"{got}: there is nothing to go on with", end=kind) from None
        if self._options.fail_on_data_loss:
            raise Gone(
                f"{got}, and {name!r} is another log now: begin with a new checkpoint, or go on at that one's "
                "beginning with failOnDataLoss=false",
                end=kind,
            )
        _log.warning("%s: going on with the log that bears its name now, as failOnDataLoss=false says", got)
        return name, At(other.id, other.info().start)

    def _range(self, name: str, at: At, stop: int) -> Range | None:
        """What a batch reads of a log; None if that is lost and the options put up with it."""
        log, known_as, standing = handle(self._braid, at.id, name), name, at
        while True:
            try:
                info = self._info(log, stop)
                break
            except Gone:
                heir = self._heir(known_as, standing)
                if heir is None or heir[0] == known_as:
                    return None
                known_as, standing = heir  # which may have been promoted in its turn
                log = handle(self._braid, standing.id, name)  # the same records, under the name they were begun with
        if info.tail < stop:
            self._cut(name, at._replace(position=stop), info.tail)
            stop = max(info.tail, at.position)
        start = max(at.position, info.start)
        if start > at.position:
            planning.lost(name, at.position, min(start, stop), fail=self._options.fail_on_data_loss)
        return Range(log, start, stop, planning.size_of(info, start, stop)) if start < stop else None
