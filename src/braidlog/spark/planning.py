"""From ranges of logs to partitions: what the driver does before any task runs.

A plan is asked for in pages, so that no answer grows with its log, and it is all that a task needs: executors read
straight from the store, and ask nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from braidlog import Braid, Info, Log, Plan, limits
from braidlog.errors import Gone, NotFound, OutOfRange, Trimmed
from braidlog.forest.names import is_system
from braidlog.spark.options import EARLIEST, LATEST, Edge, Selection, SourceOptions
from braidlog.spark.partitioning import Cutter, target_bytes

_log = logging.getLogger("braidlog.spark")
PURPOSE: Final = "braidlog.purpose"  # the label of what a helper makes, which it will squash
_FROM_THE_BEGINNING: Final = Edge(all=EARLIEST)
_TO_THE_END: Final = Edge(all=LATEST)


class Range(NamedTuple):
    """Some of a log."""

    log: Log
    start: int
    stop: int
    size: int  # in bytes, about


def selected(braid: Braid, selection: Selection) -> list[Log]:
    """The living logs that are meant, by name. NotFound if one that is named is not there."""
    found = living(braid, selection)
    missing = set(selection.names) - {log.name for log in found}
    if missing:
        raise NotFound(f"there is no log {min(missing)!r} at {braid.url}: check the name, or create it")
    return found


def living(braid: Braid, selection: Selection, meant: dict[int, bool] | None = None) -> list[Log]:
    """The same, without those that are not there.

    A pattern means no log that braidlog keeps for itself, which have reserved names, or that its helpers make for as
    long as they work, which have a label. What is known of that is kept in `meant`, by number: each log is asked once.
    """
    if not selection.fixed:
        matching = [log for log in braid.logs() if selection.matches(log.name)]
        known = {} if meant is None else meant
        for ended in known.keys() - {log.id for log in matching}:
            del known[ended]
        return sorted((log for log in matching if _is_meant(log, selection, known)), key=lambda log: log.name)
    found = []
    for name in sorted(selection.names):
        with contextlib.suppress(NotFound):
            found.append(braid.log(name))
    return found


def _is_meant(log: Log, selection: Selection, known: dict[int, bool]) -> bool:
    if log.id not in known:
        try:
            named = log.name in selection.names
            known[log.id] = named or not (is_system(log.name) or PURPOSE in log.info().labels)
        except Gone:
            return False
    return known[log.id]


def check_named(edge: Edge | None, name: str, logs: Iterable[Log]) -> None:
    """NotFound if an option says where to begin in a log that is not read at all."""
    stray = set(edge.each) - {log.name for log in logs} if edge is not None else set()
    if stray:
        raise NotFound(f"option {name} names {min(stray)!r}, which is none of the logs that are read")


def batch_ranges(braid: Braid, options: SourceOptions) -> list[Range]:
    """What a batch query reads."""
    logs = selected(braid, options.selection)
    if not logs:
        raise NotFound(f"{options.selection} matches no log here")
    starting, ending = options.starting or _FROM_THE_BEGINNING, options.ending or _TO_THE_END
    check_named(starting, "startingOffsets", logs)
    check_named(ending, "endingOffsets", logs)
    found = []
    for log in logs:
        info = log.info()
        start = position_of(log, info, starting, EARLIEST, fail=options.fail_on_data_loss)
        stop = position_of(log, info, ending, LATEST, fail=options.fail_on_data_loss)
        if start < stop:
            found.append(Range(log, start, stop, size_of(info, start, stop)))
    return found


def position_of(log: Log, info: Info, edge: Edge, default: int, *, fail: bool) -> int:
    """Where an end of a range is in a log. Trimmed if that is gone, unless it shall not fail; OutOfRange beyond it."""
    if edge.moment is not None:
        return min(log.position_at(edge.moment), info.readable_tail)
    at = edge.of(log.name, default)
    if at in (EARLIEST, LATEST):
        return info.start if at == EARLIEST else info.readable_tail
    if at > info.readable_tail:
        held = f"; the hold of {info.limited_by!r} hides what comes after" if info.limited_by else ""
        raise OutOfRange(
            f"log {log.name!r} can be read up to {info.readable_tail}: there is no position {at} yet{held}"
        )
    if at < info.start:
        lost(log.name, at, info.start, fail=fail)
        return info.start
    return at


def lost(log: str, start: int, stop: int, *, fail: bool) -> None:
    """Positions that were to be read were trimmed away: an error, or a warning."""
    what = f"log {log!r} begins at {stop}: positions {start} to {stop} were trimmed away before they were read"
    if fail:
        raise Trimmed(
            f"{what}; to go on with what is left set failOnDataLoss=false, and keep more with a longer retention",
            start=stop,
        )
    _log.warning("%s; going on at %d, as failOnDataLoss=false says", what, stop)


def size_of(info: Info, start: int, stop: int) -> int:
    """About how many bytes a range has, if it is like the rest of its log."""
    records = max(info.tail - info.start, 1)
    each = (info.own_bytes + info.shared_bytes) / records + limits.SPARK_RECORD_BYTES
    return int(each * (stop - start))


def pages(log: Log, start: int, stop: int, *, fail: bool) -> Iterator[Plan]:
    """Where a range is, in answers of bounded size."""
    at = start
    while at < stop:
        try:
            plan = log.plan(at, min(at + limits.SPARK_PLAN_RECORDS, stop))
        except Trimmed as error:
            lost(log.name, at, min(error.start, stop), fail=fail)
            at = error.start
            continue
        yield plan
        if plan.stop <= at:
            raise OutOfRange(f"log {log.name!r} can be read up to {plan.stop}: there is no position {stop} yet")
        at = plan.stop


def partitions(ranges: list[Range], options: SourceOptions) -> list[bytes]:
    """What each task reads."""
    rows = sum(part.stop - part.start for part in ranges)
    rows_max = options.max_records_per_partition
    if options.min_partitions is not None:
        enough = max(rows // options.min_partitions, 1)
        rows_max = enough if rows_max is None else min(enough, rows_max)
    cutter = Cutter(target_bytes(sum(part.size for part in ranges), os.cpu_count() or 1), rows_max)
    found: list[bytes] = []
    for wanted in ranges:
        for plan in pages(wanted.log, wanted.start, wanted.stop, fail=options.fail_on_data_loss):
            for part in plan.parts:
                found.extend(cutter.add(wanted.log.name, wanted.log.id, plan.objects, part))
    found.extend(cutter.finish())
    return found
