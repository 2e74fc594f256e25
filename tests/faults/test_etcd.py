"""A forest on a real etcd: terms are won and lost, members die, frames are large, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog import limits
from braidlog.embedded.replica import Replica
from braidlog.embedded.writer import absorb_frame, load_snapshot
from braidlog.errors import Corrupt, InvalidArgument, OutcomeUnknown, Timeout, Unavailable
from braidlog.metadata.etcd.client import Ambiguous, EtcdClient, NotSent, Tls
from braidlog.metadata.etcd.codec import Get, Put, Txn, TxnAnswer, after_prefix
from braidlog.metadata.etcd.following import EtcdFollower
from braidlog.metadata.etcd.keys import Keys
from braidlog.metadata.etcd.leadership import Candidacy, LeaderWatch, Term, leader
from braidlog.metadata.etcd.log import EtcdLog
from braidlog.metadata.home import Deposed
from braidlog.metadata.log_follower import Superseded
from braidlog.objects.store import FileStore
from braidlog.testing.etcd import EtcdCluster
from tests.faults.etcd_places import DEADLINE_S, PREFIX, Place, wait_until


@pytest.fixture(scope="module")
def one() -> Iterator[EtcdCluster]:
    with EtcdCluster() as etcd:
        yield etcd


@pytest.fixture
def place(one: EtcdCluster, tmp_path: Path) -> Place:
    """A place of its own on an etcd that others use too."""
    return Place(one, tmp_path / "objects", f"/braid{tmp_path}")


@pytest.fixture
def client(one: EtcdCluster) -> Iterator[EtcdClient]:
    with contextlib.closing(one.client()) as client:
        yield client


@pytest.fixture
def term(place: Place, client: EtcdClient) -> Iterator[Term]:
    term = place.win(client)
    yield term
    term.resign()


@pytest.fixture
def three() -> Iterator[EtcdCluster]:
    with EtcdCluster(members=3) as etcd:
        yield etcd


# --- a writer --------------------------------------------------------------------------------------------------------


def test_logs_forks_and_promotions_are_there_when_the_next_writer_opens(place: Place) -> None:
    with place.writing() as first:
        orders = first.braid.create("orders")
        for value in (b"one", b"two"):
            orders.append(value)
        fork = orders.cfork("what-if", promotable=True)
        fork.append(b"three")
        assert fork.promote()
        first.upkeep.pack()
        first.writer.checkpoint()
        orders.append(b"four")
    with place.writing(ttl_s=1) as second:
        assert second.writer.clean
        assert [record.value for record in second.braid.log("orders").read(0)] == [b"one", b"two", b"three", b"four"]
        second.braid.log("orders").append(b"five")
        second.vanish()
    with place.writing() as third:
        assert not third.writer.clean
        assert third.braid.log("orders").read(0)[-1].value == b"five"


def test_a_snapshot_makes_the_log_before_it_go(place: Place, client: EtcdClient) -> None:
    keys = Keys(place.prefix)
    with place.writing() as leader_:
        orders = leader_.braid.create("orders")
        for number in range(6):
            orders.append(b"%d" % number)
            leader_.writer.checkpoint()
        slots = client.range(Get(keys.slots, after_prefix(keys.slots), keys_only=True)).kvs
        assert len(slots) == 0
        [snap] = client.read(keys.snap).kvs
        assert snap is not None
        blobs = place.blobs.list("snapshots/")
        assert snap.value.decode() == blobs[-1]
        assert len(blobs) == 3  # it, and the last two before it
    with place.writing() as again:
        assert again.braid.log("orders").tail() == 6


def test_a_snapshot_that_is_not_there_is_an_error_and_not_an_empty_forest(place: Place) -> None:
    with place.writing() as first:
        first.braid.create("orders")
        first.writer.checkpoint()
    for key in place.blobs.list(""):
        place.blobs.delete(key)
    with pytest.raises(Corrupt, match="object store"), place.writing():
        pass


@pytest.mark.parametrize("pieces", [0.5, 1, 1.5, 5])
def test_frames_larger_than_a_request_are_stored_whole(
    place: Place, client: EtcdClient, term: Term, pieces: float
) -> None:
    payload = os.urandom(int(pieces * limits.ETCD_PIECE_BYTES_MAX))
    log, _, _ = place.open_log(client, term)
    assert [log.append(b""), log.append((payload[:10], payload[10:])), log.append(b"after")] == [1, 2, 3]
    assert log.bytes_since_roll > len(payload)
    assert place.open_log(client, term)[1] == [(1, b""), (2, payload), (3, b"after")]
    log.drop_through(2)
    keys = Keys(place.prefix)
    assert client.range(Get(keys.parts, after_prefix(keys.parts), keys_only=True)).kvs == ()


def test_the_largest_frame_is_stored_and_a_larger_one_refused(place: Place, client: EtcdClient, term: Term) -> None:
    log, _, _ = place.open_log(client, term)
    payload = bytes(limits.FRAME_BYTES_MAX)
    assert log.append(payload) == 1
    with pytest.raises(InvalidArgument, match="at most"):
        log.append(payload + b"1")
    assert log.append_end() == 2
    _, [(sequence, read)], clean = place.open_log(client, term)
    assert (sequence, read == payload, clean) == (1, True, True)
    log.drop_through(2)


def test_parts_of_a_frame_that_was_never_finished_are_removed(place: Place, client: EtcdClient, term: Term) -> None:
    log, _, _ = place.open_log(client, term)
    log.append(bytes(2 * limits.ETCD_PIECE_BYTES_MAX))
    keys = Keys(place.prefix)
    client.txn(Txn((), (Put(keys.part(2, bytes(16), 0), b"left over"),)))
    place.open_log(client, term)
    parts = client.range(Get(keys.parts, after_prefix(keys.parts), keys_only=True)).kvs
    assert [kv.key.startswith(keys.parts_from(1)) for kv in parts] == [True, True]


# --- terms -----------------------------------------------------------------------------------------------------------


def test_one_candidate_wins_and_the_next_one_when_it_resigns(place: Place, one: EtcdCluster) -> None:
    told: list[str | None] = []
    with contextlib.closing(one.client()) as mine, contextlib.closing(one.client()) as yours:
        with contextlib.closing(LeaderWatch(mine, place.prefix, told.append)):
            first = place.win(mine, "first:1")
            assert leader(yours, place.prefix) == "first:1"
            assert 50 < first.left_s() <= 60
            with pytest.raises(Timeout):
                Candidacy(yours, place.prefix, "second:2").win(0.2)
            stop = threading.Event()
            stop.set()
            with pytest.raises(Timeout):
                Candidacy(yours, place.prefix, "second:2").win(stop=stop)
            heard: list[str] = []
            first.on_lost(lambda: heard.append(first.reason))
            won: list[Term] = []
            waiting = threading.Thread(target=lambda: won.append(place.win(yours, "second:2")))
            waiting.start()
            first.resign()
            waiting.join(DEADLINE_S)  # far less than the 60 s of the lease
            [second] = won
            assert heard == ["it resigned"]
            assert second.number > first.number
            wait_until(lambda: told[-1:] == ["second:2"])
            second.resign()
            wait_until(lambda: told[-1] is None)
        assert told == [None, "first:1", None, "second:2", None]


def test_a_writer_that_vanished_is_followed_when_its_lease_ends(place: Place) -> None:
    with place.writing("first:1", ttl_s=1) as first:
        orders = first.braid.create("orders")
        acknowledged = [orders.append(b"%d" % number) for number in range(20)]
        first.vanish()
        with place.writing("second:2") as second:
            assert [record.position for record in second.braid.log("orders").read(0)] == acknowledged
            assert first.term.lost.wait(DEADLINE_S)
            with pytest.raises(Unavailable):
                orders.append(b"too late")
            second.braid.log("orders").append(b"next")


def test_a_deposed_writer_binds_nothing_though_it_believes_to_lead(place: Place, client: EtcdClient) -> None:
    first = place.win(client, "first:1")
    log, _, _ = place.open_log(client, first)
    log.append(b"mine")
    client.revoke(first._lease)  # the fence is gone, and the process does not know
    assert not first.lost.is_set()
    unaware = place.home(client, first)
    second = place.win(client, "second:2")
    theirs, read, _ = place.open_log(client, second)
    assert read == [(1, b"mine")]
    second.confirm()
    with pytest.raises(Deposed, match="second:2"):
        log.append(b"late")
    assert first.lost.is_set()
    for late in (
        lambda: log.append(b"later"),
        lambda: unaware.save(1, b"state"),
        unaware.latest,
        first.confirm,
    ):
        with pytest.raises(Deposed):
            late()
    assert theirs.append(b"theirs") == 2
    second.resign()
    third = place.win(client)
    assert place.open_log(client, third)[1] == [(1, b"mine"), (2, b"theirs")]
    third.resign()


def test_a_process_that_stood_still_past_its_lease_is_fenced(one: EtcdCluster, tmp_path: Path) -> None:
    place = Place(one, tmp_path / "objects")
    command = [
        sys.executable,
        "-m",
        "tests.faults.etcd_writer",
        ",".join(one.endpoints),
        str(tmp_path / "objects"),
        "w",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            said = iter(child.stdout)
            assert next(said) == "leads\n"
            lines = [next(said) for _ in range(50)]
            child.send_signal(signal.SIGSTOP)
            with place.writing("second:2") as second:
                orders = second.braid.log("orders")
                taken_over = orders.tail()
                second.braid.log("orders").append(b"by the second")
                child.send_signal(signal.SIGCONT)
                rest = list(said)
                lines += rest[:-1]
                acknowledged = [int(line.split()[1]) for line in lines]
                assert acknowledged == list(range(len(acknowledged)))
                assert len(acknowledged) <= taken_over  # what was bound and not told of may be there, too
                values = [record.value for record in orders.read(0)]
                assert values[: len(acknowledged)] == [b"w %d" % number for number in acknowledged]
                assert values[taken_over:] == [b"by the second"]
                assert rest[-1].split()[0] == "ended"
                assert rest[-1].split()[2] == "lost"
            assert child.wait(DEADLINE_S) == 0
        finally:
            child.kill()


# --- answers that are lost -------------------------------------------------------------------------------------------


class LossyClient(EtcdClient):
    """Loses some transactions on their way, and the answers to others."""

    def __init__(self, endpoints: list[str], rng: random.Random) -> None:
        super().__init__(endpoints)
        self._rng = rng
        self.lost = 0

    def txn(self, txn: Txn) -> TxnAnswer:
        fate = self._rng.random()
        if fate < 0.15:
            self.lost += 1
            raise Ambiguous("lost on its way")
        answer = super().txn(txn)
        if fate < 0.4:
            self.lost += 1
            raise Ambiguous("the answer was lost")
        return answer


@pytest.mark.parametrize("seed", range(3))
def test_what_was_done_though_its_answer_was_lost_is_done_once(place: Place, one: EtcdCluster, seed: int) -> None:
    with contextlib.closing(LossyClient(one.endpoints, random.Random(seed))) as client:
        term = place.win(client)
        log, _, _ = place.open_log(client, term)
        payloads = [b"%d" % number for number in range(50)] + [bytes(2 * limits.ETCD_PIECE_BYTES_MAX)]
        assert [log.append(payload) for payload in payloads] == list(range(1, 52))
        home = place.home(client, term)
        for sequence in (10, 20, 30):
            home.save(sequence, b"state at %d" % sequence)
        found = home.latest()
        assert found is not None
        assert (found[0], bytes(found[1])) == (30, b"state at 30")
        assert place.open_log(client, term)[1] == list(enumerate(payloads, 1))
        assert client.lost > 10
        term.resign()


# --- members that fail -----------------------------------------------------------------------------------------------


def test_members_that_die_under_load_cost_time_and_nothing_else(three: EtcdCluster, tmp_path: Path) -> None:
    place = Place(three, tmp_path / "objects")
    with contextlib.closing(three.client()) as client, contextlib.closing(three.client()) as reader:
        term = place.win(client, ttl_s=10)
        log, _, _ = place.open_log(client, term)
        follower = EtcdFollower(reader, PREFIX, place.blobs)
        assert follower.latest() is None
        stop = threading.Event()
        acknowledged: list[tuple[int, bytes]] = []

        def work() -> None:
            while not stop.is_set():
                payload = b"%d" % len(acknowledged)
                acknowledged.append((log.append(payload), payload))

        working = threading.Thread(target=work)
        working.start()
        try:
            for _ in range(2):
                at = three.leader()
                before = len(acknowledged)
                wait_until(lambda before=before: len(acknowledged) > before + 20)
                three.kill(at)
                after = len(acknowledged)
                wait_until(lambda after=after: len(acknowledged) > after + 20)
                three.restart(at)
            at = three.leader()
            three.stop(at)  # connections stay, and nobody answers
            before = len(acknowledged)
            wait_until(lambda: len(acknowledged) > before + 20)
            three.cont(at)
        finally:
            stop.set()
            working.join(DEADLINE_S)
        assert not term.lost.is_set()
        assert [sequence for sequence, _ in acknowledged] == list(range(1, len(acknowledged) + 1))
        assert follower.catch_up(DEADLINE_S) == acknowledged
        follower.close()
        term.resign()
        assert place.open_log(client, place.win(client))[1] == acknowledged


def test_two_of_three_members_are_enough(three: EtcdCluster, tmp_path: Path) -> None:
    three.kill(0)  # the one that is asked first
    place = Place(three, tmp_path / "objects")
    with place.writing() as first:
        assert first.braid.create("orders").append(b"one") == 0
    with place.writing() as second:
        assert second.braid.log("orders").tail() == 1


def test_an_etcd_that_is_away_is_waited_for_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ETCD_APPEND_TIMEOUT_S", 0.3)
    with EtcdCluster() as etcd, contextlib.closing(etcd.client()) as client:
        place = Place(etcd, tmp_path / "objects")
        term = place.win(client)
        log, _, _ = place.open_log(client, term)
        assert log.append(b"one") == 1
        etcd.kill(0)
        wait_until(lambda: is_away(client))
        with pytest.raises(Unavailable):  # nobody was asked, so nothing is in doubt
            log.append(b"lost")
        with pytest.raises(Timeout):
            Candidacy(client, "/elsewhere", "x").win(0.3)
        etcd.restart(0)
        assert log.append(b"two") == 2
        etcd.stop(0)
        with pytest.raises(OutcomeUnknown):
            log.append(b"three")
        etcd.cont(0)
        with pytest.raises(Unavailable):  # nobody knows where it would go
            log.append(b"four")
        assert term.lost.is_set()
        again = place.win(client)
        assert place.open_log(client, again)[1] in (
            [(1, b"one"), (2, b"two")],
            [(1, b"one"), (2, b"two"), (3, b"three")],
        )
        again.resign()


def is_away(client: EtcdClient) -> bool:
    """Whether the client has noticed."""
    try:
        client.txn(Txn((), (Get(b"/"),)))
    except NotSent:
        return True
    except Ambiguous:
        return False
    return False


def test_an_etcd_without_room_says_so_and_can_still_be_read(tmp_path: Path) -> None:
    with EtcdCluster(quota_bytes=8 * limits.MIB) as etcd, contextlib.closing(etcd.client()) as client:
        place = Place(etcd, tmp_path / "objects")
        term = place.win(client)
        log, _, _ = place.open_log(client, term)
        with pytest.raises(Unavailable, match="etcd is full"):
            fill(log)
        stored = log.last_sequence
        assert 1 <= stored < 100
        assert not term.lost.is_set()
        assert len(place.open_log(client, term)[1]) == stored  # all can be read
        log.drop_through(1)
        assert len(place.open_log(client, term, after=1)[1]) == stored - 1


def fill(log: EtcdLog) -> None:
    for _ in range(100):
        log.append(bytes(limits.MIB))


# --- following -------------------------------------------------------------------------------------------------------


def test_a_follower_tells_everything_once_and_begins_again_behind_a_snapshot(
    place: Place, client: EtcdClient, term: Term
) -> None:
    log, _, _ = place.open_log(client, term)
    home = place.home(client, term)
    log.append(b"one")
    follower = EtcdFollower(client, place.prefix, place.blobs)
    assert follower.latest() is None
    assert follower.wait(0)
    assert follower.poll() == [(1, b"one")]
    assert not follower.wait(0)
    large = os.urandom(3 * limits.ETCD_PIECE_BYTES_MAX)
    log.append(large)
    assert follower.wait(DEADLINE_S)
    log.append(b"three")
    home.save(log.roll() - 1, b"state")
    log.drop_through(3)  # still told: etcd has not forgotten it
    assert follower.catch_up(DEADLINE_S) == [(2, large), (3, b"three")]
    follower.close()
    assert not follower.wait(0)

    late = EtcdFollower(client, place.prefix, place.blobs)
    found = late.latest()
    assert found is not None
    assert (found[0], bytes(found[1])) == (3, b"state")
    log.append(b"four")
    log.append_end()
    log.append(b"six")
    assert late.catch_up(DEADLINE_S) == [(4, b"four"), (6, b"six")]
    assert late.head() == late.last_sequence == 6
    late.close()


def test_a_replica_is_made_of_what_a_follower_tells(place: Place, client: EtcdClient) -> None:
    with place.writing() as writing:
        orders = writing.braid.create("orders")
        orders.append(b"one")
        writing.writer.checkpoint()
        fork = orders.cfork("what-if", promotable=True)
        fork.append(b"two")
        with contextlib.closing(EtcdFollower(client, place.prefix, place.blobs)) as follower:
            after, forest, payloads = load_snapshot(follower.latest())
            assert after > 0
            replica = Replica(forest, payloads, FileStore(place.files), None)
            assert fork.promote()
            for sequence, payload in follower.catch_up(DEADLINE_S):
                absorb_frame(replica, sequence, payload)
            log_id = replica.find("orders")
            assert [record.value for record in replica.read(log_id, 0, None, None, None)] == [b"one", b"two"]
            assert replica.forest.applied == writing.writer.forest.applied


def test_a_follower_that_is_too_far_behind_is_told_so(tmp_path: Path) -> None:
    with (
        EtcdCluster() as etcd,
        contextlib.closing(etcd.client()) as client,
        contextlib.closing(etcd.client()) as reader,
    ):
        place = Place(etcd, tmp_path / "objects")
        term = place.win(client)
        log, _, _ = place.open_log(client, term)
        home = place.home(client, term)
        large = os.urandom(2 * limits.ETCD_PIECE_BYTES_MAX)
        log.append(large)
        follower = EtcdFollower(reader, PREFIX, place.blobs)
        assert follower.latest() is None
        for _ in range(3):  # the first is not forgotten before the second drop
            sequence = log.append(b"x")
            home.save(log.roll() - 1, b"state %d" % sequence)
            log.drop_through(sequence)
        with pytest.raises(Superseded):
            follower.poll()
        found = follower.latest()
        assert found is not None
        assert bytes(found[1]) == b"state 4"
        assert follower.poll() == []
        log.append(b"next")
        assert follower.catch_up(DEADLINE_S) == [(5, b"next")]
        follower.close()
        term.resign()


def test_a_follower_knows_for_how_long_it_has_heard_nothing(tmp_path: Path) -> None:
    """While nothing happens it asks for a sign of life, so silence is never mistaken for peace."""
    with EtcdCluster() as etcd, contextlib.closing(etcd.client()) as client:
        follower = EtcdFollower(client, PREFIX, Place(etcd, tmp_path / "objects").blobs)
        assert follower.latest() is None

        wait_until(lambda: follower.silent_s() > limits.ETCD_WATCH_PING_S / 2)
        wait_until(lambda: follower.silent_s() < limits.ETCD_WATCH_PING_S / 2)  # it asked, and was answered
        etcd.stop(0)
        wait_until(lambda: follower.silent_s() > limits.STANDBY_SILENCE_S)
        etcd.cont(0)
        wait_until(lambda: follower.silent_s() < limits.ETCD_WATCH_PING_S)
        assert follower.failing == ""
        follower.close()


# --- who may ask -----------------------------------------------------------------------------------------------------


def test_an_etcd_that_wants_certificates_gets_them(tmp_path: Path) -> None:
    with EtcdCluster(tls=True) as etcd:
        with Place(etcd, tmp_path / "objects").writing() as first:
            assert first.braid.create("orders").append(b"one") == 0
        assert etcd.tls is not None
        tls = etcd.tls
        variables = {"BRAIDLOG_ETCD_CA": tls.ca, "BRAIDLOG_ETCD_CERT": tls.certificate, "BRAIDLOG_ETCD_KEY": tls.key}
        environment = {name: value for name, value in variables.items() if value is not None}
        with contextlib.closing(EtcdClient.from_environment(etcd.endpoints, environment)) as client:
            assert leader(client, PREFIX) is None
        for stranger in (Tls(ca=tls.ca), Tls()):
            with contextlib.closing(EtcdClient(etcd.endpoints, tls=stranger)) as client, pytest.raises(Unavailable):
                leader(client, PREFIX, timeout_s=0.3)


def test_an_etcd_that_wants_a_password_gets_it(tmp_path: Path) -> None:
    with EtcdCluster() as etcd:
        etcd.require_password("root", "secret")
        user = {"BRAIDLOG_ETCD_USER": "root", "BRAIDLOG_ETCD_PASSWORD": "secret"}
        with contextlib.closing(EtcdClient.from_environment(etcd.endpoints, user)) as client:
            place = Place(etcd, tmp_path / "objects")
            term = place.win(client)
            assert place.open_log(client, term)[0].append(b"one") == 1
            client._token = "stale"
            assert leader(client, PREFIX) == "writer:1"
            term.resign()
        for user["BRAIDLOG_ETCD_PASSWORD"] in ("wrong", ""):
            stranger = EtcdClient.from_environment(etcd.endpoints, user)
            with contextlib.closing(stranger), pytest.raises(Unavailable, match="etcd does not let user 'root' in"):
                Candidacy(stranger, PREFIX, "stranger").win(DEADLINE_S)
        with contextlib.closing(EtcdClient(etcd.endpoints)) as client, pytest.raises(Unavailable):
            leader(client, PREFIX)
