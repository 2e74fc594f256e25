"""Bounds made small, so that a short run meets growth, rolls, objects, compactions and checkpoints often."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.metadata import file_log


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INLINE_BYTES_MAX", 4096)
    monkeypatch.setattr(limits, "LOG_GROWTH_BYTES", 8192)
    monkeypatch.setattr(file_log, "_ZEROS", bytes(8192))
    monkeypatch.setattr(limits, "COMPACT_OBJECTS_MIN", 2)
