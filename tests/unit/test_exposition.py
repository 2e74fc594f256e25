"""What is exposed follows the rules of Prometheus' text format, whatever stands in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.observe.exposition import number_text, render
from braidlog.observe.metrics import Registry
from tests.unit.prometheus_text import parse


def test_each_kind_is_written_as_it_is_read() -> None:
    registry = Registry()
    registry.counter("braidlog_appends_total", "Batches.").add(3)
    registry.gauge("braidlog_logs", "Logs.").set(2.5)
    requests = registry.counters("braidlog_requests_total", "Requests.", kind=("append", "read"), outcome=("ok",))
    requests.of("append", "ok").add(7)
    requests.of("read", "ok")
    lag = registry.histograms("braidlog_lag_seconds", "Lag.", (0.1, 1.0), kind=("append",))
    for value in (0.05, 0.5, 5):
        lag.of("append").observe(value)
    found = parse(render(registry.collect()))
    assert {name: metric.kind for name, metric in found.items()} == {
        "braidlog_appends_total": "counter",
        "braidlog_logs": "gauge",
        "braidlog_requests_total": "counter",
        "braidlog_lag_seconds": "histogram",
    }
    assert found["braidlog_appends_total"].value() == 3
    assert found["braidlog_logs"].value() == 2.5
    assert found["braidlog_requests_total"].value(kind="append", outcome="ok") == 7
    assert found["braidlog_requests_total"].value(kind="read", outcome="ok") == 0
    buckets = found["braidlog_lag_seconds"]
    assert [buckets.value("_bucket", kind="append", le=le) for le in ("0.1", "1.0", "+Inf")] == [1, 2, 3]
    assert buckets.value("_sum", kind="append") == 5.55
    assert buckets.value("_count", kind="append") == 3


def test_what_nothing_happened_to_is_named_all_the_same() -> None:
    registry = Registry()
    registry.counters("braidlog_requests_total", "Requests.", kind=("append",))
    assert parse(render(registry.collect()))["braidlog_requests_total"].samples == {}


@given(st.lists(st.text(), min_size=1, max_size=5, unique=True), st.text(min_size=1).map(lambda text: f"H{text}."))
def test_labels_and_help_come_back_as_they_were(values: list[str], told: str) -> None:
    registry = Registry()
    series = registry.counters("braidlog_requests_total", told, kind=values)
    for number, value in enumerate(values):
        series.of(value).add(number)
    found = parse(render(registry.collect()))["braidlog_requests_total"]
    assert found.help == told
    assert found.samples == {
        ("braidlog_requests_total", (("kind", value),)): number for number, value in enumerate(values)
    }


@given(st.floats() | st.integers())
def test_numbers_come_back_as_they_were(value: float) -> None:
    back = float(number_text(value).replace("Inf", "inf"))
    assert back == float(value) or (back != back and value != value)
