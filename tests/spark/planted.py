"""A short history that is true, and ways to falsify it, each by one lie that a service could tell.

The history is what one client was told by a real braid: of a log, a live fork, a severed one, and one that holds the
log and is promoted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import braidlog
from braidlog.errors import ConditionFailed
from braidlog.testing.linearizability import Operation, Recorder

History = list[Operation]


class Story:
    """One client, which does one thing after the other."""

    def __init__(self, braid: braidlog.Braid) -> None:
        self._recorder = Recorder()
        with self._call("create", "orders") as call:
            self.orders = braid.create("orders")
            call.answer("orders")
        for number in range(4):
            self.append(self.orders, f"o{number}")
        self.append(self.orders, "b0", "b1", "b2")
        with self._call("cfork", "orders", child="try") as call:
            live = self.orders.cfork("try")
            call.answer("try", live.info().fork_point)
        for number in range(4, 10):
            self.append(self.orders, f"o{number}")
            if number % 2:
                self.append(live, f"t{number}")
        with self._call("sfork", "orders", child="cut") as call:
            cut = self.orders.sfork("cut")
            call.answer("cut", cut.info().fork_point)
        self.append(self.orders, "o10")
        try:
            with self._call("append", "orders", [b"wrong"]):
                self.orders.append(b"wrong", expected_tail=0)
        except ConditionFailed:
            pass
        for log in (self.orders, live, cut):
            self.read(log)
        with self._call("cfork", "orders", child="held", promotable=True) as call:
            held = self.orders.cfork("held", promotable=True)
            call.answer("held", held.info().fork_point)
        self.append(self.orders, "w0")
        self.append(held, "h0")
        self.read(held)
        with self._call("promote", "held") as call:
            call.answer(held.promote())
        self.append(self.orders, "o11")
        self.read(self.orders)

    def history(self) -> History:
        return self._recorder.history()

    def append(self, log: braidlog.Log, *values: str) -> None:
        sent = [value.encode() for value in values]
        with self._call("append", log.name, sent) as call:
            positions = log.append_many(sent)
            call.answer(None if positions is None else positions.start)

    def read(self, log: braidlog.Log) -> None:
        with self._call("read", log.name, 0) as call:
            call.answer(log.read(0))

    def _call(self, verb: str, log: str, *rest: Any, **more: Any) -> Any:
        return self._recorder.call("client", verb, log, *rest, **more)


def relabelled(history: Sequence[Operation], label: str) -> History:
    """The same of other logs and records, so that several histories can be told together."""
    return [
        dataclasses.replace(
            one,
            log=f"{label}/{one.log}",
            child=None if one.child is None else f"{label}/{one.child}",
            values=tuple(f"{label}/{value}" for value in one.values),
            records=tuple((position, f"{label}/{value}") for position, value in one.records),
        )
        for one in history
    ]


def _told(history: History, lie: Callable[[Operation], dict[str, Any]]) -> History:
    return [dataclasses.replace(one, **lie(one)) for one in history]


def _reads(log: str, lie: Callable[[list[str]], list[str]]) -> Callable[[History], History]:
    """All reads of a log, which began at its beginning, show something else."""

    def shown(one: Operation) -> dict[str, Any]:
        if one.verb != "read" or one.log != log:
            return {}
        return {"records": tuple(enumerate(lie([str(value) for _, value in one.records])))}

    return lambda history: _told(history, shown)


def _last_read(log: str, lie: Callable[[list[str]], list[str]]) -> Callable[[History], History]:
    def falsify(history: History) -> History:
        last = max((one for one in history if one.verb == "read" and one.log == log), key=lambda one: one.invoked)
        records = tuple(enumerate(lie([str(value) for _, value in last.records])))
        return [dataclasses.replace(one, records=records) if one is last else one for one in history]

    return falsify


def _without(value: str) -> Callable[[list[str]], list[str]]:
    return lambda values: [one for one in values if one != value]


def _swapped(a: str, b: str) -> Callable[[list[str]], list[str]]:
    names = {a: b, b: a}
    return lambda values: [names.get(one, one) for one in values]


def swap(history: History) -> History:
    """Two records have each other's places, for everybody."""
    positions = {one.values[0]: one.position for one in history if one.verb == "append"}

    def lie(one: Operation) -> dict[str, Any]:
        if one.values == ("o1",):
            return {"position": positions["o3"]}
        if one.values == ("o3",):
            return {"position": positions["o1"]}
        return {"records": tuple(enumerate(_swapped("o1", "o3")([str(value) for _, value in one.records])))}

    return _told(history, lie)


def _fork_point(moved: int) -> Callable[[History], History]:
    def lie(one: Operation) -> dict[str, Any]:
        return {"position": (one.position or 0) + moved} if one.child == "try" and one.verb == "cfork" else {}

    return lambda history: _told(history, lie)


# What is told, and the kinds of violations of which at least one must be found.
LIES: Final[dict[str, tuple[Callable[[History], History], set[str]]]] = {
    "two positions are swapped": (swap, {"order"}),
    "an acknowledged record is lost at the end": (_last_read("orders", lambda values: values[:-2]), {"lost"}),
    "an acknowledged record is lost in the middle": (_last_read("orders", _without("o2")), {"conflict"}),
    "an acknowledged record without a position is lost": (_reads("orders", _swapped("w0", "ghost")), {"lost"}),
    "a fork misses a record of its parent": (_reads("try", _without("o6")), {"fork"}),
    "a fork misses a record from before it was made": (_reads("try", _without("o2")), {"fork"}),
    "a fork begins too early": (_fork_point(-2), {"lost"}),
    "a fork begins too late": (_fork_point(+2), {"fork"}),
    "a batch is torn": (_reads("try", _swapped("b1", "o4")), {"torn"}),
    "a fork's record is on its parent": (_last_read("orders", lambda values: [*values, "t5"]), {"leaked"}),
    "a severed fork goes on": (_reads("cut", lambda values: [*values, "o10"]), {"severed"}),
    "a severed fork has another order": (_reads("cut", _swapped("o1", "o2")), {"fork"}),
    "a refused record is there": (_last_read("orders", lambda values: [*values, "wrong"]), {"refused"}),
    "a record comes from nowhere": (_last_read("orders", lambda values: [*values, "ghost"]), {"invented"}),
}
