"""What a checker says about a history."""

from __future__ import annotations

from dataclasses import dataclass, field

from braidlog.testing.linearizability.history import Operation


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that no order of the operations explains. `operations` are those that contradict each other.

    Kinds: `missing` an acknowledged record is not there; `twice` a record stands twice in a log; `conflict` two records
    at one position of a log; `stale` older than what was complete before; `early` a record, or a position, before it
    could be; `order` what finished first stands behind; `backwards` a tail that went back; `torn` a batch in pieces;
    `fork` a fork lacks what its parent had; `severed` a severed fork goes on receiving; `fork order` records stand in
    different order on related logs; `leaked` a record of a log that this one never received from; `promotion` a
    promoted fork's records are not where they were; `hold` beyond the point of an undecided fork; `refused` a refused
    append is visible; `rivals` two rivals were promoted; `ended` a log answered after its end, or ended twice; `unborn`
    a log answered before it was made, or was made twice; `invented` a record that nobody appended; `malformed` an
    answer that is none; `unexplained` all of this is in order, and yet there is no explanation.
    """

    kind: str
    message: str
    operations: tuple[Operation, ...] = ()
    origin: int = 0

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.message}", *(f"    {one.told(self.origin)}" for one in self.operations)])


@dataclass(frozen=True, slots=True)
class Verdict:
    """`linearizable` is None if the search was given up.

    `order` has, for each tree of logs, an order of its operations that explains every answer; operations that are not
    in it had no effect.
    """

    linearizable: bool | None
    violations: tuple[Violation, ...] = ()
    order: tuple[tuple[Operation, ...], ...] = field(default=(), repr=False)
    searched: bool = False  # derivation did not suffice, and orders were tried one after the other

    def __bool__(self) -> bool:
        return self.linearizable is True

    def __str__(self) -> str:
        head = {True: "linearizable", False: "not linearizable", None: "undecided"}[self.linearizable]
        return "\n".join([head, *map(str, self.violations)])
