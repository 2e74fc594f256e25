"""The block cache never holds more than its bound, and what is read often stays."""

from __future__ import annotations

import threading
from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.objects.cache import BlockCache


def test_what_was_put_is_found_and_counted() -> None:
    cache: BlockCache[str] = BlockCache(100)
    cache.put(1, "one", 10)
    assert cache.get(1) == "one"
    assert cache.get(2) is None
    assert (cache.hits, cache.misses, cache.weight, len(cache)) == (1, 1, 10, 1)


def test_the_least_recently_used_goes_first() -> None:
    cache: BlockCache[str] = BlockCache(100)
    for block in range(4):
        cache.put(block, str(block), 25)
    cache.get(0)
    cache.put(4, "4", 25)
    assert [cache.get(block) for block in range(5)] == ["0", None, "2", "3", "4"]


def test_a_value_heavier_than_a_quarter_of_the_bound_is_not_kept() -> None:
    cache: BlockCache[str] = BlockCache(100)
    cache.put(1, "light", 25)
    cache.put(2, "heavy", 26)
    assert (cache.get(1), cache.get(2)) == ("light", None)


def test_a_value_that_grew_too_heavy_does_not_leave_the_old_one_behind() -> None:
    cache: BlockCache[str] = BlockCache(100)
    cache.put(1, "old", 5)
    cache.put(1, "new", 90)
    assert cache.get(1) is None
    assert cache.weight == 0


def test_dropped_blocks_are_gone_and_unknown_ones_are_fine() -> None:
    cache: BlockCache[str] = BlockCache(100)
    cache.put(1, "one", 10)
    cache.put(2, "two", 20)
    cache.drop([1, 7])
    assert (cache.get(1), cache.get(2), cache.weight) == (None, "two", 20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "get", "drop"]), st.integers(0, 6), st.integers(0, 15))))
def test_it_holds_what_a_plain_model_holds(steps: list[tuple[str, int, int]]) -> None:
    cache: BlockCache[int] = BlockCache(40)
    model: OrderedDict[int, int] = OrderedDict()  # block to weight, the least recently used first
    for step, block, weight in steps:
        if step == "put":
            cache.put(block, weight, weight)
            model.pop(block, None)
            if weight <= 10:
                model[block] = weight
            while sum(model.values()) > 40:
                model.popitem(last=False)
        elif step == "drop":
            cache.drop([block])
            model.pop(block, None)
        else:
            assert cache.get(block) == model.get(block)
            if block in model:
                model.move_to_end(block)
        assert cache.weight == sum(model.values()) <= 40
        assert len(cache) == len(model)


def test_threads_leave_its_weight_consistent() -> None:
    cache: BlockCache[int] = BlockCache(100)

    def churn(seed: int) -> None:
        for step in range(500):
            cache.put((seed * step) % 17, step, step % 20)
            cache.get(step % 17)
            cache.drop([step % 5])

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert cache.weight <= 100
    assert cache.hits + cache.misses == 1500
    cache.drop(range(17))
    assert (cache.weight, len(cache)) == (0, 0)
