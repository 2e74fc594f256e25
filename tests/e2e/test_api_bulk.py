"""The API contract: objects that clients write to the store themselves, and publish at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from braidlog import Braid, Log, Upload, UploadedObject, bulk, errors, limits
from braidlog.embedded.upkeep import Upkeep
from tests.e2e.conformance import PATIENCE_S, ClusterSite, MemorySite, Site, numbered, values


@pytest.fixture(autouse=True)
def _others_can_write_objects(site: Site, request: pytest.FixtureRequest) -> None:
    if isinstance(site, MemorySite) and "in_memory" not in request.node.name:
        pytest.skip("its objects are in memory")


def written(upload: Upload, found: list[bytes], *, block_bytes: int = 100) -> list[UploadedObject]:
    """In any process."""
    with bulk.ObjectWriter(upload, timestamp=7, block_bytes=block_bytes, object_bytes=400) as writer:
        writer.add(pa.table({"value": found}))
    return writer.close()


def test_objects_in_memory_can_be_written_by_nobody_else(site: Site, log: Log) -> None:
    if isinstance(site, MemorySite):
        with pytest.raises(errors.InvalidArgument, match="in the memory of one process"):
            log.upload()


def test_what_two_processes_wrote_is_published_at_once(log: Log) -> None:
    log.append(b"before")
    mine, shared = log.upload(), log.upload()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        parts = [
            processes.submit(written, upload, numbered(40, first))
            for upload, first in ((mine, 0), (shared, 40), (shared, 80))
        ]
        objects = [uploaded for part in parts for uploaded in part.result(PATIENCE_S * 3)]
    assert values(log.read(0)) == [b"before"]  # nothing is seen of it yet
    assert log.publish(objects) == range(1, 121)
    assert values(log.read(1)) == numbered(120)
    assert [record.timestamp for record in log.read(1, 3)] == [7, 7]
    assert log.append(b"behind") == 121
    assert log.read_arrow(1, 121).column("value").to_pylist() == numbered(120)


def test_a_publication_is_all_or_nothing(log: Log) -> None:
    objects = written(log.upload(), numbered(30))
    missing = UploadedObject(f"{objects[0].object[:9]}00000000.arrow", 500, 1, objects[0].blocks)
    larger = UploadedObject(objects[0].object, objects[0].size + 1, objects[0].crc, objects[0].blocks)
    with pytest.raises(errors.InvalidArgument, match="is not in the store"):
        log.publish([*objects, missing])
    with pytest.raises(errors.InvalidArgument, match="are said of it"):
        log.publish([larger, *objects[1:]])
    [first, *_] = objects[0].blocks
    for lie in ({"count": 2**62}, {"size": 2**40}, {"length": 2**50}, {"offset": 2**70}, {"greatest": 2**63}):
        told = structs.replace(objects[0], blocks=[structs.replace(first, **lie)])
        with pytest.raises(errors.InvalidArgument):
            log.publish([told])
    with pytest.raises(errors.ConditionFailed, match="publish every object once"):
        log.publish([*objects, objects[0]])
    with pytest.raises(errors.ConditionFailed, match="ends at 0"):
        log.publish(objects, expected_tail=4)
    assert log.tail() == 0
    assert log.publish(objects, expected_tail=0) == range(30)


def test_an_upload_is_of_one_log(braid: Braid, log: Log) -> None:
    other = braid.create("other")
    upload = log.upload()
    objects = written(upload, numbered(3))
    with pytest.raises(errors.InvalidArgument, match="of another log"):
        other.publish(objects)
    with pytest.raises(errors.InvalidArgument, match="is one of log"):
        other.discard(upload)
    assert log.publish(objects) == range(3)


def test_what_was_published_or_discarded_is_over(log: Log) -> None:
    upload = log.upload()
    objects = written(upload, numbered(3))
    late = written(upload, numbered(3))
    assert log.publish(objects) == range(3)
    for again in (objects, late):
        with pytest.raises(errors.ConditionFailed, match="is over"):
            log.publish(again)
    given_up = log.upload()
    objects = written(given_up, numbered(3))
    log.discard(given_up)
    log.discard(given_up)
    with pytest.raises(errors.ConditionFailed, match="is over"):
        log.publish(objects)
    assert log.tail() == 3


def test_a_writer_and_its_sequence_publish_once_whatever_became_of_the_objects(site: Site, log: Log) -> None:
    objects = written(log.upload(), numbered(30))
    assert log.publish(objects, writer="job", sequence=5) == range(30)
    log.append(b"behind")
    if not isinstance(site, ClusterSite):
        for uploaded in objects:  # compacted away, say
            Path(log.plan().objects or "", uploaded.object).unlink()
    assert log.publish(objects, writer="job", sequence=5) == range(30)
    with pytest.raises(errors.ConditionFailed, match="cannot go back"):
        log.publish(objects, writer="job", sequence=4)
    assert log.tail() == 31


def test_nothing_is_published_as_nothing_and_its_uploads_end(log: Log) -> None:
    log.append(b"x")
    upload = log.upload()
    left = written(upload, numbered(3))
    assert log.publish([], uploads=[upload]) == range(1, 1)
    with pytest.raises(errors.ConditionFailed, match="is over"):
        log.publish(left)
    with pytest.raises(errors.ConditionFailed):
        log.publish([], expected_tail=5)


def test_positions_are_withheld_by_a_hold_and_moved_by_its_decision(log: Log) -> None:
    log.append_many(numbered(2))
    fork = log.cfork("fork", promotable=True)
    blocked = log.cfork("blocked")
    fork.append(b"of the fork")
    assert log.publish(written(log.upload(), numbered(20, 10))) is None
    on_fork = written(fork.upload(), numbered(5, 90))
    assert fork.publish(on_fork) == range(23, 28)
    objects = written(blocked.upload(), [b"blocked"])
    with pytest.raises(errors.Blocked):
        blocked.publish(objects)
    assert fork.promote()
    assert values(log.read(0)) == [*numbered(2), b"of the fork", *numbered(20, 10), *numbered(5, 90)]
    assert blocked.publish(objects, wait=PATIENCE_S) is not None


def test_forks_see_what_is_published_and_severed_ones_keep_it(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("fork")
    assert log.publish(written(log.upload(), numbered(50))) == range(50)
    assert values(fork.read(0)) == numbered(50)
    cut = log.sfork("cut", at=33)
    log.trim(50)
    fork.squash()
    if not isinstance(site, ClusterSite):
        site.tend(braid)
        site.pass_time(braid, limits.GRACE_S * 2)
        site.compact(braid)
    assert values(cut.read(0)) == numbered(33)


def test_an_upload_outlives_a_restart(site: Site, braid: Braid, log: Log) -> None:
    upload = log.upload()
    first = written(upload, numbered(10))
    log = site.reopen(braid).log(log.name)
    objects = [*first, *written(upload, numbered(10, 10))]
    assert log.publish(objects) == range(20)
    assert values(log.read(0)) == numbered(20)


def test_what_is_not_published_in_time_is_deleted(site: Site, braid: Braid, log: Log) -> None:
    """And so is what the losers of a race wrote. What may yet be published is not."""
    sooner, later = log.upload(ttl=60), log.upload(ttl=600)
    lost, kept = written(sooner, numbered(10)), written(later, numbered(10, 10))
    loser = written(later, numbered(10, 20))
    folder = Path(sooner.objects)
    unfinished = [folder / f".tmp-{name.object[:9]}0000abcd.arrow" for name in (lost[0], kept[0])]
    for path in unfinished:
        path.write_bytes(b"half")
    upkeep = Upkeep(site.writer(braid))
    site.clock.advance(61)
    assert upkeep.end_uploads()
    assert not upkeep.end_uploads()
    assert site.writer(braid).forsaken
    upkeep.sweep()
    there = {path.name for path in folder.iterdir()}
    assert not there & {uploaded.object for uploaded in lost}
    assert there >= {uploaded.object for uploaded in [*kept, *loser]}
    assert [path.exists() for path in unfinished] == [False, True]
    with pytest.raises(errors.ConditionFailed, match="is over"):
        log.publish(lost)
    assert log.publish(kept) == range(10)
    upkeep.sweep()
    there = {path.name for path in folder.iterdir()}
    assert there >= {uploaded.object for uploaded in kept}
    assert not there & {uploaded.object for uploaded in loser}
    assert not unfinished[1].exists()
    assert values(log.read(0)) == numbered(10, 10)


def test_uploads_end_with_their_log(site: Site, braid: Braid, log: Log) -> None:
    fork = log.cfork("fork")
    left = written(fork.upload(), numbered(3))
    fork.squash()
    with pytest.raises(errors.Gone):
        fork.publish(left)
    assert Upkeep(site.writer(braid)).end_uploads()
    assert not site.writer(braid).forest.space.uploads.by_epoch


@pytest.mark.parametrize("ttl", [0, -1, limits.UPLOAD_TTL_MAX_S + 1])
def test_an_upload_lasts_for_a_while(log: Log, ttl: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="ttl"):
        log.upload(ttl=ttl)


def test_only_what_was_uploaded_is_published(log: Log) -> None:
    upload = log.upload()
    with pytest.raises(errors.InvalidArgument, match="str is no UploadedObject"):
        log.publish(["00000001-00000001.arrow"])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidArgument, match="int is no Upload"):
        log.publish(written(upload, [b"x"]), uploads=[upload.epoch])  # type: ignore[list-item]


def test_what_was_sent_behind_a_publication_stands_behind_it(log: Log) -> None:
    objects = written(log.upload(), numbered(30))
    published = log.publish(objects)
    assert published is not None
    assert [log.submit(b"%d" % number).position(PATIENCE_S) for number in range(3)] == [30, 31, 32]
