"""Which connection a log is asked for over: where the service says, but never so that a log's changes change places."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog import limits
from braidlog.client.remote.routes import Routes

ROOT, FORK = 1, 2


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
        self.routes = Routes(self.home, self.ask, lambda _: self.forks)

    def ask(self, log: int) -> str:
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
