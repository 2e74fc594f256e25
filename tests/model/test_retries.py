"""A request that is sent again takes effect once, whatever was lost and forgotten in between.

What is promised is checked on random histories of clients, and each mistake that could break a promise is planted, and
caught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from braidlog import limits
from braidlog.forest.commands import NONE
from braidlog.forest.windows import Window, Windows
from tests.model.retries import Broken, explore

STEPS = 150
HISTORIES_MAX = 200

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _a_short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 3)
    monkeypatch.setattr(limits, "DECIDED_OUTCOMES_KEPT_MAX", 1)
    monkeypatch.setattr(limits, "CLIENTS_KEPT_MAX", 4)
    monkeypatch.setattr(limits, "CLIENT_OUTCOMES_KEPT_MAX", 3)


@pytest.mark.parametrize("chunk", range(4))
def test_no_request_takes_effect_twice(chunk: int) -> None:
    for seed in range(25):
        explore(chunk * 1000 + seed, STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(4, 12))
def test_no_request_takes_effect_twice_in_long_histories(chunk: int) -> None:
    for seed in range(200):
        explore(chunk * 1000 + seed, 4 * STEPS)


def test_histories_meet_every_answer() -> None:
    met: Counter[str] = Counter()
    for seed in range(10):
        met += Counter(explore(seed, STEPS).met)
    wanted = {"new": 200, "recalled": 50, "again, as new": 50, "unknown": 50}
    assert {what: met[what] for what, least in wanted.items() if met[what] < least} == {}


def floors_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies below a client's floor counts as never applied, though its outcomes were dropped."""
    right = Windows.check_new

    def wrong(self: Windows, request: bytes, since: int, applied: int) -> None:
        window = self.by_client.get(request[:8])
        floor = window.floor if window is not None else 0
        if window is not None:
            window.floor = 0
        try:
            right(self, request, since, applied)
        finally:
            if window is not None:
                window.floor = floor

    monkeypatch.setattr(Windows, "check_new", wrong)


def dropped_numbers_count_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Window.keep

    def wrong(self: Window, number: int, outcome: object) -> None:
        right(self, number, outcome)  # type: ignore[arg-type]
        self.dropped = NONE

    monkeypatch.setattr(Window, "keep", wrong)


def decided_outcomes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hold withheld goes to nobody's window when it is forgotten."""
    right = Windows.keep

    def wrong(self: Windows, request: bytes, outcome: object, upto: int) -> None:
        if type(outcome).__name__ != "Outcome":
            right(self, request, outcome, upto)  # type: ignore[arg-type]

    monkeypatch.setattr(Windows, "keep", wrong)


def windows_go_without_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Windows.settle

    def wrong(self: Windows, client: bytes, floor: int, applied: int) -> int:
        answer = right(self, client, floor, applied)
        self.windows_forgotten_at = NONE
        return answer

    monkeypatch.setattr(Windows, "settle", wrong)


def outcomes_go_without_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "_lost_upto", lambda self, _: self.windows_forgotten_at)


def the_marks_come_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was lost is taken for something older than it was."""
    right = Windows._lost_upto
    monkeypatch.setattr(Windows, "_lost_upto", lambda self, applied: right(self, applied) - 3)


def a_new_window_knows_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that a client lost and made anew counts as if it had never been away."""
    right = Windows.settle

    def wrong(self: Windows, client: bytes, floor: int, applied: int) -> int:
        answer = right(self, client, floor, applied)
        self.by_client[client].whole_since = 0
        return answer

    monkeypatch.setattr(Windows, "settle", wrong)


def windows_are_forgotten_in_the_order_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Windows.settle

    def wrong(self: Windows, client: bytes, floor: int, applied: int) -> int:
        order = list(self.by_client)
        answer = right(self, client, floor, applied)
        for known in order:
            if known in self.by_client:
                self.by_client.move_to_end(known)
        for known in list(self.by_client):
            if known not in order:
                self.by_client.move_to_end(known)
        return answer

    monkeypatch.setattr(Windows, "settle", wrong)


def clients_are_heard_only_when_they_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "heard", lambda *_: None)


def what_is_young_needs_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Windows.check_new

    def wrong(self: Windows, request: bytes, since: int, applied: int) -> None:
        with monkeypatch.context() as hasty:
            if request[:8] not in self.by_client:
                hasty.setattr(limits, "YOUNG_COMMANDS", -1)
            right(self, request, since, applied)

    monkeypatch.setattr(Windows, "check_new", wrong)


def all_that_is_not_recalled_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Windows.check_new
    monkeypatch.setattr(Windows, "check_new", lambda self, request, _, applied: right(self, request, NONE, applied))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (floors_are_ignored, "twice"),
        (dropped_numbers_count_as_new, "twice"),
        (decided_outcomes_are_not_kept, "twice"),
        (windows_go_without_a_mark, "twice"),
        (outcomes_go_without_a_mark, "twice"),
        (the_marks_come_too_early, "twice"),
        (a_new_window_knows_the_past, "twice"),
        (windows_are_forgotten_in_the_order_they_were_made, "promise"),
        (clients_are_heard_only_when_they_settle, "promise"),
        (what_is_young_needs_a_window, "promise"),
        (all_that_is_not_recalled_is_unknown, "promise"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_it_is_noticed_when(plant: Plant, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert _first_broken() == kind


def _first_broken() -> str:
    for seed in range(HISTORIES_MAX):
        try:
            explore(seed, STEPS)
        except Broken as broken:
            return broken.kind
    pytest.fail(f"{HISTORIES_MAX} histories did not notice it")
