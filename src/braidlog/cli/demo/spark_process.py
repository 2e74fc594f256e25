"""The process in which the demo's Spark job runs: one session, and a verdict for each fork it is asked about.

The first line on standard input says how to get at the logs, each one after that names a fork. Answers are lines of
JSON: that it is ready, and then one for each fork. The end of standard input means that nobody waits any more, and ends
the process with all that it started. It gives way to others, so that production hardly notices.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

import braidlog
from braidlog.agents import Access
from braidlog.cli.demo.shop import SHELF
from braidlog.cli.demo.sparking import Said
from braidlog.spark import Expectation, SparkValidator, every_row, json_values, satisfies

_NICE: Final = 5
_EVENT: Final = "type string, sku string, quantity bigint"
_TIMEOUT_S: Final = 60.0
_JAVA: Final = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # it runs for seconds: no time for more


class Told(Struct, frozen=True, kw_only=True):
    """What the process is told first."""

    access: Access
    scratch: str


def ledger(records: DataFrame) -> DataFrame:
    """The pipeline: what each event does to the stock."""
    event = json_values(records, _EVENT)
    change = f.expr("if(value.type = 'restock', value.quantity, -value.quantity)")
    return event.select("position", "value.*", change.alias("change"))


def expectations() -> list[Expectation]:
    """What must hold of those rows."""
    return [
        every_row("type IN ('order', 'restock') AND sku IS NOT NULL AND quantity > 0", "every event can be read"),
        satisfies(f"no shelf has more than {SHELF:,}", _overfull),
    ]


def _overfull(rows: DataFrame) -> DataFrame:
    so_far = Window.partitionBy("sku").orderBy("position").rowsBetween(Window.unboundedPreceding, 0)
    return rows.withColumn("stock", f.sum("change").over(so_far)).filter(f"type = 'restock' AND stock > {SHELF}")


def main() -> None:
    """Answer until nobody asks."""
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever Spark prints is not an answer
    asked: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    told = msgspec.json.decode(asked.get(), type=Told)
    began = time.monotonic()
    spark = _session(told.scratch)
    answers.write(msgspec.json.encode(Said(passed=True, seconds=time.monotonic() - began)) + b"\n")
    while True:
        fork = asked.get()
        began = time.monotonic()
        passed, reasons = _verdict(spark, told.access, fork)
        said = Said(passed=passed, reasons=reasons, seconds=time.monotonic() - began)
        answers.write(msgspec.json.encode(said) + b"\n")


def _listen(asked: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line.strip())
    os.killpg(0, signal.SIGKILL)


def _verdict(spark: SparkSession, access: Access, fork: str) -> tuple[bool, list[str]]:
    served = access.url.startswith("braid")
    place = {"tokenFile": access.token_file, "tlsCa": access.tls_ca} if served else {}
    options = {name: value for name, value in place.items() if value is not None}
    with (
        braidlog.open(access.url, token_file=access.token_file, tls_ca=access.tls_ca)
        if served
        else braidlog.open(access.url, read_only=True)
    ) as braid:
        validator = SparkValidator(
            ledger, expectations(), spark=spark, url=access.url, read_options=options, timeout=_TIMEOUT_S
        )
        verdict = validator(braid.log(fork))
        return verdict.passed, verdict.reasons


def _session(scratch: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {_JAVA}",
    }
    builder = SparkSession.builder.master("local[1]").appName("braid demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
