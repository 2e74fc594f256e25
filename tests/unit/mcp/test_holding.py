"""How long agents may hold a log: for half of the time at most, however many forks they make."""

from __future__ import annotations

import pytest

from braidlog.errors import ConditionFailed
from braidlog.mcp.holding import Holding

HOLD_S = 60.0


class Agents:
    """Who hold one log, by a clock that stands still unless it is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._holding = Holding(lambda: self.now)
        self._living: dict[str, dict[str, float]] = {"ann": {}, "bob": {}}

    def hold(self, fork: str, agent: str = "ann") -> float:
        """Make a fork, and say what it was granted."""
        ages = {name: self.now - since for name, since in self._living[agent].items()}
        granted = self._holding.grant(agent, "orders", ages, HOLD_S)
        self._holding.begun(agent, "orders", fork)
        self._living[agent][fork] = self.now
        return granted

    def end(self, fork: str, agent: str = "ann", *, promoted: bool = False, told: bool = True) -> None:
        del self._living[agent][fork]
        if told:
            self._holding.ended(fork, promoted=promoted)

    def again(self) -> Agents:
        """The same forks, at a server that was started anew."""
        self._holding = Holding(lambda: self.now)
        return self


@pytest.fixture
def agents() -> Agents:
    return Agents()


def test_a_quick_failure_is_followed_by_another_try_at_once(agents: Agents) -> None:
    assert agents.hold("1") == HOLD_S
    agents.now += 5
    agents.end("1")
    assert agents.hold("2") == HOLD_S - 5
    agents.now += 5
    agents.end("2")
    assert agents.hold("3") == HOLD_S - 10


def test_one_after_the_other_gets_no_more_than_one_alone_and_then_has_to_wait(agents: Agents) -> None:
    for number in range(2):
        agents.hold(f"{number}")
        agents.now += 25
        agents.end(f"{number}")
    with pytest.raises(ConditionFailed, match=r"has held 'orders' for 50 of the last 120 s, and may for 60: wait 75 s"):
        agents.hold("3")
    agents.now += 74
    with pytest.raises(ConditionFailed, match="wait 1 s"):
        agents.hold("3")
    agents.now += 1
    assert agents.hold("3") == pytest.approx(HOLD_S / 4)
    assert agents.hold("theirs", "bob") == HOLD_S


def test_side_by_side_they_end_together(agents: Agents) -> None:
    began = agents.now
    for number in range(3):
        assert agents.now + agents.hold(f"{number}") == began + HOLD_S
        agents.now += 20
    with pytest.raises(ConditionFailed, match=r"propose or squash what holds it \(0, 1, 2\)"):
        agents.hold("3")


def test_what_is_promoted_does_not_count(agents: Agents) -> None:
    for number in range(10):
        assert agents.hold(f"{number}") == HOLD_S
        agents.now += 50
        agents.end(f"{number}", promoted=True)


def test_of_what_ended_unseen_no_more_counts_than_it_could_have_held(agents: Agents) -> None:
    agents.hold("1")
    agents.end("1", told=False)
    agents.now += 40
    assert agents.hold("2") == HOLD_S - 40
    agents.end("2", told=False)
    agents.now += 500
    assert agents.hold("3") == HOLD_S


def test_forks_that_live_count_though_another_process_made_them(agents: Agents) -> None:
    agents.hold("1")
    agents.now += 30
    assert agents.again().hold("2") == HOLD_S - 30


def test_nobody_holds_a_log_for_more_than_half_of_the_time(agents: Agents) -> None:
    """One who takes all that is granted, as soon as it is."""
    began, held, number = agents.now, 0.0, 0
    while agents.now < began + 100 * HOLD_S:
        number += 1
        try:
            granted = agents.hold(f"{number}")
        except ConditionFailed:
            agents.now += 1
            continue
        agents.now += granted
        held += granted
        agents.end(f"{number}")
    assert 0.4 < held / (agents.now - began) <= 0.51
