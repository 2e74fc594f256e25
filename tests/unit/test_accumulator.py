"""Submitted records that travel together: in their order, each with its own positions, none forgotten."""

from __future__ import annotations

import threading

import pytest

from braidlog import limits
from braidlog.client.remote.accumulator import Accumulator, joined
from braidlog.client.remote.backend import finish
from braidlog.embedded.committer import Pending
from braidlog.errors import BraidError, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.batch import Batch
from braidlog.wire import messages as m

PATIENCE_S = 20.0


class Sent:
    """What left, and who waits for it."""

    def __init__(self, linger: float = 0.0) -> None:
        self.batches: list[tuple[c.Append, Batch, list[Pending]]] = []
        self.arrived = threading.Event()
        self.accumulator = Accumulator(self._send, linger)
        self._numbers = 0

    def _send(self, command: c.Append, batches: list[Batch], members: list[Pending]) -> None:
        self.batches.append((command, joined(batches), members))
        self.arrived.set()

    def add(self, *values: bytes, log: int = 1, size: int | None = None, **condition: int | str) -> Pending:
        self._numbers += 1
        batch = Batch(list(values), None, None, 7)
        command = c.Append(
            log,
            batch.count,
            batch.size if size is None else size,
            7,
            7,
            request=b"8 bytes." + self._numbers.to_bytes(8, "big"),
            **condition,  # type: ignore[arg-type]
        )
        pending = Pending(command)
        self.accumulator.add(command, batch, pending)
        return pending

    def answer(self, number: int, answer: m.Answer | BraidError) -> None:
        finish(self.batches[number][2], answer)
        self.accumulator.answered(self.batches[number][0].log)

    @property
    def values(self) -> list[list[bytes]]:
        return [batch.values for _, batch, _ in self.batches]


def test_a_lone_submit_goes_at_once() -> None:
    sent = Sent()
    pending = sent.add(b"a", b"b")
    [(command, batch, members)] = sent.batches
    assert (command, batch.values, members) == (pending.command, [b"a", b"b"], [pending])
    assert pending.alias == ""


def test_what_comes_while_several_are_under_way_gathers_and_goes_with_the_next_answer() -> None:
    sent = Sent()
    under_way = limits.LINGER_BATCHES_UNDER_WAY
    for n in range(under_way):
        sent.add(b"%d" % n)
    late = [sent.add(b"x"), sent.add(b"y", b"z"), sent.add(b"w")]
    assert len(sent.batches) == under_way
    sent.arrived.clear()
    sent.answer(0, m.Result(c.Appended(1, 0, 1)))
    assert sent.arrived.wait(PATIENCE_S)
    command, batch, members = sent.batches[under_way]
    assert batch.values == [b"x", b"y", b"z", b"w"]
    assert (command.count, command.size, command.least, command.greatest) == (4, 4, 7, 7)
    assert members == late
    first = late[0].command.request.hex()  # type: ignore[union-attr]
    assert [pending.alias for pending in late] == [f"{first}.0.1", f"{first}.1.2", f"{first}.3.1"]
    sent.answer(under_way, m.Result(c.Appended(1, 10, 4)))
    assert [(p.answer.first, p.answer.count) for p in late] == [(10, 1), (11, 2), (13, 1)]  # type: ignore[union-attr]


def test_an_id_means_the_same_before_others_join_and_after() -> None:
    sent = Sent(linger=1e6)
    submitted = [sent.add(b"a", b"b"), sent.add(b"c"), sent.add(b"d", log=2)]
    early = [pending.alias for pending in submitted]
    sent.accumulator.flush()
    assert [pending.alias for pending in submitted] == early
    first, _, alone = (pending.command.request.hex() for pending in submitted)  # type: ignore[union-attr]
    assert early == [f"{first}.0.2", f"{first}.2.1", f"{alone}.0.1"]


def test_a_large_gathering_does_not_wait() -> None:
    sent = Sent(linger=1e6)
    for n in range(3):
        sent.add(b"%d" % n, size=limits.LINGER_BYTES_MAX // 2)
    assert sent.values == [[b"0", b"1"]]
    sent.accumulator.close()


def test_nor_does_one_of_many_records_without_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINGER_RECORDS_MAX", 10)
    sent = Sent(linger=1e6)
    for _ in range(4):
        sent.add(b"", b"", b"")
    sent.add(*[b""] * 11)
    assert [len(values) for values in sent.values] == [12, 11]
    sent.accumulator.close()


def test_a_linger_ends_by_itself() -> None:
    sent = Sent(linger=0.02)
    sent.add(b"a")
    sent.add(b"b")
    assert sent.arrived.wait(PATIENCE_S)
    assert [value for values in sent.values for value in values] == [b"a", b"b"]
    sent.accumulator.close()


@pytest.mark.parametrize("condition", [{"expected_tail": 3}, {"writer": "w", "sequence": 1}, {"size": 10**7}])
def test_what_goes_alone_goes_in_its_turn(condition: dict[str, int | str]) -> None:
    sent = Sent(linger=1e6)
    sent.add(b"a")
    sent.add(b"b")
    alone = sent.add(b"c", **condition)  # type: ignore[arg-type]
    sent.add(b"d")
    sent.accumulator.flush()
    assert sent.values == [[b"a", b"b"], [b"c"], [b"d"]]
    assert sent.batches[1][0] == alone.command


def test_logs_do_not_mix() -> None:
    sent = Sent(linger=1e6)
    for n in range(4):
        sent.add(b"%d" % n, log=1 + n % 2)
    sent.accumulator.flush(2)
    sent.accumulator.flush()
    assert sent.values == [[b"1", b"3"], [b"0", b"2"]]


def test_each_keeps_its_key_headers_and_time() -> None:
    sent = Sent(linger=1e6)
    batches = [
        Batch([b"a"], None, None, 3),
        Batch([b"b", b"c"], [b"k", None], None, [5, 4]),
        Batch([b"d"], None, [[("n", b"v")]], 9),
    ]
    for n, batch in enumerate(batches, 1):
        command = c.Append(1, batch.count, 1, 0, 0, request=b"8 bytes." + n.to_bytes(8, "big"))
        sent.accumulator.add(command, batch, Pending(command))
    sent.accumulator.close()
    [(command, batch, _)] = sent.batches
    assert batch.values == [b"a", b"b", b"c", b"d"]
    assert batch.keys == [None, b"k", None, None]
    assert batch.headers == [[], [], [], [("n", b"v")]]
    assert batch.timestamps == [3, 5, 4, 9]
    assert (command.least, command.greatest) == (3, 9)


def test_an_error_is_everybodys() -> None:
    sent = Sent(linger=1e6)
    members = [sent.add(b"a"), sent.add(b"b")]
    sent.accumulator.flush()
    refusal = Unavailable("no")
    sent.answer(0, refusal)
    assert [pending.answer for pending in members] == [refusal, refusal]


def test_a_withheld_position_is_withheld_from_all() -> None:
    sent = Sent(linger=1e6)
    members = [sent.add(b"a"), sent.add(b"b"), sent.add(b"c")]
    sent.accumulator.flush()
    sent.answer(0, m.Result(c.Appended(1, NONE, 3, NONE, True)))
    assert [(p.answer.first, p.answer.withheld) for p in members] == [(NONE, True)] * 3  # type: ignore[union-attr]


def test_closing_sends_what_is_left_and_takes_no_more() -> None:
    sent = Sent(linger=1e6)
    sent.add(b"a")
    sent.accumulator.close()
    assert sent.values == [[b"a"]]
    with pytest.raises(Unavailable):
        sent.add(b"b")


def test_many_threads_keep_each_its_order() -> None:
    sent = Sent()
    each = 300

    def submit(thread: int) -> None:
        for n in range(each):
            sent.add(b"%d %d" % (thread, n))
            if sent.batches and n % 7 == 0:
                sent.accumulator.answered(1)

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    sent.accumulator.close()
    seen = [value for values in sent.values for value in values]
    assert len(seen) == 4 * each
    for thread in range(4):
        assert [v for v in seen if v.startswith(b"%d " % thread)] == [b"%d %d" % (thread, n) for n in range(each)]
