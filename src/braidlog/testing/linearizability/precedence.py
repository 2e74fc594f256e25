"""Which append came before which: every log's content is, at every moment, in the order in which appends took effect.

So records that stand one behind the other in any log, in whatever answer, order their appends; and an append that
another one stands behind must have taken effect before that one's answer, and before the first read that shows it.
"""

from __future__ import annotations

from braidlog.testing.linearizability.evidence import LogFacts, Tree


class Precedence:
    """`before`: for each append those that stand right before it. `due`: when each operation must have taken effect."""

    def __init__(self, tree: Tree) -> None:
        self.before: list[list[int]] = [[] for _ in tree.operations]
        self.due = list(tree.deadline)
        self._tree = tree
        for log in tree.logs.values():
            self._note(log)
        self._compare_forks()
        if not tree.violations:
            self._sweep()

    def _note(self, log: LogFacts) -> None:
        appender, before = self._tree.appender, self.before
        previous = -1
        for value in log.content:
            if value is None:
                continue
            number = appender[value]
            if number != previous:
                if previous >= 0 and (not before[number] or previous not in before[number]):
                    before[number].append(previous)
                previous = number
        self._note_absent(log)

    def _note_absent(self, log: LogFacts) -> None:
        """Appends to a log that are not among its known first records come after those."""
        known = log.content.index(None) if None in log.content else len(log.content)
        if not known:
            return
        last = self._tree.appender[log.content[known - 1]]  # type: ignore[index]
        for number in log.operations:
            one = self._tree.operations[number]
            if one.verb == "append" and one.values[0] not in log.position_of:
                self.before[number].append(last)

    def _compare_forks(self) -> None:
        tree = self._tree
        for fork in tree.logs.values():
            if fork.source is None:
                continue
            highest, standing = -1, -1
            for position, value in enumerate(fork.content):
                at = fork.source.position_of.get(value, -1) if value is not None else -1
                if at < 0:
                    continue
                if at < highest:
                    message = (
                        f"{fork.id} has {fork.content[standing]!r} before {value!r}, "
                        f"and {fork.source.id} has them the other way round"
                    )
                    told = (fork.told_by[standing], fork.told_by[position])
                    tree.violate("fork order", message, *told, fork.source.told_by[at], fork.source.told_by[highest])
                    return
                highest, standing = at, position

    def _sweep(self) -> None:
        """From front to back: nothing may be due before something was invoked that stands before it."""
        tree, operations = self._tree, self._tree.operations
        behind: list[list[int]] = [[] for _ in operations]
        missing = [len(others) for others in self.before]
        for number, others in enumerate(self.before):
            for other in others:
                behind[other].append(number)
        ready = [number for number, count in enumerate(missing) if not count and operations[number].verb == "append"]
        latest = list(range(len(operations)))  # the one invoked last among those that stand before, or itself
        order: list[int] = []
        while ready:
            number = ready.pop()
            order.append(number)
            for other in self.before[number]:
                if operations[latest[other]].invoked > operations[latest[number]].invoked:
                    latest[number] = latest[other]
            if operations[latest[number]].invoked > tree.deadline[number]:
                self._blame(latest[number], number)
                return
            for other in behind[number]:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        if len(order) < len(tree.appender) and any(missing):
            circle = [number for number, count in enumerate(missing) if count][:6]
            tree.violate("fork order", "the logs contradict each other about the order of these records", *circle)
            return
        for number in reversed(order):
            for other in self.before[number]:
                self.due[other] = min(self.due[other], self.due[number])

    def _blame(self, late: int, number: int) -> None:
        tree = self._tree
        one = tree.operations[number]
        names = f"{tree.operations[late].values[0]!r} stands before {one.values[0]!r}"
        if one.outcome == "ok" and one.answered is not None and tree.operations[late].invoked > one.answered:
            tree.violate("order", f"{names}, whose append was finished before that one began", number, late)
        else:
            message = f"{names}, which was shown before that one's append was invoked"
            tree.violate("early", message, tree.shown_by[number], late, number)
