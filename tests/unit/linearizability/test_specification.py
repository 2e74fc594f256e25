"""The checkers' specification is that of braidlog: what an embedded braid answers is right by it, also in threads."""

from __future__ import annotations

import threading
from random import Random

import braidlog
from braidlog.errors import BraidError
from braidlog.testing.linearizability import Operation, Recorder, check, check_exactly
from braidlog.testing.linearizability.evidence import trees
from braidlog.testing.linearizability.exact import replay
from braidlog.testing.linearizability.history import verified


class Client:
    """Does something at random, and has it recorded."""

    def __init__(self, name: str, braid: braidlog.Braid, recorder: Recorder, seed: int) -> None:
        self.name = name
        self.braid = braid
        self.recorder = recorder
        self.chance = Random(seed)
        self.made = 0

    def run(self, steps: int) -> None:
        for step in range(steps):
            try:
                self.step(step)
            except BraidError:
                continue  # it was recorded

    def step(self, step: int) -> None:
        chance = self.chance
        log = chance.choice(list(self.braid.logs()))
        record = self.recorder.call
        match chance.choices(
            ["append", "read", "tail", "cfork", "promotable", "sfork", "promote", "squash"], [40, 20, 15, 5, 6, 4, 7, 5]
        )[0]:
            case "append":
                values = [f"{self.name} {step} {at}".encode() for at in range(chance.choice([1, 1, 1, 3]))]
                with record(self.name, "append", log.id, values) as call:
                    positions = log.append_many(values)
                    call.answer(None if positions is None else positions.start)
            case "read":
                start = chance.randrange(log.tail() + 1)
                with record(self.name, "read", log.id, start) as call:
                    call.answer(log.read(start))
            case "tail":
                with record(self.name, "tail", log.id) as call:
                    call.answer(log.tail())
            case "cfork" | "promotable" as verb:
                promotable = verb == "promotable"
                with record(self.name, "cfork", log.id, promotable=promotable) as call:
                    fork = log.cfork(promotable=promotable, lease=None)
                    call.answer(fork.id)
            case "sfork":
                at = chance.choice([None, chance.randrange(log.tail() + 1)])
                with record(self.name, "sfork", log.id, at=at) as call:
                    fork = log.sfork(at=at)
                    call.answer(fork.id, at)
            case "promote":
                with record(self.name, "promote", log.id) as call:
                    call.answer(log.promote())
            case "squash":
                with record(self.name, "squash", log.id) as call:
                    log.squash()
                    call.answer()


def clients(count: int, steps: int, seed: int) -> list[Operation]:
    recorder = Recorder()
    with braidlog.open("memory://") as braid:
        with recorder.call("setup", "create", "root") as call:
            call.answer(braid.create("root").id)
        crew = [Client(f"c{number}", braid, recorder, 1000 * seed + number) for number in range(count)]
        threads = [threading.Thread(target=client.run, args=[steps]) for client in crew]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for log in braid.logs():
            with recorder.call("auditor", "tail", log.id) as call:
                call.answer(log.tail())
    return recorder.history()


def test_a_braid_keeps_to_the_specification_answer_by_answer() -> None:
    for seed in range(40):
        history = clients(1, 60, seed)
        (tree,) = trees(verified(history))
        assert replay(tree.operations, tree.operations), f"seed {seed}"
        assert check(history), f"seed {seed}"


def test_a_braid_is_linearizable_in_threads() -> None:
    verdicts = [check(clients(4, 60, seed)) for seed in range(6)]
    assert all(verdict.linearizable is not False for verdict in verdicts), "\n".join(map(str, verdicts))
    assert any(verdicts)


def test_a_braid_is_linearizable_in_threads_exactly() -> None:
    for seed in range(10):
        verdict = check_exactly(clients(3, 5, seed), steps=20_000)
        assert verdict.linearizable is not False, f"seed {seed}: {verdict}"
