"""Metrics count what they are told, from as many threads as they are made for, and nothing unbounded gets into them."""

from __future__ import annotations

import threading

import pytest

from braidlog.observe.metrics import Counter, Histogram, Registry, SharedCounter, SharedHistogram, cumulated, quantile


def test_a_counter_counts() -> None:
    counter = Counter()
    counter.add()
    counter.add(4)
    counter.value += 2
    assert counter.value == 7


@pytest.mark.parametrize("threads", [8])
def test_shared_ones_lose_nothing_between_threads(threads: int) -> None:
    counter, histogram = SharedCounter(), SharedHistogram((1.0, 2.0))
    start = threading.Barrier(threads)

    def count() -> None:
        start.wait()
        for number in range(5_000):
            counter.add()
            histogram.observe(number % 3)

    workers = [threading.Thread(target=count) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.value == threads * 5_000
    assert sum(histogram.counts) == threads * 5_000
    assert histogram.total == threads * sum(number % 3 for number in range(5_000))


def test_a_bucket_holds_what_is_at_most_its_bound() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert cumulated(histogram.counts) == [2, 4, 5]
    assert histogram.total == 24.0


@pytest.mark.parametrize("bounds", [(), (2.0, 1.0), (1.0, 1.0)])
def test_bounds_ascend(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Histogram(bounds)


@pytest.mark.parametrize(
    "name", ["requests_total", "braidlog_Requests_total", "braidlog_requests", "braidlog_re-quests_total", "braidlog_"]
)
def test_a_counter_is_named_as_such(name: str) -> None:
    with pytest.raises(ValueError, match="no name for"):
        Registry().counter(name, "Help.")


def test_a_gauge_is_not_named_like_a_counter() -> None:
    with pytest.raises(ValueError, match="no name for"):
        Registry().gauge("braidlog_logs_total", "Help.")


def test_a_name_is_taken_once() -> None:
    registry, other = Registry(), Registry()
    registry.gauge("braidlog_logs", "Help.")
    other.gauge("braidlog_logs", "Help.")
    with pytest.raises(ValueError, match="already"):
        registry.gauge("braidlog_logs", "Help.")
    with pytest.raises(ValueError, match="already"):
        registry.include(other)


def test_labels_have_the_values_they_were_made_with_and_no_others() -> None:
    requests = Registry().counters("braidlog_requests_total", "Help.", kind=("append", "read"), outcome=("ok",))
    requests.of("append", "ok").add()
    assert requests.of("append", "ok").value == 1
    for values in (("orders", "ok"), ("append",), ("append", "ok", "ok"), ("ok", "append")):
        with pytest.raises(ValueError, match="has no series"):
            requests.of(*values)


def test_collecting_brings_up_to_date_first_also_what_is_included() -> None:
    registry, inner = Registry(), Registry()
    gauge = inner.gauge("braidlog_logs", "Help.")
    inner.before_collecting(lambda: gauge.set(3))
    registry.include(inner)
    kept = [1]
    registry.counter("braidlog_hits_total", "Help.", read=lambda: kept[0])
    kept[0] = 5
    read = {family.name: family.series[()].value for family in registry.collect()}  # type: ignore[union-attr]
    assert read == {"braidlog_hits_total": 5, "braidlog_logs": 3}


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([0, 0, 0], 0.5, None),
        ([4, 0, 0], 0.5, 0.5),
        ([4, 0, 0], 1.0, 1.0),
        ([0, 4, 0], 0.5, 1.5),
        ([1, 1, 2], 0.99, 2.0),  # above the last bound nothing is known
        ([1, 0, 1], 0.25, 0.5),
    ],
)
def test_quantiles_are_found_between_bounds(counts: list[int], share: float, value: float | None) -> None:
    assert quantile((1.0, 2.0), counts, share) == value
