"""Tails, and how far a log can be read: cheap in deep trees and in wide ones.

In a tree of live forks `tail(fork) = tail(parent) + own(fork)`, so a tail is the sum of own counts on the path to the
root. An append changes one number and touches no descendant. In shallow trees `reach` walks that path.

Deep trees keep a *tour* as well: each log stands in it twice, with +own where the walk around the tree enters it and
-own where the walk leaves it, so the sum of everything up to a log's entry is its tail. The tour is a balanced tree,
and so an append, a tail and a fork cost O(log n) however deep the fork. It is derived from (parent, own): it is built
when a tree first grows deep, it never reaches a snapshot, and its balance comes from a hash of log ids, not chance.

Holds travel the same way. A held log counts +1 for everything below it and its promotable children -1 for everything
below them, so a log is blocked from above exactly when the sum on its path is positive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from braidlog import limits

if TYPE_CHECKING:
    from braidlog.forest.log import Log


class Reach(NamedTuple):
    """How far a log goes, and how far it can be read."""

    tail: int  # the true next position
    readable: int  # the first position that cannot be read now
    holder: Log | None  # the log whose hold sets `readable`, if one does
    blocked: bool  # an ancestor is held, and this log takes no appends


class Tree:
    """All logs connected by live forks, and what is known of them together."""

    __slots__ = ("holders", "root", "tour")

    def __init__(self, root: Log) -> None:
        self.root = root
        self.tour: Tour | None = None
        self.holders: dict[int, Log] = {}


def reach(log: Log) -> Reach:
    """The tail and the readable limit of a log."""
    tour = log.tree.tour
    if tour is None or log.depth <= limits.TOUR_DEPTH_MIN:
        return _walk(log)
    tail, above = tour.at(log)
    if above - (1 if log.promotables else 0) > 0:
        return _blocked(log, tail)
    if log.promotables:
        return Reach(tail, min(tail, log.earliest_fork_point()), log, False)
    return Reach(tail, tail, None, False)


def _walk(log: Log) -> Reach:
    own = 0
    limit = -1
    holder: Log | None = None
    blocked = False
    via: Log | None = None
    node = log
    while True:
        if node.promotables and (via is None or via.id not in node.promotables):
            if via is not None:
                blocked = True
            candidate = node.earliest_fork_point() + own
            if holder is None or candidate < limit:
                limit, holder = candidate, node
        own += node.own
        parent = node.parent
        if parent is None:
            tail = node.base + own
            return Reach(tail, tail if holder is None or tail < limit else limit, holder, blocked)
        via, node = node, parent


def _blocked(log: Log, tail: int) -> Reach:
    """A deep log below a held one: look at the holders of the tree, or at the path, whichever is shorter."""
    tour = log.tree.tour
    assert tour is not None
    holders = log.tree.holders
    if len(holders) >= log.depth:
        return _walk(log)
    limit = tail
    nearest: Log | None = None
    for holder in holders.values():
        exempt = any(tour.encloses(fork, log) for fork in holder.promotables.values())
        if exempt or not tour.encloses(holder, log):
            continue
        candidate = holder.earliest_fork_point() + tail - tour.at(holder)[0]
        # Of equal limits the nearer hold is named, as on a walk: `holders` has no order that a snapshot keeps.
        if nearest is None or candidate < limit or (candidate == limit and tour.encloses(nearest, holder)):
            limit, nearest = candidate, holder
    return Reach(tail, min(limit, tail), nearest, True)


class Marker:
    """One end of a log in the tour: a node of a treap that knows its parent, so that sums are read upwards."""

    __slots__ = ("block", "block_sum", "left", "own", "own_sum", "parent", "priority", "right", "size")

    def __init__(self, own: int, block: int, priority: int) -> None:
        self.own = self.own_sum = own
        self.block = self.block_sum = block
        self.priority = priority
        self.size = 1
        self.left: Marker | None = None
        self.right: Marker | None = None
        self.parent: Marker | None = None

    def refresh(self) -> None:
        size, own, block = 1, self.own, self.block
        if self.left is not None:
            size, own, block = size + self.left.size, own + self.left.own_sum, block + self.left.block_sum
        if self.right is not None:
            size, own, block = size + self.right.size, own + self.right.own_sum, block + self.right.block_sum
        self.size, self.own_sum, self.block_sum = size, own, block


class Tour:
    """The walk around a tree. A log's markers stand on the log itself (`enter`, `leave`)."""

    __slots__ = ()

    def __init__(self, root: Log) -> None:
        """Build it for a whole tree."""
        sequence: list[Marker] = []
        stack: list[tuple[Log, bool]] = [(root, True)]
        while stack:
            log, entering = stack.pop()
            if entering:
                sequence.append(self._markers(log)[0])
                stack.append((log, False))
                stack.extend((child, True) for child in reversed(log.children.values()))
            else:
                assert log.leave is not None
                sequence.append(log.leave)
        whole: Marker | None = None
        for marker in sequence:
            whole = _join(whole, marker)

    @staticmethod
    def _markers(log: Log) -> tuple[Marker, Marker]:
        own = log.own if log.parent is not None else log.base + log.own
        parent = log.parent
        block = (1 if log.promotables else 0) - (1 if parent is not None and log.id in parent.promotables else 0)
        log.enter = Marker(own, block, _priority(2 * log.id))
        log.leave = Marker(-own, -block, _priority(2 * log.id + 1))
        return log.enter, log.leave

    def at(self, log: Log) -> tuple[int, int]:
        """(tail, how often the log is held, itself included)."""
        marker = log.enter
        assert marker is not None
        own, block = marker.own, marker.block
        if marker.left is not None:
            own, block = own + marker.left.own_sum, block + marker.left.block_sum
        parent = marker.parent
        while parent is not None:
            if parent.right is marker:
                own, block = own + parent.own, block + parent.block
                if parent.left is not None:
                    own, block = own + parent.left.own_sum, block + parent.left.block_sum
            marker, parent = parent, parent.parent
        return own, block

    def add(self, log: Log, own: int, block: int) -> None:
        """Change what everything in the log's subtree sees."""
        for marker, sign in ((log.enter, 1), (log.leave, -1)):
            assert marker is not None
            marker.own += sign * own
            marker.block += sign * block
            node: Marker | None = marker
            while node is not None:
                node.own_sum += sign * own
                node.block_sum += sign * block
                node = node.parent

    def insert(self, log: Log) -> None:
        """A new, empty child stands last among its parent's."""
        assert log.parent is not None
        assert log.parent.leave is not None
        enter, leave = self._markers(log)
        before, after = _split(log.parent.leave)
        _join(_join(_join(before, enter), leave), after)

    def remove(self, log: Log) -> None:
        """Take out a log and everything below it."""
        assert log.enter is not None
        assert log.leave is not None
        before, _ = _split(log.enter)
        if (follower := _next(log.leave)) is not None:
            _, after = _split(follower)
            _join(before, after)

    def dissolve(self, log: Log) -> None:
        """Take out one log and leave its children to its parent."""
        for marker in (log.enter, log.leave):
            assert marker is not None
            before, _ = _split(marker)
            follower = _next(marker)
            if follower is not None:
                _, after = _split(follower)
                _join(before, after)

    def encloses(self, outer: Log, inner: Log) -> bool:
        """Whether `inner` is `outer` or stands below it."""
        return _rank(outer.enter) <= _rank(inner.enter) < _rank(outer.leave)


def _priority(number: int) -> int:
    """A fixed scramble of 64 bits (the finaliser of SplitMix64): balanced in expectation, the same on every replica."""
    z = (number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


def _rank(marker: Marker | None) -> int:
    assert marker is not None
    rank = marker.left.size if marker.left is not None else 0
    while (parent := marker.parent) is not None:
        if parent.right is marker:
            rank += 1 + (parent.left.size if parent.left is not None else 0)
        marker = parent
    return rank


def _next(marker: Marker) -> Marker | None:
    if marker.right is not None:
        node = marker.right
        while node.left is not None:
            node = node.left
        return node
    while marker.parent is not None and marker.parent.right is marker:
        marker = marker.parent
    return marker.parent


def _split(marker: Marker) -> tuple[Marker | None, Marker]:
    """Cut before `marker`: what comes before it, and what begins with it."""
    before = marker.left
    if before is not None:
        before.parent = None
        marker.left = None
        marker.refresh()
    after = marker
    child, parent = marker, marker.parent
    marker.parent = None
    while parent is not None:
        above = parent.parent
        parent.parent = None
        if parent.left is child:
            parent.left = after
            after.parent = parent
            parent.refresh()
            after = parent
        else:
            parent.right = before
            if before is not None:
                before.parent = parent
            parent.refresh()
            before = parent
        child, parent = parent, above
    return before, after


def _join(before: Marker | None, after: Marker | None) -> Marker | None:
    """Put two tours one behind the other. Walks down the seam, O(log n) expected."""
    if before is None or after is None:
        return before if after is None else after
    seam: list[Marker] = []
    top: Marker | None = None
    hang: Marker | None = None
    hang_right = False
    while before is not None and after is not None:
        if before.priority >= after.priority:
            chosen, before, right = before, before.right, True
        else:
            chosen, after, right = after, after.left, False
        _hang(hang, hang_right, chosen)
        top = top or chosen
        seam.append(chosen)
        hang, hang_right = chosen, right
    _hang(hang, hang_right, before if after is None else after)
    for marker in reversed(seam):
        marker.refresh()
    return top


def _hang(parent: Marker | None, right: bool, child: Marker | None) -> None:
    if child is not None:
        child.parent = parent
    if parent is not None:
        if right:
            parent.right = child
        else:
            parent.left = child
