"""Proposals: what agents want promoted waits for people without holding up anybody, and is decided once."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import Braid, Log, agents, limits
from braidlog.agents import AGENT_LABEL, Audit, Desk, Policy, Registry
from braidlog.agents.names import PROPOSAL_LABEL
from braidlog.agents.running import Bounds, run
from braidlog.cli import exit_codes
from braidlog.client.tokens import create_token
from braidlog.errors import ConditionFailed, Gone, InvalidArgument, NotFound, NotPermitted
from tests.e2e.agents_stage import CHECK, desk_on
from tests.e2e.conformance import SITES, Site, values
from tests.e2e.test_cli import Command
from tests.e2e.test_serve import Served

AUTO = 'default.promotion = "auto"'
DEADLINE_S = 60


@pytest.fixture(params=["directory", "served", "brokered"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    site = SITES[request.param](tmp_path)
    yield site
    site.close()


@pytest.fixture
def orders(braid: Braid) -> Log:
    Registry(braid).add("check", CHECK, logs="orders")
    log = braid.create("orders")
    log.append_many([b"a", b"b"])
    return log


@pytest.fixture
def fork(orders: Log) -> Log:
    fork = orders.cfork("orders.bob.1", labels={AGENT_LABEL: "bob"})
    fork.append(b"x", key=b"k")
    orders.append(b"c")
    fork.append(b"y")
    return fork


@pytest.fixture
def desk(braid: Braid, site: Site) -> Desk:
    return desk_on(braid, site.clock)


def test_what_waits_for_a_person_holds_up_nobody(desk: Desk, orders: Log, fork: Log) -> None:
    proposal = desk.propose(fork, agent="bob", title="Two more", note="they were asked for")
    assert (proposal.state, proposal.own, proposal.parent) == ("waiting", 2, "orders")
    assert proposal.findings[0].passed
    assert [(one.position, one.key, one.value) for one in proposal.summary.records] == [(2, "k", "x"), (4, None, "y")]
    assert (proposal.summary.fork_point, proposal.summary.own, proposal.summary.inherited) == (2, 2, 1)
    assert orders.append(b"d") == 3  # its position is told at once
    assert (orders.info().limited_by, values(orders.read(0))) == (None, [b"a", b"b", b"c", b"d"])
    assert desk.holds() == []


def test_what_is_approved_is_promoted_with_all_that_belongs_to_it(
    desk: Desk, orders: Log, fork: Log, braid: Braid
) -> None:
    written = fork.diff().own
    proposal = desk.propose(fork, agent="bob")
    orders.append(b"d")
    done = desk.approve(proposal.id, "ann", "good")
    assert (done.state, done.reviewer, done.reviewer_note) == ("promoted", "ann", "good")
    records = orders.read(0)
    assert values(records) == [b"a", b"b", b"c", b"d", b"x", b"y"]
    assert [(r.key, r.headers, r.timestamp) for r in records[4:]] == [(r.key, r.headers, r.timestamp) for r in written]
    assert [log.name for log in braid.logs() if not agents.is_system(log.name)] == ["orders"]
    assert desk.list("open") == []
    assert desk.show(proposal.id).diff is None


def test_what_is_rejected_is_gone(desk: Desk, orders: Log, fork: Log) -> None:
    proposal = desk.propose(fork, agent="bob")
    with pytest.raises(InvalidArgument, match="give a reason"):
        desk.reject(proposal.id, "ann", "")
    done = desk.reject(proposal.id, "ann", "too many")
    assert (done.state, done.reviewer, done.reason) == ("rejected", "ann", "too many")
    with pytest.raises(Gone):
        fork.info()
    assert values(orders.read(0)) == [b"a", b"b", b"c"]
    for decide in (lambda: desk.approve(proposal.id, "ann"), lambda: desk.reject(proposal.id, "ann", "again")):
        with pytest.raises(ConditionFailed, match="waits for nobody: it is rejected"):
            decide()


def test_nobody_approves_what_they_proposed_or_have_no_say_in(braid: Braid, site: Site, fork: Log) -> None:
    proposal = desk_on(braid, site.clock, 'default.reviewers = ["ann", "bob"]').propose(fork, agent="bob")
    elsewhere = desk_on(braid, site.clock)  # a desk with another policy: the one that it was proposed under holds
    for who, why in (
        ("bob", "cannot decide about it"),
        (" Bob", "cannot decide"),
        ("eve", "the policy names ann, bob"),
    ):
        for desk in (elsewhere, desk_on(braid, site.clock, 'default.reviewers = ["ann", "bob"]')):
            with pytest.raises(NotPermitted, match=why):
                desk.approve(proposal.id, who)
            with pytest.raises(NotPermitted, match=why):
                desk.reject(proposal.id, who, "no")
    with pytest.raises(NotPermitted, match="the policy names zoe"):
        desk_on(braid, site.clock, 'default.reviewers = ["zoe"]').approve(proposal.id, "ann")
    assert elsewhere.approve(proposal.id, "ann").state == "promoted"
    refused = [entry for entry in Audit(braid).read() if entry.outcome == "NotPermitted"]
    assert {entry.agent for entry in refused} == {"bob", " Bob", "eve", "ann"}


def test_nobody_approves_what_changed_since(desk: Desk, fork: Log, orders: Log) -> None:
    first = desk.propose(fork, agent="bob")
    fork.append(b"z")
    with pytest.raises(ConditionFailed, match="3 records of its own, and 2 were proposed"):
        desk.approve(first.id, "ann")
    assert desk.get(first.id).state == "waiting"
    second = desk.propose(fork, agent="bob")
    assert (desk.get(first.id).state, second.state, second.own) == ("superseded", "waiting", 3)
    assert desk.propose(fork, agent="bob").id == second.id  # nothing is new
    desk.approve(second.id, "ann")
    assert values(orders.read(3)) == [b"x", b"y", b"z"]


def test_what_somebody_else_wrote_on_a_fork_of_that_name_is_not_promoted(desk: Desk, fork: Log, orders: Log) -> None:
    proposal = desk.propose(fork, agent="bob")
    labels = {PROPOSAL_LABEL: proposal.id}
    squatted = orders.cfork(f"orders.proposal-{proposal.id}", promotable=True, lease=60, labels=labels)
    squatted.append_many([b"z", b"z"])
    decided = desk.approve(proposal.id, reviewer="ann")
    assert (decided.state, "other records than were approved" in decided.reason) == ("failed", True)
    assert values(orders.read(0)) == [b"a", b"b", b"c"]


def test_what_validators_cannot_see_is_not_promoted(braid: Braid, orders: Log) -> None:
    trimmed = orders.cfork("trimmed", promotable=True)
    trimmed.append(b"unseen")
    trimmed.trim(trimmed.tail())
    with pytest.raises(ConditionFailed, match="trimmed beyond its fork point"):
        agents.promote(trimmed, braid=braid)
    trimmed.squash()
    held = orders.cfork("held", promotable=True)
    held.cfork("holding", promotable=True)
    held.append(b"unseen")
    with pytest.raises(ConditionFailed, match="decide first about the fork"):
        agents.promote(held, braid=braid)
    held.squash()
    assert values(orders.read(0)) == [b"a", b"b"]


def test_the_name_of_a_fork_that_is_gone_gives_nobody_its_proposal(desk: Desk, fork: Log, orders: Log) -> None:
    proposal = desk.propose(fork, agent="bob")
    fork.squash()
    other = orders.cfork(fork.name)
    other.append_many([b"evil", b"evil"])
    with pytest.raises(ConditionFailed, match="it is expired"):
        desk.approve(proposal.id, "ann")
    with pytest.raises(Gone):
        desk.propose(fork, agent="bob")
    assert other.info().own == 2


def test_a_proposal_that_nobody_decides_expires_with_its_fork(desk: Desk, site: Site, braid: Braid, fork: Log) -> None:
    proposal = desk.propose(fork, agent="bob")
    site.clock.advance(6 * 86400)
    desk.tend()
    assert desk.get(proposal.id).state == "waiting"
    site.clock.advance(2 * 86400)
    with pytest.raises(ConditionFailed, match="expired, nobody decided in time"):
        desk.approve(proposal.id, "ann")
    with pytest.raises(Gone):
        fork.info()
    assert any(entry.tool == "expire" for entry in Audit(braid).read(log="orders"))


def test_what_does_not_pass_bothers_nobody_and_is_left_for_correction(desk: Desk, orders: Log, fork: Log) -> None:
    fork.append(b"bad")
    failed = desk.propose(fork, agent="bob")
    assert (failed.state, failed.findings[0].verdict.positions) == ("failed", [5])
    assert "a bad record" in failed.reason
    assert fork.info().own == 3
    assert orders.tail() == 3


def test_the_validators_have_the_last_word_after_the_person(braid: Braid, site: Site, orders: Log, fork: Log) -> None:
    desk = desk_on(braid, site.clock)
    proposal = desk.propose(fork, agent="bob")
    Registry(braid).add("strict", CHECK, logs="orders")

    def strict(job: agents.Job, name: str, _: object) -> agents.Finding:
        seen = values(braid.log(job.fork).read(0))
        late = name == "strict" and b"late" in seen
        return agents.Finding(validator=name, verdict=agents.Verdict(not late, ["too late"] if late else []))

    orders.append(b"late")
    done = desk_on(braid, site.clock, runner=strict).approve(proposal.id, "ann")
    assert (done.state, done.reason) == ("failed", "strict: too late")
    assert done.findings[0].passed
    assert values(orders.read(0)) == [b"a", b"b", b"c", b"late"]
    assert fork.info().own == 2
    assert [log.name for log in braid.logs() if log.info().promotable] == []


# --- without a person ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("promotable", [True, False])
def test_what_validators_decide_is_promoted_at_once(braid: Braid, site: Site, orders: Log, promotable: bool) -> None:
    desk = desk_on(braid, site.clock, AUTO)
    fork = orders.cfork("orders.bob.1", promotable=promotable, lease=60)
    fork.append(b"x")
    orders.append(b"c")
    assert desk.propose(fork, agent="bob").state == "promoted"
    assert values(orders.read(2)) == ([b"x", b"c"] if promotable else [b"c", b"x"])
    with pytest.raises(Gone):
        fork.info()


@pytest.mark.parametrize("on_failure", ["keep", "squash"])
def test_what_fails_is_kept_or_squashed_as_the_policy_says(
    braid: Braid, site: Site, orders: Log, on_failure: str
) -> None:
    desk = desk_on(braid, site.clock, f'{AUTO}\ndefault.on_failure = "{on_failure}"')
    for promotable in (True, False):
        fork = orders.cfork(promotable=promotable, lease=60)
        fork.append(b"bad")
        assert desk.propose(fork, agent="bob").state == "failed"
        assert (fork.name in braid) == (on_failure == "keep")
        with contextlib.suppress(Gone):
            fork.squash()
    assert values(orders.read(0)) == [b"a", b"b"]


def test_limits_that_no_validator_could_keep_are_refused_when_they_are_given(braid: Braid) -> None:
    with pytest.raises(InvalidArgument, match="may take up to"):
        Registry(braid).add("slow", CHECK, logs="orders", bounds=Bounds(timeout_s=1e6))
    with pytest.raises(InvalidArgument, match="gets nowhere"):
        Registry(braid).add("small", CHECK, logs="orders", bounds=Bounds(memory_bytes=1))
    assert Registry(braid).list() == []


def test_what_nothing_would_check_is_not_left_to_validators(braid: Braid, site: Site) -> None:
    fork = braid.create("other").cfork("other.bob")
    fork.append(b"x")
    with pytest.raises(ConditionFailed, match="it has none"):
        desk_on(braid, site.clock, AUTO).propose(fork, agent="bob")
    missing = desk_on(braid, site.clock, AUTO + '\ndefault.validators = ["nobody"]').propose(fork, agent="bob")
    assert (missing.state, fork.info().own) == ("failed", 1)
    assert "there is no such validator" in missing.reason


def test_what_the_policy_does_not_want_is_refused(braid: Braid, site: Site, orders: Log, desk: Desk) -> None:
    never = desk_on(braid, site.clock, 'default.promotion = "never"')
    fork = orders.cfork("orders.bob.1")
    with pytest.raises(ConditionFailed, match="nothing to propose"):
        desk.propose(fork, agent="bob")
    fork.append(b"x")
    with pytest.raises(NotPermitted, match="lets nothing be promoted"):
        never.propose(fork, agent="bob")
    audit = braid.log("braidlog.audit").cfork("audit.bob")
    audit.append(b"{}")
    with pytest.raises(NotPermitted, match=r"braidlog\.audit"):
        desk.propose(audit, agent="bob")
    holding = orders.cfork("orders.bob.2", promotable=True)
    holding.append(b"x")
    with pytest.raises(ConditionFailed, match="on a plain fork"):
        desk.propose(holding, agent="bob")
    with pytest.raises(InvalidArgument, match="no cFork"):
        desk.propose(orders, agent="bob")
    with pytest.raises(NotFound):
        desk.approve("000000000000", "ann")


def test_an_approval_is_refused_once_the_policy_says_never(braid: Braid, site: Site, desk: Desk, fork: Log) -> None:
    proposal = desk.propose(fork, agent="bob")
    strict = desk_on(braid, site.clock, '[[log]]\npattern = "orders"\npromotion = "never"')
    with pytest.raises(NotPermitted, match=r"lets nothing be promoted into 'orders': reject it"):
        strict.approve(proposal.id, "ann")
    assert strict.get(proposal.id).state == "waiting"
    assert strict.reject(proposal.id, "ann", "not any more").state == "rejected"


def test_an_agent_has_so_many_open_proposals_and_no_more(braid: Braid, site: Site, orders: Log) -> None:
    desk = desk_on(braid, site.clock, "default.proposals = 2")
    forks = [orders.cfork(f"orders.bob.{number}") for number in range(3)]
    for fork in forks:
        fork.append(b"x")
    first = desk.propose(forks[0], agent="bob")
    desk.propose(forks[1], agent="bob")
    with pytest.raises(ConditionFailed, match="'bob' has 2 open proposals for 'orders', and may have 2"):
        desk.propose(forks[2], agent="bob")
    forks[1].append(b"more")
    desk.propose(forks[1], agent="bob")  # in place of the former
    desk.propose(forks[2], agent="eve")
    desk.reject(first.id, "ann", "no")
    fourth = orders.cfork("orders.bob.4")
    fourth.append(b"x")
    assert desk.propose(fourth, agent="bob").state == "waiting"


def test_what_ended_long_ago_is_forgotten_and_the_audit_log_is_not(
    braid: Braid, site: Site, desk: Desk, orders: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proposed(name: str) -> str:
        fork = orders.cfork(name)
        fork.append(b"x")
        return desk.propose(fork, agent="bob").id

    journal = "braidlog.proposals"
    old = proposed("orders.bob.1")
    desk.reject(old, "ann", "no")
    site.clock.advance(20 * 86_400)
    desk.tend()
    waiting, young = proposed("orders.bob.2"), proposed("orders.bob.3")
    desk.reject(young, "ann", "no")
    assert [one.id for one in desk.list()] == [old, waiting, young]
    site.clock.advance(6.9 * 86_400)
    desk.tend()
    assert braid.log(journal).info().start == 0
    site.clock.advance(3.5 * 86_400)  # and what waited has expired by now
    desk.tend()
    for each in (desk, desk_on(braid, site.clock)):
        assert [(one.id, one.state) for one in each.list()] == [(waiting, "expired"), (young, "rejected")]
        with pytest.raises(NotFound):
            each.get(old)
    assert braid.log(journal).info().start > 0
    monkeypatch.setattr(limits, "PROPOSALS_KEPT_MAX", 1)
    desk.tend()
    fresh = desk_on(braid, site.clock)
    assert [one.id for one in fresh.list()] == [young]
    last = proposed("orders.bob.4")
    assert [one.id for one in fresh.list()] == [young, last]
    assert {entry.result.split()[0] for entry in Audit(braid).read() if entry.result} >= {old, waiting, young}


def test_a_fork_that_nobody_uses_is_squashed(braid: Braid, site: Site, orders: Log) -> None:
    desk = desk_on(braid, site.clock, '[[log]]\npattern = "orders"\nfork_idle = "1h"')

    def made(name: str, of: Log = orders, labels: dict[str, str] | None = None) -> Log:
        return of.cfork(name, labels={AGENT_LABEL: "bob"} if labels is None else labels)

    idle, read, proposed, parent, person = (
        made("idle"),
        made("read"),
        made("proposed"),
        made("parent"),
        made("person", labels={}),
    )
    written = made("written", parent)
    elsewhere = made("elsewhere", braid.create("notes"))
    proposed.append(b"x")
    desk.propose(proposed, agent="bob")
    desk.tend()
    site.clock.advance(3000)
    desk.used(read, "bob")
    written.append(b"x")
    desk.tend()
    site.clock.advance(1000)
    desk.tend()
    left = {log.name for log in (idle, read, proposed, parent, person, written, elsewhere) if log.name in braid}
    assert left == {"read", "proposed", "parent", "person", "written", "elsewhere"}
    [entry] = [entry for entry in Audit(braid).read() if entry.tool == "squash"]
    assert (entry.agent, entry.log, entry.arguments["fork"]) == ("braidlog", "idle", "idle")
    site.clock.advance(4000)
    desk.tend()
    assert {log.name for log in (read, parent, written) if log.name in braid} == set()
    assert proposed.name in braid


# --- holds -----------------------------------------------------------------------------------------------------------


def test_holds_are_shown_with_their_age_and_end_when_the_policy_says(braid: Braid, site: Site, orders: Log) -> None:
    desk = desk_on(braid, site.clock, 'default.hold = "60s"')
    fork = orders.cfork("orders.bob.1", promotable=True, lease=1000, labels={AGENT_LABEL: "bob"})
    person = orders.cfork("orders.ann", promotable=True, lease=1000)
    site.clock.advance(50)
    held = {hold.fork: hold for hold in desk.holds()}
    assert (held[fork.name].log, held[fork.name].agent, held[fork.name].allowed) == ("orders", "bob", 60.0)
    assert held[fork.name].age == pytest.approx(50)
    fork.renew()
    desk.tend()
    assert fork.name in braid
    site.clock.advance(20)
    desk.tend()
    assert fork.name not in braid
    assert person.name in braid  # of those that no agent made the lease decides


def test_a_hold_ends_when_the_policy_says_though_its_checks_never_come_to_an_end(
    braid: Braid, site: Site, orders: Log
) -> None:
    def broken(job: agents.Job, name: str, _: object) -> agents.Finding:
        raise OSError(f"{name} cannot be started for {job.fork}")

    desk = desk_on(braid, site.clock, AUTO + '\ndefault.hold = "60s"', runner=broken)
    fork = orders.cfork("orders.bob.1", promotable=True, lease=50, labels={AGENT_LABEL: "bob"})
    fork.append(b"x")
    with pytest.raises(OSError, match="cannot be started"):
        desk.propose(fork, agent="bob")
    for _ in range(2):
        site.clock.advance(25)
        desk.tend()
        fork.renew()
    assert [one.state for one in desk.list()] == ["validating"]
    site.clock.advance(15)
    desk.tend()
    assert fork.name not in braid
    assert [one.state for one in desk.list()] == ["failed"]
    assert orders.info().limited_by is None


def test_what_was_validated_for_one_log_is_not_promoted_into_another(braid: Braid, site: Site, orders: Log) -> None:
    idea = orders.cfork("idea", promotable=True)
    fork = idea.cfork("idea.bob", promotable=True)
    fork.append(b"x")
    Registry(braid).add("idea", CHECK, logs="idea")

    def meanwhile(job: agents.Job, name: str, _: object) -> agents.Finding:
        assert job.fork_id == fork.id
        assert idea.promote()
        return agents.Finding(validator=name, verdict=agents.Verdict(True))

    done = desk_on(braid, site.clock, AUTO, runner=meanwhile).propose(fork, agent="bob")
    assert (done.state, done.reason) == ("failed", "'idea', which it was validated for, is not its parent any more")
    assert fork.info().parent == "orders"
    assert orders.tail() == 2


def test_a_validation_lasts_no_longer_than_the_hold_may(braid: Braid, site: Site, orders: Log) -> None:
    allowed: list[float] = []

    def slow(job: agents.Job, name: str, _: object) -> agents.Finding:
        allowed.append(job.bounds.timeout_s)
        site.clock.advance(25)
        return agents.Finding(validator=name, verdict=agents.Verdict(True))

    for number in range(3):
        Registry(braid).add(f"slow{number}", CHECK, logs="orders")
    desk = desk_on(braid, site.clock, AUTO + '\ndefault.hold = "60s"', runner=slow)
    fork = orders.cfork("orders.bob.1", promotable=True, lease=None)
    fork.append(b"x")
    done = desk.propose(fork, agent="bob")
    assert allowed == [60.0, 35.0, 10.0]
    assert (done.state, done.reason) == ("failed", "slow2: the time that a hold may last was over")


# --- who did what ----------------------------------------------------------------------------------------------------


def test_every_decision_is_audited(desk: Desk, braid: Braid, fork: Log) -> None:
    proposal = desk.propose(fork, agent="bob", title="Two more")
    desk.approve(proposal.id, "ann")
    entries = [(e.agent, e.tool, e.log, e.outcome, e.result) for e in Audit(braid).read(log="orders")]
    assert entries == [
        ("bob", "propose", "orders.bob.1", "ok", f"{proposal.id} waiting"),
        ("ann", "approve", "orders.bob.1", "ok", f"{proposal.id} promoted"),
    ]


# --- real processes --------------------------------------------------------------------------------------------------

SLOW = """
import pathlib, time, os
def check(fork, context):
    gate = pathlib.Path(context.parameters["gate"])
    (gate / "began").touch()
    deadline = time.monotonic() + 60
    while context.log.startswith("orders.proposal-") and not (gate / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return True
"""


def test_an_approval_whose_process_is_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    served = Served(place=tmp_path / "logs")
    with braidlog.open(served.url) as braid:
        orders = braid.create("orders")
        orders.append(b"a")
        Registry(braid).add("slow", f"{tmp_path}/slow.py:check", logs="orders", parameters={"gate": str(tmp_path)})
        fork = orders.cfork("orders.bob.1")
        fork.append_many([b"x", b"y"])
        desk = Desk(braid)
        proposal = desk.propose(fork, agent="bob")
        assert proposal.state == "waiting"
        (tmp_path / "began").unlink()
        approving = subprocess.Popen(
            [sys.executable, "-m", "braidlog", "--at", served.url, "review", "approve", proposal.id, "--as", "ann"],
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + DEADLINE_S
        while not (tmp_path / "began").exists():
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)
        assert desk.get(proposal.id).state == "approving"
        assert orders.info().limited_by == "orders"
        with pytest.raises(ConditionFailed, match="by another desk"):
            desk.approve(proposal.id, "ann")
        approving.send_signal(signal.SIGKILL)
        approving.wait()
        (tmp_path / "go").touch()
        desk.tend()  # the process that had it is no more, and that is known at once
        assert desk.get(proposal.id).state == "promoted"
        assert values(orders.read(0)) == [b"a", b"x", b"y"]
        assert orders.info().limited_by is None
    served.end()


def test_with_tokens_each_does_what_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service holds agents to their own forks; the reviewer's token is what lets somebody decide."""
    with braidlog.open(tmp_path / "logs") as braid:
        tokens = {
            "admin": create_token(braid, "admin", ["admin:*"]),
            "bob": create_token(braid, "bob", ["own:*", "append:*", "read:*"]),
            "ann": create_token(
                braid, "ann", ["own:orders", "promote:orders", "squash:orders", "read:braidlog.*", "append:braidlog.*"]
            ),
        }
        braid.create("orders").append(b"a")
    served = Served("--require-token", place=tmp_path / "logs")
    url = served.url
    with braidlog.open(url, token=tokens["admin"]) as admin, braidlog.open(url, token=tokens["bob"]) as bob:
        (tmp_path / "own.py").write_text("def check(fork):\n    return fork.info().own == 1\n")
        Registry(admin).add("one", f"{tmp_path}/own.py:check", logs="orders")
        desk = Desk(admin, access=agents.Access.to(admin, token=tokens["admin"]))
        fork = bob.log("orders").cfork("orders.bob.1")
        fork.append(b"x")
        proposal = desk.propose(fork, agent="bob")
        assert proposal.state == "waiting"
        for attempt in (
            lambda: bob.log("braidlog.proposals").append(b"{}"),
            lambda: bob.log("braidlog.audit").read(0),
            lambda: bob.log("orders").cfork("braidlog.mine"),
        ):
            with pytest.raises((NotPermitted, NotFound)):
                attempt()
        with pytest.raises((NotPermitted, NotFound)):
            Desk(bob, access=agents.Access.to(bob, token=tokens["bob"])).approve(proposal.id, "ann")
        monkeypatch.setenv("BRAIDLOG_TOKEN", tokens["ann"])  # which her validators have, too
        with braidlog.open(url) as ann:
            done = Desk(ann).approve(proposal.id, "ann")
        assert done.state == "promoted", done
        assert values(bob.log("orders").read(0)) == [b"a", b"x"]
    served.end()


def test_the_command_line_reviews(tmp_path: Path) -> None:
    braid = Command(tmp_path / "logs")
    (tmp_path / "own.py").write_text("def check(fork):\n    return fork.info().own < 3\n")
    (tmp_path / "policy.toml").write_text('[default]\nreviewers = ["ann"]\n')
    policy = ("--policy", str(tmp_path / "policy.toml"))
    braid("create", "orders")
    assert braid.json("review", "list") == []
    assert "nothing to review" in braid("review", "list").stderr
    braid("validators", "add", "few", f"{tmp_path}/own.py:check", "--log", "orders")
    braid("fork", "orders", "orders.bob.1")
    braid("append", "orders.bob.1", "x")
    id = braid.lines("review", "propose", "orders.bob.1", "--agent", "bob", "--title", "One\x1b[31m more", *policy)[0]
    listed = braid("review", "list").stdout
    assert id in listed
    assert "\x1b" not in listed
    (one,) = braid.json("review", "list")
    assert (one["id"], one["state"], one["own"], one["title"]) == (id, "waiting", 1, "One\x1b[31m more")
    shown = braid("review", "show", id).stdout
    assert "passed  few" in shown
    assert "+ 0\t\tx" in shown
    assert braid.json("review", "show", id)["diff"][0]["value"] == "x"
    braid("review", "approve", id, "--as", "bob", *policy, code=exit_codes.NOT_PERMITTED)
    braid("review", "approve", id, "--as", "eve", *policy, code=exit_codes.NOT_PERMITTED)
    braid("review", "approve", "nothing", "--as", "ann", code=exit_codes.NOT_FOUND)
    braid("review", "approve", id, "--as", "ann", "--note", "fine", *policy)
    assert braid.lines("read", "orders", "--raw") == ["x"]
    braid("review", "approve", id, "--as", "ann", *policy, code=exit_codes.CONDITION_FAILED)

    braid("fork", "orders", "orders.bob.2")
    braid("append", "orders.bob.2", "y", "z")
    id = braid.json("review", "propose", "orders.bob.2", "--agent", "bob")["id"]
    braid("review", "reject", id, "--as", "ann", code=exit_codes.USAGE)
    assert braid.json("review", "reject", id, "--as", "ann", "--reason", "no")["state"] == "rejected"
    assert [one["state"] for one in braid.json("review", "list", "--all")] == ["promoted", "rejected"]
    braid("fork", "orders", "orders.bob.3", "--promotable")
    assert "orders is held by orders.bob.3" in braid("review", "holds").stdout
    assert braid.json("review", "holds")[0]["allowed"] == 60.0
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[default]\nreviewer = []\n")
    told = braid("review", "list", "--policy", str(wrong), code=exit_codes.USAGE).stderr
    assert "did you mean 'reviewers'?" in told

    assert {line.split("\t")[1] for line in braid.lines("audit", "--agent", "bob")} == {"bob"}
    entries = [json.loads(line) for line in braid("--json", "audit", "--log", "orders").stdout.splitlines()]
    assert {"propose", "approve", "reject"} == {entry["tool"] for entry in entries}
    assert braid.lines("audit", "--since", "1h") == braid.lines("audit")
    assert braid.lines("audit", "--since", "2100-01-01T00:00:00Z") == []


def test_the_audit_log_can_be_followed(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "logs") as braid:
        audit = Audit(braid)
        with audit.call("bob", "first", {}, changes=True):
            pass
        follower = subprocess.Popen(
            [sys.executable, "-m", "braidlog", "--at", str(tmp_path / "logs"), "audit", "--follow"],
            stdout=subprocess.PIPE,
        )
        assert follower.stdout is not None
        assert b"\tbob\tfirst\t" in follower.stdout.readline()
        with audit.call("bob", "second", {}, changes=True):
            pass
        assert b"\tbob\tsecond\t" in follower.stdout.readline()
        follower.kill()
        follower.wait()


def test_a_desk_in_memory_has_people_and_no_validators() -> None:
    with braidlog.open("memory://") as braid:
        orders = braid.create("orders")
        fork = orders.cfork("orders.x")
        fork.append(b"x")
        desk = Desk(braid, Policy.default(), runner=run)
        assert desk.approve(desk.propose(fork, agent="bob").id, "ann").state == "promoted"
        Registry(braid).add("check", CHECK, logs="orders")
        again = orders.cfork("orders.y")
        again.append(b"y")
        with pytest.raises(InvalidArgument, match="cannot see memory://"):
            desk.propose(again, agent="bob")
