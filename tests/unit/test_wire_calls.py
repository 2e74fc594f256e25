"""A client's half of a connection: what was lost is sent again in order, and what became of a change is told truly."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog import limits
from braidlog.errors import BraidError, Gone, InvalidArgument, NotPermitted, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.wire import calls as calls_module
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Calls, Lost, Refused
from braidlog.wire.faults import fault_of
from braidlog.wire.frames import PREFACE, Kind, Malformed, Parser

CLIENT = b"8 bytes."
WELCOME = m.Welcome("s", "serve", None, 1)


def append(number: int) -> m.Append:
    return m.Append(c.Append(1, 1, 1, 0, 0, request=CLIENT + number.to_bytes(8, "big")))


def create(number: int) -> m.Execute:
    return m.Execute(c.Create(f"log-{number}", 0, request=CLIENT + number.to_bytes(8, "big")))


def ignored(*_: Any) -> None:
    pass


class Line:
    """Calls, and the server that they are sent to."""

    def __init__(self) -> None:
        self.calls = Calls(CLIENT, "tests", b"link")
        self._parser = Parser()

    def begin(self, request: m.Request, deadline: float = 100.0) -> Call:
        return self.calls.begin(request, b"", deadline, ignored)

    def connect(self, *, seen: int = 0, welcome: bool = True, role: str = "serve") -> list[tuple[Kind, int, Any]]:
        self._parser = Parser()
        self.calls.connected()
        greeting = b"".join(self.calls.out)
        self.calls.out = []
        assert greeting.startswith(PREFACE)
        heard = self._heard(greeting[len(PREFACE) :])
        if welcome:
            self.calls.receive(PREFACE)
            self.say(Kind.ANSWER, 0, m.Welcome("s", role, None, 1), seen=seen)
        return heard

    def say(self, kind: Kind, number: int, answer: m.Answer, *, seen: int = 0, body: bytes = b"") -> None:
        self.calls.receive(b"".join(frames.encode(kind, number, seen, m.encode(answer), body)))

    def goodbye(self) -> None:
        self.calls.receive(b"".join(frames.encode(Kind.GOODBYE, 0, 0, b"")))

    def sent(self) -> list[tuple[Kind, int, Any]]:
        data = b"".join(self.calls.out)
        self.calls.out = []
        return self._heard(data)

    def _heard(self, data: bytes) -> list[tuple[Kind, int, Any]]:
        return [
            (
                frame.kind,
                frame.number,
                m.decode_note(frame.head) if frame.kind is Kind.NOTE else m.decode_request(frame.head),
            )
            for frame in self._parser.feed(data)
        ]

    def finished(self) -> list[tuple[Call, m.Answer | BraidError]]:
        finished, self.calls.finished = self.calls.finished, []
        return [(call, answer) for call, answer, _ in finished]


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_connection_begins_with_who_asks(line: Line) -> None:
    assert line.connect() == [(Kind.REQUEST, 0, m.Hello(CLIENT, 0, "tests", b"link"))]
    assert line.calls.welcome == WELCOME


def test_what_was_asked_before_there_was_a_connection_is_sent_once_there_is_one(line: Line) -> None:
    calls = [line.begin(append(1)), line.begin(m.Tail(1)), line.begin(create(2))]
    assert line.sent() == []
    line.connect()
    sent = line.sent()
    assert [number for _, number, _ in sent] == [call.number for call in calls]
    assert [request for _, _, request in sent] == [append(1), m.Tail(1), create(2)]  # the first time: no `since`


def test_what_was_lost_is_sent_again_in_order_and_only_then_with_what_had_been_seen(line: Line) -> None:
    line.connect(seen=7)
    first, second, third = line.begin(append(1)), line.begin(m.Tail(1)), line.begin(create(2))
    line.say(Kind.ANSWER, second.number, m.Number(1), seen=9)
    line.sent()
    line.calls.lost()
    late = line.begin(append(3))
    line.connect(seen=20)
    sent = line.sent()
    assert [number for _, number, _ in sent] == [first.number, third.number, late.number]
    assert [request.since for _, _, request in sent] == [7, 7, NONE]
    line.calls.lost()
    line.connect(seen=30)
    assert [request.since for _, _, request in line.sent()] == [7, 7, 20]  # of the first time, however often


def test_answers_come_under_their_numbers_and_once(line: Line) -> None:
    line.connect()
    first, second = line.begin(m.Tail(1)), line.begin(m.Tail(2))
    line.say(Kind.ANSWER, second.number, m.Number(2))
    line.say(Kind.ANSWER, first.number, m.Number(1))
    line.say(Kind.ANSWER, first.number, m.Number(3))
    assert line.finished() == [(second, m.Number(2)), (first, m.Number(1))]
    assert len(line.calls) == 0


def test_an_error_is_an_answer(line: Line) -> None:
    line.connect()
    call = line.begin(append(1))
    line.say(Kind.ERROR, call.number, fault_of(Gone("it is", end="dropped")))
    [(found, error)] = line.finished()
    assert found is call
    assert isinstance(error, Gone)
    assert error.end == "dropped"


def test_a_change_that_was_sent_and_not_answered_in_time_is_unknown_and_one_that_was_not_did_not_happen(
    line: Line,
) -> None:
    line.connect()
    sent, looked, later = line.begin(append(1), 5.0), line.begin(m.Tail(1), 5.0), line.begin(append(2), 9.0)
    line.calls.lost()
    unsent = line.begin(append(3), 5.0)
    line.calls.expire(4.9, "why")
    assert line.finished() == []
    line.calls.expire(5.0, "why")
    told = dict(line.finished())
    assert isinstance(told[sent], OutcomeUnknown)
    assert told[sent].request_id == (CLIENT + (1).to_bytes(8, "big")).hex()  # type: ignore[union-attr]
    assert isinstance(told[looked], Unavailable)
    assert isinstance(told[unsent], Unavailable)
    assert len(told) == 3
    assert line.calls.next_deadline() == 9.0
    line.calls.fail("closed")
    [(call, error)] = line.finished()
    assert call is later
    assert isinstance(error, OutcomeUnknown)


@pytest.mark.parametrize(
    ("role", "error", "told"),
    [
        ("serve", Unavailable("busy"), OutcomeUnknown),  # it took the first copy, perhaps
        ("serve", Gone("squashed", end="squashed"), Gone),  # it would know of the first copy
        ("broker", Unavailable("no room"), OutcomeUnknown),
        ("broker", Gone("squashed", end="squashed"), OutcomeUnknown),  # another may bind the first copy later
        ("broker", InvalidArgument("no name"), InvalidArgument),  # nobody takes that
    ],
)
def test_a_refusal_says_nothing_about_what_was_sent_before(
    line: Line, role: str, error: BraidError, told: type[BraidError]
) -> None:
    line.connect(role=role)
    call = line.begin(append(7))
    line.calls.lost()
    line.connect(role=role)
    line.say(Kind.ERROR, call.number, fault_of(error))
    ((_, answer, _),) = line.calls.finished
    assert type(answer) is told
    if isinstance(answer, OutcomeUnknown):
        assert answer.request_id == append(7).command.request.hex()


@pytest.mark.parametrize("role", ["serve", "broker"])
def test_a_refusal_of_what_was_sent_once_is_final(line: Line, role: str) -> None:
    line.connect(role=role)
    call = line.begin(append(7))
    line.say(Kind.ERROR, call.number, fault_of(Unavailable("busy")))
    ((_, answer, _),) = line.calls.finished
    assert type(answer) is Unavailable


def test_an_answer_to_what_was_given_up_is_nobodys(line: Line) -> None:
    line.connect()
    call = line.begin(append(1), 5.0)
    line.calls.expire(6.0, "why")
    line.finished()
    line.say(Kind.ANSWER, call.number, m.Result(c.Appended(1, 0, 1)))
    assert line.finished() == []


def test_a_subscription_is_lost_with_its_connection_and_one_that_was_not_sent_is_not(line: Line) -> None:
    line.connect()
    here = line.begin(m.Subscribe(1, 0, 9))
    line.say(Kind.ANSWER, here.number, m.Number(3))
    line.say(Kind.PUSH, here.number, m.Parts([], 1, 3))
    assert [answer for _, answer in line.finished()] == [m.Number(3), m.Parts([], 1, 3)]
    line.calls.lost()
    there = line.begin(m.Subscribe(2, 0, 9))
    [(call, error)] = line.finished()
    assert call is here
    assert isinstance(error, Lost)
    line.calls.lost()
    assert line.finished() == []
    line.connect()
    assert [(number, request) for _, number, request in line.sent()] == [(there.number, m.Subscribe(2, 0, 9))]


def test_an_ending_ends_a_subscription(line: Line) -> None:
    line.connect()
    call = line.begin(m.Subscribe(1, 0, 9))
    line.say(Kind.PUSH, call.number, m.Ending("dropped"))
    assert line.finished() == [(call, m.Ending("dropped"))]
    assert len(line.calls) == 0


def test_notes_are_about_what_is_under_way_over_this_connection(line: Line) -> None:
    call = line.begin(m.Subscribe(1, 0, 9))
    line.calls.note(call, m.Credit(5))
    assert line.sent() == []
    line.connect()
    line.sent()
    line.calls.note(call, m.Credit(5))
    line.calls.forget(call)
    line.calls.note(call, m.Cancel())
    assert line.sent() == [(Kind.NOTE, call.number, m.Credit(5))]


def test_after_a_goodbye_nothing_is_sent_and_what_is_left_goes_to_the_next(line: Line) -> None:
    line.connect()
    owed = line.begin(append(1))
    line.sent()
    line.goodbye()
    later = line.begin(append(2))
    assert line.calls.leaving
    assert line.calls.owed
    assert line.sent() == []
    line.say(Kind.ANSWER, owed.number, m.Result(c.Appended(1, 0, 1)))
    assert not line.calls.owed
    line.calls.lost()
    line.connect()
    assert [number for _, number, _ in line.sent()] == [later.number]


# --- the floor ---------------------------------------------------------------------------------------------------


def floors(sent: list[tuple[Kind, int, Any]]) -> list[int]:
    return [message.floor for _, _, message in sent if isinstance(message, m.Floor | m.Hello)]


def test_the_floor_is_never_above_a_change_that_is_not_answered(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SETTLE_REQUESTS", 2)
    line.connect()
    pending = {number: line.begin(append(number)) for number in (1, 2, 3, 4, 5)}
    line.sent()
    answered: set[int] = set()
    for number in (2, 3, 1, 5):
        line.say(Kind.ANSWER, pending[number].number, m.Result(c.Done()))
        answered.add(number)
        for floor in floors(line.sent()):
            assert set(range(1, floor)) <= answered
    line.calls.lost()
    assert floors(line.connect()) == [4]


def test_the_floor_of_who_has_all_answers_is_above_them(line: Line) -> None:
    line.connect()
    call = line.begin(append(41))
    line.say(Kind.ANSWER, call.number, m.Result(c.Done()))
    line.calls.lost()
    assert floors(line.connect()) == [42]


def test_the_floor_is_that_of_the_client_over_all_its_connections() -> None:
    """What one told would else settle what is under way over another, and is not known there."""
    siblings: list[Calls] = []
    one, other = Line(), Line()
    one.calls = Calls(CLIENT, "tests", b"one", siblings=siblings)
    other.calls = Calls(CLIENT, "tests", b"other", siblings=siblings)
    one.connect()
    other.connect()
    under_way, answered = other.begin(append(7)), one.begin(append(8))
    one.say(Kind.ANSWER, answered.number, m.Result(c.Done()))
    one.calls.lost()
    assert floors(one.connect()) == [7]
    other.say(Kind.ANSWER, under_way.number, m.Result(c.Done()))
    later = other.begin(append(20))
    one.calls.lost()
    assert floors(one.connect()) == [9]  # it knows of no more
    other.say(Kind.ANSWER, later.number, m.Result(c.Done()))
    other.calls.lost()
    assert floors(other.connect()) == [21]


def test_the_server_is_told_now_and_again(line: Line) -> None:
    line.connect()
    told: list[int] = []
    for number in range(1, 3 * limits.SETTLE_REQUESTS + 1):
        call = line.begin(append(number))
        line.say(Kind.ANSWER, call.number, m.Result(c.Done()))
        told += floors(line.sent())
    assert told == [n * limits.SETTLE_REQUESTS + 1 for n in (1, 2, 3)]


# --- numbers, and servers that are none --------------------------------------------------------------------------


def test_numbers_begin_again_and_pass_over_those_under_way(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "_NUMBERS", 5)
    line.connect()
    first = [line.begin(m.Tail(1)) for _ in range(3)]
    assert [call.number for call in first] == [1, 2, 3]
    line.say(Kind.ANSWER, 2, m.Number(1))
    assert [line.begin(m.Tail(1)).number for _ in range(2)] == [4, 2]  # never 0, which is the greeting's


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad\r\n\r\n",
        b"braid" + bytes([7, 0, 0]),
        PREFACE + b"".join(frames.encode(Kind.ANSWER, 0, 0, m.encode(m.Number(1)))),
        PREFACE + b"".join(frames.encode(Kind.REQUEST, 1, 0, m.encode(m.Tail(1)))),
        PREFACE + b"".join(frames.encode(Kind.ERROR, 0, 0, m.encode(m.Fault("InvalidArgument", "no")))),
    ],
)
def test_a_server_that_is_none_is_found_out(line: Line, data: bytes) -> None:
    line.connect(welcome=False)
    with pytest.raises(Malformed):
        line.calls.receive(data)


def test_a_change_needs_an_id(line: Line) -> None:
    with pytest.raises(InvalidArgument):
        line.begin(m.Execute(c.Create("x", 0)))
    line.connect()
    assert line.sent() == []


def test_who_is_not_let_in_is_told_and_gives_up_what_waits(line: Line) -> None:
    """A change that may have arrived before has an unknown outcome; of all else it is known that nothing happened."""
    line.connect()
    sent, followed = line.begin(append(1)), line.begin(m.Subscribe(1, 0, 1))
    line.calls.lost()
    line.finished()
    line.connect(welcome=False)
    line.calls.receive(PREFACE)
    waiting, looking = line.begin(append(2)), line.begin(m.Tail(1))
    with pytest.raises(Refused, match="revoked") as refused:
        line.say(Kind.ERROR, 0, m.Fault("NotPermitted", "the token was revoked"))
    assert isinstance(refused.value.error, NotPermitted)
    line.calls.refuse(refused.value.error)
    found = dict(line.finished())
    assert isinstance(found.pop(sent), OutcomeUnknown)
    assert found == {waiting: refused.value.error, looking: refused.value.error}
    assert followed not in found


def test_a_token_travels_in_the_greeting_and_is_not_shown() -> None:
    calls = Calls(CLIENT, "tests", b"link", "braid_secret")
    calls.connected()
    greeting = b"".join(calls.out)
    assert b"braid_secret" in greeting
    [frame] = Parser().feed(greeting[len(PREFACE) :])
    hello = m.decode_request(frame.head)
    assert isinstance(hello, m.Hello)
    assert hello.token == "braid_secret"
    assert "secret" not in f"{hello!r} {hello}"


def test_what_was_seen_over_one_connection_is_told_over_the_others() -> None:
    """Else a trim that came back over one is unknown to whoever plans for the other."""
    siblings: list[Calls] = []
    one, other = Line(), Line()
    one.calls = Calls(CLIENT, "tests", b"one", siblings=siblings)
    other.calls = Calls(CLIENT, "tests", b"other", siblings=siblings)
    one.connect(seen=3)
    other.connect(seen=5)
    trim = one.begin(m.Tail(1))
    one.calls.out = []
    one.say(Kind.ANSWER, trim.number, m.Number(1), seen=9)
    other.begin(m.Tail(1))
    [frame] = Parser().feed(b"".join(other.calls.out))
    assert frame.seen == 9
    assert other.calls.seen == one.calls.seen == 9


def test_it_is_known_which_logs_changes_are_under_way_of(line: Line) -> None:
    line.connect()
    changed = m.Execute(c.Trim(7, 0, request=CLIENT + (3).to_bytes(8, "big")))
    for request in (append(1), create(2), changed, m.Tail(9)):
        line.begin(request)
    assert line.calls.changed_logs() == {1, 7}
    line.say(Kind.ANSWER, 1, m.Result(c.Appended(1, 0, 1)))
    assert line.calls.changed_logs() == {7}


def test_an_unknown_outcome_without_an_id_is_told_with_that_of_the_call(line: Line) -> None:
    line.connect(role="broker")
    for request, number in ((append(5), 5), (create(6), 6)):
        call = line.begin(request)
        line.say(Kind.ERROR, call.number, fault_of(OutcomeUnknown("nobody knows")))
        [(_, error, _)] = line.calls.finished
        line.calls.finished = []
        assert isinstance(error, OutcomeUnknown)
        assert error.request_id == (CLIENT + number.to_bytes(8, "big")).hex()
