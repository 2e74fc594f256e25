"""Clients whose connections break, a forest that forgets, and a list of everything that was ever applied.

A client numbers its requests, sends each, and may lose the request, or the answer, or neither. What it has no answer to
it sends again, as a repetition, and says how much of the forest it had seen when it first sent it. Now and then it
settles what it has the answers to. Others send requests too and never settle anything. Bounds are small, so that the
forest forgets all the time.

The oracle is naive: every request that ever took effect, in a list that forgets nothing. It knows what the forest
promises: no request takes effect twice, an answer is the first answer, and a request inside its client's window is
never answered as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from braidlog import limits
from braidlog.errors import BraidError, OutcomeUnknown
from braidlog.forest import commands as c
from braidlog.forest import invariants
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw

CLIENTS = 5


class Broken(AssertionError):
    """A promise was. `kind` says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(eq=False)
class Sent:
    """A request, since it was first sent."""

    command: c.Command
    number: int
    since: int
    answered: bool = False


@dataclass(eq=False)
class Client:
    id: bytes
    settles: bool
    seen: int = 0  # how much of the forest it has seen
    number: int = 0
    floor: int = 0
    sent: list[Sent] = field(default_factory=list)
    past: list[Sent] = field(default_factory=list)  # what it settled


@dataclass(eq=False)
class Effect:
    """Something that took effect: a line of the list."""

    request: bytes
    answer: c.Result


class Network:
    """The clients, the forest, and the list."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.forest = Forest()
        self.commands: list[c.Command] = []
        self.effects: list[Effect] = []
        self.heard: list[tuple[int, bytes, bool]] = []  # (after how many commands, client, whether it settled)
        self.decided_at = 0  # after how many commands positions were last decided
        self.met: dict[str, int] = {}
        self.lives = 0
        self.clients = [self._client() for _ in range(CLIENTS)]
        self._apply(c.Create("log", 0))

    def step(self) -> None:
        client = self.chance.choice(self.clients)
        happens = self.chance.random()
        waiting = [sent for sent in client.sent if not sent.answered]
        if happens < 0.45 or (happens < 0.8 and not waiting):
            self._send(client)
        elif happens < 0.77:
            self._send_again(client, self.chance.choice(waiting))
        elif happens < 0.8 and client.past:  # it was under way for long
            self._send_again(client, self.chance.choice(client.past))
        elif happens < 0.9:
            self._settle(client)
        elif happens < 0.93:
            self._decide()
        elif happens < 0.95:
            self.clients[self.clients.index(client)] = self._client()
        elif happens < 0.97:
            self.forest = thaw(freeze(self.forest))
        else:
            client.seen = self.forest.applied
        wrong = invariants.broken(self.forest)
        if wrong:
            raise Broken("invariants", str(wrong))

    def finish(self) -> None:
        """Everything is sent again, and again; and the same commands give the same forest."""
        for client in self.clients:
            for sent in client.sent:
                self._send_again(client, sent)
        fresh = Forest()
        for command in self.commands:
            fresh.apply(command)
        if freeze(fresh) != freeze(self.forest):
            raise Broken("replay", "the same commands gave another forest")

    # --- what happens --------------------------------------------------------------------------------------------

    def _client(self) -> Client:
        self.lives += 1
        client = Client(b"%08d" % self.lives, settles=self.chance.random() < 0.8)
        if client.settles and self.lives > CLIENTS:
            self._settle(client)
            if self.chance.random() < 0.5:  # or it goes on before it has the answer to that
                client.seen = self.forest.applied
        return client

    def _send(self, client: Client) -> None:
        if client.settles and not any(who == client.id for _, who, settles in self.heard if settles):
            self._settle(client)
        request = client.id + client.number.to_bytes(8, "big")
        sent = Sent(self._command(request), client.number, client.seen)
        client.number += self.chance.choice([1, 1, 1, 2])
        client.sent.append(sent)
        lost = self.chance.random()
        if lost < 0.2:
            return
        answer = self._judged(sent.command, sent.command, request)
        if lost > 0.5 and not isinstance(answer, BraidError):
            sent.answered = True
            client.seen = self.forest.applied

    def _command(self, request: bytes) -> c.Command:
        held = len(self.forest.logs) > 1
        kinds = [
            c.Append(1, 1, 1, 0, 0, b"-", request=request),
            c.Trim(1, 0, request=request),
            c.Commit(1, "somebody", 0, 0, request=request),
            c.Admit(0, request=request),
            c.Upload(1, 0, 1, request=request),
        ]
        if not held:
            kinds.append(c.CFork(1, "", 0, promotable=True, request=request))
        return self.chance.choice([*kinds, kinds[0], kinds[0], kinds[0]])

    def _decide(self) -> None:
        """Positions that a hold withheld become final."""
        for log in list(self.forest.logs.values()):
            if log.promotable:
                self._apply(c.Promote(log.id) if self.chance.random() < 0.5 else c.Squash(log.id))
                self.decided_at = self.forest.applied

    def _send_again(self, client: Client, sent: Sent) -> None:
        request = client.id + sent.number.to_bytes(8, "big")
        promised = self._promised(client, sent)
        answer = self._judged(c.Again(sent.command, sent.since), sent.command, request)
        if isinstance(answer, OutcomeUnknown):
            self._meet("unknown")
            if answer.request_id != request.hex():
                raise Broken("unknown", f"the answer names request {answer.request_id!r}, not {request.hex()}")
            if promised:
                raise Broken("promise", f"request {sent.number} of {client.id!r} was in the window, and is unknown")
        elif not isinstance(answer, BraidError):
            sent.answered = True

    def _settle(self, client: Client) -> None:
        """Up to the first request without an answer."""
        if not client.settles:
            return
        waiting = [sent.number for sent in client.sent if not sent.answered]
        client.floor = min(waiting, default=client.number)
        client.past += [sent for sent in client.sent if sent.number < client.floor]
        client.sent = [sent for sent in client.sent if sent.number >= client.floor]
        self._apply(c.Settle(client.id, client.floor))
        self.heard.append((self.forest.applied, client.id, True))

    # --- what is promised ----------------------------------------------------------------------------------------

    def _judged(self, command: c.Command, inner: c.Command, request: bytes) -> c.Result | BraidError:
        """Apply it and compare the answer with the list."""
        before = next((effect for effect in self.effects if effect.request == request), None)
        records = self.forest.logs[1].own
        answer = self._apply(command)
        appended = self.forest.logs[1].own - records
        if before is None:
            if not isinstance(answer, BraidError):
                self._meet("again, as new" if command is not inner else "new")
                if isinstance(inner, c.Append) and appended != 1:
                    raise Broken("lost", f"{inner} was answered {answer}, and nothing was appended")
                self.effects.append(Effect(request, answer))
            return answer
        if appended or (isinstance(answer, c.Appended) and answer.block != NONE):
            raise Broken("twice", f"{inner} took effect twice")
        if isinstance(answer, BraidError):
            return answer
        self._meet("recalled")
        told, first = answer, before.answer
        if isinstance(told, c.Appended) and isinstance(first, c.Appended):  # a position may have been decided since
            told, first = c.Appended(told.log, 0, told.count), c.Appended(first.log, 0, first.count)
        if told != first:
            raise Broken("twice", f"{inner} was answered {before.answer} first, and {answer} then")
        return answer

    def _promised(self, client: Client, sent: Sent) -> bool:
        """Whether it is so young that all remember it, or lies in a window that was there when it was first sent."""
        applied = self.forest.applied + 1  # with itself
        kept = min(limits.YOUNG_COMMANDS, limits.OUTCOMES_KEPT_MAX)
        if applied - sent.since <= kept and sent.since > self.decided_at:
            return True
        window_since = self._window_since(client.id)
        if window_since is None or window_since > sent.since:
            return False
        higher = [effect for effect in self.effects if effect.request > client.id + sent.number.to_bytes(8, "big")]
        mine = [effect for effect in higher if effect.request.startswith(client.id)]
        return sent.number >= client.floor and len(mine) < limits.CLIENT_OUTCOMES_KEPT_MAX

    def _window_since(self, client: bytes) -> int | None:
        """After how many commands the client's window was made, if it has one."""
        made: dict[bytes, int] = {}  # the latest to be heard last
        for at, who, settles in self.heard:
            if settles or who in made:
                made[who] = made.pop(who, at)
            if len(made) > limits.CLIENTS_KEPT_MAX:
                del made[next(iter(made))]
        return made.get(client)

    def _apply(self, command: c.Command) -> c.Result | BraidError:
        self.commands.append(command)
        request: bytes = getattr(command, "request", b"")
        if request:
            self.heard.append((self.forest.applied + 1, request[: limits.CLIENT_ID_BYTES], False))
        return self.forest.apply(command)

    def _meet(self, what: str) -> None:
        self.met[what] = self.met.get(what, 0) + 1


def explore(seed: int, steps: int) -> Network:
    network = Network(seed)
    for _ in range(steps):
        network.step()
    network.finish()
    return network
