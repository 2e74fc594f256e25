"""The API contract: plans, for readers that fetch bytes themselves."""

from __future__ import annotations

import pyarrow as pa
import pytest
from crc32c import crc32c

from braidlog import Braid, Log, Plan, Record, errors, limits
from tests.e2e.conformance import Site, numbered, values

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field(
            "headers",
            pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            nullable=False,
        ),
    ]
)


def fetch(site: Site, plan: Plan) -> list[bytes]:
    """Carry a plan out with nothing but a file, a checksum and Arrow."""
    found: list[bytes] = []
    position = plan.start
    for part in plan.parts:
        assert part.start == position
        data = site.fetch(plan, part) if part.data is None else part.data
        assert (part.object is None) == (part.data is not None)
        assert len(data) == part.length
        assert crc32c(data) == part.crc
        rows = pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA).slice(part.row, part.stop - part.start)
        found += rows.column("value").to_pylist()
        position = part.stop
    assert position == plan.stop
    return found


def test_what_is_not_packed_rides_in_the_plan(site: Site, log: Log) -> None:
    log.append_many(numbered(3))
    log.append_many(numbered(3, 3))
    plan = log.plan()
    assert (plan.log, plan.start, plan.stop) == ("orders", 0, 6)
    assert {part.object for part in plan.parts} == {None}
    assert fetch(site, plan) == numbered(6)


def test_what_is_packed_is_fetched_from_the_objects(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(3))
    log.append_many(numbered(3, 3))
    assert site.pack(braid)
    plan = log.plan()
    assert all(part.object is not None and part.data is None for part in plan.parts)
    assert fetch(site, plan) == numbered(6)


def test_a_plan_of_any_range_fetches_what_read_reads(site: Site, braid: Braid, log: Log) -> None:
    log.append_many(numbered(5))
    site.pack(braid)
    log.append_many([b"x" * 100_000] * 3)
    log.append_many(numbered(5, 8))
    fork = log.cfork("trial")
    fork.append(b"mine")
    log.append(b"theirs")
    for found in (log, fork):
        tail = found.tail()
        for start in range(tail + 1):
            for stop in (None, *range(start, tail + 2)):
                assert fetch(site, found.plan(start, stop)) == values(found.read(start, stop))


def test_a_plan_that_takes_several_answers_is_whole(
    site: Site, braid: Braid, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WIRE_PLAN_RUNS_MAX", 7)
    monkeypatch.setattr(limits, "WIRE_PLAN_BYTES_MAX", 500)
    monkeypatch.setattr(limits, "WIRE_READ_RUNS_MAX", 5)
    for value in numbered(20):
        log.append(value)
    site.pack(braid)
    for value in numbered(40, 20):
        log.append(value)
    fork = log.cfork("trial")
    for value in numbered(9, 60):
        fork.append(value)
    for start, stop in ((0, None), (3, 61), (7, 7), (19, 40), (0, 69)):
        assert fetch(site, fork.plan(start, stop)) == numbered(69)[start:stop]
        assert fork.read_arrow(start, stop).column("value").to_pylist() == numbered(69)[start:stop]
        assert values(fork.read(start, stop)) == numbered(69)[start:stop]


def test_small_appends_that_are_not_packed_are_joined(site: Site, log: Log) -> None:
    for value in numbered(60):
        log.append(value)
    assert len(log.plan().parts) == 1
    assert fetch(site, log.plan(5, 55)) == numbered(50, 5)


def test_a_plan_ends_where_reading_ends(site: Site, log: Log) -> None:
    log.append_many(numbered(3))
    log.trim(1)
    log.cfork("trial", promotable=True)
    log.append_many([b"hidden"] * 2)
    plan = log.plan(1)
    assert (plan.start, plan.stop) == (1, 3)
    assert fetch(site, plan) == numbered(2, 1)
    assert (log.plan(5).start, log.plan(5).stop, log.plan(5).parts) == (5, 5, [])
    with pytest.raises(errors.Trimmed):
        log.plan(0)
    with pytest.raises(errors.Blocked):
        log.plan(3)
    with pytest.raises(errors.OutOfRange):
        log.plan(6)


def test_after_a_compaction_one_plans_again_by_position(site: Site, braid: Braid, log: Log) -> None:
    expected = numbered(2 * limits.COMPACT_OBJECTS_MIN)
    for value in expected:
        log.append_many([Record(value, b"key", (("h", b"v"),))])
        site.pack(braid)
    old = log.plan()
    assert len({part.object for part in old.parts}) == len(expected)
    assert site.compact(braid)
    site.tend(braid)
    assert fetch(site, old) == expected  # within the grace period
    site.pass_time(braid, limits.GRACE_S + 1)
    with pytest.raises(FileNotFoundError):
        fetch(site, old)
    new = log.plan()
    assert len({part.object for part in new.parts}) == 1
    assert fetch(site, new) == values(log.read(0)) == expected
    assert {(record.key, record.headers) for record in log.read(0)} == {(b"key", (("h", b"v"),))}


def test_forks_follow_a_compaction(site: Site, braid: Braid, log: Log) -> None:
    for value in numbered(limits.COMPACT_OBJECTS_MIN):
        log.append(value)
        site.pack(braid)
    live, severed = log.cfork("live"), log.sfork("severed", at=10)
    assert site.compact(braid)
    site.tend(braid)
    site.pass_time(braid, limits.GRACE_S + 1)
    assert fetch(site, live.plan()) == values(live.read(0)) == numbered(limits.COMPACT_OBJECTS_MIN)
    assert fetch(site, severed.plan()) == values(severed.read(0)) == numbered(10)
