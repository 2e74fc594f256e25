"""Two metadata groups: each tree is whole in one of them, and a client sees all as one braid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog import aio, bulk, errors
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.client.groups import group_of
from braidlog.client.opening import write_directory
from braidlog.embedded.writer import Writer

GROUPS = 2


def named(group: int, groups: int = GROUPS) -> str:
    """A name that falls to a group."""
    return next(name for n in range(1000) if group_of(name := f"log-{group}-{n}", groups) == group)


def writer_of(braid: braidlog.Braid) -> Writer:
    backend = braid._session.backend
    assert isinstance(backend, Writer)
    return backend


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    places = [write_directory(tmp_path / f"group-{number}") for number in range(GROUPS)]
    servers = []
    addresses = []
    for number, place in enumerate(places):
        writer = writer_of(place)
        server = ServerThread(lambda writer=writer: LocalService(writer), f"group-{number}")  # type: ignore[misc]
        host, port = server.listen_tcp("127.0.0.1", 0)
        servers.append(server)
        addresses.append(f"{host}:{port}")
    yield "braid://" + ";".join(addresses)
    for server in servers:
        server.close()
    for place in places:
        place.close()


@pytest.fixture
def braid(url: str) -> Iterator[braidlog.Braid]:
    with braidlog.open(url) as braid:
        yield braid


def test_names_are_spread_evenly_and_few_move_when_a_group_is_added() -> None:
    names = [f"orders-{n}" for n in range(3000)]
    for groups in (2, 3, 5):
        sizes = [sum(group_of(name, groups) == group for name in names) for group in range(groups)]
        assert min(sizes) > 0.8 * len(names) / groups
        moved = [name for name in names if group_of(name, groups) != group_of(name, groups + 1)]
        assert all(group_of(name, groups + 1) == groups for name in moved)


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_uploaded_for_a_log_goes_to_its_group(braid: braidlog.Braid, tmp_path: Path, group: int) -> None:
    log, other = braid.create(named(group)), braid.create(named((group + 1) % GROUPS))
    upload = log.upload()
    assert Path(upload.objects).parent == tmp_path / f"group-{group}"
    with bulk.ObjectWriter(upload) as writer:
        writer.add(pa.table({"value": [b"0", b"1"]}))
    assert log.publish(writer.close(), uploads=[log.upload()]) == range(2)
    assert [record.value for record in log.read(0)] == [b"0", b"1"]
    other.discard(other.upload())


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_whole_story_takes_place_in_each_group(braid: braidlog.Braid, group: int) -> None:
    log = braid.create(named(group))
    assert [log.append(b"%d" % n) for n in range(3)] == [0, 1, 2]
    ticket = log.submit([b"3", b"4"])
    assert ticket.durable() is None
    assert ticket.position() == range(3, 5)
    fork = log.cfork("try", promotable=True)
    assert fork.append(b"own") == 5
    assert log.append(b"withheld") is None
    assert [r.value for r in log.read(0)] == [b"%d" % n for n in range(5)]
    assert [entry.record.value for entry in fork.diff() if entry.own] == [b"own"]
    assert fork.info().parent == log.name
    assert [step.id for step in fork.lineage()] == [fork.info().id, log.info().id]
    assert fork.info().id >> 48 == group
    assert fork.promote()
    assert [r.value for r in log.read(5)] == [b"own", b"withheld"]
    with pytest.raises(errors.Gone):
        fork.append(b"late")
    assert braid.log(log.name).tail() == 7
    severed = log.sfork("then", at=2)
    assert severed.tail() == 2
    severed.squash()
    got = []
    for record in log.subscribe(0, consumer="till"):
        got.append(record.value)
        if len(got) == 7:
            break
    assert got[5] == b"own"
    assert braid.resolve(ticket.request_id).positions == range(3, 5)
    braid.drop(log.name)
    assert log.name not in braid


def test_all_logs_are_listed_and_found_wherever_they_are(braid: braidlog.Braid) -> None:
    roots = [braid.create(named(group)) for group in range(GROUPS)]
    forks = [root.cfork(f"fork-of-{number}") for number, root in enumerate(roots)]
    assert {log.name for log in braid.logs()} == {log.name for log in [*roots, *forks]}
    for log in [*roots, *forks]:
        assert braid.log(log.name).info().id == log.info().id
    with pytest.raises(errors.NotFound, match="no log 'nobody'"):
        braid.log("nobody")


def test_a_name_that_means_two_logs_is_never_guessed(braid: braidlog.Braid) -> None:
    first, second = (braid.create(named(group)) for group in range(GROUPS))
    name = named(0)[:-1] + "-shared"
    own = group_of(name, GROUPS)
    other = (first, second)[1 - own]
    other.cfork(name)
    assert braid.log(name).info().parent == other.name
    with pytest.raises(errors.AlreadyExists):
        braid.create(name)
    (first, second)[own].cfork(name)
    assert braid.log(name).info().parent == (first, second)[own].name  # the group that the name falls to comes first


def test_readers_wait_in_each_group_by_themselves(braid: braidlog.Braid) -> None:
    first, second = (braid.create(named(group)) for group in range(GROUPS))
    for log in (first, second):
        assert log.read(0, wait=0.01) == []
    first.append(b"x")
    assert [r.value for r in first.read(0, wait=5)] == [b"x"]
    assert second.read(0, wait=0.01) == []


def test_awaited_it_is_the_same(url: str) -> None:
    async def story() -> None:
        async with await aio.open(url) as braid:
            logs = [await braid.create(named(group)) for group in range(GROUPS)]
            positions = await asyncio.gather(*(log.append(b"%d" % n) for n in range(20) for log in logs))
            assert sorted(p for p in positions if p is not None) == sorted([*range(20), *range(20)])
            for log in logs:
                assert len(await log.read(0)) == 20

    asyncio.run(story())


@pytest.mark.parametrize("wrong", ["braid://;", "braid://a:1;", "braid://a:1;;b:2"])
def test_a_group_without_a_server_is_refused(wrong: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        braidlog.open(wrong)
