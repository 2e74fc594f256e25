"""Both halves of a connection with a forest between them, over a line that breaks wherever it likes.

Bytes arrive in order or not at all: each connection is cut after some byte in either direction, and the client connects
again. Whatever happens, every change is applied once at most, every answer is true, a change of unknown outcome is said
to be so, and what one client sent stands in the order in which it was sent.
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from braidlog import limits
from braidlog.broker.conversation import Conversation, Do, Drop, Effect, Heed
from braidlog.errors import BraidError, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.wire import messages as m
from braidlog.wire.calls import Call, Calls

CLIENTS = 3
CHANGES = 12


class Server:
    """A forest, and commands that queue before it is their turn: they outlive the connection that they came over."""

    def __init__(self, rng: random.Random) -> None:
        self.forest = Forest()
        self.forest.apply(c.Create("orders", 0))
        self.values: list[tuple[int, int]] = []  # (client, number) as it stands in the log
        self._queue: list[tuple[c.Command, Conversation, int]] = []
        self._rng = rng

    def take(self, conversation: Conversation, effect: Effect, settled: dict[Conversation, int]) -> None:
        assert not isinstance(effect, Drop), effect.reason
        if isinstance(effect, Heed) and isinstance(effect.note, m.Floor):
            settled[conversation] = max(settled.get(conversation, 0), effect.note.floor)
        if not isinstance(effect, Do):
            return
        request = effect.request
        if isinstance(request, m.Hello):
            self._queue.append((c.Settle(request.client, request.floor), conversation, -1))
            settled[conversation] = request.floor
            welcome = m.Welcome("s", "serve", None, 1)
            list(conversation.answer(effect.number, self.forest.applied, welcome))
        elif isinstance(request, m.Append):
            client = request.command.request[: limits.CLIENT_ID_BYTES]
            self._queue.append((c.Settle(client, settled.get(conversation, 0)), conversation, -1))
            command: c.Command = request.command
            if request.since != NONE:
                command = c.Again(command, request.since)
            self._queue.append((command, conversation, effect.number))
        else:
            assert isinstance(request, m.Tail)
            list(conversation.answer(effect.number, self.forest.applied, m.Number(len(self.values))))

    def work(self) -> None:
        """Carry out some of what is queued."""
        for _ in range(self._rng.randrange(4)):
            if not self._queue:
                return
            command, conversation, number = self._queue.pop(0)
            result = self.forest.apply(command)
            if isinstance(result, c.Appended) and result.block != NONE:
                request: bytes = getattr(command, "request", b"")
                assert result.first == len(self.values)
                self.values.append((request[0], int.from_bytes(request[8:], "big")))
            if number < 0:
                continue
            if isinstance(result, BraidError):
                conversation.refuse(number, result, self.forest.applied)
            else:
                list(conversation.answer(number, self.forest.applied, m.Result(result)))

    @property
    def busy(self) -> bool:
        return bool(self._queue)


class Client:
    def __init__(self, number: int, server: Server, rng: random.Random) -> None:
        self.number = number
        self.answers: dict[int, m.Answer | BraidError] = {}
        self.begun = 0
        self.patient: set[int] = set()  # the changes that wait for ever
        self._id = bytes([number]) * limits.CLIENT_ID_BYTES
        self._calls = Calls(self._id, f"client {number}")
        self._server = server
        self._rng = rng
        self._settled: dict[Conversation, int] = {}
        self._conversation: Conversation | None = None
        self._out = b""
        self._back = b""
        self._leaving: list[tuple[Conversation, bytes]] = []  # what a broken connection still delivers

    def step(self, now: float) -> None:
        rng = self._rng
        chance = rng.random()
        if self._conversation is None:
            if chance < 0.7:
                self._conversation = Conversation()
                self._calls.connected()
        elif chance < 0.08:
            self._break()
        if self.begun < CHANGES and rng.random() < 0.5:
            self.begun += 1
            command = c.Append(1, 1, 1, 0, 0, b"x", request=self._id + self.begun.to_bytes(8, "big"))
            patience = rng.choice([3.0, 20.0, 1e9, 1e9])
            if patience > 1e6:
                self.patient.add(self.begun)
            deadline = now + patience
            self._calls.begin(m.Append(command), b"body", deadline, partial(self._done, self.begun))
        elif rng.random() < 0.2:
            self._calls.begin(m.Tail(1), b"", now + 1e9, lambda *_: None)
        self._carry()
        self._calls.expire(now, "it took too long")
        self._hand_out()

    def _carry(self) -> None:
        conversation = self._conversation
        if conversation is None:
            return
        self._out += b"".join(self._calls.out)
        self._calls.out = []
        taken = self._rng.randrange(len(self._out) + 1)
        data, self._out = self._out[:taken], self._out[taken:]
        for effect in conversation.receive(data):
            self._server.take(conversation, effect, self._settled)
        self._back += b"".join(conversation.take_out())
        taken = self._rng.randrange(len(self._back) + 1)
        data, self._back = self._back[:taken], self._back[taken:]
        self._calls.receive(data)
        if self._calls.leaving and not self._calls.owed:
            self._break()
        elif self._rng.random() < 0.02:
            conversation.end()

    def _break(self) -> None:
        conversation = self._conversation
        assert conversation is not None
        arrives = self._out[: self._rng.randrange(len(self._out) + 1)]  # it was on its way, and gets there
        for effect in conversation.receive(arrives):
            self._server.take(conversation, effect, self._settled)
        conversation.lost()
        self._conversation = None
        self._out = self._back = b""
        self._calls.lost()

    def _hand_out(self) -> None:
        finished, self._calls.finished = self._calls.finished, []
        for call, answer, body in finished:
            call.done(call, answer, body)

    def _done(self, number: int, _: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        assert number not in self.answers, "answered twice"
        self.answers[number] = answer


def play(seed: int) -> tuple[int, int]:
    rng = random.Random(seed)
    server = Server(rng)
    clients = [Client(number, server, rng) for number in range(1, CLIENTS + 1)]
    now = 0.0
    while any(len(client.answers) < CHANGES for client in clients) or server.busy:
        now += 1.0
        assert now < 3000, "it does not come to an end"
        for client in clients:
            client.step(now)
        server.work()
    unknown = broken = 0
    for client in clients:
        mine = [number for owner, number in server.values if owner == client.number]
        assert mine == sorted(set(mine)), f"seed {seed}: order or doubling: {mine}"
        for number, answer in client.answers.items():
            if isinstance(answer, m.Result):
                assert isinstance(answer.result, c.Appended)
                assert server.values[answer.result.first] == (client.number, number), f"seed {seed}"
            elif isinstance(answer, OutcomeUnknown):
                assert number not in client.patient, f"seed {seed}: its window was there, and its outcome is known"
                unknown += 1
            else:
                assert isinstance(answer, Unavailable), answer
                assert number not in mine, f"seed {seed}: said not to have happened"
                broken += 1
    return unknown, broken


@pytest.mark.parametrize("remembered", [4096, 16, 4], ids=["all", "some", "next to nothing"])
def test_changes_happen_once_or_are_told_to_be_unknown(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", remembered)
    monkeypatch.setattr(limits, "SETTLE_REQUESTS", 3)
    _play_all(range(remembered, remembered + 200))


@pytest.mark.soak
def test_changes_happen_once_or_are_told_to_be_unknown_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SETTLE_REQUESTS", 3)
    for remembered in (4096, 16, 4):
        monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", remembered)
        _play_all(range(10_000))


def _play_all(seeds: range) -> None:
    told = [play(seed) for seed in seeds]
    unknown, refused = (sum(column) for column in zip(*told, strict=True))
    assert unknown > 0  # or nothing was tested
    assert refused > 0
