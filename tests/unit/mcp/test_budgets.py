"""How much agents may write: what is on a fork counts, and how fast it comes."""

from __future__ import annotations

import pytest
from msgspec import structs

import braidlog
from braidlog import limits
from braidlog.agents.policy import Rule
from braidlog.errors import ConditionFailed
from braidlog.mcp.budgets import Budgets

RATE = 100
BURST = int(RATE * limits.MCP_APPEND_BURST_S)


class Agents:
    """Who write on one fork, by a clock that stands still unless it is set."""

    def __init__(self, info: braidlog.Info) -> None:
        self.now = 0.0
        self._info = info
        self._budgets = Budgets(lambda: self.now)

    def write(self, size: int, agent: str = "ann", on_it: int = 0, log: str = "orders") -> int:
        info = structs.replace(self._info, own_bytes=on_it)
        return self._budgets.spend(agent, info, log, size, Rule(fork_bytes=10_000, fork_bytes_per_s=RATE))


@pytest.fixture
def agents() -> Agents:
    with braidlog.open("memory://") as braid:
        return Agents(braid.create("orders").cfork().info())


def test_what_is_on_the_fork_counts(agents: Agents) -> None:
    assert agents.write(100, on_it=9_000) == 900
    assert agents.write(100, on_it=9_900) == 0
    with pytest.raises(ConditionFailed, match="do not fit"):
        agents.write(101, on_it=9_900)


def test_a_burst_is_granted_and_then_time_has_to_pass(agents: Agents) -> None:
    agents.write(BURST)
    with pytest.raises(ConditionFailed, match=r"wait 2 s"):
        agents.write(RATE + 1)
    agents.now = 2.0
    agents.write(2 * RATE)
    with pytest.raises(ConditionFailed, match="wait 1 s"):
        agents.write(1)
    agents.now = 1_000.0
    agents.write(BURST)  # what was not used is not saved up
    with pytest.raises(ConditionFailed, match="wait"):
        agents.write(1)


def test_what_is_refused_costs_nothing(agents: Agents) -> None:
    agents.write(BURST - 10)
    for _ in range(5):
        with pytest.raises(ConditionFailed):
            agents.write(11)
    agents.write(10)


def test_more_than_ever_fits_is_refused_with_how_much_does(agents: Agents) -> None:
    with pytest.raises(ConditionFailed, match=f"at most {BURST:,}"):
        agents.write(BURST + 1)


def test_agents_and_logs_have_budgets_of_their_own(agents: Agents) -> None:
    agents.write(BURST)
    agents.write(BURST, agent="bob")
    agents.write(BURST, log="notes")
