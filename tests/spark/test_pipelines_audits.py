"""The audits find nothing in what is true, and every lie: in what clients were told, and in what a store holds."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import braidlog
from apps.pipelines import linearizability_audit, space_audit
from braidlog import bulk
from braidlog.errors import InvalidArgument
from braidlog.testing.linearizability import check, export, imported, load
from braidlog.testing.seaweed import Seaweed
from tests.faults.torture import Torture
from tests.spark.conftest import eventually
from tests.spark.planted import LIES, Story, relabelled


def test_a_tormented_cluster_told_nothing_that_cannot_be_and_its_store_holds_what_logs_lead_to(
    spark: SparkSession, s3: Seaweed, directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster").mkdir()
    with contextlib.closing(Torture(tmp_path / "cluster", s3)) as torture:
        torture.play(1, tmp_path, clients=2, deeds=5, store_down_s=0.2)
        url = torture.cluster.url
        with braidlog.open(url) as braid:
            (stored,) = {str(part.object) for part in _with_an_object(braid).plan().parts}
            store = space_audit._store_of(braid)
        space = space_audit.look(url)
        assert stored in {run[3] for run in space.runs} & {one[0] for one in space.stored}
        assert {row.problem for row in space_audit.audit(*space.frames(spark)).collect()} <= {"unreached"}
        store.delete(stored)
        store.close()
        found = {object: problem for object, problem in problems(spark, url).items() if problem[0] != "unreached"}
        assert found == {stored: ("missing", ["large"])}
    history = load(tmp_path / "history-1.jsonl")
    assert len(history) > 50
    linearizability_audit.main(["--url", directory, "--file", str(tmp_path / "history-1.jsonl")])
    assert capsys.readouterr().out.endswith("0 violations\n")
    with braidlog.open(directory) as braid:
        assert list(imported(braid.log("history").read(0))) == history


def _with_an_object(braid: braidlog.Braid) -> braidlog.Log:
    log = braid.create("large")
    log.append_many(large(b"a"))
    return log


def test_every_lie_is_found_and_the_truth_is_not_doubted(spark: SparkSession, directory: str) -> None:
    with braidlog.open(directory) as braid:
        truth = Story(braid).history()
        assert check(truth)
        told = relabelled(truth, "the truth")
        for name, (lie, _) in LIES.items():
            assert not check(lie(truth)), f"{name}: that is no lie"
            told += relabelled(lie(truth), name)
        assert export(told, braid.create("histories")) == len(told)
        records = spark.read.format("braidlog").options(url=braid.url, log="histories").load()
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in linearizability_audit.audit(records).collect():
            found[row.log.strip('"').partition("/")[0]].add(row.kind)
            assert row.calls
    assert "the truth" not in found
    missed = {name: (kinds, found[name]) for name, (_, kinds) in LIES.items() if not kinds <= found[name]}
    assert missed == {}


def test_no_rule_puts_the_appends_of_a_log_into_one_row(spark: SparkSession) -> None:
    audit = linearizability_audit.Audit(spark.createDataFrame([], linearizability_audit.SCHEMA))
    plans = {rule.__name__: rule()._jdf.queryExecution().analyzed().toString() for rule in audit.rules()}  # type: ignore[operator]
    assert [name for name, plan in plans.items() if "collect_list" in plan or "array_contains" in plan] == []


def test_what_is_no_history_does_not_pass_for_a_good_one(spark: SparkSession, directory: str) -> None:
    with braidlog.open(directory) as braid:
        braid.create("empty")
        export(Story(braid).history(), braid.create("damaged"))
        braid.log("damaged").append(b"{")
        for log, said in (("empty", "no calls"), ("orders", "are no calls"), ("damaged", "1 of")):
            records = spark.read.format("braidlog").options(url=braid.url, log=log).load()
            with pytest.raises(InvalidArgument, match=said):
                linearizability_audit.audit(records)


# --- space ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def braid(directory: str) -> Iterator[braidlog.Braid]:
    """The second opening, so that there is an epoch that is over."""
    braidlog.open(directory).close()
    with braidlog.open(directory) as opened:
        yield opened


def large(letter: bytes) -> list[bytes]:
    """A batch that goes into an object of its own."""
    return [letter * 100_000 for _ in range(4)]


def problems(spark: SparkSession, url: str) -> dict[str, tuple[str, list[str] | None]]:
    rows = space_audit.audit(*space_audit.look(url).frames(spark)).collect()
    return {row.object: (row.problem, row.logs) for row in rows}


def test_a_store_is_held_against_what_logs_and_forks_refer_to(
    spark: SparkSession, braid: braidlog.Braid, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(directory) / "objects"
    orders = braid.create("orders")
    orders.append_many(large(b"a"))
    live = orders.cfork("live")
    live.append_many(large(b"b"))
    squashed = orders.cfork("squashed")
    squashed.append_many(large(b"c"))
    (condemned,) = {part.object for part in squashed.plan(4).parts}
    squashed.squash()
    upload = orders.upload()
    with bulk.ObjectWriter(upload) as writer:
        writer.add(pa.record_batch({"value": pa.array([b"not published yet"])}))
        pending = writer.close()
    assert pending

    def standing_of(name: str | None) -> str | None:
        return {stored[0]: stored[2] for stored in space_audit.look(directory).stored}.get(str(name))

    eventually(lambda: standing_of(condemned) == "condemned", "the collector condemns what nobody can read")
    assert standing_of(pending[0].object) == "pending"
    assert problems(spark, directory) == {}, "what is condemned or pending is accounted for"

    leaked = folder / "00000001-0000dead.arrow"
    leaked.write_bytes(b"nobody knows me")
    (shared,) = {str(part.object) for part in orders.plan().parts}
    (own,) = {str(part.object) for part in live.plan(4).parts}
    (folder / shared).rename(folder.parent / "taken away")
    with open(folder / own, "r+b") as file:
        file.truncate(1000)
    assert problems(spark, directory) == {
        leaked.name: ("leaked", None),
        shared: ("missing", ["live", "orders"]),
        own: ("truncated", ["live"]),
    }
    with pytest.raises(SystemExit):
        space_audit.main(["--url", directory])
    assert "'missing': 1" in capsys.readouterr().out
    (folder.parent / "taken away").rename(folder / shared)


def test_what_is_condemned_must_not_be_read_and_what_is_kept_should_be(spark: SparkSession) -> None:
    stored = [("a", 10, "condemned"), ("b", 10, "kept"), ("c", 10, None), ("d", 10, "kept"), ("e", 10, "condemned")]
    runs = [("orders", 0, 5, "a", 0, 10), ("orders", 5, 6, "d", 2, 8)]
    rows = space_audit.audit(*space_audit.Space(stored, runs).frames(spark)).collect()
    assert {row.object: row.problem for row in rows} == {"a": "doomed", "b": "unreached", "c": "unreached"}
