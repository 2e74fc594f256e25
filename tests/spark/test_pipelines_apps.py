"""The papers' applications as pipelines: what Spark makes of a stream is what a few lines of Python make of it."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import braidlog
from apps.pipelines import fraud, iot, supply_chain, tumbling, wordcount
from apps.pipelines.command import encoded
from braidlog.spark import pipelines, run_on_fork
from braidlog.spark.pipelines import Mode, Pipeline, read_rows, run
from braidlog.spark.time_travel import table_as_of

Event = dict[str, Any]


class Production:
    """A log, what comes out of it, and a query between them that can be run again and again."""

    def __init__(self, spark: SparkSession, directory: str, pipeline: Pipeline, mode: Mode = "append") -> None:
        self.braid = braidlog.open(directory)
        self.input = self.braid.create("input")
        self.output = self.braid.create("output")
        self._spark, self._pipeline, self._mode = spark, pipeline, mode
        self._checkpoint = f"{directory}.checkpoint"

    def run(self, **options: str) -> None:
        query = run(
            self._pipeline,
            spark=self._spark,
            url=self.braid.url,
            log="input",
            output="output",
            checkpoint=self._checkpoint,
            mode=self._mode,
            read_options=options,
        )
        query.awaitTermination()

    def rows(self, schema: str) -> DataFrame:
        return read_rows(self._spark, self.braid.url, "output", schema)


@pytest.fixture
def production(spark: SparkSession, directory: str) -> Callable[..., Production]:
    made: list[Production] = []

    def make(pipeline: Pipeline, mode: Mode = "append") -> Production:
        made.append(Production(spark, directory, pipeline, mode))
        return made[-1]

    yield make
    for one in made:
        one.braid.close()


def window(at_ms: int, width_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // width_ms * width_ms / 1000, UTC).replace(tzinfo=None)


def test_statistics_and_outliers_of_sensors(production: Callable[..., Production], spark: SparkSession) -> None:
    events = iot.draw(Random(3), 400)
    broken = [{"sensor": "s1"}, {"at": 5, "sensor": None, "reading": 1.0}]
    site = production(iot.statistics)
    site.input.append_many([encoded(event) for event in events + broken])
    site.run()

    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        groups[window(event["at"], 10_000), event["sensor"], event["metric"]].append(event)
    latest = window(max(event["at"] for event in events) - 20_000, 10_000)  # windows that nothing can come to any more
    expected = {
        group: (
            len(members),
            statistics.fmean(readings := [member["reading"] for member in members]),
            statistics.pstdev(readings),
            min(readings),
            max(readings),
            sum(member["status"] != "ok" for member in members),
        )
        for group, members in groups.items()
        if group[0] < latest
    }
    schema = "begins timestamp, sensor string, metric string, readings bigint, mean double, deviation double, "
    found = {
        tuple(row[:3]): tuple(row[3:])
        for row in site.rows(schema + "least double, greatest double, troubled bigint").collect()
    }
    assert found.keys() == expected.keys()
    assert len(found) > 10
    for group, numbers in found.items():
        assert numbers == pytest.approx(expected[group]), group

    with table_as_of(spark, site.braid.url, "input", position=300) as table:
        far = {row.position for row in iot.outliers(table).collect()}
    assert far == set(plain_outliers(events[:300]))
    assert far


def plain_outliers(events: Sequence[Event]) -> list[int]:
    readings = defaultdict(list)
    for event in events:
        readings[event["sensor"], event["metric"]].append(event["reading"])
    middles = {group: statistics.median(found) for group, found in readings.items()}
    spreads = {
        group: 1.4826 * statistics.median(abs(reading - middles[group]) for reading in found)
        for group, found in readings.items()
    }
    return [
        position
        for position, event in enumerate(events)
        if abs(event["reading"] - middles[event["sensor"], event["metric"]])
        > 6 * spreads[event["sensor"], event["metric"]]
    ]


def test_tumbling_windows_count_late_events_and_each_once_on_a_fork_with_corner_cases_too(
    production: Callable[..., Production], spark: SparkSession
) -> None:
    events = tumbling.draw(Random(5), 240)
    site = production(tumbling.totals)
    site.input.append_many([encoded(event) for event in events])
    site.run(maxOffsetsPerTrigger="60")

    expected, dropped, repeated = plain_totals(events, 60)
    assert totals_of(site.rows("begins timestamp, shop string, sales bigint, total bigint")) == expected
    assert dropped, "no event was too late"
    assert repeated, "no event came twice"

    # What a tester tries: events of its own among the real ones, and production never sees them.
    fork = site.input.cfork("corner-cases")
    latest = max(event["at"] for event in events if isinstance(event["at"], int))
    injected: list[Event] = [
        {"id": "future", "at": latest + 60_000, "shop": "north", "amount": 1},
        {"id": "negative", "at": latest, "shop": "north", "amount": -1},
        {"id": "edge", "at": latest // 5_000 * 5_000, "shop": "south", "amount": 7},
        *[{"id": "thrice", "at": latest, "shop": "south", "amount": 50}] * 3,
    ]
    fork.append_many([encoded(event) for event in injected])
    produced = run_on_fork(
        tumbling.totals, fork, spark=spark, url=site.braid.url, read_options={"maxOffsetsPerTrigger": "60"}
    )
    on_fork, *_ = plain_totals(events + injected, 60)
    assert totals_of(produced.rows) == on_fork
    assert on_fork.keys() > expected.keys(), "the event from the future closed the windows before it"
    assert site.output.tail() == len(expected)


def totals_of(rows: DataFrame) -> dict[tuple[datetime, str], tuple[int, int]]:
    return {(row.begins, row.shop): (row.sales, row.total) for row in rows.collect()}


def plain_totals(events: list[Event], size: int) -> tuple[dict[tuple[datetime, str], tuple[int, int]], int, int]:
    """What windows must come to, by the rules of watermarks: one that was reached is the limit two batches later."""
    reached = [0, 0]  # by the end of each batch; the first one only writes down where the query begins
    windows: dict[tuple[int, str], list[int]] = defaultdict(list)
    known: dict[str, int] = {}
    dropped = repeated = 0
    for batch in (events[at : at + size] for at in range(0, len(events), size)):
        sales = [event for event in batch if isinstance(event["at"], int) and event.get("amount", 0) > 0]
        for sale in sales:
            if sale["at"] <= reached[-2]:
                dropped += 1
            elif sale["id"] in known:
                repeated += 1
            else:
                known[sale["id"]] = sale["at"] + 10_000
                windows[sale["at"] // 5_000 * 5_000, sale["shop"]].append(sale["amount"])
        known = {name: until for name, until in known.items() if until > reached[-1]}
        reached.append(max([reached[-1], *(sale["at"] - 10_000 for sale in sales)]))
    closed = {
        (window(begins, 5_000), shop): (len(amounts), sum(amounts))
        for (begins, shop), amounts in windows.items()
        if begins + 5_000 <= reached[-1]
    }
    return closed, dropped, repeated


def test_fraud_is_seen_in_the_light_of_what_was_remembered_over_a_restart(
    production: Callable[..., Production],
) -> None:
    events = fraud.draw(Random(7), 500)
    for odd in (math.nan, math.inf, -math.inf, 1e200):
        events.insert(100, {"user": events[0]["user"], "amount": odd, "country": "NL"})
    site = production(fraud.features)
    site.input.append_many([encoded(event) for event in events[:300]])
    site.run(maxOffsetsPerTrigger="200")
    site.input.append_many([encoded(event) for event in events[300:]])
    site.run()

    found = {row.position: row for row in site.rows(fraud.FEATURES).collect()}
    assert sorted(found) == [*range(100), *range(104, 504)], "amounts that are no numbers to reckon with are left out"
    history: dict[str, list[Event]] = defaultdict(list)
    for position, event in enumerate(events):
        if position not in found:
            continue
        before = [past["amount"] for past in history[event["user"]]]
        row = found[position]
        mean = statistics.fmean(before) if before else 0.0
        deviation = statistics.pstdev(before) if before else 0.0
        assert (row.user, row.seen) == (event["user"], len(before))
        assert (row.mean, row.deviation) == pytest.approx((mean, deviation), abs=1e-6)
        assert row.alert == (len(before) >= 5 and event["amount"] > mean + 4 * max(deviation, 1.0)), position
        assert row.moved == (bool(before) and history[event["user"]][-1]["country"] != event["country"])
        history[event["user"]].append(event)
    assert any(row.alert for row in found.values())


def test_the_inventory_follows_orders_and_refuses_what_is_no_restock(production: Callable[..., Production]) -> None:
    events = supply_chain.draw(Random(11), 400)
    site = production(supply_chain.inventory)
    site.input.append_many([encoded(event) for event in events[:-5]] + [b"{", b"", b"[1]"])
    site.run(maxOffsetsPerTrigger="150")

    found = {row.position: row for row in site.rows(supply_chain.ANSWER).collect()}
    stock: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    refusals = 0
    for position, event in enumerate([*events[:-5], {}, {}, {}]):
        item, count = event.get("item") or "", event.get("count")
        sound = event.get("kind") in ("order", "restock") and item and isinstance(count, int) and 0 < count <= 10_000
        if sound and event["kind"] == "restock":
            stock[item] += count
            served = min(stock[item], waiting[item])
            stock[item] -= served
            waiting[item] -= served
        elif sound:
            (stock if stock[item] >= count else waiting)[item] += -count if stock[item] >= count else count
        row = found.pop(position)
        assert (row.item, row.stock, row.waiting) == (item, stock[item], waiting[item]), (position, event)
        assert (row.refusal is None) == bool(sound), (position, event, row.refusal)
        refusals += not sound
    assert not found
    assert refusals > 5


def test_words_are_counted_once_though_the_query_fails_after_it_wrote(
    production: Callable[..., Production], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = wordcount.draw(Random(13), 120)
    site = production(wordcount.counts, mode="update")
    site.input.append_many([encoded(line) for line in lines[:90]])
    writer_of = pipelines._batch_writer
    fails = {2}

    def failing(*arguments: Any) -> Callable[[DataFrame, int], None]:
        write = writer_of(*arguments)

        def write_then_fail(batch: DataFrame, number: int) -> None:
            write(batch, number)
            if number in fails:
                fails.remove(number)
                raise RuntimeError("the power went out")

        return write_then_fail

    monkeypatch.setattr(pipelines, "_batch_writer", failing)
    with pytest.raises(PySparkException, match="the power went out"):
        site.run(maxOffsetsPerTrigger="30")
    written = site.output.tail()
    assert written > 0
    site.input.append_many([encoded(line) for line in lines[90:]])
    site.run(maxOffsetsPerTrigger="30")

    journal = [json.loads(record.value) for record in site.output.read(0)]
    expected: Counter[str] = Counter()
    steps = []
    for first in range(0, 120, 30):
        words = Counter(re.findall(r"[\w']+", " ".join(lines[first : first + 30])))
        expected += words
        steps += [(word, expected[word]) for word in words]
    assert sorted((entry["word"], entry["times"]) for entry in journal) == sorted(steps)
    newest = wordcount.newest(site.rows("word string, times bigint")).collect()
    assert {row.word: row.times for row in newest} == expected


def test_a_pipeline_is_one_command(directory: str, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    """In a process of its own, with a Spark of its own, on a directory that is not there yet."""
    command = [sys.executable, "-m", "apps.pipelines.fraud", "--url", directory, "--events", "200", "--seed", "1"]
    environment = spark_environment | {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "true" in done.stdout
    with braidlog.open(directory) as braid:
        assert (braid.log("transactions").tail(), braid.log("features").tail()) == (200, 200)
