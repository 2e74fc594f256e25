"""What is true of every forest after every command. Predicates only: they read, and say what is wrong.

`broken(forest)` lists violations as sentences; tests, the simulator and `braid doctor` run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from braidlog import limits
from braidlog.forest.index import Index
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.reading import resolve
from braidlog.forest.space import needed
from braidlog.forest.tails import reach


def broken(forest: Forest, *, deep: bool = True) -> list[str]:
    """Every violated invariant. `deep` also resolves all of every log, which takes time in proportion to it."""
    found: list[str] = []
    for log in forest.logs.values():
        found += _log(forest, log)
        found += (f"log {log.name!r}: {problem}" for problem in _index(log.view.index))
        if deep:
            found += _resolves(forest, log)
    found += _space(forest)
    found += _windows(forest)
    return found


def _log(forest: Forest, log: Log) -> Iterator[str]:
    if forest.names.get(log.name) is not log:
        yield f"log {log.name!r} is not found by its name"
    if log.view.index.totals() != (log.own, log.own_size):
        yield f"log {log.name!r} counts {log.own, log.own_size} of its own, its index {log.view.index.totals()}"
    path, node = log.own, log
    while node.parent is not None:
        node = node.parent
        path += node.own
    at = reach(log)
    if at.tail != node.base + path:
        yield f"log {log.name!r} has tail {at.tail}, and the sum along its path is {node.base + path}"
    if not log.start <= at.readable <= at.tail:
        yield f"log {log.name!r}: start {log.start} <= readable {at.readable} <= tail {at.tail} does not hold"
    for consumer, (position, _) in log.consumers.items():
        if not 0 <= min(position, log.consumers_ceiling) <= at.readable:
            yield f"log {log.name!r}: consumer {consumer!r} at {position} is beyond {at.readable}, what is readable"
    if log.parent is not None and log.parent.children.get(log.id) is not log:
        yield f"log {log.name!r} is not among its parent's children"
    if log.parent is not None and log.tree is not log.parent.tree:
        yield f"log {log.name!r} is not in its parent's tree"
    for child in log.children.values():
        if child.id not in forest.logs or child.parent is not log:
            yield f"log {log.name!r} has a child {child.name!r} that is not there or not its own"
        if child.promotable != (child.id in log.promotables):
            yield f"log {child.name!r} is promotable, or is it: its parent says otherwise"
    for order in (log.children, log.promotables):
        keys = [(child.fork_point, child.id) for child in order.values()]
        if keys != sorted(keys):
            yield f"log {log.name!r} has its forks out of order: {keys}"
    if bool(log.promotables) != (log.id in log.tree.holders):
        yield f"log {log.name!r} is held, or is it: its tree says otherwise"
    if log.withheld and not log.promotables:
        yield f"log {log.name!r} withholds positions but is not held"
    for outcome in log.withheld:
        if outcome.request and forest.pending.get(outcome.request) is not outcome:
            yield f"log {log.name!r} withholds a position that no request waits for"


def _index(index: Index) -> Iterator[str]:
    if index.lows != sorted(set(index.lows)) or len(index.lows) != len(index.segments):
        yield f"segments out of order: {index.lows}"
    end = 0
    for run in index.runs(0, 1 << 62):
        if run.start < end or run.rows <= 0 or run.size < 0 or run.row < 0 or run.least > run.greatest:
            yield f"run {run} is not possible after position {end}"
        end = run.start + run.rows
    total = size = 0
    for number, segment in enumerate(index.segments):
        if number and (segment.base_total < total or segment.base_size < size):
            yield f"segment {number} counts backwards"
        total, size = segment.base_total, segment.base_size


def _resolves(forest: Forest, log: Log) -> Iterator[str]:
    at = log.start
    for extent in resolve(log.view, log.start, reach(log).tail):
        if extent.position != at:
            yield f"log {log.name!r} has nothing at {at}"
        if extent.block not in forest.space.places and extent.block not in forest.space.inline:
            yield f"log {log.name!r} at {extent.position} points at block {extent.block}, which is no more"
        at = extent.position + extent.rows
    if at != reach(log).tail:
        yield f"log {log.name!r} resolves up to {at} and ends at {reach(log).tail}"


def _space(forest: Forest) -> Iterator[str]:
    space = forest.space
    for block, place in space.places.items():
        if place.object not in space.objects:
            yield f"block {block} stands in object {place.object!r}, which is not registered"
        elif space.objects[place.object].condemned >= 0:
            yield f"block {block} stands in object {place.object!r}, which is condemned"
    if both := space.inline.keys() & space.places.keys():
        yield f"blocks {sorted(both)} are inline and in objects"
    watched = set(space.unsettled)
    for view in needed(list(forest.logs.values())):
        for segment in view.index.segments:
            if id(segment) not in watched and any(b in space.inline for b in segment.block):
                yield "a segment with inline runs is not watched, so packing would miss it"
            if any(b in space.inline for b in segment.block[: segment.settled]):
                yield "a settled run stands inline"
    epochs = [space.epoch, *space.admitted, *space.uploads.by_epoch]
    if len(set(epochs)) < len(epochs) or max(epochs) > space.newest_epoch:
        yield f"epochs {epochs} are not all different, up to {space.newest_epoch}"
    if len(space.uploads.by_epoch) > limits.UPLOADS_MAX:
        yield f"{len(space.uploads.by_epoch)} uploads live"
    if space.uploads.of_root != Counter(living.root for living in space.uploads.by_epoch.values()):
        yield f"uploads are counted as {space.uploads.of_root}, by root"


def _windows(forest: Forest) -> Iterator[str]:
    windows = forest.windows
    if len(windows.by_client) > limits.CLIENTS_KEPT_MAX:
        yield f"{len(windows.by_client)} clients have windows"
    if max(windows.windows_forgotten_at, windows.outcomes_forgotten_upto) > forest.applied:
        yield f"something will be forgotten later than command {forest.applied}, the last that was applied"
    for client, window in windows.by_client.items():
        numbers = sorted(window.outcomes)
        if sorted(window.order) != numbers or window.order[:1] != numbers[:1]:
            yield f"the window of client {client.hex()} has its numbers out of order"
        if numbers and numbers[0] < window.floor:
            yield f"the window of client {client.hex()} keeps {numbers[0]}, and {window.floor} is settled"
        if len(numbers) > limits.CLIENT_OUTCOMES_KEPT_MAX:
            yield f"the window of client {client.hex()} has {len(numbers)} outcomes"
        if window.whole_since > forest.applied:
            yield f"the window of client {client.hex()} begins at {window.whole_since}, after all that was applied"
