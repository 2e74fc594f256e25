"""Which connection a log is asked for over: where the service says, but never so that a log's changes change places."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from braidlog import limits
from braidlog.client.remote.routes import Routes

ROOT, FORK = 1, 2
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROUTE_RETRY_S", 0.0)


class FakeLink:
    """A connection that is there or not, with changes of some logs under way."""

    def __init__(self) -> None:
        self.up = True
        self.changed: set[int] = set()

    @property
    def changing(self) -> bool:
        return bool(self.changed)

    def changed_logs(self) -> set[int]:
        return self.changed

    def alive(self, patience_s: float) -> bool:
        del patience_s
        return self.up

    def return_to_first(self) -> None:
        pass


class Place:
    """Two brokers: the one at hand, which has the roots, and that of the forks."""

    def __init__(self) -> None:
        self.home: Any = FakeLink()
        self.forks: Any = FakeLink()
        self.held_up: set[int] = set()  # whose answer takes until `go_on`
        self.asked = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.routes = Routes(self.home, self.ask, lambda _: self.forks)

    def ask(self, log: int, *_: float) -> str:
        if log in self.held_up:
            self.asked.release()
            assert self.go_on.wait(PATIENCE_S)
        return "forks:1" if log == FORK else ""


def test_a_fork_comes_back_to_its_broker_though_its_client_writes_roots_all_the_time() -> None:
    place = Place()
    place.forks.up = False
    assert place.routes.link(FORK) is place.home
    place.forks.up = True
    place.home.changed = {ROOT}
    assert place.routes.link(FORK) is place.forks


def test_but_not_while_changes_of_its_own_are_under_way() -> None:
    place = Place()
    place.forks.up = False
    assert place.routes.link(FORK) is place.home
    place.forks.up = True
    place.home.changed = {ROOT, FORK}
    assert place.routes.link(FORK) is place.home
    place.home.changed = {ROOT}
    assert place.routes.link(FORK) is place.forks


def test_what_is_forgotten_has_nothing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROUTES_KEPT_LOGS", 2)
    monkeypatch.setattr(limits, "ROUTE_S", 0.0)
    place = Place()
    assert place.routes.link(FORK) is place.forks
    place.forks.changed = {FORK}
    for log in range(10, 14):
        assert place.routes.link(log) is place.home
    assert set(place.routes._known) == {FORK, 13}


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, ThreadPoolExecutor]]:
    """A place where it takes long to learn who serves the fork, and some who ask."""
    monkeypatch.setattr(limits, "ROUTE_RETRY_S", 1e6)
    place = Place()
    place.held_up = {FORK}
    with ThreadPoolExecutor() as threads:
        try:
            yield place, threads
        finally:
            place.go_on.set()


def test_who_asks_for_one_log_does_not_hold_up_those_of_another(held_up: tuple[Place, ThreadPoolExecutor]) -> None:
    place, threads = held_up
    asking = threads.submit(place.routes.link, FORK)
    assert place.asked.acquire(timeout=PATIENCE_S)
    assert threads.submit(place.routes.link, ROOT).result(PATIENCE_S / 4) is place.home
    place.go_on.set()
    assert asking.result(PATIENCE_S) is place.forks


def test_one_asks_and_the_others_wait_for_his_answer(held_up: tuple[Place, ThreadPoolExecutor]) -> None:
    place, threads = held_up
    asking = [threads.submit(place.routes.link, FORK, PATIENCE_S) for _ in range(4)]
    assert place.asked.acquire(timeout=PATIENCE_S)
    place.go_on.set()
    assert [one.result(PATIENCE_S) for one in asking] == [place.forks] * 4
    assert not place.asked.acquire(blocking=False)


@pytest.mark.parametrize("way", ["link", "at_hand"])
def test_who_cannot_wait_takes_what_is_at_hand_and_then_everybody_does(
    way: str, held_up: tuple[Place, ThreadPoolExecutor]
) -> None:
    """Or what he sends next, over another connection, might overtake what he sends now."""
    place, threads = held_up
    asking = threads.submit(place.routes.link, FORK)
    assert place.asked.acquire(timeout=PATIENCE_S)
    assert (place.routes.link(FORK, 0.01) if way == "link" else place.routes.at_hand(FORK)) is place.home
    place.go_on.set()
    assert asking.result(PATIENCE_S) is place.home
    assert place.routes.link(FORK) is place.home
