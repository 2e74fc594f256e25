"""How a proposal is carried out, step by step, so that whoever finds it half done can go on.

What was approved goes onto a fresh promotable fork of the parent, is validated there once more, with what the parent
has by now, and that fork is promoted: production is held for as long as this takes, and never while a person thinks.

Each step looks at what is true before it does anything, and may be done again, or by two at once: the fork has a name
that follows from the proposal's, copies are numbered, and it ends once. How it ended is what decides: the events only
tell of it.
"""

from __future__ import annotations

import contextlib

from braidlog import Braid, Log, Record, limits
from braidlog.agents import proposals as p
from braidlog.agents.checking import Checks
from braidlog.agents.ledger import Ledger
from braidlog.agents.names import PROPOSAL_LABEL
from braidlog.agents.promoting import hidden
from braidlog.agents.proposals import Proposal
from braidlog.agents.running import Stop, Stopped
from braidlog.agents.verdict import Finding, reasons_of
from braidlog.client.endings import ending_of, handle_of
from braidlog.errors import AlreadyExists, ConditionFailed, Gone, NotFound, NotPermitted
from braidlog.record import to_micros


class Carrier:
    """Brings proposals on, one step after the other, as far as they go without a person."""

    def __init__(self, braid: Braid, ledger: Ledger, checks: Checks) -> None:
        self._braid = braid
        self._ledger = ledger
        self._checks = checks
        self._read: dict[str, list[Record]] = {}  # what is to be copied, read before the hold begins

    def carry(self, id: str, stop: Stop | None = None) -> Proposal:
        """Bring it to an end, or to where a person decides. `stop` withdraws it, as long as nothing is decided."""
        try:
            while True:
                now = self._ledger.get(id)
                if now.state == "validating":
                    self._validate(now, stop or Stop())
                elif now.state == "approving":
                    self._bring_on(now)
                elif now.state == "waiting" or now.tidied or not self._tidy(now):
                    return now
        finally:
            self._read.pop(id, None)

    def refuse(self, id: str, reason: str) -> Proposal:
        """End it as failed, unless it turns out to be promoted already."""
        while (now := self._ledger.get(id)).open:
            if now.fresh_id is None:
                self._end(now, "failed", reason)
            elif not self._is_over(now, now.fresh_id):
                with contextlib.suppress(Gone):  # the next look finds out how it ended
                    self._give_up(now, handle_of(self._braid, now.fresh_id, now.fresh or ""), reason)
        return self.carry(id)

    # --- what was proposed ----------------------------------------------------------------------------------------

    def _validate(self, now: Proposal, stop: Stop) -> None:
        ended = ending_of(self._braid, now.fork_id)
        if ended is not None:
            return self._end(now, "failed", f"the fork {now.fork!r} was {ended.how} before it was validated")
        fork = handle_of(self._braid, now.fork_id, now.fork)
        try:
            info = fork.info()
        except Gone:
            return None  # just now: how it ended is asked next time
        if self._held_too_long(now):
            with contextlib.suppress(Gone):
                fork.squash()
            return None
        if info.own != now.own or (why := hidden(info)):
            return self._end(now, "failed", _changed(now, info.own) if info.own != now.own else why)
        until = self._held_until(now)
        try:
            findings = self._checks.findings(fork, now.parent, now.rule.validators, until_us=until, stop=stop)
        except Stopped:
            return self._end(now, "withdrawn", "whoever proposed it did not wait for what the validators say")
        if reasons := reasons_of(findings) or _unchecked(now, findings):
            return self._end(now, "failed", "; ".join(reasons), findings)
        self._ledger.note(now, p.Checked, findings=findings)
        return None

    def _held_too_long(self, now: Proposal) -> bool:
        """Whether production has been held for its sake as long as the policy allows, whatever the reason was."""
        until = self._held_until(now)
        return until is not None and until <= self._ledger.clock.now_us()

    def _held_until(self, now: Proposal) -> int | None:
        """When the hold that a promotable fork is has to end; None for a fork that holds nothing."""
        number = now.fork_id if now.direct else now.fresh_id
        if number is None:
            return None
        try:
            info = handle_of(self._braid, number, now.fork).info()
        except Gone:
            return None
        most = to_micros(info.created) + round(now.rule.hold * 1e6)
        return most if info.lease_expires is None else min(most, to_micros(info.lease_expires))

    # --- what was approved ----------------------------------------------------------------------------------------

    def _bring_on(self, now: Proposal) -> None:
        if now.fresh_id is None:
            return self._open(now)
        if self._is_over(now, now.fresh_id):
            return None
        fork = handle_of(self._braid, now.fresh_id, now.fresh or "")
        try:
            if self._held_too_long(now):
                return fork.squash()  # as when a desk died and left it
            if not now.direct and fork.info().own < now.own and not self._copy(now, fork):
                return None
            if not now.rechecked:
                return self._recheck(now, fork)
            if why := hidden(fork.info()) or self._foreign(now, fork):
                return self._give_up(now, fork, why)
            self._promote(now, fork)
        except Gone:
            pass  # the next look finds out how it ended
        return None

    def _promote(self, now: Proposal, fork: Log) -> None:
        try:
            done = fork.promote(expected_own=now.own, into=handle_of(self._braid, now.parent_id, now.parent))
        except ConditionFailed:
            return self._give_up(now, fork, f"{now.parent!r}, which it was validated for, is not its parent any more")
        if done:
            self._promoted(now)
        elif ending_of(self._braid, fork.id) is None:
            self._give_up(now, fork, _changed(now, fork.info().own))
        return None

    def _foreign(self, now: Proposal, fork: Log) -> str:
        """Why a fresh fork does not hold what was approved; empty if it does. Others may have made one of that name."""
        if now.direct:
            return ""
        if now.id not in self._read and not self._gather(now):
            return f"{now.fork!r} is no longer what was proposed"
        wanted = [(record.key, record.value, record.headers) for record in self._read[now.id]]
        if [(record.key, record.value, record.headers) for record in fork.diff().own] != wanted:
            return f"{fork.name!r} has other records than were approved: somebody else wrote on it"
        return ""

    def _is_over(self, now: Proposal, fresh_id: int) -> bool:
        """Whether the fork that it is carried out on has ended; that is entered then."""
        ended = ending_of(self._braid, fresh_id)
        if ended is None:
            return False
        if ended.how == "promoted":
            self._promoted(now)
        elif ended.how == "forgotten" and self._epoch(now) != now.parent_epoch:
            why = f"nobody remembers how {now.fresh!r} ended: look whether its records are in {now.parent!r}"
            self._end(now, "failed", why)
        elif now.direct or now.attempts + 1 >= limits.PROPOSAL_ATTEMPTS:
            self._end(now, "failed", f"the fork {now.fresh!r} was {ended.how} before it could be promoted")
        else:
            self._ledger.note(now, p.Lost, reason=f"{now.fresh!r} was {ended.how}")
        return True

    def _epoch(self, now: Proposal) -> int:
        try:
            return handle_of(self._braid, now.parent_id, now.parent).info().epoch
        except Gone:
            return -1

    def _open(self, now: Proposal) -> None:
        """Make the fresh fork, or find the one that was made and not told of."""
        parent = handle_of(self._braid, now.parent_id, now.parent)
        try:
            if not self._gather(now):
                return
            epoch = parent.info().epoch
            name = _fresh_name(now)
            try:
                labels = {PROPOSAL_LABEL: now.id}
                fresh = parent.cfork(name, promotable=True, lease=now.rule.hold, labels=labels, wait=now.rule.hold)
            except AlreadyExists:
                fresh = self._braid.log(name)
                if fresh.info().labels.get(PROPOSAL_LABEL) != now.id:
                    self._end(now, "failed", f"the name {name!r} is taken by a log that has nothing to do with it")
                    return
        except (Gone, NotFound):
            if ending_of(self._braid, now.parent_id) is not None:
                self._end(now, "failed", f"{now.parent!r}, which it was proposed for, is gone")
            return
        after = self._ledger.note(now, p.Opened, fresh=name, fresh_id=fresh.id, parent_epoch=epoch)
        if after.fresh_id != fresh.id:  # others were quicker, and this one holds production for nothing
            with contextlib.suppress(Gone):
                fresh.squash()

    def _gather(self, now: Proposal) -> bool:
        """Read what is to be copied; False if it is not what was proposed any more, which is entered then."""
        ended = ending_of(self._braid, now.fork_id)
        if ended is not None:
            self._end(now, "failed", f"the fork {now.fork!r} was {ended.how} before its records could be copied")
            return False
        source = handle_of(self._braid, now.fork_id, now.fork)
        own = source.info().own
        if own != now.own:
            self._end(now, "failed", _changed(now, own))
            return False
        self._read[now.id] = [record for start, stop in now.runs for record in _all(source, start, stop)]
        return True

    def _copy(self, now: Proposal, fork: Log) -> bool:
        """Each batch is numbered, so that it is there once however often this is done."""
        if now.id not in self._read and not self._gather(now):
            return False
        batch: list[Record] = []
        size = number = 0
        for record in self._read[now.id]:
            if batch and size + record.size > limits.COPY_BATCH_BYTES:
                _append_once(fork, batch, now.id, number)
                batch, size, number = [], 0, number + 1
            batch.append(record)
            size += record.size
        _append_once(fork, batch, now.id, number)
        return True

    def _recheck(self, now: Proposal, fork: Log) -> None:
        findings = self._checks.findings(fork, now.parent, now.rule.validators, until_us=self._held_until(now))
        if reasons := reasons_of(findings) or _unchecked(now, findings):
            self._give_up(now, fork, "; ".join(reasons), findings)
        else:
            self._ledger.note(now, p.Rechecked, findings=findings)

    def _give_up(self, now: Proposal, fork: Log, reason: str, findings: list[Finding] | None = None) -> None:
        """The fork is squashed before anything is said: from then on nobody else can promote it."""
        if not now.direct or now.rule.on_failure == "squash":
            fork.squash()
        self._end(now, "failed", reason, findings)

    # --- ends -----------------------------------------------------------------------------------------------------

    def _end(self, now: Proposal, state: str, reason: str, findings: list[Finding] | None = None) -> None:
        self._ledger.note(now, p.Ended, state=state, reason=reason, findings=findings)

    def _promoted(self, now: Proposal) -> None:
        """That is so, whatever others have entered meanwhile."""
        fields: dict[str, object] = {"state": "promoted", "reason": f"promoted into {now.parent!r}"}
        self._ledger.enter(now.id, lambda found: None if found.state == "promoted" else (p.Ended, fields))

    def _tidy(self, now: Proposal) -> bool:
        """Squash what has no purpose any more. False if that is for others to do, who may."""
        useless = [(now.fresh, now.fresh_id)] if now.fresh_id is not None and not now.direct else []
        kept = now.state in ("superseded", "withdrawn") or (now.state == "failed" and now.rule.on_failure == "keep")
        if not kept:
            useless.append((now.fork, now.fork_id))
        for name, number in useless:
            try:
                if number is not None and ending_of(self._braid, number) is None:
                    handle_of(self._braid, number, name or "").squash()
            except Gone:
                continue
            except NotPermitted:
                return False
        self._ledger.note(now, p.Tidied)
        return True


def _fresh_name(now: Proposal) -> str:
    """Below the parent's name, where whoever may fork it may name forks."""
    suffix = f".proposal-{now.id}"
    return now.parent[: limits.NAME_CHARS_MAX - len(suffix)] + suffix


def _append_once(fork: Log, batch: list[Record], id: str, number: int) -> None:
    with contextlib.suppress(ConditionFailed):  # that number was taken before, and a later one too
        fork.append_many(batch, writer=f"proposal-{id}", sequence=number)


def _unchecked(now: Proposal, findings: list[Finding]) -> list[str]:
    """Where validators decide, nothing passes without one: they may have been removed since it was proposed."""
    if now.rule.promotion == "auto" and not findings:
        return [f"no validator stands before {now.parent!r} any more, and nobody else decides"]
    return []


def _changed(now: Proposal, own: int) -> str:
    return f"it has {own} records of its own, and {now.own} were proposed: propose it again"


def _all(log: Log, start: int, stop: int) -> list[Record]:
    found: list[Record] = []
    while start < stop:
        part = log.read(start, stop)
        if not part:
            raise Gone(f"log {log.name!r} ended while it was read")
        found += part
        start = part[-1].position + 1
    return found
