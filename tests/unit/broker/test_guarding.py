"""The gate before a service: nothing passes unchecked, in another order, or as its sender would have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from braidlog.broker import policy
from braidlog.broker.conversation import Do
from braidlog.broker.guarding import Gate, check, discreet
from braidlog.broker.policy import Scopes
from braidlog.broker.service import Caller, Known, Reply, Service
from braidlog.errors import BraidError, ConditionFailed, Gone, InvalidArgument, NotFound, NotPermitted, Unavailable
from braidlog.forest import commands as c
from braidlog.wire import messages as m
from braidlog.wire.frames import NOTHING, Body

KIN = {
    1: m.Kin(1, False, "orders", "orders", "ops"),
    2: m.Kin(1, True, "orders.mine", "orders", "agent", 1),
    3: m.Kin(1, True, "orders.theirs", "orders", "rival", 1),
    4: m.Kin(1, True, "orders.deeper", "orders", "agent", 2),
    9: m.Kin(9, False, "payroll", "payroll", "ops"),
}
NUMBERS = {kin.name: number for number, kin in KIN.items()}
ID = bytes(16)


class Forest(Service):
    """Knows some logs, and tells of them at once or when it is told to."""

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.asked: list[Callable[[], None]] = []

    def kin(self, log: int, then: Known, *, fresh: bool = False) -> None:
        del fresh
        found: m.Kin | BraidError = KIN.get(log) or (Gone("was squashed") if log < 20 else NotFound("never was"))
        if self.late:
            self.asked.append(lambda: then(found))
        else:
            then(found)

    def handle(self, caller: Caller, request: m.Request, body: Body, reply: Reply) -> None:
        del caller, body
        assert isinstance(request, m.Find)
        number = NUMBERS.get(request.name)
        reply(NotFound("there is none") if number is None else m.Number(number), None)


def caller(*scopes: str) -> Caller:
    made = Caller(b"8 bytes.", 0, "tests")
    made.principal = "agent"
    made.scopes = Scopes.of("agent", scopes)
    return made


def verdict(request: m.Request, *scopes: str, service: Service | None = None) -> m.Request | BraidError:
    found: list[m.Request | BraidError] = []
    check(service or Forest(), caller(*scopes), request, found.append)
    [one] = found
    return one


def example(kind: type[Any]) -> Any:
    """A request of that kind, about log 9."""
    filled = {"log": 9, "name": "payroll", "request": ID, "command": c.Append(9, 1, 1, 0, 0, request=ID)}
    if kind is m.Execute:
        filled["command"] = c.Trim(9, 0, ID)
    required = [field for field in msgspec.structs.fields(kind) if field.required or field.name == "command"]
    plain = {int: 9, str: "payroll", bytes: b"8 bytes."}
    return kind(**{field.name: filled.get(field.name, plain.get(field.type, [])) for field in required})


@pytest.mark.parametrize("kind", sorted(get_args(m.Request), key=lambda kind: kind.__name__))
def test_without_a_scope_that_covers_it_nothing_passes(kind: type[Any]) -> None:
    """Every request there is, and every one that there will be."""
    found = verdict(example(kind), "admin:orders*", "own:orders*")
    if kind in policy.FREE:
        assert found == example(kind)
    elif kind is m.ListLogs:
        assert found == m.ListLogs("agent", ["admin:orders*", "own:orders*"])
    else:
        assert isinstance(found, NotPermitted), found


@pytest.mark.parametrize("kind", sorted(get_args(c.Command), key=lambda kind: kind.__name__))
def test_every_command_is_refused_or_decided(kind: type[Any]) -> None:
    plain = {int: 9, str: "payroll", bytes: bytes(32)}
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    command = kind(**{field.name: plain.get(field.type, []) for field in required})
    assert isinstance(verdict(m.Execute(command), "admin:orders*"), NotPermitted | InvalidArgument)


def test_whose_a_log_is_is_not_for_the_client_to_say() -> None:
    for command in (c.CFork(1, "", 0, owner="rival"), c.SFork(1, "", 0, owner="rival")):
        found = verdict(m.Execute(command), "own:orders")
        assert isinstance(found, m.Execute)
        assert found.command.owner == "agent"  # type: ignore[union-attr]
    found = verdict(m.Execute(c.Create("orders-2", 0, owner="rival")), "admin:orders*")
    assert isinstance(found, m.Execute)
    assert found.command.owner == "agent"  # type: ignore[union-attr]


def test_what_a_list_shows_is_not_for_the_client_to_say() -> None:
    assert verdict(m.ListLogs("rival", ["admin:*"]), "read:x") == m.ListLogs("agent", ["read:x"])


def test_a_promotion_is_decided_by_its_parent_and_bound_to_it() -> None:
    into_root, into_own = m.Execute(c.Promote(2)), m.Execute(c.Promote(4, into=2))
    assert isinstance(verdict(into_root, "own:orders"), NotPermitted)
    assert verdict(into_root, "promote:orders") == m.Execute(c.Promote(2, into=1))
    assert verdict(into_own, "own:orders") == m.Execute(c.Promote(4, into=2))
    assert isinstance(verdict(m.Execute(c.Promote(4, into=1)), "own:orders"), ConditionFailed)
    assert isinstance(verdict(m.Execute(c.Promote(4, into=1)), "read:orders"), NotPermitted)
    assert isinstance(verdict(m.Execute(c.Promote(9)), "promote:orders"), NotPermitted)


def test_what_ended_can_be_asked_for_and_what_is_not_there_yet_cannot() -> None:
    """A change that is sent again is to be answered as it was, though its log is no more."""
    again = m.Execute(c.Squash(11, request=ID), since=4)
    assert verdict(again, "own:orders") == again
    assert isinstance(verdict(m.Append(c.Append(21, 1, 1, 0, 0, request=ID)), "own:orders"), NotFound)


def test_names_are_told_to_those_who_may_know_them() -> None:
    assert verdict(m.Find("orders.theirs"), "read:orders") == m.Find("orders.theirs")
    assert isinstance(verdict(m.Find("orders-x"), "read:orders*"), NotFound)
    there, not_there = verdict(m.Find("payroll"), "read:orders"), verdict(m.Find("pension"), "read:orders")
    assert isinstance(there, NotPermitted)
    assert str(there).replace("payroll", "pension") == str(not_there)
    scopes = Scopes.of("agent", ["read:orders*"])
    gone = discreet(scopes, Gone("log 'payroll' was dropped", end="dropped"))
    assert isinstance(gone, Gone)
    assert (gone.end, "payroll" in str(gone)) == ("dropped", False)
    ending = m.Ending("promoted", "orders.x", 1, 2, "payroll")
    assert discreet(scopes, ending) == m.Ending("promoted", "orders.x", 1, 2, "")


class Passed:
    """What came through a gate, and what did not."""

    def __init__(self, service: Service) -> None:
        self.events: list[int] = []
        self.refused: dict[int, BraidError] = {}
        self.gate = Gate(service, lambda effect: self.events.append(effect.number), self._refuse)

    def _refuse(self, number: int, error: BraidError) -> None:
        self.events.append(number)
        self.refused[number] = error


def test_requests_pass_in_their_order_however_long_it_takes_to_know_their_logs() -> None:
    service = Forest(late=True)
    passed, who = Passed(service), caller("own:orders")
    for number, request in enumerate(
        [m.Tail(1), m.Ping(), m.Append(c.Append(1, 1, 1, 0, 0)), m.ListLogs(), m.Read(2, 0)]
    ):
        passed.gate.enter(who, Do(number, request, NOTHING))
    assert passed.events == []
    while service.asked:
        service.asked.pop(0)()
    assert passed.events == [0, 1, 2, 3, 4]
    assert passed.refused.keys() == {2}


def test_many_that_are_decided_at_once_do_not_pile_up() -> None:
    passed, who = Passed(Forest(late=False)), caller("read:orders")
    late = Forest(late=True)
    waiting = Passed(late)
    for number in range(5000):
        passed.gate.enter(who, Do(number, m.Tail(1), NOTHING))
        waiting.gate.enter(who, Do(number, m.Ping() if number else m.Tail(1), NOTHING))
    assert passed.events == list(range(5000))
    late.asked.pop()()
    assert waiting.events == list(range(5000))


def test_what_cannot_be_checked_is_not_done() -> None:
    class Broken(Forest):
        def kin(self, log: int, then: Known, *, fresh: bool = False) -> None:
            raise RuntimeError(f"log {log}, {then}, {fresh}")

    passed = Passed(Broken())
    passed.gate.enter(caller("admin:*"), Do(1, m.Tail(1), NOTHING))
    assert isinstance(passed.refused[1], Unavailable)


def test_nothing_passes_once_nobody_waits() -> None:
    service = Forest(late=True)
    passed = Passed(service)
    for number in range(3):
        passed.gate.enter(caller("read:*"), Do(number, m.Tail(1), NOTHING))
    assert [effect.number for effect in passed.gate.close()] == [1, 2]
    service.asked.pop()()
    assert passed.events == [0]
