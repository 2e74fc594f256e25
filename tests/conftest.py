"""Fixtures that several kinds of tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
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
