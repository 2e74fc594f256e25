"""Peers of a server that mean ill, or do not know better: the others notice nothing, and nothing stays behind."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog import bulk, limits
from braidlog.broker import handles
from braidlog.broker.pace import Pace
from braidlog.embedded.upkeep import Upkeep
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.objects.batch import Batch, encode, to_arrow
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import PREFACE, Kind
from tests.faults.service import PATIENCE_S, Peer, Regular, Served, said

CLIENT = b"8 bytes."
HELLO = m.Hello(CLIENT)
LATENCY_MAX_S = 5.0  # of a client that does nothing wrong, on a slow machine


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "site.braid") as opened:
        yield opened
        opened.eventually(opened.is_quiet)


@pytest.fixture
def regular(served: Served) -> Iterator[Regular]:
    with Regular(served) as client:
        yield client
        client.go_on()
    assert client.longest_s < LATENCY_MAX_S


def asked(number: int) -> bytes:
    return CLIENT + number.to_bytes(8, "big")


def appended(log: int, number: int, batch: Batch) -> bytes:
    return said(m.Append(c.Append(log, 0, 0, 0, 0, request=asked(number))), number, encode(batch))


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a wrong version": b"braid" + bytes([9, 0, 0]) + said(HELLO, 0),
    "no hello": PREFACE + said(m.ListLogs()),
    "hello twice": PREFACE + said(HELLO, 0) + said(HELLO, 1),
    "a huge length": PREFACE + said(HELLO, 0) + struct.pack("<IIIBBHIQ", 2**32 - 1, 0, 0, 1, 0, 0, 1, 0),
    "a large frame before hello": PREFACE + said(HELLO, 0, bytes(limits.WIRE_HELLO_BYTES_MAX)),
    "a wrong checksum": PREFACE + said(HELLO, 0)[:-1] + b"?",
    "a number twice": PREFACE + said(HELLO, 0) + said(m.Watch(9, 2**60), 1) + said(m.Watch(1, 2**60), 1) * 2,
    "an answer": PREFACE + said(HELLO, 0) + b"".join(frames.encode(Kind.ANSWER, 1, 0, m.encode(m.Number(1)))),
    "nesting without end": PREFACE
    + said(HELLO, 0)
    + b"".join(frames.encode(Kind.REQUEST, 1, 0, b"\x93\xa7execute" + b"\x93\xa5again" * 50_000)),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_who_sends_garbage_is_hung_up_on(served: Served, regular: Regular, name: str) -> None:
    served.writer.execute(c.Create("there", 0))
    with served.connect() as peer:
        peer.send(GARBAGE[name])
        assert peer.is_hung_up_on()
    regular.go_on()


def test_random_bytes_at_any_point_are_garbage(served: Served, regular: Regular) -> None:
    rng = random.Random(3)
    for _ in range(40):
        with served.connect() as peer:
            good = PREFACE + said(HELLO, 0) + said(m.ListLogs(), 1)
            peer.try_send(good[: rng.randrange(len(good))] + rng.randbytes(rng.randrange(1, 300)))
    regular.go_on()


def test_who_vanishes_in_the_middle_of_a_frame_leaves_nothing(served: Served, regular: Regular) -> None:
    data = said(m.Append(c.Append(1, 0, 0, 0, 0, request=asked(1))), 1, bytes(300_000))
    for _ in range(30):
        with served.connect() as peer:
            peer.greet()
            peer.send(data[:200_000])
    regular.go_on()


def test_who_stops_in_the_middle_of_something_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTION_STALLED_S", 0.2)
    with Served(tmp_path / "site.braid") as served, served.connect() as idle:
        idle.greet()
        with served.connect() as mute, served.connect() as halfway, served.open() as braid:
            halfway.greet()
            halfway.send(said(m.ListLogs(), 1)[:20])
            assert mute.is_hung_up_on()
            assert halfway.is_hung_up_on()
            assert list(braid.logs()) == []
        idle.send(said(m.ListLogs(), 1))  # who said all that he began may be silent as long as he likes
        assert idle.answer()[1] == m.Listing([])


def test_a_request_that_fails_here_is_answered_and_the_rest_go_on(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> int:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(served.writer, "find", broken)
    with served.connect() as peer, caplog.at_level(logging.CRITICAL, "braidlog.server"):
        peer.greet()
        peer.send(said(m.Find("x"), 1) + said(m.ListLogs(), 2))
        answers = [peer.answer()[:2] for _ in range(2)]
    assert answers[1] == (2, m.Listing([]))
    assert isinstance(answers[0][1], m.Fault)


def test_only_what_passes_the_server_on_its_way_to_a_fork_counts_against_those_who_write_forks(served: Served) -> None:
    taken: list[tuple[bytes, int]] = []

    class Watched(Pace):
        def take(self, root: int, client: bytes, size: int, now: float) -> float:
            taken.append((client, size))
            return super().take(root, client, size, now)

    served.service._pace = Watched()
    with served.open() as braid:
        root = braid.create("root")
        fork = root.cfork("fork")
        with bulk.ObjectWriter(fork.upload()) as writer:
            writer.add(pa.table({"value": [bytes(1000)] * 1000}))
        fork.publish(writer.close())
        root.append(b"to the root")
        fork.append(b"seven b")
        assert fork.tail() == 1002
    assert [size for _, size in taken] == [7]


EXTREMES = [0, 1, -1, -(2**63), 2**63 - 1, 2**63, 2**64 - 1]


def test_no_number_is_too_large_to_be_answered(served: Served) -> None:
    with served.open() as braid:
        braid.create("there").append_many([b"a", b"b"])
    requests: list[m.Request] = []
    for n in EXTREMES:
        for log in (1, n):
            requests += [m.NameOf(log), m.EndOf(log), m.Tail(log), m.Describe(log), m.Lineage(log), m.Consumers(log)]
            requests += [m.Read(log, n), m.Read(log, 0, n), m.Read(log, 0, None, n), m.Read(log, n, n, n, True)]
            requests += [m.Locate(log, n, n, n), m.PlanRange(log, n, n), m.PlanRange(log, 0, n), m.PositionAt(log, n)]
            requests += [m.Recall(b"", ""), m.Recall(bytes(500), "x"), m.Route(log), m.Status(), m.Kinship(log)]
            requests += [m.Join("b", "a", n), m.Bind([], n), m.Execute(c.Trim(log, 0, asked(1)), n)]
    with served.connect() as peer:
        peer.greet()
        for number, request in enumerate(requests, 1):
            peer.send(said(request, number))
            found, answer, _ = peer.answer()
            assert found == number
            if isinstance(answer, m.Fault):
                assert answer.kind != "Unavailable" or "failed" not in answer.message, (request, answer)
        for n in EXTREMES:
            peer.send(said(m.Subscribe(1, n, n), 100_000))
            peer.send(said(m.Credit(n), 100_000, kind=Kind.NOTE) + said(m.Cancel(), 100_000, kind=Kind.NOTE))
            peer.send(said(m.Watch(1, n), 100_001) + said(m.Cancel(), 100_001, kind=Kind.NOTE))
            peer.send(said(m.Floor(n), 0, kind=Kind.NOTE))
        peer.send(said(m.Tail(1), 100_002))
        while peer.answer()[0] != 100_002:
            pass


# --- peers that do not read --------------------------------------------------------------------------------------

STORED_BYTES = 24 * limits.MIB
GENEROUS_BYTES = 160 * limits.MIB


@pytest.fixture
def large(served: Served) -> Iterator[Served]:
    """A log of some size, all of it at hand, and memory looked after."""
    with served.open() as braid:
        log = braid.create("large")
        for n in range(STORED_BYTES // limits.MIB):
            log.append_many([random.Random(n).randbytes(limits.KIB)] * 1000)
        assert len(list(log.read(0))) == STORED_BYTES // limits.MIB * 1000
    tracemalloc.start()
    yield served
    tracemalloc.stop()


def test_who_asks_for_much_and_does_not_read_it_is_kept_waiting_and_costs_little(large: Served) -> None:
    number = large.writer.find("large")
    with Regular(large) as regular, large.connect() as peer:
        peer.greet()
        tracemalloc.reset_peak()
        peer.socket.settimeout(2.0)
        peer.try_send(b"".join(said(m.Read(number, 0), n) for n in range(1, 20_000)))
        regular.go_on(30)
        _, peak = tracemalloc.get_traced_memory()
        assert peak < GENEROUS_BYTES
        # Who reads at last gets what he asked for.
        peer.socket.settimeout(PATIENCE_S)
        numbers: set[int] = set()
        for _ in range(7):
            found, answer, body = peer.answer()
            numbers.add(found)
            assert isinstance(answer, m.Parts)
            assert len(body) > limits.MIB
        assert len(numbers) == 7


def test_who_subscribes_thousands_of_times_and_does_not_read_costs_little(large: Served) -> None:
    number = large.writer.find("large")
    with Regular(large) as regular, large.connect() as peer:
        peer.greet()
        tracemalloc.reset_peak()
        peer.send(b"".join(said(m.Subscribe(number, 0, 2**40), n) for n in range(1, 3001)))
        large.eventually(lambda: large.waiters() > 100)
        regular.go_on(30)
        _, peak = tracemalloc.get_traced_memory()
        assert peak < GENEROUS_BYTES
        peer.socket.settimeout(PATIENCE_S)
        pushed: set[int] = set()
        while len(pushed) < 20:  # who reads at last gets all of them, in turn
            found, answer, _ = peer.answer()
            if isinstance(answer, m.Parts):
                pushed.add(found)


def test_too_many_subscriptions_are_refused_and_cost_the_others_nothing(served: Served, regular: Regular) -> None:
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    with served.connect() as peer:
        peer.greet()
        wanted = limits.CONNECTION_SUBSCRIPTIONS_MAX + 50
        sender = threading.Thread(
            target=peer.send, args=(b"".join(said(m.Subscribe(number, 0, 9), n) for n in range(1, wanted + 1)),)
        )
        sender.start()
        answers = [peer.answer()[1] for _ in range(wanted)]
        sender.join(PATIENCE_S)
        assert sum(isinstance(answer, m.Fault) for answer in answers) == 50
        regular.go_on(5)
        served.writer.append(c.Append(number, 1, 1, 0, 0, request=asked(9)), Batch([b"x"]))
        assert sum(isinstance(peer.answer()[1], m.Parts) for _ in range(500)) == 500


def test_who_subscribes_to_a_busy_log_and_stops_reading_holds_nobody_up(served: Served) -> None:
    with served.open() as braid, served.open() as other:
        log = braid.create("busy")
        with served.connect() as peer, other.log("busy").subscribe(0) as follower:
            peer.greet()
            peer.send(said(m.Subscribe(served.writer.find("busy"), 0, 2**40), 1))
            assert isinstance(peer.answer()[1], m.Number)
            got = 0
            for n in range(60):
                log.append_many([b"%06d" % n * 20] * 2000)
                while got < 2000 * (n + 1):
                    got += len(follower.poll(PATIENCE_S))
            assert got == 120_000
            unsent = served.on_loop(
                lambda: max(
                    connection._transport.get_write_buffer_size()  # type: ignore[union-attr]
                    for connection in served.thread.server.connections
                )
            )
            assert unsent <= limits.CONNECTION_UNSENT_BYTES_MAX + 2 * limits.SUBSCRIBE_FETCH_BYTES


def test_who_does_not_read_and_breaks_the_rules_does_not_stay(large: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHUTDOWN_GRACE_S", 0.1)
    number = large.writer.find("large")
    with large.connect() as peer:
        peer.greet()
        peer.send(said(m.Subscribe(number, 0, 7 * limits.MIB), 1))
        large.eventually(lambda: large.waiters() == 1)
        peer.try_send(b"garbage" * 100)
        large.eventually(large.is_quiet)


# --- many, and those that leave ----------------------------------------------------------------------------------


def test_many_connections_come_and_go(served: Served, regular: Regular) -> None:
    threads = threading.active_count()
    peers: list[Peer] = []
    for n in range(300):
        peer = served.connect()
        if n % 3:
            peer.greet(n.to_bytes(8, "big"))
        peers.append(peer)
    regular.go_on(5)
    served.eventually(lambda: len(served.thread.server.connections) == 301)
    for peer in peers:
        peer.close()
    served.eventually(lambda: len(served.thread.server.connections) == 1)
    assert threading.active_count() <= threads + limits.FETCHERS


def test_who_comes_when_there_are_too_many_is_told_so_and_those_who_are_there_go_on(
    served: Served, regular: Regular
) -> None:
    server = served.thread.server
    with contextlib.ExitStack() as silent:
        served.on_loop(lambda: setattr(server, "connections_max", len(server.connections) + 5))
        peers = [silent.enter_context(served.connect()) for _ in range(20)]
        served.eventually(lambda: len(server.connections) == server.connections_max)
        assert sum(peer.is_hung_up_on() for peer in peers[5:]) == 15
        regular.go_on()
        with pytest.raises(Unavailable, match=f"has {server.connections_max} connections"):
            served.open(timeout=1)
    with served.open() as braid:
        assert list(braid.logs())


def test_files_are_left_for_what_has_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = {"soft": 256, "hard": 4096}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed["soft"], allowed["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: allowed.update(soft=to[0], hard=to[1]))
    assert handles.connections_max() == 128
    handles.allow_more()
    assert allowed == {"soft": 4096, "hard": 4096}
    assert handles.connections_max() == 4096 - limits.SERVER_FILES_KEPT
    allowed["soft"] = 100
    assert handles.connections_max() == 50
    allowed["soft"] = resource.RLIM_INFINITY
    assert handles.connections_max() > 2**31


def test_a_link_that_comes_back_ends_its_older_connection_and_no_other(served: Served) -> None:
    """What is still to be read from the older one was sent again, and must not happen later on."""
    with served.connect() as older, served.connect() as newer, served.connect() as other:
        other.greet(CLIENT, b"another.")
        older.greet(CLIENT, b"the same")
        newer.greet(CLIENT, b"the same")
        assert older.is_hung_up_on()
        for peer in (newer, other):
            peer.send(said(m.ListLogs(), 1))
            assert peer.answer()[1] == m.Listing([])


def test_appends_of_who_left_are_carried_out_once_or_not_at_all_and_count_until_then(served: Served) -> None:
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    for n in range(1, 40):
        with served.connect() as peer:
            peer.greet()
            peer.send(appended(number, n, Batch([b"%d" % n])) + appended(number, 1000 + n, Batch([b"+%d" % n])))
    served.eventually(served.is_quiet)
    with served.open() as braid:
        values = [record.value for record in braid.log("there").read(0)]
    assert len(values) == len(set(values))
    for n in range(1, 40):
        if b"+%d" % n in values:
            assert values.index(b"%d" % n) + 1 <= values.index(b"+%d" % n)


def test_bytes_of_who_left_are_counted_until_they_are_done(served: Served) -> None:
    """Or one who comes, sends much and leaves, again and again, could fill the memory."""
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    body = Batch([bytes(200_000)])
    with served.writer.committer.alone():
        for n in range(1, 6):
            with served.connect() as peer:
                peer.greet(bytes([n]) * 8)
                ask = m.Append(c.Append(number, 0, 0, 0, 0, request=bytes([n]) * 8 + asked(n)[8:]))
                peer.send(said(ask, 1, encode(body)))
                served.eventually(lambda n=n: served.thread.server.requests >= 2 * n)  # type: ignore[misc]
        served.eventually(lambda: not served.thread.server.connections)
        assert served.on_loop(lambda: served.thread.server.bytes_in_flight) > 1_000_000
    served.eventually(served.is_quiet)
    assert served.writer.tail(number) == 5


# --- what is hostile in an append --------------------------------------------------------------------------------


def test_hostile_batches_leave_the_log_as_it_was_and_what_is_taken_reads_back(served: Served) -> None:
    rng = random.Random(11)
    with served.open() as braid, served.connect() as peer:
        log = braid.create("there")
        log.append(b"first")
        number = served.writer.find("there")
        peer.greet()
        good = Batch([b"a", b"bb"], [b"k", None], [[("n", b"v")], []], [1, 2])
        forms = [(encode(good), False), (bytes(memoryview(to_arrow([good]).serialize()).cast("B")), True)]
        taken = 1
        for n in range(1, 401):
            form, block = forms[n % 2]
            data = bytearray(form)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            body = bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
            peer.send(said(m.Append(c.Append(number, 1, 1, 0, 0, request=asked(n)), block), n, body))
            found, answer, _ = peer.answer()
            assert found == n
            if isinstance(answer, m.Fault):
                assert answer.kind == "InvalidArgument", answer
            else:
                assert isinstance(answer, m.Result)
                assert isinstance(answer.result, c.Appended)
                assert answer.result.first == taken
                taken += answer.result.count
        assert len(list(log.read(0))) == taken
        assert log.append(b"last") == taken
        assert log.read_arrow().num_rows == taken + 1
    Upkeep(served.writer).pack()  # in objects they read back too
    with served.open() as braid:
        assert len(list(braid.log("there").read(0))) == taken + 1


@pytest.mark.parametrize("block", [False, True])
def test_a_large_append_that_is_sent_again_is_bound_once(served: Served, block: bool) -> None:
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    batch = Batch([bytes(100_000)] * 8)
    body = bytes(memoryview(to_arrow([batch]).serialize()).cast("B")) if block else encode(batch)
    command = c.Append(number, 8, 800_000, 0, 0, request=asked(1))
    with served.connect() as peer:
        peer.greet()
        for n, since in enumerate((1, 1, -1), 1):
            peer.send(said(m.Append(command, block, since), n, body))
            _, answer, _ = peer.answer()
            assert isinstance(answer, m.Result)
            assert isinstance(answer.result, c.Appended)
            assert (answer.result.first, answer.result.count) == (0, 8)
    assert served.writer.tail(number) == 8
    with served.open() as braid:
        assert [len(record.value) for record in braid.log("there").read(0)] == [100_000] * 8


def test_a_batch_that_takes_long_to_look_at_is_refused_unseen(served: Served, regular: Regular) -> None:
    """Its records have no bytes, but a million headers."""
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    body = b"\x94\xdd" + struct.pack(">I", 5000) + b"\xc4\x00" * 5000 + b"\xc0"
    body += b"\xdd" + struct.pack(">I", 5000) + (b"\xdc\x00\xc8" + b"\x92\xa0\xc4\x00" * 200) * 5000 + b"\x05"
    with served.connect() as peer:
        peer.greet()
        peer.send(said(m.Append(c.Append(number, 1, 1, 0, 0, request=asked(1))), 1, body))
        _, answer, _ = peer.answer()
        assert isinstance(answer, m.Fault)
        assert answer.kind == "InvalidArgument"
        assert "block" in answer.message
    regular.go_on()


def test_many_records_without_bytes_travel_as_a_block(served: Served) -> None:
    with served.open() as braid:
        log = braid.create("there")
        assert log.append_many([b""] * 600_000) == range(600_000)
        assert log.submit([b""] * 600_000).position(PATIENCE_S) == range(600_000, 1_200_000)
        assert log.read_arrow(1_199_990).num_rows == 10


def test_what_the_api_takes_and_no_frame_could_carry_is_refused_where_it_is_called(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WIRE_BODY_BYTES_MAX", 100_000)
    with served.open() as braid:
        log = braid.create("there")
        with pytest.raises(InvalidArgument, match="on its way"):
            log.append(bytes(100_001))
        with pytest.raises(InvalidArgument, match="on its way"):
            log.submit(bytes(100_001)).position(PATIENCE_S)
        assert log.append(b"x") == 0


def test_what_was_refused_before_it_left_does_not_keep_anything_else_from_leaving(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WIRE_BODY_BYTES_MAX", 100_000)
    with served.open() as braid:
        log = braid.create("there")
        tickets = [log.submit([bytes(100_001)] * 10) for _ in range(limits.LINGER_BATCHES_UNDER_WAY + 1)]
        for ticket in tickets:
            with pytest.raises(InvalidArgument, match="on its way"):
                ticket.durable(PATIENCE_S)
        assert log.submit(b"x").position(PATIENCE_S) == 0


def test_order_is_kept_when_appends_wait_for_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that was asked for behind appends has them, though they had to wait for the packer."""
    monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", 1000)
    served.writer.execute(c.Create("there", 0))
    number = served.writer.find("there")
    with served.connect() as peer:
        peer.greet()
        for n in (101, 102):
            peer.send(appended(number, n, Batch([bytes(900)])))
            peer.answer()
        asks = [appended(number, n, Batch([bytes(900)])) for n in range(1, 6)]
        fork = said(m.Execute(c.CFork(number, "fork", 0, request=asked(6))), 6)
        peer.send(b"".join(asks) + fork)
        served.eventually(lambda: len(served.service._waiting) == 6)
        Upkeep(served.writer).pack()
        answers = {found: answer for found, answer, _ in (peer.answer() for _ in range(6))}
    assert all(isinstance(answer, m.Result) for answer in answers.values()), answers
    assert served.writer.tail(served.writer.find("fork")) == 7


def test_appends_that_wait_for_room_learn_that_the_log_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNPACKED_BYTES_MAX", 1000)
    served = Served(tmp_path / "site.braid")
    try:
        served.writer.execute(c.Create("there", 0))
        number = served.writer.find("there")
        monkeypatch.setattr(served.writer, "on_full", lambda: None)  # nobody packs
        with served.connect() as peer:
            peer.greet()
            for n in (101, 102):
                peer.send(appended(number, n, Batch([bytes(900)])))
                peer.answer()
            peer.send(b"".join(appended(number, n, Batch([bytes(900)])) for n in range(1, 8)))
            served.eventually(lambda: len(served.service._waiting) > 0)
            served.writer.committer.fail(Unavailable("the disk is gone"))
            served.writer._tell_of_failure()
            answers = [peer.answer()[1] for _ in range(7)]
            assert isinstance(answers[-1], m.Fault)
            assert answers[-1].kind == "Unavailable"
    finally:
        with contextlib.suppress(BraidError):
            served.stop()
