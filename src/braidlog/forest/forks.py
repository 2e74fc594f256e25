"""How logs come to be from other logs, and how they end: cFork, sFork, promote, squash, and holds.

While a log has live promotable forks it is *held*: it can be read up to the earliest of their fork points, takes
appends without telling positions, and blocks everything below it except the subtrees of those very forks. Promotion
makes a fork's content the parent's and ends its promotable siblings; squashing the last promotable fork lifts the hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.errors import Blocked, OutOfRange, Trimmed
from braidlog.forest.commands import NONE, CFork, SFork
from braidlog.forest.index import Index, Insertions
from braidlog.forest.log import Log, View, Way
from braidlog.forest.tails import Reach, Tour, reach

if TYPE_CHECKING:
    from braidlog.forest.machine import Forest

# How a log can end.
SQUASHED = "squashed"
EXPIRED = "expired"
PROMOTED = "promoted"
LOST = "lost"  # a promotable sibling was promoted
DROPPED = "dropped"


def appendable(log: Log) -> Reach:
    """Where an append would stand; raises what stands in its way."""
    at = reach(log)
    if at.blocked:
        raise blocked_by(log, at.holder, "appends")
    return at


def cforkable(parent: Log, command: CFork) -> Reach:
    """Where a live fork would begin; raises what stands in its way."""
    at = reach(parent)
    if command.promotable and at.blocked:
        raise blocked_by(parent, at.holder, "a promotable fork of it")
    return at


def sforkable(source: Log, command: SFork) -> int:
    """Where a severed fork would end; raises what stands in its way."""
    limit = reach(source)
    at = limit.tail if command.at == NONE else command.at
    if at < source.start:
        raise Trimmed(
            f"log {source.name!r} starts at {source.start} and cannot be forked at {at}: choose a later position",
            start=source.start,
        )
    if at > limit.tail:
        raise OutOfRange(f"log {source.name!r} ends at {limit.tail} and cannot be forked at {at}")
    if at > limit.readable:
        raise blocked_by(source, limit.holder, f"a severed fork at {at}")
    return at


def cfork(forest: Forest, parent: Log, command: CFork, name: str) -> Log:
    """A live fork at the tail. It copies nothing: an empty index, and a place in the tree."""
    at = cforkable(parent, command)
    log = Log(forest.take_id(), name, "cfork", parent, View(Index(), Way(parent)), command.now)
    log.fork_point = at.tail
    log.start = parent.start
    log.promotable = command.promotable
    log.dedicated = command.dedicated
    log.discipline = parent.discipline
    _describe(log, parent, command)
    if command.promotable and command.lease_us != NONE:
        log.lease_us = command.lease_us
        log.lease_expires = command.now + command.lease_us
    parent.children[log.id] = log
    tree = parent.tree
    if log.promotable:
        if not parent.promotables:
            _hold(parent)
        parent.promotables[log.id] = log
    if tree.tour is not None:
        tree.tour.insert(log)
    elif log.depth > limits.TOUR_DEPTH_MIN:
        tree.tour = Tour(tree.root)
    return log


def sfork(forest: Forest, source: Log, command: SFork, name: str) -> Log:
    """A severed fork of the first `at` positions: the root of a tree of its own, on a version that never changes."""
    at = sforkable(source, command)
    log = Log(
        forest.take_id(),
        name,
        "sfork",
        None,
        View(Index(), Way(None, _owner_of(source.view, at))),
        command.now,
    )
    log.base = log.fork_point = at
    log.start = source.start
    log.discipline = source.discipline
    _describe(log, source, command)
    log.origin = source
    source.severed[log.id] = log
    return log


def _owner_of(view: View, at: int) -> View:
    """The view to pin for a prefix: an ancestor's, when the views between add nothing to it, so as not to pin those."""
    for _ in range(limits.TOUR_DEPTH_MIN):
        if view.up is None or view.index.own_before(at)[0]:
            break
        view = view.up.target()
    return view


def _describe(log: Log, parent: Log, command: CFork | SFork) -> None:
    log.origin_id = parent.id
    log.origin_name = parent.name
    log.labels = dict(command.labels)
    log.owner = command.owner
    if command.ttl_us != NONE:
        log.ttl_us = command.ttl_us
        log.expires = command.now + command.ttl_us


def _hold(parent: Log) -> None:
    tree = parent.tree
    tree.holders[parent.id] = parent
    if tree.tour is not None:
        tree.tour.add(parent, 0, 1)


def _decided(forest: Forest, parent: Log) -> None:
    """A promotable fork is gone: what stands below the earliest of the others is final, or all if there is none."""
    if not parent.promotables:
        _lift(forest, parent)
        return
    final = parent.earliest_fork_point()
    forest.settle([outcome for outcome in parent.withheld if outcome.first + outcome.count <= final])
    parent.withheld = [outcome for outcome in parent.withheld if outcome.withheld]


def _lift(forest: Forest, parent: Log) -> None:
    """The last promotable fork is gone: what was withheld is final, where it stands."""
    tree = parent.tree
    del tree.holders[parent.id]
    if tree.tour is not None:
        tree.tour.add(parent, 0, -1)
    parent.loose_ways.clear()
    forest.settle(parent.withheld)
    parent.withheld = []


def promote(forest: Forest, fork: Log) -> list[int]:
    """Make the fork's content its parent's. Answers the logs that ended: the fork first, then its losing siblings'."""
    parent = fork.parent
    assert parent is not None
    end = reach(fork).tail
    old = parent.view

    # Whoever looked up through a promotable edge saw the parent beyond the fork point: that stays as it was.
    for rival in parent.promotables.values():
        _freeze(rival.view.up, old)
    for way in parent.loose_ways:
        _freeze(way, old)
    parent.loose_ways.clear()
    for way in fork.loose_ways:
        _freeze(way, fork.view)

    ended = [fork.id]
    for rival in list(parent.promotables.values()):
        if rival is not fork:
            ended += end_subtree(forest, rival, LOST)

    insertions = Insertions(fork.view.index)
    parent.view = View(old.index.merged(fork.fork_point, fork.view.index), old.up)
    shared = set(old.index.segments)
    for segment in parent.view.index.segments:
        if segment not in shared and any(block in forest.space.inline for block in segment.block):
            forest.space.watch(segment, parent)
    parent.own += fork.own
    parent.own_size += fork.own_size
    parent.epoch += 1

    tour = parent.tree.tour
    if tour is not None:
        tour.dissolve(fork)
        tour.add(parent, fork.own, 0)

    _adopt(parent, fork, insertions)
    _carry_outcomes(forest, parent, fork, insertions)
    for severed in fork.severed.values():
        severed.origin = parent
    parent.severed.update(fork.severed)

    parent.promotables = dict(fork.promotables)
    parent.tree.holders.pop(fork.id, None)
    _decided(forest, parent)
    forest.bury(fork, PROMOTED, end)
    return ended


def _freeze(way: Way | None, view: View) -> None:
    assert way is not None
    way.log, way.view = None, view


def _adopt(parent: Log, fork: Log, insertions: Insertions) -> None:
    """The fork's children become the parent's; those born late keep what they were born with."""
    del parent.children[fork.id]
    late: list[Log] = []
    for child in reversed(parent.children.values()):
        if child.fork_point < fork.fork_point:
            break
        late.append(child)
    for child in late:
        del parent.children[child.id]
        child.fork_point = insertions.moved(child.fork_point - 1) + 1
    for child in fork.children.values():
        child.parent = parent
        way = child.view.up
        assert way is not None
        way.log = parent
        late.append(child)
    for child in sorted(late, key=lambda log: (log.fork_point, log.id)):
        parent.children[child.id] = child


def _carry_outcomes(forest: Forest, parent: Log, fork: Log, insertions: Insertions) -> None:
    for outcome in parent.withheld:
        outcome.first = insertions.moved(outcome.first)
    for outcome in fork.withheld:
        outcome.log = parent.id
    parent.withheld += fork.withheld
    fork.withheld = []
    for name, writer in fork.writers.items():
        known = parent.writers.get(name)
        if known is None or known.sequence < writer.sequence:
            parent.writers.pop(name, None)  # the latest writer stands last, and is forgotten last
            parent.writers[name] = writer
            writer.outcome.log = parent.id
    forest.trim_writers(parent)


def squash(forest: Forest, log: Log, end: str, cascade_severed: bool) -> list[int]:
    """End a fork and the live forks below it; with `cascade_severed` the severed ones taken from them as well."""
    ended: list[int] = []
    doomed = [log]
    while doomed:
        log = doomed.pop()
        if log.id not in forest.logs:
            continue
        if cascade_severed:
            severed = [fork for member in subtree(log) for fork in member.severed.values()]
            doomed += sorted(severed, key=lambda fork: fork.id)  # `severed` has no order that a snapshot keeps
        ended += end_subtree(forest, log, end)
        if log.promotable and log.parent is not None:
            _decided(forest, log.parent)
    return ended


def end_subtree(forest: Forest, top: Log, end: str) -> list[int]:
    """End a log and its live descendants. Severed forks taken from them live on, as if taken from what remains.

    Whoever ends a promotable fork settles what that decides for its parent.
    """
    parent = top.parent
    heir = parent if parent is not None else top.origin
    members = subtree(top)
    tails = {top.id: reach(top).tail}
    orphans: dict[int, Log] = {}
    for member in members:
        orphans.update(member.severed)
        for child in member.children.values():
            tails[child.id] = tails[member.id] + child.own
    if parent is not None:
        if top.id in parent.promotables:
            del parent.promotables[top.id]
            if orphans and top.view.up is not None and top.view.up.log is not None:
                parent.loose_ways.append(top.view.up)
        del parent.children[top.id]
        if parent.tree.tour is not None:
            parent.tree.tour.remove(top)
        for member in members:
            parent.tree.holders.pop(member.id, None)
    elif top.origin is not None:
        del top.origin.severed[top.id]
    for severed in orphans.values():
        severed.origin = heir
        if heir is not None:
            heir.severed[severed.id] = severed
    for member in members:
        for outcome in member.withheld:
            outcome.first = NONE
        forest.settle(member.withheld)
        forest.bury(member, end, tails[member.id])
    return [member.id for member in members]


def subtree(top: Log) -> list[Log]:
    """A log and its live descendants, parents before children."""
    members = [top]
    for member in members:  # grows while it is walked
        members.extend(member.children.values())
    return members


def severed_below(top: Log) -> list[Log]:
    """Severed forks that hang on the subtree, and what hangs on those."""
    found: list[Log] = []
    queue = subtree(top)
    for member in queue:  # grows while it is walked
        for fork in member.severed.values():
            found.append(fork)
            queue.extend(subtree(fork))
    return found


def blocked_by(log: Log, holder: Log | None, what: str) -> Blocked:
    name = holder.name if holder is not None else log.name
    forks = ", ".join(repr(fork.name) for fork in holder.promotables.values()) if holder is not None else ""
    return Blocked(
        f"log {log.name!r} is blocked for {what}: {name!r} waits for a decision on {forks}; "
        "promote or squash that, or pass wait=",
        by=name,
    )
