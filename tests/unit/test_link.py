"""A client's connection, with servers that cannot be reached, each in its way: whoever waits is told, and told why."""

from __future__ import annotations

import logging
import threading

import pytest

from braidlog.client.remote.link import Connected, Link
from braidlog.client.remote.opening import addresses_of
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.wire import messages as m
from braidlog.wire.calls import Call

PATIENCE_S = 20.0


class Away:
    """Where every attempt to connect fails in the same way."""

    def __init__(self, error: Exception, after: threading.Event | None = None) -> None:
        self._error = error
        self._after = after
        self.tried = threading.Semaphore(0)

    def __str__(self) -> str:
        return "away"

    def connect(self, timeout: float) -> Connected:
        del timeout
        self.tried.release()
        if self._after is not None:
            assert self._after.wait(PATIENCE_S)
        raise self._error

    def discloses(self, connected: Connected) -> bool:
        del connected
        return False


@pytest.mark.parametrize("host", ["my..host", ".", "a" * 64, "\udcff", "a\0b", "a" * 300])
def test_what_cannot_be_a_host_is_refused_where_it_is_named(host: str) -> None:
    with pytest.raises(InvalidArgument, match="not the name of a host"):
        addresses_of(f"braid://{host}:7")


@pytest.mark.parametrize("host", ["localhost", "a-b.c", "host.", "10.0.0.1", "[::1]", "b\u00fccher.example", "a_b"])
def test_what_could_be_one_is_not(host: str) -> None:
    [address] = addresses_of(f"braid://{host}:7")
    assert str(address) == f"{host.strip('[]')}:7"


def test_a_name_that_nobody_can_look_up_is_a_server_that_cannot_be_reached() -> None:
    """Not an OSError, which the thread would not have lived through: it goes on trying, and says why."""
    away = Away(UnicodeError("label empty or too long"))
    link = Link([away], b"8 bytes.", "tests")
    try:
        assert all(away.tried.acquire(timeout=PATIENCE_S) for _ in range(2))
        with pytest.raises(Unavailable, match="label empty or too long"):
            link.wait_connected(0)
    finally:
        link.close()


def test_when_its_thread_fails_whoever_waits_is_told_and_nobody_waits_after_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = threading.Event()
    told: list[m.Answer | BraidError] = []
    done = threading.Event()

    def answered(_: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        told.append(answer)
        done.set()

    link = Link([Away(RuntimeError("a mistake of ours"), begun)], b"8 bytes.", "tests")
    with caplog.at_level(logging.CRITICAL):
        link.begin(m.Tail(1), b"", 1e6, answered)
        begun.set()
        assert done.wait(PATIENCE_S)
    assert isinstance(told[0], Unavailable)
    assert "a mistake of ours" in str(told[0])
    with pytest.raises(Unavailable, match="a mistake of ours"):
        link.wait_connected(PATIENCE_S)
    with pytest.raises(Unavailable, match="open it again"):
        link.begin(m.Tail(1), b"", 1e6, answered)
    assert not link.alive(0)
