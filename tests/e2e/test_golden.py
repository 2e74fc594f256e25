"""A directory written by each format there ever was opens, shows the same, and goes on working."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import braidlog
from tests.e2e.golden.make import shown

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "expected.json").exists())


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


def test_there_is_one_for_the_present_format() -> None:
    assert "v1" in VERSIONS


@pytest.mark.parametrize("read_only", [False, True])
def test_it_shows_what_was_written(version: Path, tmp_path: Path, read_only: bool) -> None:
    shutil.copytree(version / "directory", tmp_path / "copy")
    expected = json.loads((version / "expected.json").read_text())
    with braidlog.open(tmp_path / "copy", read_only=read_only) as braid:
        logs = {log.name: shown(log) for log in braid.logs()}
        for name, then in expected["logs"].items():  # an older version did not tell all that is told now
            then["info"] = {**logs[name]["info"], **then["info"]}
        assert logs == expected["logs"]
        assert braid.resolve(expected["requests"]["withheld"]).withheld
        assert braid.resolve(expected["requests"]["settled"]).positions is not None


def test_it_goes_on_working(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version / "directory", tmp_path / "copy")
    expected = json.loads((version / "expected.json").read_text())
    with braidlog.open(tmp_path / "copy") as braid:
        orders, pending = braid.log("orders"), braid.log("pending")
        undecided = orders.tail()
        assert pending.promote(expected_own=2)
        assert [r.value for r in orders.read(undecided)] == [b"undecided", b"withheld", b"settled"]
        assert braid.resolve(expected["requests"]["withheld"]).positions == range(undecided + 1, undecided + 2)
        numbered = orders.append(b"repeated", writer="till", sequence=7)
        assert numbered is not None
        assert orders[numbered].value == b"numbered"
    with braidlog.open(tmp_path / "copy") as braid:
        assert b"undecided" in [r.value for r in braid.log("orders").read(undecided)]
