"""Many threads on one braid: each log has one order, nothing is lost or doubled, and nobody waits for ever.

All the while the keeper packs, compacts, collects and takes checkpoints as often as it can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.client.log import Log
from braidlog.embedded.committer import Committer, Pending
from braidlog.embedded.writer import Writer
from braidlog.errors import Blocked, BraidError, ConditionFailed, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.forest import invariants
from tests.faults.processes import DEADLINE_S
from tests.faults.verifier import replica_of

FRANTIC = {
    "KEEPER_PERIOD_S": 0.002,
    "PACK_AGE_S": 0.0,
    "COMPACT_IDLE_S": 0.0,
    "COMPACT_OBJECTS_MIN": 2,
    "GRACE_S": 0.0,
    "CHECKPOINT_COMMANDS": 50,
}
ROUNDS = {"memory": 120, "directory": 30}


@pytest.fixture
def frantic(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FRANTIC.items():
        monkeypatch.setattr(limits, name, value)


@pytest.fixture(params=["memory", "directory"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def braid(kind: str, tmp_path: Path, frantic: None) -> Iterator[braidlog.Braid]:  # noqa: ARG001
    with braidlog.open("memory://" if kind == "memory" else tmp_path) as opened:
        yield opened


class Crew:
    """Threads whose failures are not lost, and whose work must end in time."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, work: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as failure:
                self._failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        for thread in self._threads:
            while thread.is_alive() and not self._failures:
                thread.join(0.1)
                assert time.monotonic() < deadline, "a thread hangs"
        if self._failures:
            raise self._failures[0]


def values(log: Log) -> list[bytes]:
    return [record.value for record in log.read(log.info().start)]


def of_thread(found: list[bytes], name: str) -> list[int]:
    """The numbers of one thread's records, in the order of the log."""
    return [int(value.split(b"/")[1]) for value in found if value.startswith(name.encode() + b"/")]


class Appender:
    """Appends numbered records in every way there is, and remembers what it was told."""

    def __init__(self, name: str, log: Log, rounds: int) -> None:
        self.name = name
        self.log = log
        self.rounds = rounds
        self.next = 0
        self.told: dict[int, bytes] = {}  # by position
        self.tickets: list[tuple[braidlog.Ticket, bytes]] = []

    def value(self) -> bytes:
        self.next += 1
        return f"{self.name}/{self.next - 1}/".encode()

    def __call__(self) -> None:
        for turn in range(self.rounds):
            value = self.value()
            match turn % 4:
                case 0:
                    self.tell(self.log.append(value), [value])
                case 1:
                    batch = [value, self.value(), self.value()]
                    positions = self.log.append_many(batch)
                    self.tell(None if positions is None else positions.start, batch)
                case 2:
                    self.tickets.append((self.log.submit(value), value))
                case 3:
                    value += bytes(limits.INLINE_BYTES_MAX) if turn % 40 == 3 else b""
                    self.tell(self.log.append(value, writer=self.name, sequence=turn), [value])

    def tell(self, first: int | None, batch: list[bytes]) -> None:
        if first is not None:
            self.told.update(enumerate(batch, first))

    def check(self, found: list[bytes]) -> None:
        assert of_thread(found, self.name) == list(range(self.next)), "lost, doubled or out of order"
        for ticket, value in self.tickets:
            self.told[ticket.position(DEADLINE_S)] = value
        for position, value in self.told.items():
            assert found[position] == value


def test_each_log_has_one_order_and_nothing_is_lost_or_doubled(braid: braidlog.Braid, kind: str) -> None:
    crew = Crew()
    logs = [braid.create(f"log{number}") for number in range(2)]
    appenders = [
        Appender(f"thread{number}", log, ROUNDS[kind]) for log in logs for number in range(4 * log.id, 4 * log.id + 4)
    ]
    for appender in appenders:
        crew.start(appender)
    followed: list[list[bytes]] = [[] for _ in range(4)]
    total = 4 * (ROUNDS[kind] + 2 * len(range(1, ROUNDS[kind], 4)))  # every fourth append is a batch of three
    for number, into in enumerate(followed):
        crew.start(follow, logs[number % 2], total, into)
    crew.finish()
    for log in logs:
        found = values(log)
        for appender in appenders:
            if appender.log is log:
                appender.check(found)
    for number, got in enumerate(followed):
        assert got == values(logs[number % 2])
    check_invariants(braid)


def follow(log: Log, total: int, into: list[bytes]) -> None:
    for record in log.subscribe():
        assert record.position == len(into)
        into.append(record.value)
        if len(into) == total:
            return


def check_invariants(braid: braidlog.Braid) -> None:
    replica = replica_of(braid)
    with replica.lock:
        assert invariants.broken(replica.forest) == []


def test_forks_come_and_go_while_their_parent_is_written_and_read(braid: braidlog.Braid, kind: str) -> None:
    log = braid.create("log")
    crew = Crew()
    rounds = ROUNDS[kind]
    appenders = [Appender(f"thread{number}", log, rounds) for number in range(3)]
    promoted: list[bytes] = []
    got: list[bytes] = []
    stop = threading.Event()
    for appender in appenders:
        crew.start(appender)
    crew.start(promote_and_squash, log, rounds, promoted)
    crew.start(sever_and_compare, log, rounds // 2)
    reading = Crew()
    reading.start(follow_until, log, stop, got)
    crew.finish()
    log.append(b"the last")
    stop.set()
    reading.finish()
    found = values(log)
    assert got == found
    for appender in appenders:
        appender.check(found)
    assert [value for value in found if value.startswith(b"fork")] == promoted
    assert len(found) == sum(appender.next for appender in appenders) + len(promoted) + 1
    check_invariants(braid)


def promote_and_squash(log: Log, rounds: int, promoted: list[bytes]) -> None:
    """Every other fork is promoted: its records, and only those, are in the log then."""
    for turn in range(rounds):
        fork = log.cfork(promotable=True)
        batch = [f"fork/{turn}/{number}".encode() for number in range(3)]
        for value in batch:
            fork.append(value)
        if turn % 2:
            assert fork.promote(expected_own=3)
            promoted += batch
        else:
            fork.squash()


def sever_and_compare(log: Log, rounds: int) -> None:
    """A severed fork holds what its source held below, whatever happens above."""
    for _ in range(rounds):
        at = log.tail()
        fork = log.sfork(at=at)
        fork.append(b"on the severed fork")
        assert values(fork)[:-1] == [record.value for record in log.read(0, at)]
        fork.squash()


def follow_until(log: Log, stop: threading.Event, into: list[bytes]) -> None:
    """Follow until told to stop and everything was seen."""
    with log.subscribe() as subscription:
        deadline = time.monotonic() + DEADLINE_S
        while not (stop.is_set() and subscription.position == log.tail()):
            assert time.monotonic() < deadline
            for record in subscription.poll(0.05):
                assert record.position == len(into)
                into.append(record.value)


def test_of_threads_that_race_for_a_position_exactly_one_wins(braid: braidlog.Braid, kind: str) -> None:
    log = braid.create("log")
    crew = Crew()
    won: list[list[int]] = [[] for _ in range(4)]

    def race(mine: list[int]) -> None:
        for _ in range(ROUNDS[kind]):
            at = log.tail()
            try:
                assert log.append(b"%d" % at, expected_tail=at) == at
            except ConditionFailed:
                continue
            mine.append(at)

    for mine in won:
        crew.start(race, mine)
    crew.finish()
    positions = sorted(position for mine in won for position in mine)
    assert positions == list(range(len(positions)))
    assert values(log) == [b"%d" % position for position in positions]


def test_an_append_repeated_by_many_threads_at_once_is_taken_once(braid: braidlog.Braid) -> None:
    log = braid.create("log")
    told: list[int | None] = []
    for sequence in range(10):
        crew = Crew()
        for _ in range(4):
            crew.start(lambda turn: told.append(log.append(b"%d" % turn, writer="w", sequence=turn)), sequence)
        crew.finish()
    assert values(log) == [b"%d" % sequence for sequence in range(10)]
    assert sorted(position for position in told if position is not None) == sorted(list(range(10)) * 4)


def test_a_hold_lets_every_waiter_go_on_once_it_is_decided(braid: braidlog.Braid) -> None:
    log = braid.create("log")
    child = log.cfork("child")
    fork = log.cfork("trial", promotable=True)
    crew = Crew()
    blocked = threading.Barrier(5)

    def wait(number: int) -> None:
        with pytest.raises(Blocked):
            child.append(b"too early")
        blocked.wait(DEADLINE_S)
        child.append(b"%d" % number, wait=DEADLINE_S)

    for number in range(4):
        crew.start(wait, number)
    blocked.wait(DEADLINE_S)
    fork.append(b"of the fork")
    fork.promote()
    crew.finish()
    assert values(child)[0] == b"of the fork"
    assert sorted(values(child)[1:]) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("by_ticket", [False, True])
def test_closing_while_others_append_keeps_what_was_acknowledged_and_frees_everybody(
    by_ticket: bool,
    tmp_path: Path,
    frantic: None,  # noqa: ARG001
) -> None:
    for turn in range(3):
        braid = braidlog.open(tmp_path)
        log = braid.create(f"log{turn}")
        crew = Crew()
        told: list[list[bytes]] = [[] for _ in range(4)]
        busy = threading.Semaphore(0)

        def append(name: int, mine: list[bytes], log: Log = log, busy: threading.Semaphore = busy) -> None:
            for number in range(1_000_000):
                value = b"%d/%d" % (name, number)
                try:
                    if by_ticket:
                        log.submit(value).durable(DEADLINE_S)
                    else:
                        log.append(value)
                except Unavailable:
                    return
                mine.append(value)
                busy.release()

        for name, mine in enumerate(told):
            crew.start(append, name, mine)
        for _ in range(20):
            assert busy.acquire(timeout=DEADLINE_S)
        braid.close()
        crew.finish()
        with braidlog.open(tmp_path) as braid:
            writer = replica_of(braid)
            assert writer.clean  # type: ignore[attr-defined]
            found = values(braid.log(f"log{turn}"))
            assert len(set(found)) == len(found)
            for name, mine in enumerate(told):
                assert [value for value in found if value.startswith(b"%d/" % name)] == mine


def test_subscriptions_end_when_the_braid_is_closed() -> None:
    braid = braidlog.open("memory://")
    log = braid.create("log")
    crew = Crew()
    reasons: list[str] = []
    waiting = threading.Barrier(4)

    def listen() -> None:
        subscription = log.subscribe()
        waiting.wait(DEADLINE_S)
        for _ in subscription:
            raise AssertionError("there is no record")
        assert subscription.end is not None
        reasons.append(subscription.end.reason)

    for _ in range(3):
        crew.start(listen)
    waiting.wait(DEADLINE_S)
    braid.close()
    crew.finish()
    assert reasons == ["closed"] * 3


# The queue in front of the log


class Watched:
    """A lock that tells when somebody tried it in vain, and lets a test act right before it is let go."""

    def __init__(self, before_release: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._before_release = before_release
        self.in_vain = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        got = self._lock.acquire(blocking)
        if not got:
            self.in_vain.set()
        return got

    def release(self) -> None:
        self._before_release()
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def committer() -> Committer:
    return Committer(
        lambda _: (_ for _ in ()).throw(AssertionError("nothing is large here")),
        lambda _: None,
        lambda batch: [c.Done() for _ in batch],
    )


@pytest.mark.parametrize("leader", ["the committer's thread", "another caller", "a checkpoint", "the end"])
def test_whoever_queues_while_the_leader_lets_go_is_not_forgotten(leader: str) -> None:
    """It finds the lock taken, and the one who has it has looked at the queue for the last time."""
    queue = committer()
    late = Pending(c.Collect(0))
    crew = Crew()

    def queue_late() -> None:
        if not crew._threads:
            crew.start(queue.carry_out, late)
            assert lock.in_vain.wait(DEADLINE_S)

    lock = Watched(queue_late)
    queue._leading = lock  # type: ignore[assignment]
    first = Pending(c.Collect(0))
    if leader == "the committer's thread":
        queue.submit(first)
    elif leader == "another caller":
        queue.carry_out(first)
    elif leader == "a checkpoint":
        with queue.alone():
            pass
    else:
        queue.stop(Unavailable("closed"))
        queue.submit(first)
    assert late.wait(DEADLINE_S)
    crew.finish()
    if leader == "the end":
        with pytest.raises(Unavailable):
            late.result()
    else:
        assert late.result() == c.Done()
        queue.stop(Unavailable("closed"))


def test_a_collection_in_between_does_not_take_the_object_from_a_large_append() -> None:
    with braidlog.open("memory://") as braid:
        log = braid.create("log")
        writer = replica_of(braid)
        assert isinstance(writer, Writer)
        with writer.committer.alone():  # so that all of it queues
            before = log.submit(b"before")
            writer.committer.submit(Pending(c.Collect(writer.clock.now_us())))
            large = log.submit(bytes(limits.INLINE_BYTES_MAX + 1))
            writer.committer.submit(Pending(c.Collect(writer.clock.now_us())))
            after = log.submit(b"after")
        assert [ticket.position(DEADLINE_S) for ticket in (before, large, after)] == [0, 1, 2]
        assert len(values(log)) == 3


def test_what_is_submitted_after_the_end_is_refused_at_once() -> None:
    queue = committer()
    queue.stop(Unavailable("closed"))
    pending = Pending(c.Collect(0))
    queue.submit(pending)
    assert pending.done
    with pytest.raises(Unavailable):
        pending.result()


def test_a_caller_whose_time_runs_out_is_told_that_the_outcome_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT_S", 0.01)
    queue = committer()
    pending = Pending(c.Trim(1, 0, b"r" * 16))
    with queue.alone():
        queue.carry_out(pending, 0.01)
        with pytest.raises(OutcomeUnknown) as unknown:
            pending.result()
    assert unknown.value.request_id == (b"r" * 16).hex()
    assert pending.wait(DEADLINE_S), "it may still happen, and does"
    queue.stop(Unavailable("closed"))


def test_every_error_that_a_thread_can_meet_is_one_of_ours(braid: braidlog.Braid) -> None:
    """Logs end under the hands of those who use them."""
    crew = Crew()
    root = braid.create("root")
    root.append_many([b"x"] * 50)

    def use(log: Log) -> None:
        try:
            while True:
                log.append(b"y")
                log.read(0, max_bytes=10)
                log.info()
                log.diff()
        except BraidError:
            return

    for _ in range(10):
        forks = [root.cfork() for _ in range(3)]
        for fork in forks:
            crew.start(use, fork)
        for fork in forks:
            fork.squash()
    crew.finish()
    check_invariants(braid)
