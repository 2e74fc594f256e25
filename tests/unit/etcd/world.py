"""An etcd of a few lines, and processes that want to write on it, over lines that lose, delay and repeat whatever goes.

A fault budget: requests may be lost, or delivered at any later time, or twice; answers may be lost; a lease may end at
any moment; a process may hear of a lost request although it is still on its way; etcd may say that it is full, having
done it or not. Transactions themselves are atomic.
Everything that is bound is checked as it happens, and everything that processes were told is checked at the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from braidlog.metadata.etcd import core
from braidlog.metadata.etcd.codec import Delete, Get, KeyValue, Op, Put, Txn, TxnAnswer
from braidlog.metadata.etcd.core import Campaign, Decree, Effects, Fence, Happening, Head, Leading, Look, Register, Send
from braidlog.metadata.etcd.keys import Cut, Keys, Leader, parse_sequence, parse_slot

KEYS = Keys("/braid")


class Violation(AssertionError):
    """What must never happen."""


class SimulatedEtcd:
    """Keys, revisions and leases. `ignore` names keys whose comparisons always hold: a planted mistake."""

    def __init__(self, ignore: bytes | None = None) -> None:
        self.keys: dict[bytes, KeyValue] = {}
        self.revision = 1
        self.leases: set[int] = set()
        self.bound: dict[int, bytes] = {}  # the id in every slot that was ever put
        self._ignore = ignore

    def apply(self, txn: Txn) -> TxnAnswer | None:
        """None if it was refused, as its lease has ended."""
        holds = all(self._holds(compare.key, compare.created, compare.revision) for compare in txn.compares)
        ops = txn.then if holds else txn.otherwise
        if any(isinstance(op, Put) and op.lease and op.lease not in self.leases for op in ops):
            return None
        if any(not isinstance(op, Get) for op in ops):
            self.revision += 1
        return TxnAnswer(holds, self.revision, tuple(self._do(op) for op in ops))

    def _holds(self, key: bytes, created: bool, revision: int) -> bool:
        if key == self._ignore:
            return True
        kv = self.keys.get(key)
        found = 0 if kv is None else kv.create_revision if created else kv.mod_revision
        return found == revision

    def _do(self, op: Op) -> tuple[KeyValue, ...]:
        if isinstance(op, Get):
            return tuple(kv for kv in (self.keys.get(op.key),) if kv is not None)
        if isinstance(op, Delete):
            for key in [key for key in self.keys if op.key <= key < op.end]:
                del self.keys[key]
            return ()
        self._check_put(op)
        before = self.keys.get(op.key)
        created = self.revision if before is None else before.create_revision
        self.keys[op.key] = KeyValue(op.key, op.value, created, self.revision, op.lease)
        return ()

    def _check_put(self, put: Put) -> None:
        if put.key.startswith(KEYS.slots):
            sequence, slot = KEYS.sequence_of(put.key), parse_slot(put.value, put.key)
            if sequence in self.bound:
                raise Violation(f"slot {sequence} is bound twice")
            if sequence != len(self.bound) + 1:
                raise Violation(f"slot {sequence} follows {len(self.bound)}")
            for number in range(slot.parts):
                if KEYS.part(sequence, slot.id, number) not in self.keys:
                    raise Violation(f"slot {sequence} names a part that is not there")
            self.bound[sequence] = slot.id
        elif put.key == KEYS.snap and put.key in self.keys and int(put.value) < int(self.keys[put.key].value):
            raise Violation("the snapshot went back")

    def end_lease(self, lease: int) -> None:
        self.leases.discard(lease)
        self.revision += 1
        for key in [key for key, kv in self.keys.items() if kv.lease == lease]:
            del self.keys[key]


@dataclass(eq=False)
class Request:
    """One that is on its way; whoever sent it may have stopped waiting."""

    ask: Send | Look
    machine: Machine
    repeated: bool = False


@dataclass(eq=False)
class Machine:
    """One of the core's machines, and what it waits for."""

    process: Process
    core: Campaign | Leading | Decree
    waiting: Request | None = None
    answer: Happening | None = None  # on its way back


@dataclass(eq=False)
class Process:
    name: int
    term: int = 0
    lease: int = 0
    fence: Fence | None = None
    leading: Leading | None = None
    machine: Machine | None = None  # of the campaign or the append
    keeper: Machine | None = None  # of the decree
    appending: bytes = b""
    snapshot: int = 0
    keeping: str = ""  # which decree is under way


@dataclass
class Told:
    """What processes were told of their appends."""

    committed: dict[bytes, int] = field(default_factory=dict)
    unwritten: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)


class World:
    def __init__(
        self,
        seed: int,
        processes: int = 3,
        ignore: bytes | None = None,
        *,
        doubt: bool = True,
        room: bool = True,
        parts: int = 2,
    ) -> None:
        self.rng = random.Random(seed)
        self.etcd = SimulatedEtcd(ignore)
        self.processes = [Process(name) for name in range(processes)]
        self.requests: list[Request] = []
        self.told = Told()
        self.terms = 0
        self._doubt = doubt  # without it a lost answer counts as a request that was never sent: a planted mistake
        self._room = room  # without it a full etcd counts as one that did nothing: another one
        self._parts = parts
        self._ids = 0
        self._leases = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choices(
                (self._deliver, self._forget, self._repeat, self._end_a_lease, self._time_out, self._move),
                (30, 2, 1, 1, 6, 40),
            )[0]()
        while self.requests:
            self._deliver()
        self.check()

    def check(self) -> None:
        for id, sequence in self.told.committed.items():
            if self.etcd.bound.get(sequence) != id:
                raise Violation(f"slot {sequence} was acknowledged and is not there")
        lied = self.told.unwritten & set(self.etcd.bound.values())
        if lied:
            raise Violation("an append was said not to be written, and is in the log")

    # --- the line ------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        if not self.requests:
            return
        request = self.requests.pop(self.rng.randrange(len(self.requests)))
        event = self._answer(request)
        if request.machine.waiting is request and self.rng.random() < 0.9:
            request.machine.answer = event

    def _answer(self, request: Request) -> Happening:
        if isinstance(request.ask, Look):
            return core.Seen(tuple(map(self.etcd.keys.get, request.ask.keys)))
        full = self.rng.random() if not request.repeated else 1.0
        refusal = core.Full("no room") if self._room else core.Refused("no room")
        if full < 0.03:
            return refusal
        answer = self.etcd.apply(request.ask.txn)
        if answer is None:
            return core.Refused("lease not found")
        return refusal if full < 0.06 else core.Answered(answer)

    def _forget(self) -> None:
        if self.requests:
            self.requests.pop(self.rng.randrange(len(self.requests)))

    def _repeat(self) -> None:
        if self.requests:
            request = self.rng.choice(self.requests)
            request.repeated = True
            self.requests.append(Request(request.ask, request.machine, repeated=True))

    def _end_a_lease(self) -> None:
        if self.etcd.leases:
            self.etcd.end_lease(self.rng.choice(sorted(self.etcd.leases)))

    def _time_out(self) -> None:
        waiting = [machine for machine in self._machines() if machine.waiting is not None]
        if not waiting:
            return
        machine = self.rng.choice(waiting)
        request = machine.waiting
        assert request is not None
        still_there = request in self.requests and not request.repeated
        kind = self.rng.random()
        event: Happening
        if kind < 0.15 and still_there:
            self.requests.remove(request)
            event = core.Refused("full") if kind < 0.05 else core.NotSent()
        elif kind < 0.25:
            self._hand(machine, core.Lost() if self._doubt else core.NotSent())
            event = core.GaveUp("no time left")
        else:
            event = core.Lost() if self._doubt else core.NotSent()
        if machine in self._machines():
            self._hand(machine, event)

    # --- the processes -------------------------------------------------------------------------------------------

    def _machines(self) -> list[Machine]:
        return [machine for process in self.processes for machine in (process.machine, process.keeper) if machine]

    def _move(self) -> None:
        process = self.rng.choice(self.processes)
        for machine in (process.machine, process.keeper):
            if machine is not None and machine.answer is not None:
                self._hand(machine, machine.answer)
                return
        if process.leading is None:
            if process.machine is None:
                self._campaign(process)
        elif process.machine is None:
            self._append(process, process.leading)
        elif process.keeper is None and self.rng.random() < 0.3:
            self._keep(process)

    def _campaign(self, process: Process) -> None:
        self._leases += 1
        process.lease = self._leases
        self.etcd.leases.add(process.lease)
        campaign = Campaign(
            KEYS, Leader(b"%d-%d" % (process.name, self._leases), f"process {process.name}"), process.lease
        )
        process.machine = Machine(process, campaign)
        self._carry_out(process.machine, campaign.begin())

    def _append(self, process: Process, leading: Leading) -> None:
        self._ids += 1
        process.appending = self._ids.to_bytes(16, "big")
        parts = tuple(b"part" for _ in range(self.rng.randint(0, self._parts)))
        process.machine = Machine(process, leading)
        slot = process.appending + len(parts).to_bytes(4, "little") + bytes(4) + b"frame"
        self._carry_out(process.machine, leading.append(process.appending, Cut(slot, parts)))

    def _keep(self, process: Process) -> None:
        """Name a snapshot of all that is committed, or drop what the one that was named covers."""
        assert process.leading is not None
        assert process.fence is not None
        if process.keeping == "named":
            through = process.snapshot
            ops = (
                Delete(KEYS.slot(0), KEYS.slot(through + 1)),
                Delete(KEYS.parts_from(0), KEYS.parts_from(through + 1)),
            )
            process.keeping = ""
            # Unfenced, and whenever it comes.
            self.requests.append(Request(Send(Txn((), ops)), Machine(process, process.leading)))
            return
        process.snapshot = process.leading.head.sequence
        snap = self.etcd.keys.get(KEYS.snap)
        revision = 0 if snap is None else snap.mod_revision
        decree = Decree(KEYS, process.fence, (), Register(KEYS.snap, revision, b"%d" % process.snapshot))
        process.keeper = Machine(process, decree)
        self._carry_out(process.keeper, decree.begin())

    def _hand(self, machine: Machine, event: Happening) -> None:
        machine.waiting = machine.answer = None
        self._carry_out(machine, machine.core.step(event))

    def _carry_out(self, machine: Machine, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send | Look):
                machine.waiting = Request(effect, machine)
                self.requests.append(machine.waiting)
            else:
                self._conclude(machine.process, machine, effect)

    def _conclude(self, process: Process, machine: Machine, effect: core.Effect) -> None:
        if machine is process.keeper:
            process.keeper = None
            process.keeping = "named" if isinstance(effect, core.Done) else ""
            if isinstance(effect, core.Ended):
                assert process.leading is not None
                for ended in process.leading.step_down(effect.message):
                    self._conclude(process, machine, ended)
            return
        process.machine = None
        if isinstance(effect, core.Won):
            self._begin(process, effect.fence)
        elif isinstance(effect, core.Beaten | core.Dropped):
            self.etcd.end_lease(process.lease)
        elif isinstance(effect, core.Committed):
            self.told.committed[process.appending] = effect.sequence
            process.appending = b""
        elif isinstance(effect, core.NotWritten):
            self.told.unwritten.add(process.appending)
            process.appending = b""
        elif isinstance(effect, core.Ended):
            if process.appending:
                (self.told.unknown if effect.unknown else self.told.unwritten).add(process.appending)
                process.appending = b""
            process.leading = process.fence = process.keeper = None
            process.keeping = ""
            self.etcd.end_lease(process.lease)

    def _begin(self, process: Process, fence: Fence) -> None:
        """A fenced read of where the log ends, as a new leader does it. It must hold all that was acknowledged."""
        leader = self.etcd.keys.get(KEYS.leader)
        if leader is None or leader.create_revision != fence.revision:
            self.etcd.end_lease(process.lease)
            return
        self.terms += 1
        kv = self.etcd.keys.get(KEYS.head)
        head = Head(0, 0) if kv is None else Head(parse_sequence(kv.value, kv.key), kv.mod_revision)
        if self.told.committed and head.sequence < max(self.told.committed.values()):
            raise Violation("a new leader does not find what was acknowledged")
        snap = self.etcd.keys.get(KEYS.snap)
        for sequence in range(int(snap.value) + 1 if snap is not None else 1, head.sequence + 1):
            if KEYS.slot(sequence) not in self.etcd.keys:
                raise Violation(f"a new leader does not find slot {sequence}")
        process.fence = fence
        process.leading = Leading(KEYS, fence, head)
