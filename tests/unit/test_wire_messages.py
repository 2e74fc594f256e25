"""What is said over the wire comes back as it was said; anything else raises Malformed, and nothing but that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from braidlog import errors
from braidlog.errors import BraidError, Unavailable
from braidlog.facts import Ancestor, Consumer, Info, Outcome, Plan, PlanPart, Retention, UploadedBlock, UploadedObject
from braidlog.forest import commands as c
from braidlog.wire import messages as m
from braidlog.wire.faults import error_of, fault_of
from braidlog.wire.frames import Malformed

ID = bytes(range(16))
NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
INFO = Info(
    name="orders",
    id=1,
    kind="root",
    parent=None,
    fork_point=None,
    promotable=False,
    dedicated=False,
    discipline="eager",
    start=0,
    tail=9,
    readable_tail=8,
    limited_by="orders",
    own=9,
    own_bytes=100,
    shared_bytes=0,
    epoch=2,
    created=NOW,
    expires=None,
    lease_expires=NOW,
    owner="somebody",
    labels={"a": "b"},
    retention=Retention(max_age=1.5, max_bytes=None),
)

# One of each, at least; a test below says that none is missing.
REQUESTS: list[Any] = [
    m.Hello(b"8 bytes.", 3, "a program", b"8 of it.", "a token"),
    m.Append(c.Append(1, 2, 30, -5, 5, request=ID), True, 17),
    m.Execute(c.Create("orders", 5, labels={"ü": "ß"}, request=ID)),
    m.Execute(c.Again(c.Squash(2, request=ID), 5), 4),
    m.Execute(c.Upload(1, 5, 6, ID)),
    m.Execute(c.Publish(1, [UploadedObject("o", 9, 8, [UploadedBlock(1, 2, 3, 4, 5, -6, 7)])], [2, 3], 5, request=ID)),
    m.Execute(c.Discard(1, 2, ID)),
    m.Find("orders"),
    m.ListLogs("agent", ["read:*"]),
    m.NameOf(1),
    m.EndOf(2),
    m.Tail(3),
    m.Describe(4),
    m.Lineage(5),
    m.Recall(ID, ID.hex()),
    m.Consumers(6),
    m.Read(1, 2, None, 3, True),
    m.Locate(1, 2, 2**63, 3),
    m.PlanRange(1, 2, 3),
    m.PositionAt(1, -(2**63)),
    m.Watch(1, 2**64 - 1),
    m.Subscribe(1, 2, 3),
    m.Ping(),
    m.Route(1),
    m.Join("b1", "host:1", 4),
    m.Bind([c.Append(1, 1, 1, 0, 0, b"x", request=ID), c.Settle(b"8 bytes.", 4)], 3),
    m.Await(1, 2, 3, 4, 5, 6),
    m.Kinship(3),
    m.Status(),
    m.Identify([bytes(32)]),
    m.ListTokens(),
]
NOTES: list[Any] = [m.Floor(3), m.Credit(4), m.Cancel()]
ANSWERS: list[Any] = [
    m.Welcome("name", "serve", "/objects", 5),
    m.Welcome("name", "serve", "/objects", 5, "agent-7"),
    m.Result(c.Appended(1, 2, 3, 4, True)),
    m.Result(c.Opening(1, "x")),
    m.Result(c.Promotion(True, [1, 2])),
    m.Result(c.Ended([1])),
    m.Result(c.Done(4)),
    m.Result(c.Collected([1], ["o"])),
    m.Number(-1),
    m.Text("host:1"),
    m.Listing([(1, "a"), (2, "b")]),
    m.Ending("promoted", "a", 2, 3, "b", m.Fault("Gone", "it is", {"end": "promoted"})),
    m.Described(INFO),
    m.Ancestors([Ancestor(name="a", id=1, kind=None, fork_point=None, living=False)]),
    m.Recalled("id", "append", "a", 3, 4, False, None),
    m.ConsumerList([Consumer(name="c", position=1, lag=2, updated=NOW)]),
    m.Parts([m.Part(1, 2, 3, True, False)], 3, 4, 5, "a"),
    m.Located([m.Piece(1, 2, 3, True, False, "o", 4, 5, 6)], 3, 4, 5, "a"),
    m.Planned(Plan(log="a", start=0, stop=1, objects=None, parts=[])),
    m.StatusReport({"a": 1, "b": 1.5, "c": "d"}, {"t": [{"x": None}]}),
    m.Joined(3),
    m.Bound([c.Done(1), m.Fault("Gone", "it is")]),
    m.Stamped(1, 2, 3, 4, 5),
    m.Kin(1, True, "orders.a", "orders", "agent", 1),
    m.Identities([m.Identity("agent", ["own:orders*"]), None], True),
    m.TokenList([m.TokenInfo("agent", ["broker"], 5, -1)]),
    m.Fault("Trimmed", "it is", {"start": 4}),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda message: type(message).__name__)
def test_a_request_comes_back_as_it_was_sent(message: Any) -> None:
    assert m.decode_request(memoryview(m.encode(message))) == message


@pytest.mark.parametrize("message", NOTES, ids=lambda message: type(message).__name__)
def test_a_note_comes_back_as_it_was_sent(message: Any) -> None:
    assert m.decode_note(memoryview(m.encode(message))) == message


@pytest.mark.parametrize("message", ANSWERS, ids=lambda message: type(message).__name__)
def test_an_answer_comes_back_as_it_was_sent(message: Any) -> None:
    assert m.decode_answer(memoryview(m.encode(message))) == message


def test_no_message_is_left_out_here() -> None:
    for union, examples in ((m.Request, REQUESTS), (m.Note, NOTES), (m.Answer, ANSWERS)):
        assert {type(example) for example in examples} == set(get_args(union))


def test_a_plan_with_parts_and_an_outcome_come_back() -> None:
    part_fields = {field.name for field in msgspec.structs.fields(PlanPart)}
    assert part_fields
    for positions in (None, range(3, 7), range(3, 3)):
        outcome = Outcome(request_id="x", what="append", log="a", positions=positions, withheld=False, promoted=None)
        said = m.decode_answer(memoryview(m.encode(m.Recalled.of(outcome))))
        assert isinstance(said, m.Recalled)
        assert said.outcome() == outcome


def test_who_says_more_than_we_know_is_understood() -> None:
    said = msgspec.msgpack.encode(["find", "orders", "something new"])
    assert m.decode_request(memoryview(said)) == m.Find("orders")


def nested(depth: int) -> bytes:
    return b"\x93\xa7execute" + b"\x93\xa5again" * depth + b"\xc0" + b"\x00" * depth + b"\x00"


@given(st.binary(max_size=200))
@example(nested(100_000))
@example(b"\x92\xa4find\xa3\xff\xff\xff")  # no UTF-8
@example(b"\x93\xa4bind\xdd\xff\xff\xff\xff\x00")  # a list of four thousand million
@example(b"\x92\xa7execute\xdf\xff\xff\xff\xff")
@example(b"")
def test_random_bytes_raise_malformed_or_mean_something(data: bytes) -> None:
    for decode in (m.decode_request, m.decode_note, m.decode_answer):
        try:
            decode(memoryview(data))
        except Malformed:
            pass


leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3))
tags = st.sampled_from([kind.__struct_config__.tag for kind in (*get_args(m.Request), *get_args(m.Answer))])


@given(tags, st.lists(trees, max_size=6))
def test_random_fields_raise_malformed_or_mean_something(tag: str, fields: list[object]) -> None:
    data = memoryview(msgspec.msgpack.encode([tag, *fields]))
    for decode in (m.decode_request, m.decode_note, m.decode_answer):
        try:
            decode(data)
        except Malformed:
            pass


# --- errors ------------------------------------------------------------------------------------------------------

DETAILS: dict[str, dict[str, Any]] = {
    "NotFound": {"into": "orders", "end": "promoted"},
    "ConditionFailed": {"sequence": 7},
    "Gone": {"end": "squashed"},
    "Trimmed": {"start": 12},
    "Blocked": {"by": "orders"},
    "Locked": {"pid": 4711},
    "OutcomeUnknown": {"request_id": ID.hex()},
}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BraidError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_raised_again_as_it_was(kind: type[BraidError]) -> None:
    details = DETAILS.get(kind.__name__, {})
    said = m.decode_answer(memoryview(m.encode(fault_of(kind("what to do", **details)))))
    assert isinstance(said, m.Fault)
    found = error_of(said)
    assert type(found) is kind
    assert str(found) == "what to do"
    assert {name: getattr(found, name) for name in details} == details


def test_an_error_with_attributes_that_are_not_told_here_is_new() -> None:
    """Whoever adds an attribute to an error adds it to `faults` too."""
    told = {kind.__name__: set(vars(kind("x"))) for kind in KINDS if vars(kind("x"))}
    told["Locked"].discard("shared")  # who asks over the wire is not locked out
    assert told == {name: set(details) for name, details in DETAILS.items()}


def test_an_error_of_another_version_is_unavailable() -> None:
    found = error_of(m.Fault("FromTheFuture", "what to do"))
    assert type(found) is Unavailable
    assert "FromTheFuture" in str(found)
    assert "what to do" in str(found)


@pytest.mark.parametrize("details", [{"start": "no number"}, {"other": 1}, {"start": None}, {}])
def test_details_that_are_none_are_left_out(details: dict[str, Any]) -> None:
    assert str(error_of(m.Fault("Trimmed", "it is", details))) == "it is"
    assert str(error_of(m.Fault("ConditionFailed", "it is", details))) == "it is"
