"""A directory written by each format there ever was opens, shows the same, and goes on working."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import braidlog
from braidlog import bulk, errors, limits
from braidlog.embedded.replica import Replica
from braidlog.forest import commands as c
from braidlog.metadata import directory
from tests.e2e.golden.make import CLIENT, shown

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "expected.json").exists())


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


def test_there_is_one_for_every_format() -> None:
    assert [f"v{number + 1}" for number in range(directory.VERSION)] == VERSIONS


@pytest.mark.parametrize("read_only", [False, True])
def test_it_shows_what_was_written(version: Path, tmp_path: Path, read_only: bool) -> None:
    shutil.copytree(version / "directory", tmp_path / "copy")
    expected = json.loads((version / "expected.json").read_text())
    with braidlog.open(tmp_path / "copy", read_only=read_only) as braid:
        logs = {log.name: shown(log) for log in braid.logs()}
        for name, then in expected["logs"].items():  # an older version did not tell all that is told now
            then["info"] = {**logs[name]["info"], **then["info"]}
            then.setdefault("consumers", [])
        assert logs == expected["logs"]
        assert braid.resolve(expected["requests"]["withheld"]).withheld
        for other in expected["requests"].keys() - {"withheld"}:
            assert braid.resolve(expected["requests"][other]).positions is not None, other


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


def test_writing_brings_it_to_the_present_format_and_reading_does_not(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version / "directory", tmp_path / "copy")
    before = (tmp_path / "copy" / "FORMAT").read_text()
    braidlog.open(tmp_path / "copy", read_only=True).close()
    assert (tmp_path / "copy" / "FORMAT").read_text() == before
    braidlog.open(tmp_path / "copy").close()
    head, _, rest = (tmp_path / "copy" / "FORMAT").read_text().partition("\n")
    assert head == f"braidlog {directory.VERSION}"  # which an older program refuses by name
    assert rest == before.partition("\n")[2]


def test_what_format_2_added_goes_on_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "YOUNG_COMMANDS", 2)  # as many outcomes as were kept when it was written
    shutil.copytree(GOLDEN / "v2" / "directory", tmp_path / "copy")
    with braidlog.open(tmp_path / "copy") as braid:
        orders, backend = braid.log("orders"), braid._session.backend
        tail = orders.info().tail
        again = c.Append(orders.id, 1, 1, 0, 0, b"-", request=CLIENT + (5).to_bytes(8, "big"))
        known = backend.execute(c.Again(again, 0))
        assert isinstance(known, c.Appended)
        assert known.first < tail
        with pytest.raises(errors.OutcomeUnknown):
            backend.execute(c.Again(msgspec.structs.replace(again, request=CLIENT + bytes(8)), 0))
        assert orders.info().tail == tail
        orders.commit("mail", 9)
        short = {one.name: one.position for one in braid.log("short").consumers()}
        assert (short["mail"], short["bills"]) == (5, 3)


def test_what_format_3_added_goes_on_working(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v3" / "directory", tmp_path / "copy")
    with braidlog.open(tmp_path / "copy", read_only=True) as braid:
        backend = braid._session.backend
        assert isinstance(backend, Replica)
        uploaded = braid.log("uploaded")
        assert [living.log for living in backend.forest.space.uploads.by_epoch.values()] == [uploaded.id]
        assert [record.value for record in uploaded.read(5)] == [b"uploaded %d" % n for n in range(5)]
    with braidlog.open(tmp_path / "copy") as braid:
        uploaded = braid.log("uploaded")
        with bulk.ObjectWriter(uploaded.upload()) as writer:
            writer.add(pa.table({"value": [b"more"]}))
        assert uploaded.publish(writer.close(), writer="job", sequence=5) == range(5, 10)  # as it was published then
        assert uploaded.publish(writer.close(), writer="job", sequence=6) == range(10, 11)
