"""The model's histories are short: what counts as young has to be, too."""

from __future__ import annotations

import pytest

from braidlog import limits


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "YOUNG_COMMANDS", 20)
