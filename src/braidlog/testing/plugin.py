"""Fixtures for pytest. To use them, write `pytest_plugins = ["braidlog.testing.plugin"]` into your conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import braidlog


@pytest.fixture
def braid() -> Iterator[braidlog.Braid]:
    """An empty braid in memory, closed after the test."""
    with braidlog.open("memory://") as opened:
        yield opened
