"""Where agents put what they wrote, and people decide about it.

    desk = Desk(braid, Policy.load("policy.toml"))
    proposal = desk.propose(fork, agent="restocker", title="Restock item 7")
    desk.approve(proposal.id, "ann")

Everything that is decided is an event in the log `braidlog.proposals`, so any number of desks, in any processes, are
one. A desk that dies in the middle is no trouble: the next one goes on where it stopped.

Who somebody is, the caller says. That holds among those who may write `braidlog.proposals` and promote into the parent:
give agents tokens that may do neither.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct

from braidlog import Braid, Diff, Log, limits
from braidlog.agents import proposals as p
from braidlog.agents.audit import Audit, Call
from braidlog.agents.carrying import Carrier
from braidlog.agents.checking import Checks
from braidlog.agents.idling import Idle
from braidlog.agents.ledger import Ledger
from braidlog.agents.names import AGENT_LABEL, PROPOSAL_LABEL
from braidlog.agents.policy import Policy, Rule
from braidlog.agents.promoting import parent_of
from braidlog.agents.proposals import Excerpt, Proposal, State, Summary, shown
from braidlog.agents.running import Access, Runner, Stop, run
from braidlog.client.endings import ending_of, handle_of
from braidlog.embedded.clock import Clock, SystemClock
from braidlog.errors import BraidError, ConditionFailed, Gone, InvalidArgument, NotPermitted
from braidlog.facts import Info
from braidlog.record import to_micros

_log = logging.getLogger("braidlog.agents")


class Hold(Struct, frozen=True, kw_only=True):
    """A promotable fork that is undecided, and so holds its parent. `allowed` is how many seconds the policy grants."""

    log: str
    fork: str
    owner: str
    agent: str | None  # it was made for
    proposal: str | None  # it carries
    since: datetime
    age: float
    allowed: float
    lease_expires: datetime | None


Holds = list[Hold]  # `list` is a method of the desk


class Details(Struct, frozen=True, kw_only=True):
    """A proposal, and what the fork has over its parent now; None once the fork is gone."""

    proposal: Proposal
    diff: Diff | None


class Desk:
    """Proposals of one braid, under one policy. Safe to use from several threads."""

    def __init__(
        self,
        braid: Braid,
        policy: Policy | None = None,
        *,
        clock: Clock | None = None,
        access: Access | None = None,
        audit: Audit | None = None,
        runner: Runner = run,
    ) -> None:
        """`access` is how validators, in their own processes, get at the logs; `runner` is how they are run."""
        self.policy = policy or Policy.default()
        self._braid = braid
        self._clock = clock or SystemClock()
        self._audit = audit or Audit(braid, clock=self._clock)
        self._ledger = Ledger(braid, self._clock)
        self._checks = Checks(braid, access=access, runner=runner, clock=self._clock)
        self._idle = Idle(braid, self._clock)
        self._carrier = Carrier(braid, self._ledger, self._checks)
        self._name = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"

    # --- proposing ------------------------------------------------------------------------------------------------

    def propose(
        self, fork: Log | str, *, agent: str, title: str = "", note: str = "", stop: Stop | None = None
    ) -> Proposal:
        """Propose what a fork has of its own for its parent, and bring that as far as it goes without a person.

        The answer says how far: `promoted` or `failed` where the policy leaves it to the validators, `waiting` or
        `failed` where a person decides. The same fork again, unchanged, is the same proposal; with more records on it,
        it takes the place of the former. `stop`, used before the validators are through, withdraws it.
        """
        if not agent:
            raise InvalidArgument("who proposes it? Give agent, a name")
        _text("title", title, limits.PROPOSAL_TITLE_CHARS_MAX)
        _text("note", note, limits.PROPOSAL_NOTE_CHARS_MAX)
        found = self._braid.log(fork if isinstance(fork, str) else fork.name)
        if isinstance(fork, Log) and found.id != fork.id:
            raise Gone(f"log {fork.name!r} is gone, and another has its name")
        self._idle.met(agent)
        self._go_on()
        with self._audit.call(agent, "propose", {"fork": found.name, "title": title}, changes=True) as call:
            call.about(found)
            if stop is not None:
                stop.check()
            wanted = self._new(found, agent, title, note)
            same = self._ledger.propose(wanted)
            if same is not None:
                return _entered(call, same)
            self._supersede()
            return _entered(call, self._carry(wanted.id, stop))

    def _new(self, fork: Log, agent: str, title: str, note: str) -> Proposal:
        info = fork.info()
        if info.kind != "cfork" or info.parent is None:
            raise InvalidArgument(f"{fork.name!r} is no cFork: only those can be proposed")
        parent = parent_of(fork, info)
        rule = self.policy.rule(info.parent)
        self._check(info, rule)
        diff = fork.diff()
        own = diff.own
        if len(own) != info.own:
            raise ConditionFailed(f"{fork.name!r} changed while it was looked at: propose it again")
        runs = _runs([record.position for record in own])
        if len(runs) > limits.PROPOSAL_RUNS_MAX:
            raise ConditionFailed(
                f"the records of {fork.name!r} stand in {len(runs):,} places between its parent's, and at most "
                f"{limits.PROPOSAL_RUNS_MAX:,} can be kept: write them in larger batches"
            )
        now = self._clock.now_us()
        expires = None
        if rule.promotion == "review":
            expires = now + round(rule.review * 1e6)
            if info.expires is not None:
                _renew(fork)
                expires = min(expires, to_micros(fork.info().expires or info.expires))
        return Proposal(
            id=uuid.uuid4().hex[:12],
            fork=info.name,
            fork_id=info.id,
            parent=info.parent,
            parent_id=parent.id,
            agent=agent,
            title=title,
            note=note,
            own=info.own,
            runs=runs,
            direct=info.promotable,
            fresh=info.name if info.promotable else None,
            fresh_id=info.id if info.promotable else None,
            rule=rule,
            summary=_summary(info, diff),
            proposed_us=now,
            expires_us=expires,
            claimed_by=self._name,
            claimed_until_us=self._claim_until(info.parent, rule),
        )

    def _check(self, info: Info, rule: Rule) -> None:
        """Whether this may be proposed at all."""
        parent = info.parent or ""
        if rule.promotion == "never":
            raise NotPermitted(f"the policy lets nothing be promoted into {parent!r}: ask its operator")
        if rule.promotion == "review" and info.promotable:
            raise ConditionFailed(
                f"{info.name!r} is promotable, so {parent!r} is held until it is decided, and the policy wants a "
                "person to decide: write the records on a plain fork and propose that"
            )
        if rule.promotion == "auto" and not self._checks.required(parent, rule.validators):
            raise ConditionFailed(
                f"the policy leaves {parent!r} to its validators, and it has none: `braid validators add` puts one "
                "there"
            )
        if not info.own:
            raise ConditionFailed(f"{info.name!r} has no records of its own: there is nothing to propose")
        if info.own > limits.PROPOSAL_RECORDS_MAX or info.own_bytes > limits.PROPOSAL_BYTES_MAX:
            raise ConditionFailed(
                f"{info.name!r} has {info.own:,} records with {info.own_bytes:,} bytes of its own: propose at most "
                f"{limits.PROPOSAL_RECORDS_MAX:,} with {limits.PROPOSAL_BYTES_MAX:,} at once"
            )

    # --- deciding -------------------------------------------------------------------------------------------------

    def approve(self, id: str, reviewer: str, note: str = "") -> Proposal:
        """Decide for it: it is validated once more, with what its parent has by now, and promoted if it passes.

        The answer's state says which. NotPermitted for whoever proposed it, and for those that the policy does not
        name; ConditionFailed if it does not wait for anybody, or its fork changed since.
        """
        said = _text("note", note, limits.PROPOSAL_NOTE_CHARS_MAX)
        self._go_on()
        with self._audit.call(reviewer, "approve", {"proposal": id, "note": said}, changes=True) as call:
            proposal = self._for(reviewer, id, call)
            if self.policy.rule(proposal.parent).promotion == "never":
                raise NotPermitted(f"by now the policy lets nothing be promoted into {proposal.parent!r}: reject it")
            self._check_unchanged(proposal)
            until = self._claim_until(proposal.parent, proposal.rule)
            self._decide(id, p.Approved, reviewer=reviewer, note=said, desk=self._name, until_us=until)
            return _entered(call, self._carry(id))

    def reject(self, id: str, reviewer: str, reason: str) -> Proposal:
        """Decide against it: its fork is squashed."""
        said = _text("reason", reason, limits.PROPOSAL_NOTE_CHARS_MAX)
        if not said:
            raise InvalidArgument("why? Whoever proposed it wants to know: give a reason")
        self._go_on()
        with self._audit.call(reviewer, "reject", {"proposal": id, "reason": said}, changes=True) as call:
            self._for(reviewer, id, call)
            self._decide(id, p.Ended, state="rejected", reason=said, reviewer=reviewer)
            return _entered(call, self._carrier.carry(id))

    def _for(self, reviewer: str, id: str, call: Call) -> Proposal:
        """The proposal, if that person may decide about it."""
        if not reviewer:
            raise InvalidArgument("who decides? Give reviewer, a name")
        proposal = self._ledger.get(id)
        call.log, call.lineage = proposal.fork, [proposal.fork, proposal.parent]
        if reviewer.strip().casefold() == proposal.agent.strip().casefold():
            raise NotPermitted(f"{reviewer!r} proposed {id} and cannot decide about it: let somebody else look at it")
        for rule in (proposal.rule, self.policy.rule(proposal.parent)):  # when it was proposed, and here and now
            if not rule.may_review(reviewer):
                named = ", ".join(rule.reviewers) or "nobody"
                raise NotPermitted(f"{reviewer!r} may not decide about {proposal.parent!r}: the policy names {named}")
        return proposal

    def _check_unchanged(self, proposal: Proposal) -> None:
        """Whether the fork still has what the reviewer was shown."""
        if proposal.state != "waiting" or ending_of(self._braid, proposal.fork_id) is not None:
            return  # that is told by whoever decides
        own = handle_of(self._braid, proposal.fork_id, proposal.fork).info().own
        if own != proposal.own:
            raise ConditionFailed(
                f"{proposal.fork!r} has {own} records of its own, and {proposal.own} were proposed: it has to be "
                "proposed again"
            )

    def _decide(self, id: str, kind: type[p.Event], **fields: object) -> None:
        def decide(now: Proposal) -> tuple[type[p.Event], dict[str, object]]:
            if now.state in ("validating", "approving"):
                raise ConditionFailed(f"proposal {id} is {now.state}, by another desk: look again in a moment")
            if now.state != "waiting":
                raise ConditionFailed(f"proposal {id} waits for nobody: it is {now.state}, {now.reason}")
            return kind, fields

        self._ledger.enter(id, decide)

    # --- looking --------------------------------------------------------------------------------------------------

    def list(self, state: State | Literal["open"] | None = None) -> list[Proposal]:
        """All proposals, oldest first; or those in a state; or those that are `open`."""
        found = self._ledger.all()
        return [one for one in found if state in (None, one.state) or (state == "open" and one.open)]

    def get(self, id: str) -> Proposal:
        """One of them; NotFound if there is none."""
        return self._ledger.get(id)

    def show(self, id: str, *, max_records: int | None = None) -> Details:
        """A proposal with what its fork has over its parent, as far as the fork still lives."""
        proposal = self._ledger.get(id)
        diff = None
        if ending_of(self._braid, proposal.fork_id) is None:
            with contextlib.suppress(Gone):
                diff = handle_of(self._braid, proposal.fork_id, proposal.fork).diff(max_records=max_records)
        return Details(proposal=proposal, diff=diff)

    def holds(self) -> Holds:
        """Every promotable fork that is undecided, oldest first."""
        now = self._clock.now_us()
        return [
            Hold(
                log=info.parent or "",
                fork=info.name,
                owner=info.owner,
                agent=info.labels.get(AGENT_LABEL),
                proposal=info.labels.get(PROPOSAL_LABEL),
                since=info.created,
                age=max(0.0, (now - to_micros(info.created)) / 1e6),
                allowed=rule.hold,
                lease_expires=info.lease_expires,
            )
            for info, rule in self._promotable()
        ]

    def _promotable(self) -> Iterator[tuple[Info, Rule]]:
        """With the rule that says how long each may hold its parent: that of its proposal, if it has one."""
        rules = {number: one.rule for one in self._ledger.all() if one.open for number in (one.fork_id, one.fresh_id)}
        for log in self._braid.logs():
            with contextlib.suppress(Gone):
                info = log.info()
                if info.promotable:
                    yield info, rules.get(info.id) or self.policy.rule(info.parent or "")

    # --- what has to be done by somebody --------------------------------------------------------------------------

    def tend(self) -> None:
        """Go on with what a desk that died has left, let proposals expire, end holds of agents that last too long and
        forks of theirs that nobody uses, and forget what was decided long ago.

        Every call that changes something does the first two before anything else.
        """
        self._end_holds()
        self._go_on()
        self._end_idle()
        self._ledger.forget()

    def used(self, fork: Log, agent: str) -> None:
        """An agent looked at a fork, which counts as its use."""
        self._idle.met(agent)
        self._idle.used(fork)

    def _supersede(self) -> None:
        """Of the proposals of one fork only the last is open: else to decide about the others would squash it."""
        last = {one.fork_id: one.id for one in self._ledger.all() if one.open}
        for one in self._ledger.all():
            if one.replaceable and last.get(one.fork_id, one.id) != one.id:
                with _left_as_it_is(one):
                    self._ledger.note(one, p.Ended, state="superseded", reason=f"proposed again as {last[one.fork_id]}")
                    self._carrier.carry(one.id)

    def _go_on(self) -> None:
        self._supersede()
        for proposal in self._ledger.all():
            if not proposal.tidied:
                with _left_as_it_is(proposal):
                    self._tend(proposal)

    def _tend(self, proposal: Proposal) -> None:
        if proposal.state == "waiting":
            self._expire(proposal)
        elif not proposal.open:
            self._carrier.carry(proposal.id)
        elif self._left(proposal) and self._forbidden(proposal):
            self._carrier.refuse(proposal.id, f"by now the policy lets nothing be promoted into {proposal.parent!r}")
        elif self._left(proposal):
            fields: dict[str, object] = {
                "desk": self._name,
                "until_us": self._claim_until(proposal.parent, proposal.rule),
            }
            taken = self._ledger.enter(proposal.id, lambda now: (p.Claimed, fields) if self._left(now) else None)
            if taken.open and taken.claimed_by == self._name:
                self._carry(proposal.id)

    def _forbidden(self, proposal: Proposal) -> bool:
        """Whether the policy forbids by now what no person has decided."""
        return proposal.rule.promotion == "auto" and self.policy.rule(proposal.parent).promotion == "never"

    def _expire(self, proposal: Proposal) -> None:
        ended = ending_of(self._braid, proposal.fork_id)
        if ended is not None:
            reason = f"its fork {proposal.fork!r} was {ended.how}"
        elif proposal.expires_us is not None and proposal.expires_us <= self._clock.now_us():
            reason = "nobody decided in time"
        else:
            return
        with self._audit.call("braidlog", "expire", {"proposal": proposal.id}, changes=True, log=proposal.fork) as call:
            call.lineage = [proposal.fork, proposal.parent]
            self._ledger.note(proposal, p.Ended, state="expired", reason=reason)
            _entered(call, self._carrier.carry(proposal.id))

    def _end_holds(self) -> None:
        """Leases can be renewed for ever; the policy's word cannot, and nothing that is being decided stretches it."""
        now = self._clock.now_us()
        for info, rule in list(self._promotable()):
            allowed = round(rule.hold * 1e6)
            made = {AGENT_LABEL, PROPOSAL_LABEL} & info.labels.keys()
            if made and to_micros(info.created) + allowed < now:
                self._squash(info, "it has held its parent for as long as the policy allows")

    def _end_idle(self) -> None:
        def proposed() -> set[int]:
            return {one.fork_id for one in self._ledger.all() if one.open}

        for info in self._idle.forks(self.policy, proposed):
            self._squash(info, "nobody has used it for as long as the policy allows")

    def _squash(self, info: Info, why: str) -> None:
        """In the policy's name."""
        fork = handle_of(self._braid, info.id, info.name)
        with (
            contextlib.suppress(Gone, NotPermitted),
            self._audit.call("braidlog", "squash", {"fork": info.name, "reason": why}, changes=True) as call,
        ):
            call.about(fork)
            fork.squash()

    def _carry(self, id: str, stop: Stop | None = None) -> Proposal:
        """Bring it on. If that fails, others need not wait to try."""
        try:
            return self._carrier.carry(id, stop)
        except Exception:
            with contextlib.suppress(BraidError):
                self._ledger.enter(
                    id, lambda now: (p.Claimed, {"desk": self._name, "until_us": 0}) if now.open else None
                )
            raise

    def _left(self, proposal: Proposal) -> bool:
        """Whether the desk that works on it has died, or takes too long."""
        if proposal.claimed_until_us <= self._clock.now_us():
            return True
        host, _, rest = proposal.claimed_by.rpartition("/")[0].rpartition("/")
        return host == socket.gethostname() and rest.isdigit() and not _lives(int(rest))

    def _claim_until(self, parent: str, rule: Rule) -> int:
        needed = limits.CLAIM_S + 2 * self._checks.seconds(parent, rule.validators)
        return self._clock.now_us() + round(needed * 1e6)


@contextlib.contextmanager
def _left_as_it_is(proposal: Proposal) -> Iterator[None]:
    """If this fails. It is for those who may, or for the next time, and the others come first."""
    try:
        yield
    except Exception as error:
        _log.warning("proposal %s is left as it is: %s", proposal.id, error)


def _entered(call: Call, proposal: Proposal) -> Proposal:
    """The audit log tells what came of it."""
    call.result = f"{proposal.id} {proposal.state}"
    return proposal


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _renew(fork: Log) -> None:
    """Its time to live begins anew, so that it lives while it waits; if that is not allowed it waits for less."""
    with contextlib.suppress(NotPermitted):
        fork.renew()


def _text(what: str, text: str, most: int) -> str:
    if len(text) > most:
        raise InvalidArgument(f"{what} has {len(text):,} characters: at most {most:,}")
    return text


def _runs(positions: list[int]) -> list[tuple[int, int]]:
    """Positions as ranges: from, up to."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = runs[-1][0], position + 1
        else:
            runs.append((position, position + 1))
    return runs


def _summary(info: Info, diff: Diff) -> Summary:
    own = diff.own
    return Summary(
        fork_point=diff.fork_point,
        own=len(own),
        own_bytes=info.own_bytes,
        inherited=len(diff) - len(own),
        records=[
            Excerpt(record.position, None if record.key is None else shown(record.key), shown(record.value))
            for record in own[: limits.SUMMARY_RECORDS_MAX]
        ],
    )
