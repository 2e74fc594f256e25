"""What one answer to a read or a plan holds is bounded, however small the pieces are that records stand in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.broker import reading
from braidlog.client.opening import write_directory
from braidlog.embedded.writer import Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Log 1 has 3,000 records, each in a batch of its own, and none in an object."""
    with write_directory(tmp_path / "d") as braid:
        log = braid.create("orders")
        ticket = [log.submit(b"%d" % n) for n in range(3000)][-1]
        ticket.durable()
        found = braid._session.backend
        assert isinstance(found, Writer)
        yield found


def test_an_answer_to_a_read_has_so_many_runs(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WIRE_READ_RUNS_MAX", 1000)
    located, payloads = reading.locate(writer, 1, 5, None, 0)
    assert (len(located.pieces), len(payloads), located.next, located.readable) == (1000, 1000, 1005, 3000)


def test_an_answer_of_many_runs_is_not_assembled_on_the_thread_of_the_loop(writer: Writer) -> None:
    few, _ = reading.locate(writer, 1, 0, limits.READ_HERE_RUNS_MAX, 0)
    many, _ = reading.locate(writer, 1, 0, limits.READ_HERE_RUNS_MAX + 1, 0)
    assert reading.at_hand(few, writer.cache)
    assert not reading.at_hand(many, writer.cache)


def test_as_arrow_small_neighbours_are_one_message(writer: Writer) -> None:
    located, payloads = reading.locate(writer, 1, 7, 2500, 0)
    parts, bodies = reading.assemble(located, payloads, reading.nowhere, writer.cache, arrow=True)
    assert sum(part.rows for part in parts.parts) == 2493
    assert len(parts.parts) == len(bodies) == -(-2493 // limits.PLAN_JOINED_RECORDS_MAX)


@pytest.mark.parametrize("bound", ["WIRE_PLAN_RUNS_MAX", "WIRE_PLAN_BYTES_MAX"])
def test_a_plan_has_as_much_of_the_range_as_an_answer_may(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    each = 32 + len(writer.payloads[min(writer.payloads)])
    monkeypatch.setattr(limits, bound, 100 * (each if "BYTES" in bound else 1))
    at = pages = 0
    while at < 2999:
        plan, end = writer.plan_page(1, at, 2999)
        assert (plan.start, end) == (at, 2999)
        assert at < plan.stop <= at + 110
        assert plan.parts[-1].stop == plan.stop
        at = plan.stop
        pages += 1
    assert pages >= 28
    assert writer.plan_page(1, 3000, None)[1] == 3000


def test_runs_that_two_looks_found_parts_of_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(braidlog.embedded.replica, "_WINDOW_ROWS", 3)
    with write_directory(tmp_path / "d") as braid:
        log = braid.create("orders")
        for count in (2, 7, 1, 30):
            log.append_many([b"x"] * count)
        writer = braid._session.backend
        assert isinstance(writer, Writer)
        found = writer.some_pieces(writer.forest.logs[1], 1, 38, 100)
        assert [(piece.position, piece.rows, piece.row) for piece in found] == [
            (1, 1, 1),
            (2, 7, 0),
            (9, 1, 0),
            (10, 28, 0),
        ]
