"""A server's half of a connection: what a peer may do, what it may not, and what becomes of it then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import limits
from braidlog.broker.conversation import Conversation, Do, Drop, Effect, Heed, Pause, Resume
from braidlog.errors import Blocked, NotPermitted
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import NOTHING, PREFACE, Body, Kind, Parser

CLIENT = b"8 bytes."
HELLO = m.Hello(CLIENT)
APPEND = m.Append(m.c.Append(1, 1, 1, 0, 0))


def said(message: m.Request | m.Note, number: int = 1, body: bytes = b"", kind: Kind = Kind.REQUEST) -> bytes:
    return b"".join(frames.encode(kind, number, 0, m.encode(message), body))


def noted(note: m.Note, number: int) -> bytes:
    return said(note, number, kind=Kind.NOTE)


class Peer:
    """Speaks to a conversation and hears what it says."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._parser = Parser()
        self._preface = b""

    def say(self, data: bytes) -> list[Effect]:
        return list(self.conversation.receive(data))

    def hear(self) -> list[tuple[Kind, int, m.Answer | None]]:
        data = b"".join(self.conversation.take_out())
        wanted = len(PREFACE) - len(self._preface)
        self._preface += data[:wanted]
        assert PREFACE.startswith(self._preface)
        return [
            (frame.kind, frame.number, m.decode_answer(frame.head) if len(frame.head) else None)
            for frame in self._parser.feed(data[wanted:])
        ]

    def greet(self) -> Peer:
        [greeting] = self.say(PREFACE + said(HELLO, 0))
        assert greeting == Do(0, HELLO, NOTHING)
        list(self.conversation.answer(0, 5, m.Welcome("s", "serve", None, 1)))
        assert self.hear() == [(Kind.ANSWER, 0, m.Welcome("s", "serve", None, 1))]
        return self


@pytest.fixture
def peer() -> Peer:
    return Peer(Conversation()).greet()


def test_a_greeting_may_come_in_any_pieces() -> None:
    data = PREFACE + said(HELLO, 0) + said(m.Tail(1), 1)
    conversation = Conversation()
    effects = [effect for at in range(len(data)) for effect in conversation.receive(data[at : at + 1])]
    assert effects == [Do(0, HELLO, NOTHING), Do(1, m.Tail(1), NOTHING)]
    assert conversation.out == [PREFACE]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"b",  # as far as it goes
        b"braid" + bytes([2, 0, 0]),
        PREFACE + said(m.Tail(1)),
        PREFACE + said(m.Hello(b"7 bytes")),
        PREFACE + noted(m.Floor(1), 0),
        PREFACE + b"".join(frames.encode(Kind.ANSWER, 1, 0, m.encode(m.Number(1)))),
        PREFACE + b"".join(frames.encode(Kind.REQUEST, 1, 0, b"\xc1")),
        PREFACE + said(HELLO, 0, bytes(limits.WIRE_HELLO_BYTES_MAX)),
        PREFACE + said(HELLO, 0, b"-"),
        PREFACE + said(HELLO, 0) + said(HELLO, 1),
        PREFACE + said(HELLO, 0) + said(m.Tail(1), 0),  # while the greeting is unanswered
        PREFACE + said(HELLO, 0) + b"".join(frames.encode(Kind.GOODBYE, 0, 0, b"")),
        PREFACE + said(HELLO, 0) + b"".join(frames.encode(Kind.NOTE, 0, 0, b"\x91\xa4what")),
        PREFACE + said(HELLO, 0) + bytes(28),
    ],
)
def test_who_does_not_keep_the_rules_is_told_and_dropped(data: bytes) -> None:
    conversation = Conversation()
    effects = list(conversation.receive(data))
    if data == b"b":
        assert (effects, conversation.out) == ([], [])
        return
    assert isinstance(effects[-1], Drop)
    out = b"".join(conversation.take_out()).removeprefix(PREFACE)
    [frame] = Parser().feed(out)
    fault = m.decode_answer(frame.head)
    assert (frame.kind, frame.number) == (Kind.ERROR, 0)
    assert isinstance(fault, m.Fault)
    assert effects[-1].reason in fault.message
    # Nothing more is heard, and nothing more is said.
    assert list(conversation.receive(PREFACE + said(HELLO, 0))) == []
    list(conversation.answer(0, 1, m.Number(1)))
    assert conversation.out == []


def test_large_frames_are_for_those_who_said_who_they_are(peer: Peer) -> None:
    body = bytes(2 * limits.WIRE_HELLO_BYTES_MAX)
    assert peer.say(said(APPEND, 1, body)) == [Do(1, APPEND, Body(memoryview(body), None))]


def test_answers_go_back_in_any_order_under_their_numbers(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 1) + said(m.Tail(2), 2) + said(m.Tail(3), 3))
    list(peer.conversation.answer(3, 7, m.Number(30)))
    peer.conversation.refuse(1, Blocked("wait", by="x"))
    list(peer.conversation.answer(2, 7, m.Number(20)))
    assert peer.hear() == [
        (Kind.ANSWER, 3, m.Number(30)),
        (Kind.ERROR, 1, m.Fault("Blocked", "wait", {"by": "x"})),
        (Kind.ANSWER, 2, m.Number(20)),
    ]
    assert peer.conversation.idle


def test_a_number_is_free_again_once_it_is_answered_and_not_before(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 4))
    list(peer.conversation.answer(4, 1, m.Number(1)))
    assert peer.say(said(m.Tail(2), 4)) == [Do(4, m.Tail(2), NOTHING)]
    [drop] = peer.say(said(m.Tail(3), 4))
    assert isinstance(drop, Drop)


def test_a_request_is_answered_once(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 4))
    for _ in range(2):
        list(peer.conversation.answer(4, 1, m.Number(1)))
        peer.conversation.refuse(4, Blocked("wait"))
    assert peer.hear() == [(Kind.ANSWER, 4, m.Number(1))]


def test_who_sends_too_many_bytes_is_not_listened_to_until_half_is_done() -> None:
    peer = Peer(Conversation(bytes_in_flight_max=1000)).greet()
    effects = peer.say(b"".join(said(APPEND, number, bytes(270)) for number in range(1, 6)))
    assert [type(effect) for effect in effects] == [Do, Do, Do, Do, Pause, Do]  # what was read is not lost
    relieved = [list(peer.conversation.answer(number, 1, m.Number(1))) for number in range(1, 6)]
    assert [Resume() in effects for effects in relieved] == [False, False, False, True, False]
    assert peer.conversation.bytes_in_flight == 0


def test_who_sends_too_many_requests_is_not_listened_to_until_half_is_done(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTION_REQUESTS_MAX", 4)
    effects = peer.say(b"".join(said(m.Tail(1), number) for number in range(1, 7)))
    assert [type(effect) for effect in effects] == [Do] * 5 + [Pause] + [Do]
    relieved = []
    for number in range(1, 7):
        peer.conversation.refuse(number, Blocked("wait"))
        relieved.append(list(peer.conversation.relieved()))
    assert relieved == [[], [], [], [Resume()], [], []]


def test_half_a_frame_counts_as_under_way(peer: Peer) -> None:
    data = said(APPEND, 1, bytes(5000))
    peer.say(data[:3000])
    assert peer.conversation.bytes_in_flight == len(data)  # room for all of it was made
    assert peer.conversation.midway
    peer.say(data[3000:])
    assert not peer.conversation.midway


def test_subscriptions_and_watches_are_bounded_and_the_others_go_on(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTION_SUBSCRIPTIONS_MAX", 2)
    effects = peer.say(said(m.Subscribe(1, 0, 1), 1) + said(m.Watch(1, 0), 2) + said(m.Subscribe(1, 0, 1), 3))
    assert [type(effect) for effect in effects] == [Do, Do]
    [(kind, number, fault)] = peer.hear()
    assert (kind, number) == (Kind.ERROR, 3)
    assert isinstance(fault, m.Fault)
    assert fault.kind == "InvalidArgument"
    assert len(peer.say(noted(m.Cancel(), 2) + said(m.Subscribe(1, 0, 1), 3))) == 2


def test_a_subscription_lasts_until_its_ending(peer: Peer) -> None:
    peer.say(said(m.Subscribe(1, 0, 9), 5))
    list(peer.conversation.answer(5, 1, m.Number(3)))
    peer.conversation.push(5, 1, m.Parts([], 1, 2), [b"ab", b"cd"])
    peer.conversation.push(5, 1, m.Ending("dropped"), last=True)
    peer.conversation.push(5, 1, m.Parts([], 1, 2))  # too late
    assert [(kind, number) for kind, number, _ in peer.hear()] == [(Kind.ANSWER, 5), (Kind.PUSH, 5), (Kind.PUSH, 5)]
    assert peer.conversation.idle
    assert not peer.conversation.owes(5)


@pytest.mark.parametrize(
    "late",
    [
        lambda conversation: list(conversation.answer(5, 1, m.Number(1))),
        lambda conversation: conversation.push(5, 1, m.Parts([], 1, 2)),
        lambda conversation: conversation.refuse(5, Blocked("wait")),
    ],
)
def test_what_was_cancelled_is_not_answered(peer: Peer, late: Callable[[Conversation], object]) -> None:
    peer.say(said(m.Watch(1, 0), 5))
    assert peer.say(noted(m.Cancel(), 5)) == [Heed(5, m.Cancel())]
    late(peer.conversation)
    assert peer.hear() == []


def test_only_what_lasts_can_be_cancelled(peer: Peer) -> None:
    """Or a peer could have any number of bytes carried out without their being counted."""
    peer.say(said(m.Append(m.c.Append(1, 1, 1, 0, 0)), 5, bytes(5000)))
    before = peer.conversation.bytes_in_flight
    peer.say(noted(m.Cancel(), 5))
    assert peer.conversation.bytes_in_flight == before > 5000
    list(peer.conversation.answer(5, 1, m.Number(1)))
    assert [number for _, number, _ in peer.hear()] == [5]


@pytest.mark.parametrize("request_", [m.Subscribe(1, 0, 1), m.Watch(1, 0), m.Await(1, *[0] * 5)])
def test_what_may_last_for_ever_does_not_count_as_bytes_under_way(peer: Peer, request_: m.Request) -> None:
    """Nothing of what it came with is kept. Else a few that are idle could have all others' appends refused."""
    head = m.encode(request_)
    long = bytes([head[0] + 1]) + head[1:] + b"\xc6" + (10_000).to_bytes(4, "big") + bytes(10_000)  # a field of later
    [do] = peer.say(b"".join(frames.encode(Kind.REQUEST, 5, 0, long)))
    assert isinstance(do, Do)
    assert (do.request, do.body) == (request_, NOTHING)
    assert peer.conversation.bytes_in_flight == 0
    assert peer.conversation.owes(5)


@pytest.mark.parametrize(
    "request_", [m.Watch(1, 0), m.Subscribe(1, 0, 1), m.Find("x"), m.Ping(), m.Bind([]), m.Execute(m.c.Trim(1, 0))]
)
def test_only_an_append_has_a_body(peer: Peer, request_: m.Request) -> None:
    assert peer.say(said(request_, 5, bytes(5000))) == []
    [(kind, number, fault)] = peer.hear()
    assert (kind, number) == (Kind.ERROR, 5)
    assert isinstance(fault, m.Fault)
    assert fault.kind == "InvalidArgument"
    assert peer.conversation.bytes_in_flight == 0
    assert peer.say(said(m.Tail(1), 5)) == [Do(5, m.Tail(1), NOTHING)]


def test_after_the_goodbye_what_was_taken_is_answered_and_no_more_is_taken(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 1))
    peer.conversation.end()
    peer.conversation.end()
    assert peer.say(said(m.Tail(1), 2) + said(m.Subscribe(1, 0, 1), 3)) == []
    assert not peer.conversation.idle
    list(peer.conversation.answer(1, 1, m.Number(1)))
    list(peer.conversation.answer(2, 1, m.Number(1)))
    assert peer.hear() == [(Kind.GOODBYE, 0, None), (Kind.ANSWER, 1, m.Number(1))]
    assert peer.conversation.idle


def test_nobody_says_goodbye_to_who_has_not_said_hello() -> None:
    conversation = Conversation()
    conversation.end()
    assert conversation.out == []


def test_what_a_lost_peer_had_sent_counts_until_it_is_done(peer: Peer) -> None:
    peer.say(said(APPEND, 1, bytes(500)) + said(m.Watch(1, 0), 2) + b"half of")
    peer.conversation.lost()
    assert 500 < peer.conversation.bytes_in_flight < 600
    list(peer.conversation.answer(1, 1, m.Number(1)))
    assert peer.conversation.bytes_in_flight == 0
    assert peer.conversation.out == []


def test_what_is_unsent_is_counted(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 1))
    list(peer.conversation.answer(1, 1, m.Parts([], 0, 0), [bytes(100), bytes(200)]))
    assert peer.conversation.unsent == sum(map(len, peer.conversation.out)) > 300
    peer.conversation.take_out()
    assert peer.conversation.unsent == 0


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 50), max_size=20))
def test_what_is_taken_out_in_parts_is_the_same(bodies: list[bytes], parts: list[int]) -> None:
    conversations = [Peer(Conversation()).greet().conversation for _ in range(2)]
    for conversation in conversations:
        for number, body in enumerate(bodies, 1):
            list(conversation.receive(said(m.Tail(1), number)))
            list(conversation.answer(number, 1, m.Parts([], 0, 0), [body]))
    at_once, parted = conversations
    taken = b""
    for part in parts:
        before = parted.unsent
        piece = b"".join(parted.take_out(part))
        assert len(piece) == min(part, before)
        assert parted.unsent == before - len(piece) == sum(map(len, parted.out))
        taken += piece
    assert taken + b"".join(parted.take_out()) == b"".join(at_once.take_out())


def test_small_pieces_are_sent_as_one_and_large_ones_as_they_are(peer: Peer) -> None:
    small, large = [bytes(100)] * 50, [bytes(100_000), bytes(90_000)]
    for number, body in enumerate((small, large), 1):
        peer.say(said(m.Tail(1), number))
        list(peer.conversation.answer(number, 1, m.Parts([], 0, 0), [*body]))
    assert [len(piece) for piece in peer.conversation.out if len(piece) > 200] == [5000, 100_000, 90_000]


def test_before_the_welcome_only_small_frames_are_taken() -> None:
    """Whoever is not known yet has no memory taken for it."""
    peer = Peer(Conversation())
    peer.say(PREFACE + said(HELLO, 0))
    [drop] = peer.say(said(m.Find("x"), 1, bytes(limits.WIRE_HELLO_BYTES_MAX)))
    assert isinstance(drop, Drop)


def test_who_is_rejected_is_told_why_and_nothing_else(peer: Peer) -> None:
    peer.say(said(m.Tail(1), 4))
    peer.conversation.reject(NotPermitted("the token was revoked"))
    list(peer.conversation.answer(4, 1, m.Number(1)))
    peer.conversation.push(4, 1, m.Parts([], 1, 2))
    assert peer.hear() == [(Kind.ERROR, 0, m.Fault("NotPermitted", "the token was revoked"))]
    assert peer.say(said(m.Tail(1), 5)) == []


def test_tls_where_none_is_spoken_is_told_from_noise() -> None:
    [drop] = Conversation().receive(b"\x16\x03\x01\x02\x00\x01\x00\x01")
    assert isinstance(drop, Drop)
    assert "TLS" in drop.reason


def test_what_a_header_alone_asks_for_is_counted_and_waits_for_what_is_under_way() -> None:
    """The memory for a large frame is taken when it begins: so many beginnings must not be for free."""
    peer = Peer(Conversation(bytes_in_flight_max=100_000)).greet()
    conversation = peer.conversation
    large = said(APPEND, 2, b"x" * 10_000_000)
    assert peer.say(large[: frames.HEADER_BYTES + 1]) == []  # alone it may become whole
    assert conversation.bytes_in_flight >= 1_000_000
    peer = Peer(Conversation(bytes_in_flight_max=100_000)).greet()
    conversation = peer.conversation
    effects = peer.say(said(m.Tail(1), 1) + large[: frames.HEADER_BYTES + 1])
    assert [type(effect) for effect in effects] == [Do, Pause]
    assert list(conversation.answer(1, 5, m.Number(1))) == [Resume()]
    [done] = peer.say(large[frames.HEADER_BYTES + 1 :])[:1]
    assert isinstance(done, Do)
    assert len(done.body.data) == 10_000_000
    list(conversation.answer(2, 5, m.Number(1)))
    assert conversation.bytes_in_flight == 0


def test_an_answer_that_no_frame_holds_is_an_error(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would hang up at such a frame, connect again, and ask for it again."""
    peer.say(said(m.ListLogs(), 7) + said(m.Read(1, 0), 8) + said(m.Subscribe(1, 0, 100), 9))
    monkeypatch.setattr(limits, "WIRE_FRAME_BYTES_MAX", 1000)
    list(peer.conversation.answer(9, 0, m.Number(0)))
    list(peer.conversation.answer(7, 0, m.Listing([(n, "name") for n in range(300)])))
    list(peer.conversation.answer(8, 0, m.Parts([], 0, 0), [bytes(999)]))
    peer.conversation.push(9, 0, m.Parts([], 0, 0), [bytes(999)])
    peer.conversation.push(9, 0, m.Parts([], 0, 0), [b"more"])
    told, *errors = peer.hear()
    assert told == (Kind.ANSWER, 9, m.Number(0))
    assert [(kind, number) for kind, number, _ in errors] == [(Kind.ERROR, 7), (Kind.ERROR, 8), (Kind.PUSH, 9)]
    for _, _, answer in errors:
        fault = answer.error if isinstance(answer, m.Ending) else answer
        assert isinstance(fault, m.Fault)
        assert fault.kind == "InvalidArgument"
        assert "at most 1,000: ask for less" in fault.message
    assert peer.conversation.idle
