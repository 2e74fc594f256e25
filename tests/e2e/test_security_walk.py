"""Agents that try everything: whatever they ask for, in whatever order, no root and nothing of another's changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

import braidlog
from braidlog import Braid, Log
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.client.tokens import create_token
from braidlog.errors import BraidError, NotPermitted
from tests.e2e.conformance import writer_of

STEPS = 400
AGENTS = ("ann", "bob")


@pytest.fixture
def served() -> Iterator[tuple[Braid, dict[str, Braid]]]:
    """The log itself, and what each agent has of it."""
    with braidlog.open("memory://") as ops:
        tokens = {name: create_token(ops, name, ["own:orders*"]) for name in AGENTS}
        server = ServerThread(lambda: LocalService(writer_of(ops)), "guarded")
        host, port = server.listen_tcp("127.0.0.1", 0)
        agents = {name: braidlog.open(f"braid://{host}:{port}", token=token) for name, token in tokens.items()}
        yield ops, agents
        for agent in agents.values():
            agent.close()
        server.close()


def picture(ops: Braid) -> dict[str, tuple[str, int, int, str | None, tuple[str, ...]]]:
    """Of every log: whose it is, its own records, its start, what it came from, its consumers."""
    found = {}
    for log in ops.logs():
        info = log.info()
        consumers = tuple(f"{one.name}@{one.position}" for one in log.consumers())
        found[log.name] = (info.owner, info.own, info.start, info.parent, consumers)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_agent_changes_what_is_not_its_own(served: tuple[Braid, dict[str, Braid]], seed: int) -> None:
    ops, agents = served
    chance = random.Random(seed)
    for name in ("orders", "orders-eu", "payroll"):
        ops.create(name).append(b"first")
    allowed = refused = 0
    for step in range(STEPS):
        names = [log.name for log in ops.logs()]
        who = chance.choice([*AGENTS, "ops"])
        before = picture(ops)
        log = ops.log(chance.choice(names))
        if who == "ops":
            with_luck(lambda log=log: chance.choice([lambda: log.append(b"o"), log.promote, log.cfork])())
            continue
        try:
            chosen(chance, agents[who], log.name, step)()
            allowed += 1
        except NotPermitted:
            refused += 1
            assert picture(ops) == before
        except BraidError:
            assert picture(ops) == before
        after = picture(ops)
        roots = {name for name, (_, _, _, parent, _) in before.items() if "." not in name and parent is None}
        for name, was in before.items():
            if name in roots:
                assert after.get(name) == was, (who, name)
            elif was[0] != who and after.get(name) != was:
                # It may have ended with, or been handed on by, a fork that it came from; that one was the agent's.
                assert name not in after or after[name][1:3] == was[1:3], (who, name)
                assert any(owner == who for owner in above(before, name)), (who, name)
        for name in after.keys() - before.keys():
            assert after[name][0] == who
            assert name.startswith("orders")
    assert allowed > STEPS // 20
    assert refused > STEPS // 20


def above(logs: dict[str, tuple[str, int, int, str | None, tuple[str, ...]]], name: str) -> Iterator[str]:
    parent = logs[name][3]
    while parent is not None and parent in logs:
        yield logs[parent][0]
        parent = logs[parent][3]


def with_luck(work: Callable[[], object]) -> None:
    try:
        work()
    except BraidError:
        pass


def chosen(chance: random.Random, agent: Braid, name: str, step: int) -> Callable[[], object]:
    """Something that an agent might try with that log."""

    def log() -> Log:
        return agent.log(name)

    works: list[Callable[[], object]] = [
        lambda: log().append(b"a"),
        lambda: log().submit(b"a").durable(10),
        lambda: log().cfork(),
        lambda: log().cfork(promotable=True, lease=60),
        lambda: log().cfork(f"orders.{step}", promotable=True, lease=60),
        lambda: log().cfork(f"payroll.{step}"),
        lambda: log().cfork(promotable=True, lease=None),
        lambda: log().sfork(),
        lambda: log().sfork(f"other-{step}"),
        lambda: log().promote(),
        lambda: log().promote(),
        lambda: log().squash(),
        lambda: log().squash(cascade_severed=True),
        lambda: log().renew(),
        lambda: log().trim(1),
        lambda: log().commit("mail", 0),
        lambda: agent.drop(name, cascade=True),
        lambda: agent.create(f"orders-{step}"),
        lambda: create_token(agent, f"t{step}", ["admin:*"]),
    ]
    return chance.choice(works)
