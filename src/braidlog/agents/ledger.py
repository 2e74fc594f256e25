"""All proposals, as the log `braidlog.proposals` tells of them, and how one is brought on: by events, each of which is
decided on what every earlier one says."""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable

import msgspec

from braidlog import Braid, limits
from braidlog.agents import proposals as p
from braidlog.agents.journal import Journal
from braidlog.agents.names import PROPOSALS
from braidlog.agents.proposals import AnyEvent, Proposal
from braidlog.embedded.clock import Clock
from braidlog.errors import ConditionFailed, NotFound, Unavailable

_log = logging.getLogger("braidlog.agents")


class Ledger:
    """Safe to use from several threads, and beside other processes."""

    def __init__(self, braid: Braid, clock: Clock) -> None:
        self._journal = Journal(braid, PROPOSALS)
        self._known: dict[str, Proposal] = {}
        self._first: dict[str, int] = {}  # where the first event of each stands
        self._lock = threading.Lock()
        self.clock = clock

    def all(self) -> list[Proposal]:
        """In the order in which they were proposed."""
        with self._lock:
            self._catch_up()
            return list(self._known.values())

    def get(self, id: str) -> Proposal:
        """NotFound if there is none."""
        with self._lock:
            self._catch_up()
            return self._found(id)

    def propose(self, proposal: Proposal) -> Proposal | None:
        """Enter a proposal, unless the same records of the same fork are proposed already: that one is answered then.
        ConditionFailed while another of the fork is carried out: it may be promoted right now."""
        same: list[Proposal] = []

        def event() -> AnyEvent | None:
            former = [one for one in self._known.values() if one.open and one.fork_id == proposal.fork_id]
            same[:] = [one for one in former if one.own == proposal.own]
            if same:
                return None
            for one in former:
                if not one.replaceable:
                    raise ConditionFailed(
                        f"{one.fork!r} is being promoted with {one.own} records, as proposal {one.id}: look again in a "
                        "moment"
                    )
            self._check_number(proposal)
            return self._made(p.Proposed, proposal.id, proposal=proposal)

        self._write(event)
        return same[0] if same else None

    def _check_number(self, proposal: Proposal) -> None:
        others = [
            one.id
            for one in self._known.values()
            if one.open
            and (one.agent, one.parent_id) == (proposal.agent, proposal.parent_id)
            and one.fork_id != proposal.fork_id
        ]
        since = self.clock.now_us() - round(limits.AGENT_PROPOSALS_S * 1e6)
        lately = [
            one.proposed_us
            for one in self._known.values()
            if one.proposed_us > since and (one.agent, one.parent_id) == (proposal.agent, proposal.parent_id)
        ]
        if len(lately) >= limits.AGENT_PROPOSALS_LATELY_MAX:
            wait = math.ceil((min(lately) - since) / 1e6)
            raise ConditionFailed(
                f"{proposal.agent!r} has proposed {len(lately):,} times for {proposal.parent!r} within "
                f"{limits.AGENT_PROPOSALS_S:g} s: wait {wait} s, and propose more records at once"
            )
        if len(others) >= proposal.rule.proposals:
            raise ConditionFailed(
                f"{proposal.agent!r} has {len(others)} open proposals for {proposal.parent!r}, and may have "
                f"{proposal.rule.proposals}: wait until one is decided, or put the records on a fork that is proposed"
            )

    def forget(self) -> None:
        """Drop what ended long ago, and if too many have ended the oldest of those who have most. What still matters
        stays, and so does the log from the first event of that on."""
        with self._lock:
            self._catch_up()
            over = [one for one in self._known.values() if one.tidied]
            since = self.clock.now_us() - round(limits.PROPOSAL_KEPT_S * 1e6)
            kept: dict[str, deque[str]] = defaultdict(deque)  # by agent
            for one in over:
                if (one.decided_us or 0) < since:
                    del self._known[one.id]
                else:
                    kept[one.agent].append(one.id)
            for _ in range(sum(map(len, kept.values())) - limits.PROPOSALS_KEPT_MAX):
                del self._known[max(kept.values(), key=len).popleft()]
            self._first = {id: at for id, at in self._first.items() if id in self._known}
            self._journal.forget(min(self._first.values(), default=self._journal.end))

    def enter(self, id: str, decide: Callable[[Proposal], tuple[type[p.Event], dict[str, object]] | None]) -> Proposal:
        """Enter what happens to a proposal, decided on what it is now: a kind of event with its fields, or nothing."""

        def event() -> AnyEvent | None:
            decided = decide(self._found(id))
            return None if decided is None else self._made(decided[0], id, **decided[1])

        self._write(event)
        return self.get(id)

    def note(self, proposal: Proposal, kind: type[p.Event], **fields: object) -> Proposal:
        """Enter what happened to a proposal, if it still is in the same state, and on the same fork: what others have
        done meanwhile is not undone."""
        same = (proposal.state, proposal.fresh_id)
        return self.enter(proposal.id, lambda now: (kind, fields) if (now.state, now.fresh_id) == same else None)

    def _made(self, kind: type[p.Event], id: str, **fields: object) -> AnyEvent:
        return kind(id=id, time_us=self.clock.now_us(), nonce=uuid.uuid4().hex, **fields)  # type: ignore[return-value]

    def _write(self, decide: Callable[[], AnyEvent | None]) -> None:
        with self._lock:
            for _ in range(limits.JOURNAL_ATTEMPTS):
                self._catch_up()
                event = decide()
                if event is None or self._journal.write(p.encode(event)):
                    self._catch_up()
                    return
        raise Unavailable(f"others keep writing to {PROPOSALS}: try again")

    def _catch_up(self) -> None:
        for record in self._journal.news():
            try:
                event = p.decode(record.value)
                p.apply(self._known, event)
                self._first.setdefault(event.id, record.position)
            except msgspec.MsgspecError as error:  # it says nothing that anybody here could have meant
                _log.warning("a record of %s is no event and is passed over: %s", PROPOSALS, error)

    def _found(self, id: str) -> Proposal:
        if id not in self._known:
            raise NotFound(f"there is no proposal {id!r}: `braid review list --all` shows those there are")
        return self._known[id]
