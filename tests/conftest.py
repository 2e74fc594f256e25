"""Fixtures that several kinds of tests use."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.testing.seaweed import Seaweed
from tests.e2e.conformance import SITES, Site


@pytest.fixture(params=sorted(SITES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Each place that logs can live in, one after the other."""
    opened = SITES[request.param](tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def braid(site: Site) -> braidlog.Braid:
    """A fresh braid at the site."""
    return site.open()


@pytest.fixture
def log(braid: braidlog.Braid) -> braidlog.Log:
    """An empty log in it."""
    return braid.create("orders")


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[Seaweed]:
    """An S3 server, one for all tests of this process. It is real, and takes some seconds to start."""
    with Seaweed.start() as server:
        yield server


@pytest.fixture
def seaweed(seaweed_server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Seaweed:
    """The same, with what lets this process and its children in."""
    for name, value in seaweed_server.environment.items():
        monkeypatch.setenv(name, value)
    return seaweed_server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A place in a bucket that no other test uses."""
    return f"{request.node.name.partition('[')[0]}-{uuid.uuid4().hex[:8]}"
