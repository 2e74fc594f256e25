"""Whoever asks for much has what others ask for done in between."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from braidlog.broker.pools import FairPool

PATIENCE_S = 20.0


def test_those_who_ask_take_turns_and_each_is_served_in_its_order() -> None:
    pool = FairPool(1, "tests")
    begun, open_now, done = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        begun.set()
        assert open_now.wait(PATIENCE_S)

    pool.submit("much", first)
    assert begun.wait(PATIENCE_S)
    for number in range(50):
        pool.submit("much", partial(order.append, f"much {number}"))
    pool.submit("little", partial(order.append, "little 0"))
    pool.submit("little", partial(order.append, "little 1"))
    pool.submit("much", done.set)
    open_now.set()
    assert done.wait(PATIENCE_S)
    assert order[:4] == ["much 0", "little 0", "much 1", "little 1"]
    assert [what for what in order if what.startswith("much")] == [f"much {number}" for number in range(50)]
    pool.close()


def test_one_that_is_closed_takes_nothing() -> None:
    pool = FairPool(1, "tests")
    pool.close()
    with pytest.raises(RuntimeError):
        pool.submit("anybody", list)
