"""The checkers see: each mistake is planted, and caught within a few seeds; without it the same seeds pass."""

from __future__ import annotations

import pytest

from sim.cluster import play
from sim.world import Violated
from tests.sim.planted import PLANTS

SEEDS = range(1000, 1030)
EVENTS = 2_000


@pytest.mark.parametrize("name", PLANTS)
def test_it_is_caught(name: str) -> None:
    for seed in SEEDS:
        try:
            play(seed, EVENTS, plant=PLANTS[name])
        except Violated:
            play(seed, EVENTS)
            return
    pytest.fail(f"{name}: nothing was noticed in {len(SEEDS)} seeds")


def test_a_plant_is_gone_afterwards() -> None:
    for plant in PLANTS.values():
        with plant():
            pass
    play(SEEDS[0], EVENTS)
