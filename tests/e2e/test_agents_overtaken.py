"""Desks that others overtake: what was true when they looked is not when they act."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog import Braid, Info, Log, agents, limits
from braidlog.agents import AGENT_LABEL, Registry
from braidlog.agents.idling import Idle
from braidlog.agents.ledger import Ledger
from braidlog.errors import ConditionFailed, NotPermitted
from braidlog.facts import Ancestor
from tests.e2e.agents_stage import CHECK, NOWHERE, Killed, desk_on, interrupted
from tests.e2e.conformance import SITES, Site

AUTO = 'default.promotion = "auto"'


def passes(job: agents.Job, name: str, _: object) -> agents.Finding:
    """A validator that has nothing against anything."""
    del job
    return agents.Finding(validator=name, verdict=agents.Verdict(True))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = SITES["memory"](tmp_path)
    yield site
    site.close()


@pytest.fixture
def orders(braid: Braid) -> Log:
    Registry(braid).add("check", CHECK, logs="orders")
    log = braid.create("orders")
    log.append_many([b"a", b"b"])
    return log


@pytest.fixture
def idea(orders: Log, braid: Braid) -> Log:
    """A fork that is about to be promoted, with a validator of its own before it."""
    Registry(braid).add("idea", CHECK, logs="idea")
    return orders.cfork("idea", promotable=True)


def test_a_fork_whose_parent_is_promoted_while_it_is_looked_at_is_not_promoted_into_another(
    braid: Braid, site: Site, orders: Log, idea: Log
) -> None:
    fork = idea.cfork("idea.bob", promotable=True)
    fork.append(b"x")
    desk = desk_on(interrupted(braid, site.clock, "diff", idea.promote), site.clock, AUTO, runner=passes)
    done = desk.propose(fork.name, agent="bob")
    assert (done.state, done.reason) == ("failed", "'idea', which it was validated for, is not its parent any more")
    assert orders.tail() == 2
    assert fork.info().parent == "orders"


def test_nothing_is_promoted_by_hand_into_a_log_that_became_the_parent_just_now(
    braid: Braid, site: Site, orders: Log, idea: Log
) -> None:
    fork = idea.cfork("idea.bob", promotable=True)
    fork.append(b"x")
    overtaken = interrupted(braid, site.clock, "lineage", idea.promote)
    with pytest.raises(ConditionFailed, match="'idea' was promoted just now"):
        agents.promote(fork.name, braid=overtaken, access=NOWHERE)
    assert orders.tail() == 2


# --- forks that are in use elsewhere ---------------------------------------------------------------------------------

IDLE = 'default.fork_idle = "1h"'


def made(log: Log, name: str, agent: str = "bob") -> Log:
    return log.cfork(name, labels={AGENT_LABEL: agent})


def test_forks_of_agents_that_call_elsewhere_are_left_to_whom_they_call(braid: Braid, site: Site, orders: Log) -> None:
    here, elsewhere = made(orders, "here"), made(orders, "elsewhere", "eve")
    below = made(here, "below")
    desk = desk_on(braid, site.clock, IDLE)
    desk.used(here, "bob")
    desk.tend()
    site.clock.advance(4000)
    desk.tend()
    assert here.name not in braid
    assert below.name not in braid
    assert elsewhere.name in braid


@pytest.mark.parametrize("use", ["written", "below", "proposed", "gone"])
def test_a_fork_that_is_used_while_idle_ones_are_looked_for_is_left(
    braid: Braid, site: Site, orders: Log, use: str
) -> None:
    fork = made(orders, "fork")
    below = made(fork, "below")
    fork.append(b"x")
    desk = desk_on(braid, site.clock, IDLE)
    other = desk_on(braid, site.clock)

    def happens() -> None:
        match use:
            case "written":
                fork.append(b"y")
            case "below":
                below.append(b"y")
            case "proposed":
                other.propose(fork, agent="bob")
            case _:
                fork.squash()

    desk.used(fork, "bob")
    desk.tend()
    site.clock.advance(4000)
    looked = 0
    listed = Idle._of_agents

    def of_agents(idle: Idle) -> Iterator[tuple[Info, list[Ancestor]]]:
        nonlocal looked
        yield from listed(idle)
        looked += 1
        happens()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Idle, "_of_agents", of_agents)
        desk.tend()
    assert looked == 1
    assert (fork.name in braid) == (use != "gone")


# --- policies that differ --------------------------------------------------------------------------------------------


def test_a_fork_that_is_proposed_holds_as_long_as_the_rule_says_that_it_was_proposed_under(
    braid: Braid, site: Site, orders: Log
) -> None:
    fork = orders.cfork("orders.bob.1", promotable=True, lease=1000, labels={AGENT_LABEL: "bob"})
    fork.append(b"x")
    patient = AUTO + '\ndefault.hold = "600s"'
    other = desk_on(braid, site.clock, AUTO + '\ndefault.hold = "60s"')

    def slow(job: agents.Job, name: str, stop: object) -> agents.Finding:
        site.clock.advance(90)
        assert [hold.allowed for hold in other.holds()] == [600.0]
        other.tend()
        return passes(job, name, stop)

    done = desk_on(braid, site.clock, patient, runner=slow).propose(fork, agent="bob")
    assert (done.state, done.runs) == ("promoted", [])
    assert orders.tail() == 3


@pytest.mark.parametrize("promotable", [False, True])
def test_what_a_dead_desk_left_to_validators_fails_once_the_policy_says_never(
    braid: Braid, site: Site, orders: Log, promotable: bool
) -> None:
    fork = orders.cfork("orders.bob.1", promotable=promotable, lease=86_400, labels={AGENT_LABEL: "bob"})
    fork.append(b"x")

    def dies(job: agents.Job, name: str, _: object) -> agents.Finding:
        raise Killed(f"{name} of {job.fork}")

    with pytest.raises(Killed):
        desk_on(braid, site.clock, AUTO + '\ndefault.hold = "1d"', runner=dies).propose(fork, agent="bob")
    [left] = desk_on(braid, site.clock).list()
    assert left.state == "validating"
    site.clock.advance(left.claimed_until_us / 1e6 - site.clock.now_us() / 1e6 + 1)
    desk_on(braid, site.clock, 'default.promotion = "never"', runner=passes).tend()
    [ended] = desk_on(braid, site.clock).list()
    assert (ended.state, ended.tidied) == ("failed", True)
    assert ended.reason == "by now the policy lets nothing be promoted into 'orders'"
    assert orders.tail() == 2


def test_one_that_cannot_be_superseded_does_not_keep_the_others_from_being_looked_after(
    braid: Braid, site: Site, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_on(braid, site.clock)
    stuck, waiting = made(orders, "stuck"), made(orders, "waiting")
    for fork in (stuck, waiting):
        fork.append(b"x")
    other = desk.propose(waiting, agent="bob")
    first = desk.propose(stuck, agent="bob")
    stuck.append(b"y")
    note = Ledger.note

    def refused(self: Ledger, proposal: agents.Proposal, *args: Any, **fields: Any) -> agents.Proposal:
        if proposal.id == first.id:
            raise NotPermitted("it is not for this desk")
        return note(self, proposal, *args, **fields)

    monkeypatch.setattr(Ledger, "note", refused)
    desk.propose(stuck, agent="bob")
    waiting.squash()
    desk.tend()
    assert desk.get(first.id).open
    assert desk.get(other.id).state == "expired"


# --- agents that propose a lot ---------------------------------------------------------------------------------------


def test_what_one_agent_proposed_in_vain_does_not_make_others_forgotten(
    braid: Braid, site: Site, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PROPOSALS_KEPT_MAX", 3)
    desk = desk_on(braid, site.clock)

    def decided(agent: str) -> str:
        fork = orders.cfork()
        fork.append(b"x")
        return desk.reject(desk.propose(fork, agent=agent).id, "ann", "no").id

    hers = decided("eve")
    his = [decided("bob") for _ in range(5)]
    desk.tend()
    assert [one.id for one in desk.list()] == [hers, *his[-2:]]


def test_an_agent_proposes_so_often_and_no_more(
    braid: Braid, site: Site, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_PROPOSALS_LATELY_MAX", 3)
    desk = desk_on(braid, site.clock)

    def fails(agent: str) -> None:
        fork = orders.cfork()
        fork.append(b"bad")
        assert desk.propose(fork, agent=agent).state == "failed"

    for _ in range(3):
        fails("bob")
        site.clock.advance(10)
    with pytest.raises(ConditionFailed, match=r"'bob' has proposed 3 times for 'orders' within 3600 s: wait 3570 s"):
        fails("bob")
    fails("eve")
    site.clock.advance(3570)
    fails("bob")
