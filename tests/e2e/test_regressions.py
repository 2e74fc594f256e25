"""Mistakes that were made once and are not made again: each test is the claim that was found not to hold."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Braid, Log, Retention, errors, limits
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from tests.e2e.conformance import Site, values

in_process = pytest.mark.parametrize("site", ["directory", "memory"], indirect=True)  # looks behind the scenes


class Text(str):
    """Like numpy.str_."""


class Bytes(bytes):
    """Like numpy.bytes_."""


class Number(int):
    pass


def writer_of(braid: Braid) -> Writer:
    backend = braid._session.backend
    assert isinstance(backend, Writer)
    return backend


def bytes_fetched(braid: Braid, call: Callable[[], object]) -> int:
    """How many bytes of objects a call reads."""
    store: Any = writer_of(braid).store
    get, fetched = store.get, []

    def counting(name: str, offset: int, length: int) -> memoryview:
        fetched.append(length)
        found: memoryview = get(name, offset, length)
        return found

    store.get = counting
    call()
    store.get = get
    return sum(fetched)


# --- nothing a caller passes takes the log down --------------------------------------------------------------------


@pytest.mark.parametrize("discipline", [5, None, "\ud800", "lazy"])
def test_a_wrong_discipline_leaves_a_log_that_can_be_opened_after_a_crash(tmp_path: Path, discipline: Any) -> None:
    with braidlog.open(tmp_path / "braid") as braid:
        with pytest.raises(errors.InvalidArgument, match="discipline"):
            braid.create("orders", discipline=discipline)
        braid.create("orders").append(b"1")
        shutil.copytree(tmp_path / "braid", tmp_path / "crashed", ignore=shutil.ignore_patterns("SOCKET"))
    with braidlog.open(tmp_path / "crashed") as crashed:
        assert values(crashed.log("orders").read(0)) == [b"1"]


@pytest.mark.parametrize(
    "call",
    [
        lambda braid, _: braid.create(Text("other")),
        lambda braid, _: braid.create("other", labels={Text("a"): Text("b")}),
        lambda braid, _: braid.create("other", retention=Retention(max_bytes=Number(10))),
        lambda _, log: log.append(Bytes(b"x"), key=Bytes(b"k"), headers={Text("h"): Bytes(b"v")}),
        lambda _, log: log.append(b"x", timestamp=Number(5)),
        lambda _, log: log.append(b"x", writer=Text("w"), sequence=Number(1)),
        lambda _, log: log.trim(Number(0)),
        lambda _, log: log.sfork(Text("other"), at=Number(0)),
    ],
)
def test_subclasses_of_plain_types_are_taken_as_what_they_are(
    site: Site, braid: Braid, log: Log, call: Callable[[Braid, Log], object]
) -> None:
    call(braid, log)
    log.append(b"last")
    assert site.reopen(braid).log("orders")[-1].value == b"last"


def test_a_forked_process_cannot_write_over_what_its_parent_acknowledges(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "braid") as braid:
        log = braid.create("orders")
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                try:
                    log.append(b"child")
                except errors.Unavailable as refusal:
                    status = 0 if "forked" in str(refusal) else 2
                braid.close()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log.append(b"parent") == 0
    with braidlog.open(tmp_path / "braid") as braid:
        assert values(braid.log("orders").read(0)) == [b"parent"]


# --- nothing grows without a bound ---------------------------------------------------------------------------------


@in_process
def test_a_subscription_fetches_about_as_much_as_its_bound(braid: Braid, log: Log) -> None:
    for _ in range(20):
        log.append_many([bytes(100_000)] * 10)
    assert bytes_fetched(braid, lambda: next(log.subscribe())) < 4 * limits.SUBSCRIBE_FETCH_BYTES


def test_a_read_bounded_by_bytes_is_the_same_however_sizes_vary(log: Log) -> None:
    sizes = [1, 5000, 10, 70_000, 3, 3, 3, 400_000, 1, 1] * 10
    for size in sizes:
        log.append(bytes(size))
    at = 0
    while at < len(sizes):
        found = log.read(at, max_bytes=75_000)
        taken = [len(record.value) for record in found]
        assert taken == sizes[at : at + len(taken)]
        assert len(taken) == 1 or sum(taken) <= 75_000
        at += len(taken)
        assert at == len(sizes) or sum(taken) + sizes[at] > 75_000 or sum(taken) == 75_000


@in_process
def test_read_arrow_fetches_each_block_once(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("fork")
    for _ in range(100):
        log.append(b"parent" * 10)
        fork.append(b"fork" * 10)
    site.pack(braid)
    size = sum(part.length for part in {part.offset: part for part in fork.plan().parts}.values())
    assert bytes_fetched(braid, fork.read_arrow) == size


def test_any_number_of_tickets_learn_the_position_that_a_hold_withheld(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTCOMES_KEPT_MAX", 10)
    fork = log.cfork("trial", promotable=True)
    fork.append(b"inserted")
    tickets = [log.submit(b"%d" % number) for number in range(50)]
    tickets[-1].durable()
    assert fork.promote()
    assert [ticket.position() for ticket in tickets] == list(range(1, 51))


@in_process
def test_renewing_again_and_again_keeps_one_deadline(braid: Braid, log: Log) -> None:
    fork = log.cfork(promotable=True)
    for _ in range(100):
        fork.renew()
    assert len(writer_of(braid).forest.deadlines) == 1


@in_process
def test_the_object_of_a_large_batch_that_was_refused_is_deleted(site: Site, braid: Braid, log: Log) -> None:
    site.tend(braid)
    with pytest.raises(errors.ConditionFailed):
        log.append(bytes(limits.INLINE_BYTES_MAX + 1), expected_tail=9)
    site.tend(braid)
    site.pass_time(braid, limits.GRACE_S)
    assert writer_of(braid).store.list() == []


def test_small_objects_are_merged_though_middling_ones_were_there_first(site: Site, braid: Braid, log: Log) -> None:
    for _ in range(limits.COMPACT_BYTES_MAX // (8 * limits.MIB) + 1):
        log.append_many([bytes(limits.MIB)] * 8)
    for _ in range(limits.COMPACT_OBJECTS_MIN):
        log.append(b"small")
        site.pack(braid)
    assert site.compact(braid)


@in_process
def test_forks_that_expire_together_do_so_in_a_few_commits(site: Site, braid: Braid, log: Log) -> None:
    forks = [log.cfork(ttl=10) for _ in range(50)]
    writer = writer_of(braid)
    before = writer.log.last_sequence
    site.clock.advance(11)
    Upkeep(writer).expire()
    assert writer.log.last_sequence - before < 5
    for fork in forks:
        with pytest.raises(errors.Gone):
            fork.info()


@in_process
def test_retention_writes_nothing_while_a_hold_keeps_it_from_trimming(site: Site, braid: Braid) -> None:
    log = braid.create("short", retention=Retention(max_age=10))
    log.cfork("trial", promotable=True, lease=None)
    log.append(b"old")
    site.clock.advance(11)
    assert not Upkeep(writer_of(braid)).retain()
