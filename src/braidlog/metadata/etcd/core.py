"""Becoming the writer, appending as the writer, and being it no more, step by step. PURE: no I/O, clock or chance.

Each machine takes events and answers effects. Whoever drives it carries the effects out in order, and hands in what
came of it. At most one `Send` of a machine is under way at a time; it may be carried out late, and its time is the
driver's affair.

Events, each of them about the last `Send` or `Look`:
    Answered(answer)   etcd carried the transaction out, and says how
    Seen(kvs)          what was looked at
    Lost()             no answer came: it was done, or will be, or never will be
    NotSent()          it was certainly not done, and another member may do it
    Refused(message)   it was certainly not done, and would not be now
    Full(message)      etcd says that it has no room; but it may say so after it has done it. Nothing more comes of it
    GaveUp(message)    the driver's time is over, and it was not sent

Effects:
    Send(txn)          ask etcd; until there is an event about it, nothing else comes from this machine
    Look(keys)         read keys, all at one moment that is not before now. The same holds
    the others         say how it ended; the machine then rests. Each says what is known by it

What is assumed of etcd: transactions are atomic and take effect in one order; a revision is never used twice; the
leader's key goes when its lease does, and only so. Requests may be lost, and answers; a request whose answer was lost
may take effect at any later time. So every transaction here carries what makes it harmless by then: the `Fence`, and
the revision of the register that it moves on.

Promises:
    - A `Fence` is one term's. After a later term began nothing of an earlier one takes effect.
    - Of an append `Committed` is said only if it is in the log for good, `NotWritten` only if it never will be.
    - The slots have no gap, and no slot ever holds two different frames, one after the other.
    - After `Ended` the machine sends nothing, whatever it is asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from braidlog.errors import Corrupt
from braidlog.metadata.etcd.codec import Compare, Get, KeyValue, Op, Put, Txn, TxnAnswer
from braidlog.metadata.etcd.keys import (
    Cut,
    Keys,
    Leader,
    encode_leader,
    encode_sequence,
    parse_leader,
    parse_sequence,
    parse_slot,
)

# --- events ----------------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    answer: TxnAnswer


class Lost(NamedTuple):
    pass


class NotSent(NamedTuple):
    pass


class Refused(NamedTuple):
    message: str


class Full(NamedTuple):
    message: str


class Seen(NamedTuple):
    kvs: tuple[KeyValue | None, ...]  # None for keys that are not there


class GaveUp(NamedTuple):
    message: str


Happening: TypeAlias = Answered | Seen | Lost | NotSent | Refused | Full | GaveUp

# --- effects ---------------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    txn: Txn


class Look(NamedTuple):
    keys: tuple[bytes, ...]


class Fence(NamedTuple):
    """What tells one term from all others: the revision at which the leader's key was created."""

    key: bytes
    revision: int

    @property
    def compare(self) -> Compare:
        return Compare(self.key, self.revision, created=True)


class Won(NamedTuple):
    fence: Fence


class Beaten(NamedTuple):
    """Another one leads. It is worth another try when its key is deleted, after this revision."""

    leader: Leader
    revision: int


class Dropped(NamedTuple):
    """Of a campaign: nothing came of it that is known. Revoke its lease: then nothing ever will."""

    message: str


class Committed(NamedTuple):
    """The append is in the log, for good."""

    sequence: int


class Done(NamedTuple):
    """A decree took effect; the register that it moved on has this revision."""

    revision: int


class NotWritten(NamedTuple):
    """Of an append: it is not in the log and never will be. Of a decree: it may yet take effect, and harms nobody.

    The machine takes the next one.
    """

    message: str


class Ended(NamedTuple):
    """This term is over for the machine. `unknown`: what was under way may be in the log, or may not."""

    message: str
    unknown: bool


Effect: TypeAlias = Send | Look | Won | Beaten | Dropped | Committed | Done | NotWritten | Ended
Effects: TypeAlias = tuple[Effect, ...]


# --- campaigning -----------------------------------------------------------------------------------------------------


class Campaign:
    """One attempt to become the leader, with one lease and one owner's id that nobody else ever uses."""

    def __init__(self, keys: Keys, leader: Leader, lease: int) -> None:
        self._keys = keys
        self._owner = leader.owner
        self._txn = Txn(
            (Compare(keys.leader, 0, created=True),),
            (Put(keys.leader, encode_leader(leader), lease),),
            (Get(keys.leader),),
        )

    def begin(self) -> Effects:
        """Try, or try again after `Beaten`."""
        return (Send(self._txn),)

    def step(self, event: Happening) -> Effects:
        if isinstance(event, Lost | NotSent):
            return (Send(self._txn),)
        if not isinstance(event, Answered):
            return (Dropped(getattr(event, "message", "")),)
        answer = event.answer
        if answer.succeeded:
            return (Won(Fence(self._keys.leader, answer.revision)),)
        held = _only(answer, 0)
        if held is None:  # a comparison that failed because of a key that is not there
            return (Dropped("etcd answered what cannot be: the leader's key is there, and is not"),)
        leader = parse_leader(held.value)
        if leader.owner == self._owner:  # an earlier attempt, whose answer was lost
            return (Won(Fence(self._keys.leader, held.create_revision)),)
        return (Beaten(leader, answer.revision),)


# --- leading ---------------------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """Where the log ends."""

    sequence: int  # of the last frame; 0 if there is none
    revision: int  # of the last change of the head's key; 0 if it is not there


class _Append(NamedTuple):
    id: bytes
    sequence: int
    txns: tuple[Txn, ...]  # parts first; the last one names them


class Leading:
    """Appends, one after the other. `head` is what was read after the fence had been won."""

    def __init__(self, keys: Keys, fence: Fence, head: Head) -> None:
        self._keys = keys
        self._fence = fence
        self.head = head
        self.over = ""  # why nothing is appended any more
        self._append: _Append | None = None
        self._at = 0  # which of its transactions is under way
        self._doubtful = False  # whether an earlier try of the last one may have been done, or may yet be
        self._full = ""  # what etcd said for want of room, while it is looked at whether it did it all the same

    def append(self, id: bytes, cut: Cut) -> Effects:
        """Put a frame into the next slot. `id` is used for no other append, ever."""
        assert self._append is None, "one append at a time"
        if self.over:
            return (Ended(self.over, unknown=False),)
        sequence = self.head.sequence + 1
        keys, fence = self._keys, self._fence
        txns = [
            Txn((fence.compare,), (Put(keys.part(sequence, id, number), part),), (Get(keys.leader),))
            for number, part in enumerate(cut.parts)
        ]
        slot = keys.slot(sequence)
        txns.append(
            Txn(
                (fence.compare, Compare(keys.head, self.head.revision, created=False)),
                (Put(keys.head, encode_sequence(sequence)), Put(slot, cut.slot)),
                (Get(keys.leader), Get(keys.head), Get(slot)),
            )
        )
        self._append = _Append(id, sequence, tuple(txns))
        self._at = 0
        self._doubtful = False
        self._full = ""
        return self._send()

    def step_down(self, reason: str) -> Effects:
        """Take no further append. One that is under way is still settled."""
        self.over = self.over or reason
        return () if self._append is not None else (Ended(self.over, unknown=False),)

    def step(self, event: Happening) -> Effects:
        append = self._append
        assert append is not None, "an event about nothing"
        naming = self._at == len(append.txns) - 1
        if self._full:
            return self._look_at(append, event)
        if isinstance(event, Answered):
            return self._settle(append, event.answer) if naming else self._go_on(event.answer)
        if isinstance(event, NotSent):
            return self._send()
        if isinstance(event, Full) and naming:
            self._full = event.message or "etcd is full"
            return self._look(append)
        if isinstance(event, Lost):
            self._doubtful = naming
            return self._send()
        assert not isinstance(event, Seen), "nothing was looked at"
        if not self._doubtful:  # parts alone are nothing
            return self._not_written(event.message)
        if isinstance(event, Refused):  # now; but the earlier try may have been done
            return self._send()
        return self._end(_unknown(append, event.message), unknown=True)

    def _send(self) -> Effects:
        assert self._append is not None
        return (Send(self._append.txns[self._at]),)

    def _go_on(self, answer: TxnAnswer) -> Effects:
        if not answer.succeeded:
            return self._end(deposed(_only(answer, 0)), unknown=False)
        self._at += 1
        return self._send()

    def _settle(self, append: _Append, answer: TxnAnswer) -> Effects:
        if answer.succeeded:
            return self._committed(append, answer.revision)
        leader, head, slot = (_only(answer, place) for place in range(3))
        if slot is not None and _id_of(slot) == append.id:
            return self._found(append, leader, slot)
        # No try of it will be done from now on: the fence is gone, or the head has moved on. Was one done before? Then
        # it is in its slot, unless a later leader has a snapshot of it, and has dropped the slot.
        dropped = slot is None and _sequence_of(head) >= append.sequence
        if self._is_ours(leader):
            why = f"frame {append.sequence} of the log is another's, though nobody else leads: was etcd restored?"
        else:
            why = deposed(leader)
        return self._end(why, unknown=self._doubtful and dropped)

    def _look(self, append: _Append) -> Effects:
        keys = self._keys
        return (Look((keys.leader, keys.head, keys.slot(append.sequence))),)

    def _look_at(self, append: _Append, event: Happening) -> Effects:
        if isinstance(event, GaveUp):
            return self._end(_unknown(append, f"{self._full}; {event.message}"), unknown=True)
        if not isinstance(event, Seen):
            return self._look(append)
        leader, head, slot = event.kvs
        if slot is not None and _id_of(slot) == append.id:
            self._full = ""
            return self._found(append, leader, slot)
        if not self._is_ours(leader):
            return self._end(deposed(leader), unknown=slot is None and _sequence_of(head) >= append.sequence)
        if not self._doubtful:
            return self._not_written(self._full)
        self._full = ""
        return self._send()

    def _is_ours(self, leader: KeyValue | None) -> bool:
        return leader is not None and leader.create_revision == self._fence.revision

    def _found(self, append: _Append, leader: KeyValue | None, slot: KeyValue) -> Effects:
        """It is in its slot: an earlier try, whose answer was lost."""
        committed = self._committed(append, slot.mod_revision)
        if self._is_ours(leader):
            return committed
        self.over = self.over or deposed(leader)
        return (*committed, Ended(self.over, unknown=False))

    def _not_written(self, message: str) -> Effects:
        self._append = None
        return (NotWritten(message),)

    def _committed(self, append: _Append, revision: int) -> Effects:
        self._append = None
        self.head = Head(append.sequence, revision)
        return (Committed(append.sequence),)

    def _end(self, why: str, *, unknown: bool) -> Effects:
        self._append = None
        self.over = self.over or why
        return (Ended(why, unknown),)


# --- what a leader changes besides the log ---------------------------------------------------------------------------


class Register(NamedTuple):
    """A key that is moved on from a revision to another value, once."""

    key: bytes
    revision: int
    value: bytes


class Decree:
    """One change by the leader that may be done twice: a register that is moved on, and keys that are deleted."""

    def __init__(self, keys: Keys, fence: Fence, ops: tuple[Op, ...], register: Register | None = None) -> None:
        self._fence = fence
        self._register = register
        compares = [fence.compare]
        asked: tuple[Op, ...] = (Get(keys.leader),)
        if register is not None:
            compares.append(Compare(register.key, register.revision, created=False))
            ops = (Put(register.key, register.value), *ops)
            asked = (*asked, Get(register.key))
        self._txn = Txn(tuple(compares), ops, asked)

    def begin(self) -> Effects:
        return (Send(self._txn),)

    def step(self, event: Happening) -> Effects:
        if isinstance(event, Lost | NotSent):
            return (Send(self._txn),)
        if not isinstance(event, Answered):
            return (NotWritten(getattr(event, "message", "")),)
        answer = event.answer
        if answer.succeeded:
            return (Done(answer.revision),)
        if self._register is not None:
            found = _only(answer, 1)
            if found is not None and found.value == self._register.value:  # an earlier try, whose answer was lost
                return (Done(found.mod_revision),)
        leader = _only(answer, 0)
        if leader is not None and leader.create_revision == self._fence.revision:
            return (NotWritten("the key was changed by somebody else, though nobody else leads: look at it again"),)
        return (Ended(deposed(leader), unknown=False),)


# --- how long a term surely lasts ------------------------------------------------------------------------------------


class Tenure:
    """Until when surely nobody else leads, by this process's own clock, whose readings are handed in.

    Only advice for when to stop trying and to stop telling others what may be old: what is bound is the fence's affair.
    """

    RENEWALS: Final = 3  # tries in the time of a lease

    def __init__(self, ttl_s: float, granted_s: float) -> None:
        self._ttl_s = ttl_s
        self.until_s = granted_s + ttl_s  # `granted_s`: when it was asked for, not when the answer came
        self._asked_s = granted_s

    def renewed(self, asked_s: float, ttl_s: float) -> None:
        """A renewal that was asked for then was answered."""
        self._ttl_s = ttl_s
        self._asked_s = asked_s
        self.until_s = max(self.until_s, asked_s + ttl_s)

    def renewal_in(self, now_s: float) -> float:
        """How long to wait before the next renewal is to be asked for."""
        return max(0.0, self._asked_s + self._ttl_s / self.RENEWALS - now_s)

    def left_s(self, now_s: float) -> float:
        return self.until_s - now_s


def _only(answer: TxnAnswer, place: int) -> KeyValue | None:
    kvs = answer.found[place] if place < len(answer.found) else ()
    return kvs[0] if kvs else None


def _id_of(slot: KeyValue) -> bytes:
    try:
        return parse_slot(slot.value, slot.key).id
    except Corrupt:
        return b""


def _sequence_of(head: KeyValue | None) -> int:
    if head is None:
        return 0
    try:
        return parse_sequence(head.value, head.key)
    except Corrupt:
        return 1 << 63  # nobody knows: as if it were beyond


def _unknown(append: _Append, message: str) -> str:
    return f"it is not known whether frame {append.sequence} was stored: {message}"


def deposed(leader: KeyValue | None) -> str:
    """Why a term is over, from the leader's key as it is now."""
    if leader is None:
        return "its lease has ended"
    return f"{parse_leader(leader.value).description or 'another one'} does now"
