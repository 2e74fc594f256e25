"""A PySpark pipeline that a testing agent tests: the function that runs in production, over a fork."""

from __future__ import annotations

import json
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from apps.agents.processors import Total
from apps.agents.under_test import ERROR_CHARS, Outcome, Processor
from braidlog import Braid, Log
from braidlog.errors import BraidError, Timeout
from braidlog.spark import run_on_fork
from braidlog.spark.pipelines import Pipeline

BATCH_RECORDS: Final = 1_000
TIME_S: Final = 600.0  # that a run may take, with others beside it


def pipeline(
    tested: Pipeline,
    spark: SparkSession,
    braid: Braid,
    *,
    batch_records: int = BATCH_RECORDS,
    time_s: float = TIME_S,
) -> Processor:
    """One that tells windows: begins, shop, sales, total. What is too late depends on how records fall into batches.

    It runs on a severed fork that ends where the test does: Spark takes all that there is.
    """

    def run(fork: str, start: int, stop: int) -> Outcome:
        ended: Log | None = None
        try:
            ended = braid.log(fork).sfork(f"{fork}.until.{stop}", at=stop, ttl=2 * time_s)
            produced = run_on_fork(
                tested,
                ended,
                spark=spark,
                url=braid.url,
                starting=json.dumps({ended.name: start}),
                read_options={"maxOffsetsPerTrigger": str(batch_records)},
                timeout=time_s,
            )
        except Timeout as error:
            return Outcome((), timed_out=str(error)[:ERROR_CHARS])
        except (PySparkException, BraidError) as error:
            return Outcome((), str(error).strip().splitlines()[0][:ERROR_CHARS])
        finally:
            if ended is not None:
                ended.squash()
        rows = produced.rows.select(f.unix_millis("begins"), "shop", "sales", "total").collect()
        produced.discard()
        return Outcome([Total(*row) for row in rows])

    return run
