"""A desk may die at any step: the next one brings what it left to an end, and nothing is promoted twice or half."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.agents import Desk, Proposal, Registry, is_system
from braidlog.agents.names import PROPOSAL_LABEL
from braidlog.errors import BraidError, ConditionFailed
from tests.e2e.agents_stage import CHECK, Killed, desk_on, dying, paused
from tests.e2e.conformance import MemorySite, values

AUTO = 'default.promotion = "auto"'
OWN = [b"own 1", b"own 2", b"own 3"]
CHANGES_MAX = 40  # no call makes more
LATER_S = 1000.0  # every claim and every lease is over by then


class Stage:
    """A log with a fork that has three records of its own between those of its parent."""

    def __init__(self, tmp_path: Path, *, promotable: bool = False, bad: bool = False) -> None:
        self.site = MemorySite(tmp_path)
        self.braid = self.site.open()
        Registry(self.braid).add("check", CHECK, logs="orders")
        self.orders = self.braid.create("orders")
        self.orders.append_many([b"a", b"b"])
        self.fork = self.orders.cfork("orders.bob.1", promotable=promotable, lease=None)
        first, *rest = [*OWN[:2], b"bad" if bad else OWN[2]]
        self.fork.append(first, key=b"k", headers={"h": b"1"}, timestamp=1234567)
        self.orders.append(b"c")
        self.fork.append_many(rest)

    def doomed(self, changes: int, *, after: bool, policy: str = "") -> tuple[Desk, Callable[[], bool]]:
        braid, backend = dying(self.braid, self.site.clock, changes, after=after)
        return desk_on(braid, self.site.clock, policy), lambda: backend.dead

    def next_desk(self, policy: str = "", *, expire: bool = True) -> Desk:
        """Some time later. Whether leases were looked after meanwhile makes a difference."""
        self.site.clock.advance(LATER_S)
        if expire:
            self.site.tend(self.braid)
        return desk_on(self.braid, self.site.clock, policy)

    def check_end(self, proposal: Proposal) -> None:
        """What the state says is true, and nothing is left over."""
        own = [value for value in values(self.orders.read(0)) if value in OWN]
        assert own == (OWN if proposal.state == "promoted" else [])
        assert [v for v in values(self.orders.read(0)) if v not in OWN] == [b"a", b"b", b"c"]
        left = {log.name for log in self.braid.logs() if not is_system(log.name)} - {"orders"}
        assert left == ({"orders.bob.1"} if proposal.state == "failed" and not proposal.direct else set())
        assert self.orders.info().limited_by is None
        assert proposal.tidied


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is copied by itself, so that there are steps between."""
    monkeypatch.setattr(limits, "COPY_BATCH_BYTES", 1)


def every_death(run: Callable[[int, bool], bool]) -> None:
    """Play it again and again, with a death at each change, until one comes through alive."""
    for after in (False, True):
        for changes in range(1, CHANGES_MAX):
            if not run(changes, after):
                assert changes > 3, "it died nowhere"
                break
        else:
            raise AssertionError("it never came to an end")


@pytest.mark.parametrize("expire", [True, False], ids=["leases ended", "leases last"])
def test_an_approval_is_completed_wherever_the_desk_dies(tmp_path: Path, expire: bool) -> None:
    def run(changes: int, after: bool) -> bool:
        stage = Stage(tmp_path)
        id = desk_on(stage.braid, stage.site.clock).propose("orders.bob.1", agent="bob").id
        desk, dead = stage.doomed(changes, after=after)
        try:
            desk.approve(id, "ann")
        except Killed:
            later = stage.next_desk(expire=expire)
            later.tend()
            if later.get(id).state == "waiting":  # it was not decided yet
                later.approve(id, "ann")
        done = desk_on(stage.braid, stage.site.clock).get(id)
        assert done.state == "promoted"
        stage.check_end(done)
        copied = next(record for record in stage.orders.read(0) if record.value == OWN[0])
        assert (copied.key, copied.headers, copied.timestamp) == (b"k", (("h", b"1"),), 1234567)
        stage.site.close()
        return dead()

    every_death(run)


def test_an_approval_that_does_not_pass_is_undone_wherever_the_desk_dies(tmp_path: Path) -> None:
    def run(changes: int, after: bool) -> bool:
        stage = Stage(tmp_path, bad=True)
        lenient = desk_on(stage.braid, stage.site.clock, runner=lambda _, name, __: _passed(name))
        id = lenient.propose("orders.bob.1", agent="bob").id
        desk, dead = stage.doomed(changes, after=after)
        try:
            desk.approve(id, "ann")
        except Killed:
            later = stage.next_desk()
            later.tend()
            if later.get(id).state == "waiting":
                later.approve(id, "ann")
        done = desk_on(stage.braid, stage.site.clock).get(id)
        assert done.state == "failed"
        assert "bad" in done.reason
        stage.check_end(done)
        stage.site.close()
        return dead()

    every_death(run)


def _passed(name: str) -> braidlog.agents.Finding:
    return braidlog.agents.Finding(validator=name, verdict=braidlog.agents.Verdict(passed=True))


@pytest.mark.parametrize("promotable", [True, False])
@pytest.mark.parametrize("bad", [True, False])
def test_what_validators_decide_is_decided_once_wherever_the_desk_dies(
    tmp_path: Path, promotable: bool, bad: bool
) -> None:
    policy = AUTO + '\ndefault.hold = "1h"' + '\ndefault.on_failure = "squash"' * promotable

    def run(changes: int, after: bool) -> bool:
        stage = Stage(tmp_path, promotable=promotable, bad=bad)
        desk, dead = stage.doomed(changes, after=after, policy=policy)
        try:
            desk.propose("orders.bob.1", agent="bob")
        except Killed:
            stage.next_desk(policy, expire=False).tend()
        later = desk_on(stage.braid, stage.site.clock, policy)
        found = later.list()
        if not found:  # it was not even proposed
            assert "orders.bob.1" in stage.braid
            found = [later.propose("orders.bob.1", agent="bob")]
        assert [one.state for one in found] == ["failed" if bad else "promoted"]
        stage.check_end(found[0])
        stage.site.close()
        return dead()

    every_death(run)


def test_a_rejection_is_completed_wherever_the_desk_dies(tmp_path: Path) -> None:
    def run(changes: int, after: bool) -> bool:
        stage = Stage(tmp_path)
        id = desk_on(stage.braid, stage.site.clock).propose("orders.bob.1", agent="bob").id
        desk, dead = stage.doomed(changes, after=after)
        try:
            desk.reject(id, "ann", "no")
        except Killed:
            later = stage.next_desk()
            later.tend()
            if later.get(id).state == "waiting":
                later.reject(id, "ann", "no")
        done = desk_on(stage.braid, stage.site.clock).get(id)
        assert done.state == "rejected"
        stage.check_end(done)
        stage.site.close()
        return dead()

    every_death(run)


def test_what_is_proposed_again_takes_the_place_of_the_former_wherever_the_desk_dies(tmp_path: Path) -> None:
    def run(changes: int, after: bool) -> bool:
        stage = Stage(tmp_path)
        former = desk_on(stage.braid, stage.site.clock).propose("orders.bob.1", agent="bob").id
        stage.fork.append(b"own 4")
        desk, dead = stage.doomed(changes, after=after)
        with contextlib.suppress(Killed):
            desk.propose("orders.bob.1", agent="bob")
        later = stage.next_desk()
        later.tend()
        states = [one.state for one in later.list()]
        assert states in (["waiting"], ["superseded", "waiting"])
        if len(states) == 2:
            with pytest.raises(ConditionFailed):
                later.reject(former, "ann", "it was the former that she saw")
        assert stage.fork.info().own == 4
        stage.site.close()
        return dead()

    every_death(run)


# --- desks that work on the same at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("expire", [True, False], ids=["leases ended", "leases last"])
@pytest.mark.parametrize("policy", ["", AUTO], ids=["a person decides", "validators decide"])
def test_a_desk_that_comes_back_after_another_has_finished_does_no_harm(
    tmp_path: Path, expire: bool, policy: str
) -> None:
    def run(changes: int) -> bool:
        stage = Stage(tmp_path)
        others: list[Desk] = []

        def meanwhile() -> None:
            others.append(stage.next_desk(policy, expire=expire))
            others[0].tend()

        braid, backend = paused(stage.braid, stage.site.clock, changes, meanwhile)
        slow = desk_on(braid, stage.site.clock, policy)
        if policy:
            slow.propose("orders.bob.1", agent="bob")
        else:
            id = desk_on(stage.braid, stage.site.clock).propose("orders.bob.1", agent="bob").id
            slow.approve(id, "ann")
        stage.site.clock.advance(LATER_S)
        desk = desk_on(stage.braid, stage.site.clock, policy)
        desk.tend()
        (done,) = desk.list()
        assert done.state == "promoted"
        stage.check_end(done)
        stage.site.close()
        return backend.reached

    assert [run(changes) for changes in range(1, 8)] == [True] * 7
    assert not all(run(changes) for changes in range(8, 26)), "no approval has so many changes"


def test_a_desk_that_comes_back_after_another_has_died_on_the_same_does_no_harm(tmp_path: Path) -> None:
    """The first dies when it has made its fork, the second pauses as it takes over, and a third dies meanwhile."""

    def run(pause: int, death: int) -> None:
        stage = Stage(tmp_path)
        id = desk_on(stage.braid, stage.site.clock).propose("orders.bob.1", agent="bob").id
        first, _ = stage.doomed(3, after=True)
        with pytest.raises(Killed):
            first.approve(id, "ann")
        stage.next_desk()
        assert desk_on(stage.braid, stage.site.clock).get(id).fresh_id is not None

        def meanwhile() -> None:
            stage.next_desk()
            with contextlib.suppress(Killed):
                stage.doomed(death, after=True)[0].tend()

        braid, _ = paused(stage.braid, stage.site.clock, pause, meanwhile)
        desk_on(braid, stage.site.clock).tend()
        last = stage.next_desk()
        last.tend()
        assert last.get(id).state == "promoted"
        stage.check_end(last.get(id))
        stage.site.close()

    for pause in range(1, 6):
        for death in range(1, 12):
            run(pause, death)


# --- any number of desks, agents and people, at random ---------------------------------------------------------------


class Town:
    """Agents, reviewers and desks that die, on one log that goes on meanwhile."""

    def __init__(self, tmp_path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.site = MemorySite(tmp_path)
        self.braid = self.site.open()
        Registry(self.braid).add("check", CHECK, logs="orders")
        self.orders = self.braid.create("orders")
        self.policy = self.chance.choice(["", AUTO, AUTO + '\ndefault.on_failure = "squash"'])
        self.written: dict[int, list[bytes]] = {}  # by the fork's number: what an agent wrote there
        self.ingested: list[bytes] = []
        self.count = 0
        self.deaths = 0

    def desk(self) -> Desk:
        if self.chance.random() < 0.5:
            return desk_on(self.braid, self.site.clock, self.policy)
        braid, _ = dying(self.braid, self.site.clock, self.chance.randint(1, 14), after=self.chance.random() < 0.5)
        return desk_on(braid, self.site.clock, self.policy)

    def value(self, *, bad: bool = False) -> bytes:
        self.count += 1
        return b"%s %d" % (b"bad" if bad else b"v", self.count)

    def step(self) -> None:
        steps = [self.ingest, self.ingest, self.write, self.write, self.propose, self.decide, self.decide, self.wait]
        try:
            self.chance.choice(steps)()
        except BraidError:
            pass  # refused, for some good reason
        except Killed:
            self.deaths += 1

    def ingest(self) -> None:
        value = self.value()
        self.orders.append(value)
        self.ingested.append(value)

    def forks(self) -> list[braidlog.Log]:
        return [log for log in self.braid.logs() if log.id in self.written]

    def write(self) -> None:
        mine = self.forks()
        if not mine or self.chance.random() < 0.4:
            promotable = self.policy != "" and self.chance.random() < 0.5
            mine = [self.orders.cfork(f"orders.bob.{self.count}", promotable=promotable, lease=40)]
            self.written[mine[0].id] = []
            self.count += 1
        fork = self.chance.choice(mine)
        batch = [self.value(bad=self.chance.random() < 0.1) for _ in range(self.chance.randint(1, 3))]
        fork.append_many(batch)
        self.written[fork.id] += batch

    def propose(self) -> None:
        if mine := self.forks():
            self.desk().propose(self.chance.choice(mine), agent="bob")

    def decide(self) -> None:
        desk = self.desk()
        if waiting := desk.list("waiting"):
            one = self.chance.choice(waiting)
            if self.chance.random() < 0.7:
                desk.approve(one.id, "ann")
            else:
                desk.reject(one.id, "ann", "no")

    def wait(self) -> None:
        self.site.clock.advance(self.chance.choice([1, 45, 200]))
        if self.chance.random() < 0.5:
            self.site.tend(self.braid)

    def settle(self) -> Desk:
        """All claims are over, and a desk that lives looks after everything."""
        self.site.clock.advance(LATER_S)
        self.site.tend(self.braid)
        desk = desk_on(self.braid, self.site.clock, self.policy)
        desk.tend()
        return desk


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_the_log_has_what_was_promoted_once_and_nothing_else(tmp_path: Path, seed: int) -> None:
    town = Town(tmp_path, seed)
    for _ in range(60):
        town.step()
    desk = town.settle()
    everything = values(town.orders.read(0))
    expected = list(town.ingested)
    for proposal in desk.list():
        assert proposal.state not in ("validating", "approving")
        assert proposal.open or proposal.tidied
        records = town.written[proposal.fork_id][: proposal.own]
        if proposal.state == "promoted":
            expected += records
            places = [everything.index(value) for value in records]
            assert places == sorted(places), "the order of an agent's records is kept"
            assert not any(value.startswith(b"bad") for value in records)
    assert sorted(everything) == sorted(expected)
    assert [value for value in everything if value in set(town.ingested)] == town.ingested
    assert not any(PROPOSAL_LABEL in log.info().labels for log in town.braid.logs()), "a desk left a fork behind"
    town.site.close()


def test_the_random_histories_have_deaths_and_promotions_in_them(tmp_path: Path) -> None:
    """Else they would prove nothing."""
    deaths, states = 0, set()
    for seed in range(24):
        town = Town(tmp_path, seed)
        for _ in range(60):
            town.step()
        deaths += town.deaths
        states |= {proposal.state for proposal in town.settle().list()}
        town.site.close()
    assert deaths > 10
    assert {"promoted", "rejected", "failed", "superseded"} <= states
