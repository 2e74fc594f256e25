"""The same meaning as the specification's, kept in a form that is fast to change and to take back.

Records are numbered in the order in which their appends took effect. The content of every log is, at every moment, in
that order: an append comes last, a live fork receives as its parent does, and a promotion puts records where their
numbers say. So a log needs only to know its own records: those of a live fork are its own, its parent's, and so on up
the path, together. The position of a record is how many numbers below its own there are on the path. A severed fork
pins lists and lengths; a promotion replaces the parent's list instead of changing it, and leaves what was pinned alone.

A hold hides from a log what is numbered from the birth of the earliest undecided fork on.

Every change is noted on the trail, so that `undo` takes back everything since a mark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TypeAlias

from braidlog.testing.linearizability.history import LogId

Undo: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


class Node:
    """One log. `pinned` are the lists, and how much of each, that a severed fork shares."""

    __slots__ = (
        "end",
        "forks",
        "id",
        "kind",
        "own",
        "parent",
        "pending",
        "pinned",
        "pinned_count",
        "promotable",
        "stamp",
    )

    def __init__(self, log: LogId, kind: str, parent: Node | None, promotable: bool, stamp: int) -> None:
        self.id = log
        self.kind = kind
        self.parent = parent
        self.promotable = promotable
        self.stamp = stamp  # the next number when it came to be
        self.own: list[int] = []
        self.pinned: tuple[tuple[list[int], int], ...] = ()
        self.pinned_count = 0
        self.forks: dict[Node, None] = {}
        self.pending: dict[Node, None] = {}  # the promotable ones among them
        self.end = ""

    def tail(self) -> int:
        count = 0
        node: Node | None = self
        while node is not None:
            count += len(node.own) + node.pinned_count
            node = node.parent
        return count

    def below(self, number: int) -> int:
        """How many of its records are numbered below that."""
        count = 0
        node: Node | None = self
        while node is not None:
            count += bisect_left(node.own, number)
            for numbers, length in node.pinned:
                count += bisect_left(numbers, number, 0, length)
            node = node.parent
        return count

    def limit(self) -> int:
        """The number from which on records are hidden; -1 if nothing is."""
        found = -1
        below: Node | None = None
        node: Node | None = self
        while node is not None:
            if node.pending and below not in node.pending:
                stamp = min(fork.stamp for fork in node.pending)
                found = stamp if found < 0 else min(found, stamp)
            below, node = node, node.parent
        return found

    def readable(self) -> int:
        limit = self.limit()
        return self.tail() if limit < 0 else self.below(limit)

    def blocked(self) -> bool:
        return any(holder is not self for holder in self.holders())

    def holders(self) -> Iterator[Node]:
        """The logs on the path whose hold reaches this one, from itself upwards."""
        below: Node | None = None
        node: Node | None = self
        while node is not None:
            if node.pending and below not in node.pending:
                yield node
            below, node = node, node.parent

    def under(self, top: Node) -> bool:
        node: Node | None = self
        while node is not None:
            if node is top:
                return True
            node = node.parent
        return False

    def has(self, number: int) -> bool:
        node: Node | None = self
        while node is not None:
            at = bisect_left(node.own, number)
            if at < len(node.own) and node.own[at] == number:
                return True
            for numbers, length in node.pinned:
                at = bisect_left(numbers, number, 0, length)
                if at < length and numbers[at] == number:
                    return True
            node = node.parent
        return False

    def subtree(self) -> list[Node]:
        members = [self]
        for member in members:  # grows while it is walked
            members += member.forks
        return members


class Forest:
    """Every log of a tree. Callers have checked that a change is possible."""

    def __init__(self) -> None:
        self.nodes: dict[LogId, Node] = {}
        self.next = 0
        self.trail: list[Undo] = []

    def undo(self, mark: int) -> None:
        trail = self.trail
        while len(trail) > mark:
            change, arguments = trail.pop()
            change(*arguments)

    def append(self, node: Node, count: int) -> int:
        """The number of the first of so many records."""
        first = self.next
        self.next += count
        node.own.extend(range(first, self.next))
        self.trail.append((self._unappend, (node, count)))
        return first

    def _unappend(self, node: Node, count: int) -> None:
        del node.own[-count:]
        self.next -= count

    def create(self, log: LogId) -> None:
        self._add(Node(log, "root", None, False, self.next))

    def cfork(self, parent: Node, log: LogId, promotable: bool) -> None:
        node = Node(log, "cfork", parent, promotable, self.next)
        self._add(node)
        self._put(parent.forks, node)
        if promotable:
            self._put(parent.pending, node)

    def sfork(self, source: Node, log: LogId, point: int) -> None:
        node = Node(log, "sfork", None, False, self.next)
        bound = self._number_at(source, point)
        pinned: list[tuple[list[int], int]] = []
        at: Node | None = source
        while at is not None:
            pinned.append((at.own, bisect_left(at.own, bound)))
            pinned += [(numbers, bisect_left(numbers, bound, 0, length)) for numbers, length in at.pinned]
            at = at.parent
        node.pinned = tuple((numbers, length) for numbers, length in pinned if length)
        node.pinned_count = point
        self._add(node)

    def _number_at(self, node: Node, position: int) -> int:
        """The least number with so many records below it."""
        low, high = 0, self.next
        while low < high:
            middle = (low + high) // 2
            if node.below(middle) < position:
                low = middle + 1
            else:
                high = middle
        return low

    def rivals(self, fork: Node) -> list[Node]:
        assert fork.parent is not None
        return [other for other in fork.parent.pending if other is not fork]

    def promote(self, fork: Node) -> None:
        parent = fork.parent
        assert parent is not None
        for rival in self.rivals(fork):
            self.end(rival.subtree(), "lost")
        if fork.own:
            at = bisect_left(parent.own, fork.own[0])
            merged = parent.own[:at] + sorted(parent.own[at:] + fork.own)
            self._set(parent, "own", merged)
        self._take(parent.forks, fork)
        self._take(parent.pending, fork)
        for child in list(fork.forks):
            self._set(child, "parent", parent)
            self._put(parent.forks, child)
            if child.promotable:
                self._put(parent.pending, child)
        self._set(fork, "end", "promoted")

    def end(self, nodes: list[Node], how: str) -> None:
        top = nodes[0]
        if top.parent is not None:
            self._take(top.parent.forks, top)
            if top.promotable:
                self._take(top.parent.pending, top)
        for node in nodes:
            self._set(node, "end", how)

    def successor(self, node: Node) -> Node:
        while node.end == "promoted":
            assert node.parent is not None
            node = node.parent
        return node

    def _add(self, node: Node) -> None:
        self.nodes[node.id] = node
        self.trail.append((self.nodes.pop, (node.id,)))

    def _put(self, where: dict[Node, None], node: Node) -> None:
        where[node] = None
        self.trail.append((where.pop, (node,)))

    def _take(self, where: dict[Node, None], node: Node) -> None:
        del where[node]
        self.trail.append((where.__setitem__, (node, None)))

    def _set(self, node: Node, name: str, value: object) -> None:
        self.trail.append((setattr, (node, name, getattr(node, name))))
        setattr(node, name, value)
