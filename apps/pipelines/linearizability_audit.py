"""Whether what clients were told of logs and forks fits one order of events, found out by joins and window functions.

It reads a history (`braidlog.testing.linearizability`) that was exported to a log, and tells what contradicts itself.
All rules are sound: what breaks one has no explanation. They rest on a few facts: what can be read of a log never
becomes less and never changes; appends stand in an order that agrees with time, on forks, too; a fork has what its
parent has. Each is an equi-join or one window over a log, so a history may be as long as it likes; a checker that looks
for an explanation of everything, as `check` does, is for shorter ones.

    python -m apps.pipelines.linearizability_audit --url audit.braid --file history.jsonl

It ends with status 1 if there is a violation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

import braidlog
from apps.pipelines.command import session
from braidlog.errors import InvalidArgument
from braidlog.testing.linearizability import export, load
from braidlog.testing.linearizability.exporting import SCHEMA

VIOLATION: Final = "kind string, log string, position bigint, value string, message string, calls array<bigint>"
_EARLIER: Final = (Window.unboundedPreceding, -1)


def audit(records: DataFrame) -> DataFrame:
    """Everything that cannot be, of a log with a history. It is found at once: what comes back is small.

    InvalidArgument if it has none, or something besides: nothing would be found in that.
    """
    calls = calls_of(records).cache()
    _check_calls(calls)
    history = Audit(calls)
    kept = [calls, history.placed.cache()]
    # One after the other: Spark plans a query anew after each of its stages, and all rules at once have very many.
    found = [rule().localCheckpoint() for rule in history.rules()]
    for table in kept:
        table.unpersist()
    return reduce(DataFrame.unionByName, found)


def calls_of(records: DataFrame) -> DataFrame:
    """The calls of a history, a row each."""
    fields = f.from_json(f.col("value").cast("string"), SCHEMA)
    return records.select(fields.alias("call")).select("call.*")


def _check_calls(calls: DataFrame) -> None:
    sound = f.expr("number is not null and verb is not null and log is not null and outcome is not null")
    [(count, good)] = calls.agg(f.count("*"), f.count_if(sound)).collect()
    if not count:
        raise InvalidArgument("the log has no calls that could be audited: export a history to it, or give a --file")
    if good < count:
        raise InvalidArgument(
            f"{count - good} of {count} records are no calls of a history: give a log that only `export` wrote to"
        )


class Audit:
    """The tables that the rules are about, and the rules. Forks are few, and go to wherever records are."""

    def __init__(self, calls: DataFrame) -> None:
        done = calls.filter("outcome = 'ok'")
        self.calls = calls
        self.reads = done.filter("verb = 'read'")
        self.tails = done.filter("verb = 'tail'")
        self.acked = done.filter("verb = 'append'")
        self.promotions = calls.filter("verb = 'promote' and outcome != 'refused' and coalesce(promoted, true)")
        self.forks = calls.filter("verb in ('cfork', 'sfork') and outcome != 'refused' and child is not null").select(
            "number", "verb", "log", "child", "invoked", "answered", "outcome", "promotable", "at",
            f.col("position").alias("point"),
        )  # fmt: skip
        # Each record that was appended, and by which call.
        self.sent = calls.filter("verb = 'append'").select(
            f.col("number").alias("append"), f.col("log").alias("origin"), f.col("outcome").alias("fate"),
            f.col("invoked").alias("begun"), f.when(f.col("outcome") == "ok", f.col("answered")).alias("ended"),
            f.posexplode("values").alias("index", "value"),
        )  # fmt: skip
        self.placed = self._placed()

    def _placed(self) -> DataFrame:
        """Where records stand, as was told by answers to appends and by reads; each place once, with the first who told
        it and when, who appended it (nobody, perhaps), and what stands before it."""
        by_answer = self.acked.filter("position is not null").select(
            "log", f.posexplode("values").alias("index", "value"), "position", "number", "answered"
        )
        by_answer = by_answer.withColumn("position", f.col("position") + f.col("index")).drop("index")
        by_read = self.reads.select("log", "number", "answered", f.explode("records").alias("shown"))
        told = by_answer.unionByName(by_read.select("log", "shown.*", "number", "answered"))
        first = f.min_by("number", "answered").alias("teller"), f.min("answered").alias("told")
        told = told.groupBy("log", "position", "value").agg(*first).join(self.sent, "value", "left")
        by_position = Window.partitionBy("log").orderBy("position")
        before = by_position.rowsBetween(*_EARLIER)
        return told.select(
            "*",
            f.max(f.struct("begun", "append")).over(before).alias("latest"),
            f.lag(f.struct("position", "value", "teller")).over(by_position).alias("previous"),
            f.coalesce(f.count_if(f.col("origin") == f.col("log")).over(before), f.lit(0)).alias("own"),
        )

    def rules(self) -> tuple[Callable[[], DataFrame], ...]:
        """Each rule tells what breaks it."""
        return (
            self.order, self.conflicts, self.torn, self.invented, self.refused, self.lost, self.withheld,
            self.fork_points, self.fork_prefixes, self.fork_gaps, self.leaked, self.severed,
        )  # fmt: skip

    # --- one log -------------------------------------------------------------------------------------------------

    def order(self) -> DataFrame:
        """By position, no append ended before one at an earlier position began."""
        late = self.placed.filter("ended < latest.begun")
        message = "it was appended before an append began that stands at an earlier position"
        return _found(late, "order", message, "append", "latest.append")

    def conflicts(self) -> DataFrame:
        """A position holds one record."""
        two = self.placed.filter("position = previous.position")
        return _found(two, "conflict", "another record was told to stand there, too", "teller", "previous.teller")

    def torn(self) -> DataFrame:
        """The records of one append stand in a row, and once."""
        first = f.col("position") - f.col("index")
        spread = self.placed.groupBy("log", "append").agg(
            f.min(first).alias("low"), f.max(first).alias("high"), f.max("position").alias("position"),
            f.max_by("value", "position").alias("value"),
        )  # fmt: skip
        return _found(spread.filter("low != high"), "torn", "records of one append stand apart, or twice", "append")

    def invented(self) -> DataFrame:
        """What is shown was appended."""
        return _found(self.placed.filter("append is null"), "invented", "nobody appended this record", "teller")

    def refused(self) -> DataFrame:
        """What was refused is not there."""
        there = self.placed.filter("fate = 'refused'")
        return _found(there, "refused", "the append was refused, and the record is there", "append", "teller")

    def lost(self) -> DataFrame:
        """What was known to be there is there for everybody who asks later."""
        end = f.element_at("records", -1)["position"] + 1
        told = self.acked.filter("position is not null")
        floors = [
            self._event(told, "answered", f.col("position") + f.size("values")),
            self._event(self.reads.filter("size(records) > 0"), "answered", end),
            self._event(self.tails, "answered", f.col("position")),
        ]
        short = self.reads.filter("stop is null or size(records) < stop - start")
        created = self.forks.filter("outcome = 'ok' and at is null and point is not null")
        looks = [
            self._event(self.tails, "invoked", f.col("position")),
            self._event(short, "invoked", f.col("start") + f.size("records")),
            self._event(created, "invoked", f.col("point")),
            self._event(told, "invoked", f.col("position")),
        ]
        return self._below(looks, floors, "lost", "the log ends before a position that was told earlier")

    def withheld(self) -> DataFrame:
        """What was acknowledged is there once the log is held no more, though no position was told.

        Judged by the last read of a whole log, and only for roots: whether a fork is held depends on many.
        """
        whole = self.reads.filter("start = 0 and stop is null").join(
            f.broadcast(self.forks.select(f.col("child").alias("log"))), "log", "left_anti"
        )
        last = f.max_by(f.struct("number", "invoked", "answered", f.col("records.value").alias("there")), "invoked")
        last_read = whole.groupBy("log").agg(last.alias("last"))
        ends = self.calls.filter("outcome = 'ok' and (verb = 'squash' or verb = 'promote' and promoted)")
        over = ends.groupBy(f.col("log").alias("child")).agg(f.min("answered").alias("over"))
        forks = self.forks.filter("promotable").join(f.broadcast(over), "child", "left")
        held = last_read.join(f.broadcast(forks), "log")
        held = held.filter("invoked < last.answered and (over is null or over > last.invoked)").select("log")
        judged = last_read.join(f.broadcast(held), "log", "left_anti")
        marks = judged.filter("last.there is not null").select("log", "last.number", "last.invoked")
        there = judged.select("log", f.explode("last.there").alias("value"))
        sent = self.sent.filter("fate = 'ok'").withColumnRenamed("origin", "log")
        due = sent.join(f.broadcast(marks), "log").filter("ended < invoked")
        missing = due.join(there, ["log", "value"], "left_anti")
        lost = missing.select("log", f.lit(None).cast("bigint").alias("position"), "value", "append", "number")
        return _found(lost, "lost", "it was acknowledged, and the whole log does not have it", "append", "number")

    # --- forks ---------------------------------------------------------------------------------------------------

    def fork_points(self) -> DataFrame:
        """What is appended after a fork was made stands behind its fork point. (What was acknowledged before stands
        before it: a fork point is one of the looks of `lost`.)"""
        points = self.forks.filter("outcome = 'ok' and point is not null")
        looks = [self._event(self.acked.filter("position is not null"), "invoked", f.col("position"))]
        floors = [self._event(points, "answered", f.col("point"))]
        return self._below(
            looks, floors, "fork", "it was appended after a fork was made, and stands before its fork point"
        )

    def fork_prefixes(self) -> DataFrame:
        """Below its fork point a fork is its parent."""
        forks = self._faithful().filter("point is not null").select("child", f.col("log").alias("parent"), "point")
        ours = self.placed.select(f.col("log").alias("child"), "position", "value", "teller")
        ours = ours.join(f.broadcast(forks), "child").filter("position < point")
        theirs = self.placed.select(
            f.col("log").alias("parent"), "position", f.col("value").alias("other"), f.col("teller").alias("by")
        )
        differ = ours.join(theirs, ["parent", "position"]).filter("value != other").withColumnRenamed("child", "log")
        return _found(
            differ, "fork", "below its fork point the fork has another record than its parent", "teller", "by"
        )

    def fork_gaps(self) -> DataFrame:
        """A live fork has every record of its parent: one that stands at p there stands at p plus the own records
        before it here. So what that leaves unexplained, the own records that nobody showed, never becomes less."""
        promoted = f.broadcast(self.promotions.select(f.col("log").alias("child")))
        live = self._faithful().filter("verb = 'cfork'").join(promoted, "child", "left_anti")
        forks = live.select(f.col("child").alias("log"), f.col("log").alias("parent"))
        ours = self.placed.filter("origin != log").join(f.broadcast(forks), "log")
        ours = ours.select("log", "parent", "value", "position", "own", "teller")
        theirs = self.placed.select(f.col("log").alias("parent"), "value", f.col("position").alias("there"))
        rows = ours.join(theirs, ["parent", "value"])
        rows = rows.withColumn("unexplained", f.col("position") - f.col("there") - f.col("own"))
        before = Window.partitionBy("log").orderBy("position").rowsBetween(*_EARLIER)
        most = f.max(f.struct("unexplained", "teller")).over(before)
        gaps = rows.withColumn("most", most).filter("unexplained < coalesce(most.unexplained, 0)")
        return _found(gaps, "fork", "the fork misses a record of its parent before this one", "teller", "most.teller")

    def leaked(self) -> DataFrame:
        """What is written on a fork is not on its parent before somebody asks for a promotion."""
        asked = self.promotions.groupBy(f.col("log").alias("child")).agg(f.min("invoked").alias("asked"))
        forks = self.forks.join(f.broadcast(asked), "child", "left")
        forks = forks.select(f.col("child").alias("origin"), "log", "asked")
        shown = self.placed.join(f.broadcast(forks), ["origin", "log"]).filter("asked is null or told < asked")
        return _found(
            shown, "leaked", "a record of a fork is on its parent, and it was not promoted", "append", "teller"
        )

    def severed(self) -> DataFrame:
        """A severed fork shows nothing that was appended to its source after it was made."""
        forks = self.forks.filter("verb = 'sfork' and outcome = 'ok'")
        forks = forks.select(f.col("child").alias("log"), f.col("log").alias("origin"), f.col("answered").alias("made"))
        late = self.placed.join(f.broadcast(forks), ["log", "origin"]).filter("begun > made")
        return _found(late, "severed", "it was appended to the source after the fork was severed", "append", "teller")

    def _faithful(self) -> DataFrame:
        """Forks that can be held against their parents: not those that lost to a rival. The parent took the rival's
        order, which is another, from where they were held on."""
        won = self.forks.join(f.broadcast(self.promotions.select(f.col("log").alias("child"))), "child")
        won = won.select("log", f.col("child").alias("winner"))
        lost = self.forks.filter("promotable").join(f.broadcast(won), "log").filter("child != winner").select("child")
        return self.forks.join(f.broadcast(lost), "child", "left_anti")

    # --- time ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _event(calls: DataFrame, time: str, end: Column) -> DataFrame:
        return calls.select("log", f.col(time).alias("time"), end.cast("bigint").alias("end"), "number")

    @staticmethod
    def _below(looks: list[DataFrame], floors: list[DataFrame], kind: str, message: str) -> DataFrame:
        """Looks at the end of a log that say less than was known before they were invoked."""
        seen = reduce(DataFrame.unionByName, looks).withColumn("floor", f.lit(False))
        known = reduce(DataFrame.unionByName, floors).withColumn("floor", f.lit(True))
        # At the same moment neither was before the other: then looks come first.
        before = Window.partitionBy("log").orderBy("time", "floor").rowsBetween(*_EARLIER)
        highest = f.max(f.when(f.col("floor"), f.struct("end", "number"))).over(before)
        events = seen.unionByName(known).withColumn("highest", highest)
        less = events.filter("not floor and end < highest.end").withColumn("value", f.lit(None).cast("string"))
        return _found(less.withColumnRenamed("end", "position"), kind, message, "number", "highest.number")


def _found(rows: DataFrame, kind: str, message: str, *calls: str) -> DataFrame:
    return rows.select(
        f.lit(kind).alias("kind"), "log", "position", "value", f.lit(message).alias("message"),
        f.array(*calls).alias("calls"),
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="a directory or a service")
    parser.add_argument("--log", default="history", help="that has the history, or gets it (history)")
    parser.add_argument("--file", action="append", default=[], help="that a recorder wrote: makes the log")
    arguments = parser.parse_args(argv)
    with braidlog.open(arguments.url) as braid:
        if arguments.file:
            export(load(*arguments.file), braid.create(arguments.log))
        spark = session("linearizability audit")
        found = audit(spark.read.format("braidlog").options(url=braid.url, log=arguments.log).load())
        count = found.count()
        found.orderBy("log", "position").show(50, truncate=False)
    print(f"{count} violations")
    if count:
        sys.exit(1)


if __name__ == "__main__":
    main()
