"""What a testing agent tries: for each case events that are made from what production writes just then.

An event stands among live ones: between two of them the agent waits until production has written more. The last event
of each case is a sale a minute ahead, which ends every window before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.agents.processors import WINDOW_MS

AHEAD_MS: Final = 60_000

Event = dict[str, Any] | str


@dataclass(frozen=True)
class Stream:
    """What is known of it so far: the latest time of a sale, and the shops there are."""

    now: int
    shops: tuple[str, ...]

    @classmethod
    def seen(cls, values: Iterable[Any], before: Stream | None = None) -> Stream | None:
        """From values of records; None if none of them is a sale."""
        found = [value for value in values if isinstance(value, dict) and isinstance(value.get("at"), int)]
        shops = {str(value.get("shop")) for value in found} | set(before.shops if before else ())
        now = max([value["at"] for value in found] + ([before.now] if before else []), default=None)
        return None if now is None else cls(now, tuple(sorted(shops)))

    @property
    def edge(self) -> int:
        """Where the present window begins."""
        return self.now // WINDOW_MS * WINDOW_MS


@dataclass(frozen=True)
class Maker:
    """Makes the events of a case, with ids that no other has."""

    case: str

    def sale(self, stream: Stream, name: str, at: int, amount: int) -> dict[str, Any]:
        return {"id": f"test-{self.case}-{name}", "at": at, "shop": stream.shops[0], "amount": amount}

    def last(self, stream: Stream) -> dict[str, Any]:
        return self.sale(stream, "end", stream.now + AHEAD_MS, 1)


Step = Callable[[Maker, Stream, Sequence[Event]], list[Event]]  # the last is what was made so far


def _late(by_ms: int, amount: int) -> Step:
    return lambda make, stream, _: [make.sale(stream, f"{by_ms}ms", stream.now - by_ms, amount)]


def _beside_edge(name: str, by_ms: int, amount: int) -> Step:
    return lambda make, stream, _: [make.sale(stream, name, stream.edge + by_ms, amount)]


def _now(name: str, times: int = 1) -> Step:
    return lambda make, stream, _: [make.sale(stream, name, stream.now, 1_001)] * times


def _again(number: int) -> Step:
    return lambda _make, _stream, before: [before[number]]


def _with(name: str, **fields: Any) -> Step:
    return lambda make, stream, _: [make.sale(stream, name, stream.now, 1) | fields]


def _without(field: str) -> Step:
    def made(make: Maker, stream: Stream, _: Sequence[Event]) -> list[Event]:
        sale = make.sale(stream, f"without-{field}", stream.now, 1)
        return [{name: value for name, value in sale.items() if name != field}]

    return made


def _text(text: str) -> Step:
    return lambda _make, _stream, _before: [text]


CASES: Final[Mapping[str, tuple[Step, ...]]] = {
    "late": (_late(1_500, 1_001), _late(3_000, 1_002), _late(6_000, 1_003), _late(7_000, 1_004)),
    "duplicate": (_now("apart"), _now("together", 2), _again(0)),
    "malformed": (
        _text('{"id": "test-malformed-cut", "at": 17'),
        _with("when", at="yesterday"),
        _without("amount"),
        _with("refund", amount=-700),
    ),
    "out-of-order": (
        _beside_edge("far", -1_800, 1_001),
        _beside_edge("near", -400, 1_002),
        _beside_edge("after", 3, 1_003),
        _beside_edge("nearer", -200, 1_004),
    ),
    "boundary": (_beside_edge("before", -1, 1_001), _beside_edge("at", 0, 1_002), _beside_edge("after", 1, 1_003)),
}
ABOUT: Final[Mapping[str, str]] = {
    "late": "sales that come late, by less than 10 s",
    "duplicate": "a sale that comes again, at once and after others",
    "malformed": "events that are no sales: cut off, of the wrong type, with a field missing, for less than nothing",
    "out-of-order": "sales that come after later ones, near the edge of a window above all",
    "boundary": "sales at the very edge of a window, and a millisecond beside it",
}
