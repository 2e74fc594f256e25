"""What the commands of all pipelines share: their arguments, their session, their logs, and events to begin with.

A log that is not there is made, and filled with events that are drawn from a seed, so that each command shows something
on its own. On a log that is there a command goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import braidlog
from braidlog.spark.pipelines import Mode, Pipeline, read_rows, records_of, run

Draw = Callable[[Random, int], Sequence[dict[str, object] | str]]

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def decoded(records: DataFrame, schema: str) -> DataFrame:
    """The fields of a JSON value beside the position; what cannot be understood is null."""
    fields = f.from_json(f.col("value").cast("string"), schema)
    return records.select("position", fields.alias("fields")).select("position", "fields.*")


def encoded(event: dict[str, object] | str) -> bytes:
    """An event as the value of a record."""
    return (event if isinstance(event, str) else json.dumps(event)).encode()


def session(name: str) -> SparkSession:
    """The session at hand, or a small one on this machine."""
    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is None:
        builder = builder.master("local[2]")
        for setting, value in SETTINGS.items():
            builder = builder.config(setting, value)
    return builder.getOrCreate()


class Command:
    """One call of a pipeline's command. Use it as a context: the braid is open meanwhile, and shared with Spark."""

    def __init__(self, about: str | None, log: str, draw: Draw, argv: Sequence[str] | None, *, output: str) -> None:
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        default = os.environ.get("BRAIDLOG_URL")
        parser.add_argument("--url", default=default, required=default is None, help="a directory or a service")
        parser.add_argument("--log", default=log, help=f"what is read ({log})")
        parser.add_argument("--output", default=output, help=f"what is written ({output})")
        parser.add_argument("--checkpoint", help="how far it got (a folder in this one, named after the output)")
        parser.add_argument("--events", type=int, default=1000, help="to begin a new log with (1000)")
        parser.add_argument("--seed", type=int, default=7, help="that they are drawn from (7)")
        chosen = parser.parse_args(argv)
        self.url: str = chosen.url
        self.log: str = chosen.log
        self.output: str = chosen.output
        self.checkpoint = str(Path(chosen.checkpoint or f"{chosen.output}.checkpoint").absolute())
        self._draw, self._seed, self._events = draw, int(chosen.seed), int(chosen.events)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Command:
        braid = self._open.enter_context(braidlog.open(self.url))
        self.url = braid.url
        if self.log not in braid:
            events = self._draw(Random(self._seed), self._events)
            braid.create(self.log).append_many([encoded(event) for event in events])
        if self.output not in braid:
            braid.create(self.output)
        self.spark = session(self.log)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self, pipeline: Pipeline, mode: Mode = "append") -> DataFrame:
        """Run it over all that is new, and answer all rows that it ever wrote."""
        query = run(
            pipeline,
            spark=self.spark,
            url=self.url,
            log=self.log,
            output=self.output,
            checkpoint=self.checkpoint,
            mode=mode,
        )
        query.awaitTermination()
        schema = pipeline(records_of(self.spark, self.url, self.log, "earliest")).schema
        return read_rows(self.spark, self.url, self.output, schema)
