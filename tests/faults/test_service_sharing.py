"""A directory that its writer shares: others work through him; when he is gone they are told, and may follow him."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import braidlog
from braidlog import limits
from braidlog.client.remote.backend import RemoteBackend
from braidlog.client.remote.opening import SOCKET
from braidlog.embedded.writer import Writer
from braidlog.errors import AlreadyExists, BraidError, Locked, OutcomeUnknown, Unavailable
from tests.faults.processes import KILLED, Child

PATIENCE_S = 20.0


def holds(braid: braidlog.Braid) -> bool:
    return isinstance(braid._session.backend, Writer)


def orders(braid: braidlog.Braid) -> braidlog.Log:
    """The log, made by whoever comes first."""
    with contextlib.suppress(AlreadyExists):
        return braid.create("orders")
    return braid.log("orders")


def holding(where: Path) -> Child:
    """A process that has the directory open, with a log in it, until it is told to close it."""

    def work(parent: Connection) -> None:
        braid = braidlog.open(where)
        log = orders(braid)
        log.append(b"of the holder")
        parent.send("open")
        while (order := parent.recv()) != "close":
            if order == "fork":
                child = os.fork()
                if child == 0:
                    signal.pause()
                parent.send(child)
            elif order == "append":
                parent.send(log.append(b"again"))
        braid.close()
        parent.send("closed")

    child = Child(work)
    assert child.hear() == "open"
    return child


def values(braid: braidlog.Braid) -> list[bytes]:
    return [record.value for record in braid.log("orders").read(0)]


def test_who_comes_second_works_through_the_first(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"
    with holding(where) as holder, braidlog.open(where) as braid:
        assert not holds(braid)
        assert braid.log("orders").append(b"of another") == 1
        assert holder.ask("append") == 2
        assert values(braid) == [b"of the holder", b"of another", b"again"]


def test_many_processes_that_open_at_once_share_one_log(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"
    each, processes = 25, 5

    def work(parent: Connection) -> None:
        parent.recv()
        with braidlog.open(where) as braid:
            log = orders(braid)
            for n in range(each):
                log.append(b"%d %d" % (os.getpid(), n))
            parent.send(os.getpid() if holds(braid) else 0)
            parent.recv()  # who closes first must not take the others' log away

    children = [Child(work) for _ in range(processes)]
    try:
        for child in children:
            child.say("go")
        holders = [child.hear() for child in children]
        assert sum(bool(holder) for holder in holders) == 1
        with braidlog.open(where) as braid:
            found = values(braid)
        assert len(found) == len(set(found)) == each * processes
        for child, holder in sorted(zip(children, holders, strict=True), key=lambda pair: bool(pair[1])):
            child.say("close")
            assert child.wait() == 0, holder
    finally:
        for child in children:
            child.__exit__(None, None, None)


@pytest.mark.parametrize("killed", [False, True], ids=["closes", "is killed"])
def test_when_the_holder_is_gone_the_others_are_told_in_time_and_can_open_again(tmp_path: Path, killed: bool) -> None:
    where = tmp_path / "shared.braid"
    with holding(where) as holder:
        braid = braidlog.open(where, timeout=1.0)
        log = braid.log("orders")
        assert log.append(b"of another") == 1
        if killed:
            holder.kill()
            assert holder.wait() == KILLED
            assert (where / SOCKET).exists()
        else:
            assert holder.ask("close") == "closed"
            assert not (where / SOCKET).exists()
        with pytest.raises((Unavailable, OutcomeUnknown)) as told:  # unknown, if it was sent before the end was known
            log.append(b"to nobody")
        assert str(where) in str(told.value)
        with pytest.raises(BraidError):
            log.tail()
        # Whoever opens it now holds it, and those who worked through the last one work through him.
        with braidlog.open(where) as next_one:
            assert holds(next_one)
            assert values(next_one) == [b"of the holder", b"of another"]
            assert log.append(b"through the next") == 2
        braid.close()


def test_children_of_the_holder_do_not_keep_it_alive(tmp_path: Path) -> None:
    """A process that the holder forked has its sockets too, and must not let others wait for an answer."""
    where = tmp_path / "shared.braid"
    with holding(where) as holder:
        braid = braidlog.open(where, timeout=1.0)
        assert braid.log("orders").append(b"of another") == 1
        grandchild = holder.ask("fork")
        assert isinstance(grandchild, int)
        try:
            assert holder.ask("append") == 2  # what the child let go of, the holder still has
            assert braid.log("orders").append(b"more") == 3
            holder.kill()
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            ended = threading.Event()
            braid._session.backend.link.on_connected = ended.set  # type: ignore[attr-defined]
            with braidlog.open(where) as next_one:
                assert holds(next_one)
                assert braid.log("orders").append(b"through the next") == 4
                assert ended.wait(PATIENCE_S)
        finally:
            os.kill(grandchild, signal.SIGKILL)
        braid.close()


def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    """What it sent over the parent's connection would be taken for the parent's, and its ids for repetitions."""
    where = tmp_path / "shared.braid"
    with holding(where), braidlog.open(where) as braid:
        log = braid.log("orders")
        assert log.append(b"before") == 1

        def work(parent: Connection) -> None:
            try:
                log.append(b"of the child")
            except Unavailable as error:
                parent.send(str(error))
            braid.close()
            with braidlog.open(where) as mine:
                parent.send(mine.log("orders").append(b"by its own"))

        with Child(work) as child:
            assert "forked" in str(child.hear())
            assert child.hear() == 2
            assert child.wait() == 0
        assert log.append(b"after") == 3
        assert values(braid) == [b"of the holder", b"before", b"by its own", b"after"]


def test_a_path_may_be_longer_than_that_of_a_socket(tmp_path: Path) -> None:
    where = tmp_path / ("long-" * 20) / ("longer-" * 20) / "shared.braid"
    where.parent.mkdir(parents=True)
    with braidlog.open(where) as first, braidlog.open(where) as second:
        assert holds(first)
        assert not holds(second)
        second.create("orders").append(b"x")
        assert values(first) == [b"x"]
        assert (where / SOCKET).exists()
    assert not (where / SOCKET).exists()


def test_the_socket_is_for_its_user_alone(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"
    with braidlog.open(where):
        assert stat.S_IMODE(os.stat(where / SOCKET).st_mode) == 0o600


@pytest.mark.parametrize("kind", ["file", "socket", "folder"])
def test_whatever_stands_where_the_socket_is_to_be_does_not_keep_the_writer_out(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "shared.braid"
    braidlog.open(where).close()
    stale = socket.socket(socket.AF_UNIX)
    if kind == "file":
        (where / SOCKET).write_bytes(b"stale")
    elif kind == "socket":
        folder = os.open(where, os.O_RDONLY)
        stale.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        os.close(folder)
    else:
        (where / SOCKET).mkdir()
    stale.close()
    with braidlog.open(where) as braid:
        assert holds(braid)
        assert braid.create("orders").append(b"x") == 0
        if kind != "folder":
            with braidlog.open(where) as second:
                assert values(second) == [b"x"]


def test_who_does_not_share_locks_the_others_out_at_once(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"
    with braidlog.open(where, serve=False), pytest.raises(Locked):
        braidlog.open(where)


def test_a_holder_that_does_not_answer_is_given_up_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(limits, "KNOCK_S", 0.1)
    where = tmp_path / "shared.braid"
    with holding(where) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Locked) as told:
                braidlog.open(where)
            assert told.value.pid == holder.pid
        finally:
            os.kill(holder.pid, signal.SIGCONT)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to this user")
def test_a_read_only_directory_says_so(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"
    braidlog.open(where).close()
    where.chmod(0o500)
    try:
        with pytest.raises(Unavailable):
            braidlog.open(where)
        braidlog.open(where, read_only=True).close()
    finally:
        where.chmod(0o700)


def test_it_is_shared_however_many_files_its_holder_has_open(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"

    def work(parent: Connection) -> None:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2000, hard), hard))
        kept = [os.dup(0) for _ in range(1100)]
        with braidlog.open(where) as braid:
            braid.create("orders").append(b"x")
            parent.send(len(kept))
            parent.recv()

    with Child(work) as child:
        assert child.hear() == 1100
        with braidlog.open(where) as second:
            assert not holds(second)
            assert values(second) == [b"x"]
        child.say("close")
        assert child.wait() == 0


def test_nothing_is_left_of_a_share_that_is_closed(tmp_path: Path) -> None:
    where = tmp_path / "shared.braid"

    def share() -> None:
        with braidlog.open(where) as first, braidlog.open(where) as second:
            assert isinstance(second._session.backend, RemoteBackend)
            assert holds(first)

    share()  # what is kept from the first time on is no leak
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        share()
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) < files + 8
