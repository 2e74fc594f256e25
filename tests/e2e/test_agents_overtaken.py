"""Desks that others overtake: what was true when they looked is not when they act."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog import Braid, Log, agents
from braidlog.agents import Registry
from braidlog.errors import ConditionFailed
from tests.e2e.agents_stage import CHECK, NOWHERE, desk_on, interrupted
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
