"""A pipeline on a fork: the function that runs in production, over what the fork holds, and nobody else is touched.

It has a checkpoint of its own, never production's. Its rows go to a folder of their own, or, if an output log is given,
to a severed fork of that: what stands behind the fork point is what this run wrote, and nothing besides.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from braidlog import limits
from braidlog.client.log import Log
from braidlog.errors import Gone, InvalidArgument, NotFound, Timeout
from braidlog.spark.offsets import Offset
from braidlog.spark.pipelines import Mode, Pipeline, begin, checked_mode, into_log, of_place, read_rows, records_of

_MARK: Final = "braidlog-fork"  # a file in a checkpoint that says which fork it is of
_BEFORE: Final = ".before"  # what a checkpoint's name ends with while another one takes its place


@dataclass(frozen=True, eq=False)
class Produced:
    """What a run left behind. `rows`, and what is made of them, can be looked at until `discard`, or until the process
    ends: other frames may be made of them that outlive this."""

    fork: str
    end: int  # the position that it read up to
    rows: DataFrame
    progress: tuple[StreamingQueryProgress, ...]  # of its last batches, as Spark keeps them
    scratch: Path
    ended: Callable[[], object]  # rids of the folder
    output: Log | None = None  # a fork of the output log
    positions: range | None = None  # what it wrote there

    def discard(self) -> None:
        """Let go of the rows, and of the fork that they were written to. Safe to call again."""
        self.ended()
        if self.output is not None:
            _squash(self.output)


def run_on_fork(
    pipeline: Pipeline,
    fork: Log,
    *,
    spark: SparkSession,
    url: str,
    output: Log | None = None,
    checkpoint: str | None = None,
    mode: Mode = "append",
    starting: str = "earliest",
    key: str | None = None,
    read_options: Mapping[str, str] | None = None,
    write_options: Mapping[str, str] | None = None,
    timeout: float = limits.SPARK_RUN_S,
) -> Produced:
    """Run a pipeline over all that a fork holds now, and tell what came of it. `url` is where Spark finds the braid.

    `mode` is that of `run`: with "update" the rows are all that the batches changed, as often as they changed it.
    With a `checkpoint` the next run on the same fork goes on where this one ended, and is only told what is new.
    A run that fails leaves it as it was: the rows of its batches are gone, and the next one makes them again.
    Raises what the pipeline raised, as Spark tells it; Timeout, with the query stopped, after `timeout` seconds.
    """
    checked_mode(mode)
    scratch = Path(tempfile.mkdtemp(prefix="braidlog-run-"))
    sink: Log | None = None
    moving: Path | None = None  # the checkpoint, until the run is done
    try:
        if checkpoint is not None:
            moving = _copied(Path(_own_checkpoint(checkpoint, fork)))
        place = str(moving or scratch / "checkpoint")
        rows = pipeline(records_of(spark, url, fork.name, starting, read_options))
        if output is None:
            writer = rows.writeStream.outputMode(mode).foreachBatch(_parquet_writer(str(scratch / "rows")))
        else:
            sink = _fork_of(output, fork)
            writer = into_log(rows, {**(write_options or {}), "url": url, "log": sink.name}, mode, key, place)
        query = begin(writer, place, None)
        _finish(query, timeout)
        progress = tuple(query.recentProgress)
        if sink is None:
            found, positions = _parquet_rows(spark, scratch / "rows", rows.schema), None
        else:
            info = sink.info()
            positions = range(info.fork_point or 0, info.tail)
            found = read_rows(spark, url, sink.name, rows.schema, positions=positions, options=of_place(read_options))
            shutil.rmtree(scratch, ignore_errors=True)  # its checkpoint is of no use any more
        # Not with what is returned: whoever has only a frame that was made of its rows would find them gone.
        ended = weakref.finalize(spark, shutil.rmtree, scratch, ignore_errors=True)
        produced = Produced(fork.name, _end(progress, fork), found, progress, scratch, ended, sink, positions)
        if checkpoint is not None and moving is not None:
            _move(moving, Path(checkpoint))
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        if moving is not None:
            shutil.rmtree(moving, ignore_errors=True)
        if sink is not None:
            _squash(sink)
        raise
    return produced


def _own_checkpoint(checkpoint: str, fork: Log) -> str:
    """A checkpoint that was begun on this very fork, or a new one: that of production would be moved by a run."""
    if "://" in checkpoint:
        raise InvalidArgument(f"the checkpoint of a run on a fork is a folder of this machine, not {checkpoint!r}")
    folder = Path(checkpoint)
    mark, mine = folder / _MARK, f"{fork.name} #{fork.id}"
    if not folder.exists():
        _restore(folder, mine)
    if folder.exists() and any(folder.iterdir()):
        whose = mark.read_text() if mark.exists() else "another query"
        if whose != mine:
            raise InvalidArgument(
                f"checkpoint {checkpoint!r} is that of {whose}, and a run on the fork {fork.name!r} must not move it: "
                "give a folder of its own, or none"
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(mine)
    return str(folder.absolute())


def _restore(checkpoint: Path, mine: str) -> None:
    """Take back what a run of this fork had put aside when it was killed."""
    if not checkpoint.parent.is_dir():
        return
    for aside in sorted(checkpoint.parent.iterdir()):
        mark = aside / _MARK
        ours = aside.name.startswith(f"{checkpoint.name}.") and aside.name.endswith(_BEFORE) and mark.is_file()
        if ours and mark.read_text() == mine:
            aside.rename(checkpoint)
            shutil.rmtree(aside.with_name(aside.name.removesuffix(_BEFORE)), ignore_errors=True)
            return


def _copied(checkpoint: Path) -> Path:
    """The same beside it, to be moved on in its place."""
    copy = checkpoint.with_name(f"{checkpoint.name}.{uuid.uuid4().hex[:8]}")
    shutil.copytree(checkpoint, copy)
    return copy


def _move(copy: Path, checkpoint: Path) -> None:
    """Put what was moved on in the place of what was not. After a crash in between, the next run goes on from what was
    there before, as after any run that failed."""
    before = copy.with_name(f"{copy.name}{_BEFORE}")
    checkpoint.rename(before)
    try:
        copy.rename(checkpoint)
    except BaseException:
        before.rename(checkpoint)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _fork_of(output: Log, fork: Log) -> Log:
    name = f"{output.name[:100]}.of.{fork.name[:100]}.{uuid.uuid4().hex[:8]}"
    labels = {"braidlog.purpose": "output of a run on a fork", "braidlog.fork": fork.name}
    return output.sfork(name, ttl=limits.SPARK_OUTPUT_TTL_S, labels=labels)


def _parquet_writer(folder: str) -> Callable[[DataFrame, int], None]:
    """Each batch has its own place, so that one that is tried again replaces what it wrote."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/{number:010d}")

    return write


def _parquet_rows(spark: SparkSession, folder: Path, schema: StructType) -> DataFrame:
    batches = sorted(str(batch) for batch in folder.glob("*"))
    return spark.read.schema(schema).parquet(*batches) if batches else spark.createDataFrame([], schema)


def _finish(query: StreamingQuery, timeout: float) -> None:
    try:
        if not query.awaitTermination(max(1, int(timeout))):
            raise Timeout(
                f"the run was not done within {timeout:g} s and is stopped: give it longer, or start further on"
            )
    finally:
        query.stop()  # it goes on by itself else, whoever was interrupted here


def _end(progress: tuple[StreamingQueryProgress, ...], fork: Log) -> int:
    """The position that the last batch ended at; 0 if nothing was new."""
    ends = [Offset.from_json(json.loads(one.sources[0].endOffset)) for one in progress if one.sources]
    found = [end.logs[fork.name].position for end in ends if fork.name in end.logs]
    return max(found, default=0)


def _squash(fork: Log) -> None:
    with contextlib.suppress(Gone, NotFound):
        fork.squash()
