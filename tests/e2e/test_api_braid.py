"""The API contract: a place and the logs in it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import braidlog
from braidlog import Braid, Log, errors
from tests.e2e.conformance import PATIENCE_S, Site, values

# --- creating, finding, listing ------------------------------------------------------------------------------------


def test_a_created_log_is_an_empty_root(braid: Braid) -> None:
    info = braid.create("orders").info()
    assert (info.name, info.kind, info.parent, info.fork_point) == ("orders", "root", None, None)
    assert (info.start, info.tail, info.readable_tail, info.own, info.own_bytes) == (0, 0, 0, 0, 0)


def test_a_name_belongs_to_one_living_log(braid: Braid) -> None:
    braid.create("orders")
    with pytest.raises(errors.AlreadyExists, match="'orders'"):
        braid.create("orders")
    with pytest.raises(errors.AlreadyExists, match="'orders'"):
        braid.log("orders").cfork("orders")


def test_the_only_discipline_is_eager(braid: Braid) -> None:
    assert braid.create("a", discipline="eager").info().discipline == "eager"
    with pytest.raises(errors.InvalidArgument, match="'lazy'"):
        braid.create("b", discipline="lazy")
    assert "b" not in braid


def test_log_finds_logs_and_forks_by_name(braid: Braid) -> None:
    orders = braid.create("orders")
    fork = orders.cfork("trial")
    assert braid.log("orders") == orders
    assert braid.log("trial") == fork
    assert braid.log("trial").id == fork.id != orders.id


def test_log_of_an_unknown_name_is_not_found(braid: Braid) -> None:
    with pytest.raises(errors.NotFound, match="'nothing'"):
        braid.log("nothing")


def test_logs_yields_every_log_and_fork_oldest_first(braid: Braid) -> None:
    orders = braid.create("orders")
    fork = orders.cfork("trial")
    past = fork.sfork("past")
    events = braid.create("events")
    assert list(braid.logs()) == [orders, fork, past, events]
    fork.squash()
    assert [log.name for log in braid.logs()] == ["orders", "past", "events"]


def test_a_braid_knows_whether_it_contains_a_name(braid: Braid) -> None:
    braid.create("orders")
    assert "orders" in braid
    assert "nothing" not in braid


def test_labels_and_owner_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_OWNER", "agent-7")
    braid = site.open()
    orders = braid.create("orders", labels={"team": "shop"})
    orders.cfork("trial", labels={"why": "test"})
    orders.sfork("past", labels={"why": "audit"})
    braid = site.reopen(braid)
    assert braid.log("orders").info().labels == {"team": "shop"}
    assert braid.log("trial").info().labels == {"why": "test"}
    assert braid.log("past").info().labels == {"why": "audit"}
    assert {log.info().owner for log in braid.logs()} == {"agent-7"}


# --- identity ------------------------------------------------------------------------------------------------------


def test_a_reused_name_never_revives_an_old_handle(braid: Braid) -> None:
    old = braid.create("orders")
    old.append(b"old")
    braid.drop("orders")
    new = braid.create("orders")
    assert new != old
    assert new.id != old.id
    assert new.tail() == 0
    for use in (old.tail, old.info, old.lineage, lambda: old.append(b"x"), lambda: old.read(0), old.cfork):
        with pytest.raises(errors.Gone, match="'orders' was dropped") as caught:
            use()
        assert caught.value.end == "dropped"
    assert new.tail() == 0


def test_handles_of_one_log_are_equal_and_hash_alike(braid: Braid) -> None:
    orders, events = braid.create("orders"), braid.create("events")
    assert {orders, braid.log("orders"), events} == {orders, events}
    assert "orders" in repr(orders)


def test_a_fork_name_is_free_again_once_the_fork_has_ended(log: Log) -> None:
    first = log.cfork("trial")
    first.squash()
    second = log.cfork("trial")
    assert second.id != first.id
    with pytest.raises(errors.Gone):
        first.tail()


# --- dropping ------------------------------------------------------------------------------------------------------


def test_drop_ends_a_root(braid: Braid) -> None:
    braid.create("orders")
    braid.drop("orders")
    assert "orders" not in braid
    with pytest.raises(errors.NotFound, match="'orders'"):
        braid.drop("orders")


@pytest.mark.parametrize("kind", ["cfork", "sfork"])
def test_drop_is_refused_while_forks_live(braid: Braid, kind: str) -> None:
    orders = braid.create("orders")
    fork = orders.cfork("fork") if kind == "cfork" else orders.sfork("fork")
    with pytest.raises(errors.ConditionFailed, match="'orders' has 1 living fork"):
        braid.drop("orders")
    assert orders.tail() == 0
    fork.squash()
    braid.drop("orders")
    assert list(braid.logs()) == []


def test_drop_with_cascade_ends_all_forks_severed_or_not(braid: Braid) -> None:
    orders = braid.create("orders")
    orders.cfork("live").sfork("severed-from-live")
    orders.sfork("severed").cfork("live-below-severed")
    other = braid.create("other")
    braid.drop("orders", cascade=True)
    assert list(braid.logs()) == [other]


def test_drop_of_a_fork_is_refused(braid: Braid) -> None:
    braid.create("orders").cfork("trial")
    with pytest.raises(errors.InvalidArgument, match=r"'trial' is a fork.*squash"):
        braid.drop("trial")
    assert "trial" in braid


# --- closing and reopening -----------------------------------------------------------------------------------------


def test_everything_acknowledged_is_there_after_reopening(site: Site) -> None:
    braid = site.open()
    orders = braid.create("orders")
    orders.append_many([b"a", b"b"])
    fork = orders.cfork("trial", promotable=True)
    fork.append(b"mine", key=b"k", headers={"h": b"v"})
    orders.append(b"hidden")
    before = [log.info() for log in braid.logs()]
    kept = fork.read(0)
    braid = site.reopen(braid)
    assert [log.info() for log in braid.logs()] == before
    assert braid.log("trial").read(0) == kept
    assert values(braid.log("orders").read(0)) == [b"a", b"b"]


def test_leaving_the_context_closes(site: Site) -> None:
    with site.open() as braid:
        log = braid.create("orders")
        log.append(b"x")
    with pytest.raises(errors.Unavailable, match="closed"):
        log.append(b"y")


def test_closing_again_is_fine(site: Site) -> None:
    braid = site.open()
    braid.close()
    braid.close()


def test_a_closed_braid_refuses_every_call(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    log.append(b"x")
    fork = log.cfork("trial", promotable=True)
    request = log.submit(b"y").request_id
    braid.close()
    for use in (
        lambda: braid.create("other"),
        lambda: braid.log("orders"),
        lambda: list(braid.logs()),
        lambda: braid.drop("orders"),
        lambda: braid.resolve(request),
        lambda: log.append(b"x"),
        lambda: log.append_many([b"x"]),
        lambda: log.submit(b"x"),
        log.tail,
        log.info,
        lambda: log.read(0),
        lambda: log.read(0, wait=PATIENCE_S),
        log.read_arrow,
        lambda: log[0],
        lambda: log[:],
        lambda: log.position_at(0),
        log.plan,
        log.subscribe,
        lambda: log.trim(0),
        log.cfork,
        log.sfork,
        fork.promote,
        fork.squash,
        fork.renew,
        fork.diff,
        fork.lineage,
    ):
        with pytest.raises(errors.Unavailable, match="closed"):
            use()


def test_an_append_that_races_with_close_is_durable_or_refused(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    begun = threading.Event()
    told: list[braidlog.Ticket] = []

    def submit() -> None:
        try:
            while True:
                told.append(log.submit(b"x"))
                begun.set()
        except errors.Unavailable:
            begun.set()

    thread = threading.Thread(target=submit)
    thread.start()
    assert begun.wait(PATIENCE_S)
    braid.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    kept = 0
    for ticket in told:
        try:
            ticket.durable(PATIENCE_S)
            kept += 1
        except errors.Unavailable:
            pass
    assert site.open().log("orders").tail() == kept


# --- what became of a request --------------------------------------------------------------------------------------


def test_resolve_tells_where_an_append_stands(site: Site) -> None:
    braid = site.open()
    log = braid.create("orders")
    log.append(b"before")
    ticket = log.submit([b"a", b"b"])
    ticket.durable()
    for _ in range(2):
        outcome = braid.resolve(ticket.request_id)
        assert (outcome.what, outcome.log, outcome.positions, outcome.withheld) == (
            "append",
            "orders",
            range(1, 3),
            False,
        )
        assert outcome.request_id == ticket.request_id
        braid = site.reopen(braid)


def test_resolve_follows_a_withheld_append_through_the_decision(braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    fork.append_many([b"f0", b"f1"])
    ticket = log.submit(b"held")
    ticket.durable()
    outcome = braid.resolve(ticket.request_id)
    assert (outcome.positions, outcome.withheld, outcome.log) == (None, True, "orders")
    assert fork.promote()
    outcome = braid.resolve(ticket.request_id)
    assert (outcome.positions, outcome.withheld, outcome.log) == (range(2, 3), False, "orders")


def test_resolve_finds_the_records_of_a_promoted_fork_in_its_parent(braid: Braid, log: Log) -> None:
    fork = log.cfork("trial", promotable=True)
    ticket = fork.submit(b"mine")
    ticket.durable()
    fork.promote()
    outcome = braid.resolve(ticket.request_id)
    assert (outcome.log, outcome.positions) == ("orders", range(1))


def test_resolve_of_records_that_went_with_their_log_names_no_log(braid: Braid, log: Log) -> None:
    fork = log.cfork("trial")
    ticket = fork.submit(b"mine")
    ticket.durable()
    fork.squash()
    assert braid.resolve(ticket.request_id).log is None


def test_resolve_of_an_unknown_request_is_not_found(braid: Braid) -> None:
    with pytest.raises(errors.NotFound, match="00" * 16):
        braid.resolve("00" * 16)


@pytest.mark.parametrize("request_id", ["", "xyz", "00" * 15, 7, None])
def test_resolve_of_nonsense_is_invalid(braid: Braid, request_id: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="32 hex digits"):
        braid.resolve(request_id)  # type: ignore[arg-type]


# --- opening -------------------------------------------------------------------------------------------------------


def test_open_takes_a_path_a_path_object_and_a_url(tmp_path: Path) -> None:
    where = tmp_path / "with space.braid"
    for target in (str(where), where, where.as_uri()):
        with braidlog.open(target) as braid:
            assert braid.url == where.as_uri()
            if "orders" not in braid:
                braid.create("orders")
            braid.log("orders").append(b"x")
    with braidlog.open(where) as braid:
        assert braid.log("orders").tail() == 3


def test_open_creates_the_directory_and_its_parents(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "a" / "b") as braid:
        braid.create("orders")
    assert (tmp_path / "a" / "b").is_dir()


def test_each_memory_is_a_new_and_empty_one() -> None:
    with braidlog.open("memory://") as one, braidlog.open("memory://") as two:
        one.create("orders")
        assert list(two.logs()) == []


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("", "''"),
        ("a\0b", "a"),
        ("memory://name", "memory://name"),
        ("memory:///path", "memory:///path"),
        ("http://example.org/x", "http://example.org/x"),
        ("file://elsewhere/x", "file://elsewhere/x"),
        ("file://", "file://"),
        ("file:///x?y=1", "file:///x"),
        ("file:///x#y", "file:///x"),
        ("://", "://"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_open_of_what_is_no_place_is_invalid_and_named(target: object, named: str) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        braidlog.open(target)  # type: ignore[arg-type]
    assert named in str(caught.value)


def test_open_of_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    with pytest.raises(errors.InvalidArgument, match=str(file)):
        braidlog.open(file)
    assert file.read_text() == "not a directory"


def test_open_of_somebody_elses_directory_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(errors.BraidError, match=str(tmp_path.name)):
        braidlog.open(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_open_where_nothing_can_be_created_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Unavailable, match="file"):
        braidlog.open(tmp_path / "file" / "below")


def test_a_second_writer_is_locked_out_until_the_first_closes(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "x", serve=False):
        with pytest.raises(errors.Locked, match="by this process") as caught:
            braidlog.open(tmp_path / "x")
        assert caught.value.pid == os.getpid()
    with braidlog.open(tmp_path / "x"):
        pass


def test_a_second_process_is_told_which_one_writes(tmp_path: Path) -> None:
    second = "import sys, braidlog; braidlog.open(sys.argv[1])"
    with braidlog.open(tmp_path / "x", serve=False):
        result = subprocess.run(
            [sys.executable, "-c", second, tmp_path / "x"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert result.stderr.splitlines()[-1].startswith("braidlog.errors.Locked: ")
    assert str(os.getpid()) in result.stderr.splitlines()[-1]


# --- read-only -----------------------------------------------------------------------------------------------------


def test_a_reader_sees_what_the_writer_made_durable(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "x") as writer:
        log = writer.create("orders")
        log.append(b"before")
        with braidlog.open(tmp_path / "x", read_only=True) as reader:
            assert reader.read_only
            seen = reader.log("orders")
            assert values(seen.read(0)) == [b"before"]
            log.append(b"after")
            assert values(seen.read(1, wait=PATIENCE_S)) == [b"after"]


def test_a_reader_refuses_every_change(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "x") as writer:
        writer.create("orders").cfork("trial", promotable=True)
    with braidlog.open(tmp_path / "x", read_only=True) as reader:
        log, fork = reader.log("orders"), reader.log("trial")
        for change in (
            lambda: reader.create("other"),
            lambda: reader.drop("orders"),
            lambda: log.append(b"x"),
            lambda: log.append_many([b"x"]),
            lambda: log.submit(b"x"),
            lambda: log.trim(0),
            log.cfork,
            log.sfork,
            fork.promote,
            fork.squash,
            fork.renew,
        ):
            with pytest.raises(errors.InvalidArgument, match="read-only"):
                change()
        assert [found.name for found in reader.logs()] == ["orders", "trial"]


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="nowhere"):
        braidlog.open(tmp_path / "nowhere", read_only=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.NotFound, match="empty"):
        braidlog.open(tmp_path / "empty", read_only=True)
    assert list((tmp_path / "empty").iterdir()) == []


def test_memory_has_no_readers() -> None:
    with pytest.raises(errors.InvalidArgument, match="read_only"):
        braidlog.open("memory://", read_only=True)
