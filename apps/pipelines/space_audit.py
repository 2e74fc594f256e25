"""Whether the store holds what logs and forks refer to, and nothing else: an anti-join in both directions.

One side is what is stored, the other what the plans of all logs and forks lead to. What is wrong with an object:

- `missing`: a log leads to it, and it is not there. `truncated`: it is there, and shorter than what is read of it.
- `doomed`: a log leads to it, and it is condemned to be deleted.
- `leaked`: no log leads to it, nobody registered it, and nobody can any more.
- `unreached`: no log leads to it, and it is registered. The collector condemns those; one that stays is a leak.

What is condemned, or belongs to an upload that lives, is accounted for. How an object stands is known of directories;
of a service only where its objects are, so there what no log leads to is `unreached`, whatever the reason.

    python -m apps.pipelines.space_audit --url orders.braid

It ends with status 1 if there is anything but `unreached`. A writer may be at work meanwhile: things are looked at in
an order in which nothing that it does looks wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import braidlog
from apps.pipelines.command import session
from braidlog import limits
from braidlog.client.remote.opening import SCHEMES
from braidlog.embedded.inventory import standings
from braidlog.embedded.replica import Replica
from braidlog.errors import Gone, InvalidArgument, Trimmed
from braidlog.objects.locations import store_at
from braidlog.objects.store import Store

STORED: Final = "object string, bytes bigint, standing string"
RUN: Final = "log string, start bigint, stop bigint, object string, offset bigint, length bigint"


@dataclass(frozen=True)
class Space:
    """What there is: a row for each object of the store, and one for each run that a plan leads to."""

    stored: list[tuple[str, int, str | None]]
    runs: list[tuple[str, int, int, str, int, int]]

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        return spark.createDataFrame(self.stored, STORED), spark.createDataFrame(self.runs, RUN)


def look(url: str) -> Space:
    """Take stock. Objects are listed before and after, so that none that comes or goes meanwhile looks missing; and how
    they stand is asked before the plans are, so that none that is let go of meanwhile looks doomed."""
    remote = url.startswith(SCHEMES)
    with braidlog.open(url) if remote else braidlog.open(url, read_only=True) as braid:
        backend = braid._session.backend
        store = backend.store if isinstance(backend, Replica) else _store_of(braid)
        before = store.list()
        standing: dict[str, str | None] = dict.fromkeys(before)
        if isinstance(backend, Replica):
            with backend.lock:
                standing |= standings(backend.forest.space, before)
        runs = [run for log in list(braid.logs()) for run in _runs(log)]
        there = {*before, *store.list()}
        sizes = {name: size for name in there if (size := _size(store, name)) is not None}
    return Space([(name, size, standing.get(name, "pending")) for name, size in sorted(sizes.items())], runs)


def audit(stored: DataFrame, runs: DataFrame) -> DataFrame:
    """What is wrong, an object each, with how many bytes it has and the logs that lead to it."""
    reached = runs.groupBy("object").agg(
        f.max(f.col("offset") + f.col("length")).alias("needed"), f.sort_array(f.collect_set("log")).alias("logs")
    )
    problem = (
        f.when(f.col("bytes").isNull(), "missing")
        .when(f.col("bytes") < f.col("needed"), "truncated")
        .when(f.col("needed").isNotNull() & (f.col("standing") == "condemned"), "doomed")
        .when(f.col("needed").isNull() & (f.col("standing") == "unknown"), "leaked")
        .when(f.col("needed").isNull() & f.coalesce(f.col("standing") == "kept", f.lit(True)), "unreached")
    )
    found = stored.join(reached, "object", "full_outer").withColumn("problem", problem).filter("problem is not null")
    return found.select("problem", "object", "bytes", "logs")


def _runs(log: braidlog.Log) -> Iterator[tuple[str, int, int, str, int, int]]:
    for plan in _plans(log):
        for part in plan.parts:
            if part.object is not None:
                yield log.name, part.start, part.stop, part.object, part.offset, part.length


def _plans(log: braidlog.Log) -> Iterator[braidlog.Plan]:
    """All pages of a log's plan. One that ends meanwhile leads nowhere."""
    with contextlib.suppress(Gone):
        info = log.info()
        at = info.start
        while at < info.readable_tail:
            try:
                plan = log.plan(at, min(info.readable_tail, at + limits.SPARK_PLAN_RECORDS))
            except Trimmed as trimmed:
                at = trimmed.start
                continue
            yield plan
            at = plan.stop


def _store_of(braid: braidlog.Braid) -> Store:
    """Where a service keeps its objects, as any of its plans says."""
    objects = next(filter(None, (plan.objects for log in braid.logs() for plan in _plans(log))), None)
    if objects is None:
        raise InvalidArgument(f"no log of {braid.url} has a record yet, so nobody says where its objects are")
    return store_at(objects)


def _size(store: Store, name: str) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return store.size(name)
    return None


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="a directory or a service")
    arguments = parser.parse_args(argv)
    if arguments.url == "memory://":
        raise InvalidArgument("memory:// has no store that could be listed: give a directory or a service")
    space = look(arguments.url)
    found = audit(*space.frames(session("space audit"))).cache()
    found.orderBy("problem", "object").show(50, truncate=False)
    counts = {row.problem: row["count"] for row in found.groupBy("problem").count().collect()}
    found.unpersist()
    print(f"{len(space.stored)} objects, {len(space.runs)} runs: {counts or 'nothing is wrong'}")
    if counts.keys() - {"unreached"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
