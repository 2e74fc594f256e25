"""Logs whose objects are in a store elsewhere: the same logs, whatever becomes of processes, lines and the store."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

import braidlog
from braidlog import Log, bulk, errors, limits
from braidlog.cli import exit_codes
from braidlog.client.opening import write_directory
from braidlog.embedded.doctor import examine
from braidlog.embedded.upkeep import Upkeep
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.objects.format import BlockPlace, read_block
from braidlog.objects.locations import open_store
from braidlog.testing.clock import VirtualClock
from braidlog.testing.cluster import Cluster
from braidlog.testing.s3_faults import S3Faults
from braidlog.testing.seaweed import Seaweed
from tests.e2e.careless_s3 import careless_s3
from tests.e2e.conformance import numbered, values, writer_of
from tests.e2e.test_serve import Served, run

LARGE = 2 * limits.INLINE_BYTES_MAX


@pytest.fixture
def url(seaweed: Seaweed, prefix: str) -> str:
    return seaweed.url(prefix)


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[S3Faults]:
    with S3Faults(seaweed.port) as proxy:
        yield proxy


def content(log: Log) -> list[bytes]:
    return values(log.read(0))


def fetched(log: Log) -> list[bytes]:
    """What a reader finds who asks for a plan and then nobody but the store."""
    plan = log.plan()
    found: list[bytes] = []
    for part in plan.parts:
        assert plan.objects is not None
        assert part.object is not None, "pack it first"
        data = open_store(plan.objects).get(part.object, part.offset, part.length)
        block = read_block(part.object, BlockPlace(part.offset, part.length, part.crc), data)
        found += block.column("value").slice(part.row, part.stop - part.start).to_pylist()
    return found


# --- the directory and its store -------------------------------------------------------------------------------------


def test_a_directory_remembers_where_its_objects_are(tmp_path: Path, url: str) -> None:
    with braidlog.open(tmp_path / "logs", objects=url) as braid:
        log = braid.create("orders")
        log.append(b"small")
        log.append(b"x" * LARGE)
        expected = content(log)
    assert not (tmp_path / "logs" / "objects").exists()
    with braidlog.open(tmp_path / "logs") as braid:
        assert content(braid.log("orders")) == fetched(braid.log("orders")) == expected
    with braidlog.open(tmp_path / "logs", objects=url + "&timeout=20") as braid:  # only how it is reached
        assert content(braid.log("orders")) == expected
    with braidlog.open(tmp_path / "logs", read_only=True) as braid:
        assert content(braid.log("orders")) == expected
        assert str(braid.log("orders").plan().objects).endswith("&timeout=20")


def test_clients_write_objects_to_the_store_themselves(tmp_path: Path, url: str) -> None:
    with braidlog.open(tmp_path / "logs", objects=url) as braid:
        log = braid.create("orders")
        sooner, later = log.upload(), log.upload()
        assert sooner.objects == url
        told = []
        for upload, first in ((sooner, 0), (later, 100)):
            with bulk.ObjectWriter(upload, block_bytes=1_000, object_bytes=1_500) as writer:
                writer.add(pa.table({"value": numbered(100, first)}))
            told.append(writer.close())
        assert len(told[0]) > 1
        assert log.publish(told[0]) == range(100)
        assert content(log) == fetched(log) == numbered(100)
        log.discard(later)
        assert Upkeep(writer_of(braid)).sweep()
        assert set(open_store(url).list()) == {uploaded.object for uploaded in told[0]}
        assert content(log) == numbered(100)


def test_another_store_is_refused(tmp_path: Path, url: str, seaweed: Seaweed, prefix: str) -> None:
    braidlog.open(tmp_path / "far", objects=url).close()
    braidlog.open(tmp_path / "near").close()
    with pytest.raises(InvalidArgument, match=f"keeps its objects in s3://braidlog/{prefix}, not in"):
        braidlog.open(tmp_path / "far", objects=seaweed.url(f"{prefix}-2"))
    with pytest.raises(InvalidArgument, match="keeps its objects in its own folder"):
        braidlog.open(tmp_path / "near", objects=url)
    with pytest.raises(InvalidArgument, match="not in"):
        braidlog.open(tmp_path / "far", objects=seaweed.url(f"{prefix}-2"), read_only=True)
    with pytest.raises(InvalidArgument, match="in memory"):
        braidlog.open("memory://", objects=url)


def test_two_directories_do_not_share_a_prefix(tmp_path: Path, url: str, seaweed: Seaweed, prefix: str) -> None:
    with braidlog.open(tmp_path / "one", objects=url) as braid:
        braid.create("orders").append(b"x" * LARGE)
    with pytest.raises(InvalidArgument, match="keeps the objects of another directory"):
        braidlog.open(tmp_path / "two", objects=url)
    with braidlog.open(tmp_path / "two", objects=seaweed.url(f"{prefix}-2")) as braid:  # it was left free to choose
        braid.create("orders")
    with braidlog.open(tmp_path / "one") as braid:
        assert content(braid.log("orders")) == [b"x" * LARGE]


def test_a_store_that_is_another_is_noticed(tmp_path: Path, url: str) -> None:
    braidlog.open(tmp_path / "logs", objects=url).close()
    store = open_store(url)
    store._blobs.delete(f"{store._under}braidlog-owner")
    with pytest.raises(InvalidArgument, match="not those of this directory"):
        braidlog.open(tmp_path / "logs")


def test_a_creation_that_was_cut_short_is_taken_up_again(tmp_path: Path, url: str) -> None:
    braidlog.open(tmp_path / "logs", objects=url).close()
    for name in ("FORMAT", "log", "snapshots"):
        path = tmp_path / "logs" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders").append(b"x" * LARGE)
        assert open_store(url).list()


def test_an_odd_file_is_no_place(tmp_path: Path, url: str) -> None:
    braidlog.open(tmp_path / "logs", objects=url).close()
    (tmp_path / "logs" / "OBJECTS").write_text("s3://somewhere\n")
    with pytest.raises(errors.Corrupt, match="OBJECTS"):
        braidlog.open(tmp_path / "logs")


def test_the_doctor_looks_into_the_store(tmp_path: Path, url: str) -> None:
    with braidlog.open(tmp_path / "logs", objects=url) as braid:
        braid.create("orders").append(b"x" * LARGE)
    report = examine(tmp_path / "logs")
    assert (report.healthy, report.objects, report.findings) == (True, 1, [])
    store = open_store(url)
    [name] = store.list()
    store.delete(name)
    report = examine(tmp_path / "logs")
    assert not report.healthy
    [finding] = report.findings
    assert finding.where.startswith("s3://braidlog/")
    assert "takes away log 'orders' position 0" in finding.problem


# --- behind the scenes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_no_fork_loses_a_block_to_compaction_and_collection(tmp_path: Path, url: str, seed: int) -> None:
    """Random forks, promotions, squashes and trims, with everything packed, compacted and collected in between."""
    clock, chance = VirtualClock(), random.Random(seed)
    with write_directory(tmp_path / "logs", clock=clock, objects=url) as braid:
        writer = writer_of(braid)
        upkeep = Upkeep(writer)
        logs = {"root": braid.create("root")}
        expected: dict[str, list[bytes]] = {"root": []}
        for step in range(30):
            name = chance.choice(sorted(logs))
            log = logs[name]
            match chance.randrange(6):
                case 0 | 1 | 2:
                    value = b"%d " % step + chance.randbytes(chance.choice([10, LARGE]))
                    log.append(value)
                    expected[name].append(value)
                case 3 if len(logs) < 6:
                    fork = f"fork-{step}"
                    logs[fork] = log.sfork(fork)
                    expected[fork] = list(expected[name])
                case 4 if name != "root":
                    log.squash(cascade_severed=False)
                    del logs[name], expected[name]
                case _:
                    fork = f"try-{step}"
                    trial = log.cfork(fork, promotable=True)
                    trial.append(b"tried %d" % step)
                    if chance.random() < 0.5:
                        assert trial.promote()
                        expected[name].append(b"tried %d" % step)
                    else:
                        trial.squash()
            upkeep.pack()
            if step % 3 == 2:
                _compact_all(upkeep)
                clock.advance(limits.GRACE_S + 1)
                upkeep.collect()
                upkeep.collect()
                assert {name: fetched(log) for name, log in logs.items()} == expected
                assert {name: content(log) for name, log in logs.items()} == expected
        known = set(writer.forest.space.objects)
        assert set(writer.store.list()) == known  # nothing is left behind either
        assert len(known) < 12


def _compact_all(upkeep: Upkeep) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMPACT_OBJECTS_MIN", 2)
        upkeep.compact()


def test_a_reader_plans_again_when_an_object_is_gone(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMPACT_OBJECTS_MIN", 2)
    clock = VirtualClock()
    with write_directory(tmp_path / "logs", clock=clock, objects=url) as braid:
        log, upkeep = braid.create("orders"), Upkeep(writer_of(braid))
        for value in numbered(4):
            log.append(value)
            upkeep.pack()
        with braidlog.open(tmp_path / "logs", read_only=True) as reader:
            before = log.plan()
            assert upkeep.compact()
            upkeep.collect()
            clock.advance(limits.GRACE_S + 1)
            upkeep.collect()
            assert len(open_store(url).list()) == 1
            part = before.parts[0]
            assert part.object is not None
            with pytest.raises(FileNotFoundError):
                open_store(url).get(part.object, part.offset, part.length)
            assert content(reader.log("orders")) == content(log) == fetched(log) == numbered(4)


@contextmanager
def opened(place: Path, site: str) -> Iterator[braidlog.Braid]:
    """A directory, opened here, at a service or at brokers."""
    match site:
        case "embedded":
            with braidlog.open(place) as braid:
                yield braid
        case "served":
            served = Served(place=place)
            try:
                with braidlog.open(served.url) as braid:
                    yield braid
            finally:
                served.end()
        case _:
            with Cluster.start(place, 1) as cluster, braidlog.open(cluster.url) as braid:
                yield braid


@pytest.mark.parametrize("site", ["embedded", "served", "brokered"])
def test_blocks_are_fetched_side_by_side(
    tmp_path: Path, seaweed: Seaweed, prefix: str, proxy: S3Faults, site: str
) -> None:
    with braidlog.open(tmp_path / "logs", objects=seaweed.url(prefix, endpoint=proxy.endpoint)) as braid:
        log, upkeep = braid.create("orders"), Upkeep(writer_of(braid))
        for value in numbered(10):
            log.append(value)
            upkeep.pack()
    with opened(tmp_path / "logs", site) as braid:
        proxy.script("GET", ["delay"] * 100)
        proxy.most_under_way = 0
        assert content(braid.log("orders")) == numbered(10)
        assert proxy.most_under_way >= 5


def test_what_nobody_registered_is_swept_when_it_is_opened(tmp_path: Path, url: str) -> None:
    with braidlog.open(tmp_path / "logs", objects=url) as braid:
        braid.create("orders").append(b"x" * LARGE)
    store = open_store(url)
    [kept] = store.list()
    store.put("00000001-0000ffff.arrow", b"of a writer that was killed before it could register it")
    with braidlog.open(tmp_path / "logs") as braid:
        assert store.list() == [kept]
        assert content(braid.log("orders")) == [b"x" * LARGE]


def test_an_old_copy_of_a_directory_is_not_written(tmp_path: Path, url: str) -> None:
    braidlog.open(tmp_path / "logs", objects=url).close()
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    with braidlog.open(tmp_path / "logs") as braid:
        braid.create("orders").append(b"x" * LARGE)
    with pytest.raises(InvalidArgument, match="it is an old copy"):
        braidlog.open(tmp_path / "copy")
    with braidlog.open(tmp_path / "copy", read_only=True) as braid:
        assert list(braid.logs()) == []
    with braidlog.open(tmp_path / "logs") as braid:
        assert content(braid.log("orders")) == [b"x" * LARGE]


# --- services --------------------------------------------------------------------------------------------------------


def test_a_service_on_a_store_survives_a_kill(tmp_path: Path, url: str) -> None:
    served = Served("--objects", url, place=tmp_path / "logs")
    try:
        with braidlog.open(served.url) as braid:
            log = braid.create("orders")
            log.append_many(numbered(10))
            log.append_many([b"%d" % number * LARGE for number in range(3)])
            kept = log.sfork("kept")
            log.cfork("gone").squash()
            trial = log.cfork("trial", promotable=True)
            trial.append(b"y" * LARGE)
            assert trial.promote()
            expected = content(log)
            assert len(expected) == 14
            assert content(kept) == expected[:13]
            plan = log.plan()
            assert plan.objects == url
            assert sum(part.object is not None for part in plan.parts) >= 2
    finally:
        assert served.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = Served(place=tmp_path / "logs")
    try:
        with braidlog.open(again.url) as braid:
            assert content(braid.log("orders")) == expected
            assert content(braid.log("kept")) == expected[:13]
            braid.log("orders").append(b"z" * LARGE)
    finally:
        status, _, told = again.end()
    assert status == 0, told
    assert examine(tmp_path / "logs").healthy


def test_brokers_share_a_store_and_may_be_killed(tmp_path: Path, url: str) -> None:
    with Cluster.start(tmp_path / "logs", 2, objects=url) as cluster, braidlog.open(cluster.url) as braid:
        log = braid.create("orders")
        expected = [b"%d" % number * LARGE for number in range(4)]
        log.append_many(expected[:2])
        cluster.kill("broker-1")
        log.append_many(expected[2:])
        fork = log.cfork("fork")
        fork.append(b"small")
        cluster.kill("broker-2")
        cluster.restart("broker-1")
        cluster.restart("broker-2")
        assert content(log) == expected
        assert content(fork) == [*expected, b"small"]
        assert fetched(log) == expected
    assert examine(tmp_path / "logs").healthy
    assert not (tmp_path / "logs" / "objects").exists()


def test_a_broker_that_cannot_reach_the_store_does_not_start(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster.start(tmp_path / "logs", 0, objects=url) as cluster:
        metadata = cluster.processes["metadata"].address
        begin = ("broker", "--metadata", metadata, "--listen", "127.0.0.1:0")
        with monkeypatch.context() as patch:
            patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
            refused = run(*begin)
            assert refused.exit_code == exit_codes.UNAVAILABLE
            assert "check the credentials" in refused.stderr
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "obstore", None)
            refused = run(*begin)
            assert refused.exit_code == exit_codes.UNAVAILABLE
            assert "pip install 'braidlog[s3]'" in refused.stderr
        refused = run(*begin, "--objects", "s3://another/place")
        assert refused.exit_code == exit_codes.USAGE
        assert "not in s3://another/place" in refused.stderr


def test_a_store_that_is_down_for_a_while(tmp_path: Path, seaweed: Seaweed, prefix: str, proxy: S3Faults) -> None:
    url = seaweed.url(prefix, endpoint=proxy.endpoint, timeout="1")
    served = Served("--objects", url, place=tmp_path / "logs")
    try:
        with braidlog.open(served.url) as braid:
            log = braid.create("orders")
            log.append(b"a" * LARGE)
            proxy.down()
            with pytest.raises(Unavailable, match=r"could not be stored.*s3://braidlog/.*mend the store") as refusal:
                log.append(b"b" * LARGE)
            assert proxy.endpoint not in str(refusal.value)
            log.append(b"small ones go on")
            with pytest.raises(Unavailable, match="cannot be read"):
                log.read(0)
            assert values(log.read(1)) == [b"small ones go on"]
            proxy.up()
            log.append(b"c" * LARGE)
            assert content(log) == [b"a" * LARGE, b"small ones go on", b"c" * LARGE]
    finally:
        status, _, told = served.end()
    assert status == 0, told
    proxy.down()
    refused = run("serve", "--at", str(tmp_path / "logs"), "--listen", "127.0.0.1:0")
    assert refused.exit_code == exit_codes.UNAVAILABLE
    assert f"s3://braidlog/{prefix} cannot be worked with" in refused.stderr


def test_a_service_refuses_a_store_that_ignores_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seaweed: Seaweed
) -> None:
    del seaweed, monkeypatch  # for the credentials, which this one does not look at
    with careless_s3() as endpoint:
        url = f"s3://bucket/p?endpoint={endpoint}&region=us-east-1&timeout=5"
        for role in ("serve", "metadata"):
            refused = run(role, "--at", str(tmp_path / role), "--objects", url, "--listen", "127.0.0.1:0")
            assert refused.exit_code == exit_codes.USAGE
            assert "s3://bucket/p is not safe to keep logs in" in refused.stderr
            assert "ignores conditions (If-None-Match)" in refused.stderr
            assert not (tmp_path / role / "FORMAT").exists()
        told = run("doctor", url)
        assert told.exit_code == exit_codes.FAILED
        assert "FAILED: a key that is taken is not created again" in told.stdout
        assert "ok: ranges are read exactly" in told.stdout
        assert "s3://bucket/p cannot be used" in told.stdout
        document = json_of(run("--json", "doctor", url))
        assert document["sound"] is False
        assert [check["passed"] for check in document["checks"]] == [True, True, False, False, True, True]


def json_of(result: Result) -> dict[str, object]:
    document: dict[str, object] = json.loads(result.stdout)
    return document


def test_the_doctor_tries_a_store_out(url: str) -> None:
    told = run("doctor", url)
    assert told.exit_code == exit_codes.OK, told.output
    assert told.stdout.count("ok: ") == 6
    unreachable = run("doctor", "s3://bucket/p?endpoint=http://127.0.0.1:9&timeout=0.3")
    assert unreachable.exit_code == exit_codes.UNAVAILABLE
    assert "it cannot be reached" in unreachable.stdout
    wrong = run("doctor", "s3://me:hunter2@bucket/p")
    assert wrong.exit_code == exit_codes.USAGE
    assert "hunter2" not in wrong.output
