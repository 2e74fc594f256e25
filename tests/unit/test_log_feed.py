"""A subscription as its server sees it, and who waits for which log: nothing is missed, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable

from braidlog import limits
from braidlog.broker.conversation import Pieces
from braidlog.broker.feed import LogFeed
from braidlog.broker.service import Reply
from braidlog.broker.tracking import GONE, Stamp, Tracking
from braidlog.errors import Blocked, BraidError, Gone, Trimmed, Unavailable
from braidlog.wire import messages as m


def reaching(readable: int) -> Stamp:
    return Stamp(readable, readable, -1, 0, 1)


class Stage:
    """A log of records of ten bytes each, and a feed of it whose reads are answered when the test says so."""

    def __init__(self, position: int = 0, credit: int = 1000, *, at_once: bool = True) -> None:
        self.tail = 0
        self.error: BraidError | None = None
        self.reads: list[tuple[m.Read, Reply]] = []
        self.pushed: list[m.Parts | m.Ending] = []
        self.accepted: list[int] = []
        self.ready = True
        self.closed = 0
        self._at_once = at_once
        self.feed = LogFeed(
            self._read, self._end_of, 1, position, credit, self._push, lambda: self.ready, self.accepted.append
        )
        self.feed.on_close = self._close

    def reach(self, tail: int) -> None:
        self.tail = tail
        self.feed.changed(reaching(tail))

    def answer(self) -> None:
        ask, reply = self.reads.pop(0)
        if self.error is not None:
            reply(self.error, None)
            return
        stop = min(self.tail, ask.start + max(ask.max_bytes // 10, 1))
        rows = stop - ask.start
        parts = [m.Part(ask.start, rows, 10 * rows, False, True)] if rows else []
        reply(m.Parts(parts, stop, self.tail), [bytes(10 * rows)])

    @property
    def positions(self) -> list[int]:
        return [
            position
            for push in self.pushed
            if isinstance(push, m.Parts)
            for part in push.parts
            for position in range(part.position, part.position + part.rows)
        ]

    def _read(self, ask: m.Read, reply: Reply) -> None:
        self.reads.append((ask, reply))
        if self._at_once:
            self.answer()

    def _end_of(self, then: Callable[[m.Ending], None]) -> None:
        then(m.Ending("promoted", "fork", 2, 0, "orders"))

    def _push(self, push: m.Parts | m.Ending, _: Pieces | None) -> None:
        self.pushed.append(push)

    def _close(self) -> None:
        self.closed += 1


def test_what_is_there_is_pushed_once_it_is_started_and_then_what_comes() -> None:
    stage = Stage(position=2)
    stage.reach(5)
    assert (stage.accepted, stage.pushed) == ([], [])
    stage.feed.start()
    assert stage.accepted == [5]
    assert stage.positions == [2, 3, 4]
    stage.reach(7)
    assert stage.positions == [2, 3, 4, 5, 6]


def test_it_is_accepted_only_once_it_is_known_how_far_the_log_reaches() -> None:
    stage = Stage()
    stage.feed.start()
    assert stage.accepted == []
    stage.reach(0)
    stage.reach(1)
    assert stage.accepted == [0]
    assert stage.positions == [0]


def test_nothing_is_pushed_without_credit_and_no_more_than_one_read_over() -> None:
    stage = Stage(credit=30)
    stage.feed.start()
    stage.reach(100)
    assert stage.positions == [0, 1, 2]
    stage.feed.more(10)
    assert stage.positions == [0, 1, 2, 3]
    stage.feed.more(10**9)
    assert stage.positions == list(range(100))


def test_credit_is_bounded_whatever_the_subscriber_says() -> None:
    stage = Stage(credit=10**15)
    stage.feed.more(10**15)
    stage.feed.start()
    stage.reach(10**9)
    assert len(stage.positions) * 10 <= limits.SUBSCRIBE_CREDIT_BYTES_MAX + limits.SUBSCRIBE_FETCH_BYTES


def test_who_is_not_ready_gets_nothing_until_it_is() -> None:
    stage = Stage()
    stage.feed.start()
    stage.ready = False
    stage.reach(3)
    assert stage.pushed == []
    stage.ready = True
    stage.feed.more(0)
    assert stage.positions == [0, 1, 2]


def test_what_was_fetched_for_who_is_no_longer_ready_is_not_kept_but_fetched_again() -> None:
    """Or thousands of subscriptions of one peer that does not read would each have something in memory for it."""
    stage = Stage(at_once=False)
    stage.feed.start()
    stage.reach(3)
    stage.ready = False
    stage.answer()
    assert (stage.pushed, stage.reads) == ([], [])
    stage.ready = True
    stage.feed.more(0)
    stage.answer()
    assert stage.positions == [0, 1, 2]


def test_one_read_at_a_time_and_what_came_meanwhile_is_read_then() -> None:
    stage = Stage(at_once=False)
    stage.feed.start()
    stage.reach(2)
    stage.reach(3)
    stage.feed.more(5)
    assert len(stage.reads) == 1
    stage.tail = 2  # as it was when the read began
    stage.answer()
    stage.tail = 3
    assert len(stage.reads) == 1
    stage.answer()
    assert stage.positions == [0, 1, 2]
    assert stage.reads == []


def test_it_pauses_at_a_hold_until_the_decision() -> None:
    stage = Stage()
    stage.feed.start()
    stage.error = Blocked("wait")
    stage.reach(3)
    assert stage.pushed == []
    stage.error = None
    stage.reach(4)
    assert stage.positions == [0, 1, 2, 3]


def test_each_end_is_told_and_is_the_last_that_is_told() -> None:
    endings = {
        Trimmed("it is", start=9): m.Ending("trimmed", position=0),
        Gone("it is"): m.Ending("promoted", "fork", 2, 0, "orders"),
        Unavailable("it is"): m.Ending("failed", position=0, error=m.Fault("Unavailable", "it is")),
    }
    for error, ending in endings.items():
        stage = Stage()
        stage.feed.start()
        stage.error = error
        stage.reach(3)
        stage.reach(5)
        stage.feed.more(9)
        assert stage.pushed == [ending]
        assert stage.closed == 1


def test_a_log_that_ends_while_its_last_records_are_fetched_is_told_to_have_ended() -> None:
    stage = Stage(at_once=False)
    stage.feed.start()
    stage.reach(3)
    stage.feed.changed(GONE)
    stage.answer()  # what was located before it ended
    assert stage.positions == [0, 1, 2]
    stage.error = Gone("it is")
    stage.answer()
    assert isinstance(stage.pushed[-1], m.Ending)


def test_a_read_that_finds_nothing_is_not_repeated_for_ever() -> None:
    stage = Stage()
    stage.feed.start()
    stage.feed.changed(reaching(5))  # though there is nothing yet
    assert stage.pushed == []
    stage.reach(1)
    assert stage.positions == [0]


def test_who_left_is_pushed_nothing() -> None:
    stage = Stage(at_once=False)
    stage.feed.start()
    stage.reach(3)
    stage.feed.close()
    stage.feed.close()
    stage.answer()
    stage.reach(9)
    assert (stage.pushed, stage.reads, stage.closed) == ([], [], 1)


# --- who waits ---------------------------------------------------------------------------------------------------


def test_a_waiter_is_called_after_each_change_until_it_is_removed() -> None:
    tracking = Tracking()
    called: list[Stamp] = []
    number = tracking.add(1, reaching(0), 5, called.append)
    tracking.update(1, reaching(0), 6)
    tracking.update(2, reaching(9), 6)
    assert called == []
    tracking.update(1, reaching(1), 7)
    tracking.update(1, GONE, 8)
    assert called == [reaching(1), GONE]
    tracking.remove(1, number)
    tracking.remove(1, number)
    tracking.update(1, reaching(2), 9)
    assert called == [reaching(1), GONE]


def test_a_waiter_may_leave_while_it_is_called() -> None:
    tracking = Tracking()
    called: list[int] = []

    def once(number: int) -> Callable[[Stamp], None]:
        def call(_: Stamp) -> None:
            called.append(number)
            tracking.remove(1, numbers[number])

        return call

    numbers = {n: tracking.add(1, reaching(0), 1, once(n)) for n in range(3)}
    tracking.update(1, reaching(1), 2)
    tracking.update(1, reaching(2), 3)
    assert called == [0, 1, 2]


def test_what_is_tracked_tells_whether_it_changed_and_of_the_rest_nobody_knows() -> None:
    tracking = Tracking()
    assert tracking.changed_since(1, 100)
    tracking.add(1, reaching(0), 5, lambda _: None)
    assert not tracking.changed_since(1, 5)
    assert tracking.changed_since(1, 4)
    tracking.update(1, reaching(1), 9)
    assert tracking.changed_since(1, 8)
    assert not tracking.changed_since(1, 9)


def test_logs_that_nobody_waits_for_are_forgotten_oldest_first() -> None:
    tracking = Tracking(idle_kept=2)
    numbers = {log: tracking.add(log, reaching(0), 1, lambda _: None) for log in range(5)}
    for log in (3, 1, 0, 2):
        tracking.remove(log, numbers[log])
    assert set(tracking.logs()) == {0, 2, 4}
    tracking.remove(0, tracking.add(0, reaching(0), 1, lambda _: None))  # waited for again, so it is the newest
    tracking.remove(4, numbers[4])
    assert set(tracking.logs()) == {0, 4}
    assert len(tracking) == 2
