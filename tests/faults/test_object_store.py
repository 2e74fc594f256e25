"""Through a bad line to a real S3 server nothing is lost, nothing is there twice, and nobody waits for ever."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from braidlog.objects import locations
from braidlog.objects.blobs import Blobs
from braidlog.testing.s3_faults import FAULTS, Fault, S3Faults
from braidlog.testing.seaweed import Seaweed

DEADLINE_S = 1.5  # of a call, so that an attempt has one


class Line:
    """To the server, through the proxy, and directly."""

    def __init__(self, seaweed: Seaweed, proxy: S3Faults, prefix: str, timeout_s: float = DEADLINE_S) -> None:
        self.proxy = proxy
        self.prefix = prefix
        through = locations.parse(seaweed.url(prefix, endpoint=proxy.endpoint, timeout=f"{timeout_s:g}"))
        self.blobs: Blobs = locations.open_blobs(through)
        self.direct: Blobs = locations.open_blobs(locations.parse(seaweed.url(prefix)))

    def key(self, name: object) -> str:
        return f"{self.prefix}/{name}"


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[S3Faults]:
    with S3Faults(seaweed.port) as proxy:
        yield proxy


@pytest.fixture
def line(seaweed: Seaweed, proxy: S3Faults, prefix: str) -> Line:
    return Line(seaweed, proxy, prefix)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_survives_a_fault(line: Line, fault: Fault) -> None:
    line.proxy.script("PUT", [fault])
    line.blobs.create(line.key("a"), b"some bytes")
    assert line.proxy.befell(fault) == 1
    assert line.direct.read(line.key("a"), 0, 99) == b"some bytes"


@pytest.mark.parametrize("fault", ["drop response", "hold response"])
def test_a_create_that_went_unanswered_is_found_to_be_ours(line: Line, fault: Fault) -> None:
    body = random.Random(3).randbytes(1_000_000)
    line.proxy.script("PUT", [fault])
    line.proxy.script("GET", ["slow down", "cut response"])
    line.blobs.create(line.key("a"), [body[:10], body[10:]])
    assert sum(request.method == "PUT" for request in line.proxy.requests) >= 2
    assert line.direct.read(line.key("a"), 0, 2_000_000) == body


@pytest.mark.parametrize("theirs", [b"bytes of another", b"shorter"])
def test_a_create_that_went_unanswered_is_not_taken_for_ours_if_it_is_not(line: Line, theirs: bytes) -> None:
    line.direct.create(line.key("a"), theirs)
    line.proxy.script("PUT", ["drop request"])
    with pytest.raises(FileExistsError):
        line.blobs.create(line.key("a"), b"bytes of ours !!")
    assert line.direct.read(line.key("a"), 0, 99) == theirs


@pytest.mark.parametrize("fault", FAULTS)
def test_reading_looking_listing_and_deleting_survive_a_fault(line: Line, fault: Fault) -> None:
    body = random.Random(4).randbytes(100_000)
    line.direct.create(line.key("a"), body)
    for method in ("GET", "HEAD", "DELETE", "POST"):
        line.proxy.script(method, [fault])
    assert line.blobs.read(line.key("a"), 100, 50_000) == body[100:50_100]
    assert line.blobs.size(line.key("a")) == len(body)
    line.proxy.script("GET", [fault])
    assert line.blobs.list(line.key("")) == [line.key("a")]
    line.blobs.delete(line.key("a"))
    assert line.direct.list(line.key("")) == []
    assert line.proxy.befell(fault) == 4  # a delete is one of DELETE and POST


@pytest.mark.parametrize("fault", ["slow down", "drop request", "drop response", "hold response"])
def test_a_store_that_stays_bad_is_given_up_in_time(seaweed: Seaweed, prefix: str, fault: Fault) -> None:
    with S3Faults(seaweed.port, rates={fault: 1.0}) as proxy:
        line = Line(seaweed, proxy, prefix, timeout_s=1.0)
        began = time.monotonic()
        with pytest.raises(OSError, match=r"cannot create .*tried .* times") as failure:
            line.blobs.create(line.key("a"), b"x")
        assert isinstance(failure.value, TimeoutError)  # it may have happened: who could tell?
        with pytest.raises(OSError, match="cannot read") as failure:
            line.blobs.read(line.key("a"), 0, 1)
        assert not isinstance(failure.value, FileNotFoundError)
        assert time.monotonic() - began < 2 * 1.0 + 0.5
        assert 4 <= len(proxy.requests) <= 20  # tried again, and not in a frenzy


def test_a_store_that_is_not_there_did_nothing_for_certain(prefix: str, seaweed: Seaweed) -> None:
    nobody = locations.open_blobs(locations.parse(seaweed.url(prefix, endpoint="http://127.0.0.1:9", timeout="0.5")))
    with pytest.raises(OSError, match="cannot be reached") as failure:
        nobody.create("a", b"x")
    assert not isinstance(failure.value, TimeoutError)


def test_what_is_refused_for_good_is_not_tried_again(
    line: Line, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stranger = Line(seaweed, line.proxy, prefix)
    with pytest.raises(PermissionError, match="check the credentials"):
        stranger.blobs.create(stranger.key("a"), b"x")
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch"):
        stranger.blobs.read(stranger.key("a"), 0, 1)
    assert len(line.proxy.requests) == 2


def test_giving_up_does_not_wait(line: Line) -> None:
    line.proxy.down()
    line.blobs.close()
    began = time.monotonic()
    with pytest.raises(OSError, match="tried 1 times"):
        line.blobs.size(line.key("a"))
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_doubled_on_a_line_of_many_faults(seaweed: Seaweed, prefix: str, seed: int) -> None:
    rates: dict[Fault, float] = {
        "slow down": 0.05,
        "drop request": 0.05,
        "drop response": 0.1,
        "cut response": 0.05,
        "delay": 0.05,
    }
    chance = random.Random(seed)
    with S3Faults(seaweed.port, seed=seed, rates=rates, delay_s=0.01) as proxy:
        line = Line(seaweed, proxy, prefix, timeout_s=20)
        kept: dict[str, bytes] = {}
        for number in range(60):
            key = line.key(chance.randrange(30))
            body = b"%d " % number + chance.randbytes(chance.randrange(2_000))
            if chance.random() < 0.3:
                line.blobs.delete(key)
                kept.pop(key, None)
            elif key in kept:
                with pytest.raises(FileExistsError):
                    line.blobs.create(key, body)
                assert line.blobs.read(key, 0, 9_999) == kept[key]
            else:
                line.blobs.create(key, body)
                kept[key] = body
        assert line.blobs.list(line.key("")) == sorted(kept)
        assert {key: bytes(line.direct.read(key, 0, 9_999)) for key in kept} == kept
        assert proxy.befell("drop response") > 5


def test_the_same_seed_does_the_same(seaweed: Seaweed) -> None:
    fates = []
    for _ in range(2):
        with S3Faults(seaweed.port, seed=7, rates={"slow down": 0.3, "delay": 0.3}) as proxy:
            fates.append([proxy.fate(method, "/") for method in ("GET", "PUT") * 50])
    assert fates[0] == fates[1]
    assert set(fates[0]) == {"slow down", "delay", None}
